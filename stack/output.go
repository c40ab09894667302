package stack

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// txBacklog is the number of bursts that wait for a full transmit ring before packets are dropped.
const txBacklog = 8

// Errors of Send.
var (
	ErrDevice  = errors.New("no such device")
	ErrNoFrame = errors.New("no frame is free")
	ErrTooLong = errors.New("packet is longer than a frame")
)

// Output is the transmit side of a loop: its frame pool, a queue in front of each device's transmit
// ring, and the loopback queue to its own handler. A Handler may hold it; it does not know the loop.
//
// All methods belong to the goroutine that polls the loop, or that holds its LoopLock: call them in
// Handle, in Tick, in a command, or between Enter and Exit.
//
// Frames that Reserve returns are the caller's until it passes them to Originate. Frames in a queue
// are the Output's until the driver takes them in Tx.
type Output struct {
	pool    *ring.Pool
	queues  []txQueue
	offload bool       // some device receives packets with packet.FlagOffload
	now     clock.Time // of the iteration, or of the last Enter of a sleeping loop
	tick    clock.Time // when the loop calls Handler.Tick next
	count   *Stats     // of the loop, which publishes them

	// loopback collects what the next iteration passes to the handler; the batch that the handler is
	// given is delivering. They swap places, so that what the handler sends meanwhile waits.
	loopback, delivering *packet.Batch

	external bool          // this iteration has received packets with external payload
	scratch  []packet.Desc // of keepExternal

	dispose func(d []packet.Desc) // of the loop: carries out verdicts
	mesh    *Mesh                 // of the loop; nil without one
	atEnd   []func()
}

// txQueue holds what waits for a device's transmit ring.
type txQueue struct {
	drv  pmd.Driver
	out  *packet.Batch
	caps pmd.Caps
	seq  uint64 // of the last enqueue
}

func (o *Output) init(cfg *Config, count *Stats) {
	view := cfg.Pool.Arena().View()
	o.pool, o.count = cfg.Pool, count
	for _, drv := range cfg.Devices {
		caps := drv.Info().Caps
		o.queues = append(o.queues, txQueue{drv: drv, out: packet.NewBatch(view, txBacklog*cfg.Burst), caps: caps})
	}
	o.mayOffload()
	o.loopback = packet.NewBatch(view, txBacklog*cfg.Burst)
	o.delivering = packet.NewBatch(view, txBacklog*cfg.Burst)
}

// mayOffload notes whether some device brings packets with packet.FlagOffload.
func (o *Output) mayOffload() {
	o.offload = false
	for i := range o.queues {
		o.offload = o.offload || o.queues[i].caps&pmd.CapOffload != 0
	}
}

// replace replaces the driver of device i. Packets that wait for the old one are dropped.
func (o *Output) replace(i int, drv pmd.Driver) {
	q := &o.queues[i]
	o.drop(q.out.D, packet.DropLinkDown)
	q.out.Reset()
	q.drv, q.caps = drv, drv.Info().Caps
	o.mayOffload()
}

// Now returns the loop's time: that of its iteration, or of the last Enter that found it asleep.
func (o *Output) Now() clock.Time { return o.now }

// Arena borrows the memory in which the frames of the loop lie.
func (o *Output) Arena() *packet.Arena { return o.pool.Arena().View() }

// Pool borrows the pool to which a handler returns the frames of packets that it delivered.
func (o *Output) Pool() *ring.Pool { return o.pool }

// RequestTick makes the loop call Handler.Tick in this iteration, or in the next where it has been
// called already, whatever it returned. A handler calls it when it has output that Tick produces.
func (o *Output) RequestTick() { o.tick = 0 }

// rearm makes the loop call a handler again that returned clock.Never: a timer may be armed now.
func (o *Output) rearm() {
	if o.tick == clock.Never {
		o.tick = o.now
	}
}

// Send transmits a packet that no packet caused, such as a gratuitous ARP: it copies frame, from
// the Ethernet header on, to a frame of the pool and appends it to the queue of the device. It
// counts as Originated. A nil error does not mean that the packet left: it may still be dropped and
// counted, as a forwarded one may.
func (o *Output) Send(dev uint8, frame []byte) error {
	if int(dev) >= len(o.queues) {
		return fmt.Errorf("send: %w: %d of %d", ErrDevice, dev, len(o.queues))
	}
	if most := o.pool.Arena().FrameSize(); len(frame) > most {
		return fmt.Errorf("send: %w: %d of %d bytes", ErrTooLong, len(frame), most)
	}
	off, ok := o.pool.Get()
	if !ok {
		return fmt.Errorf("send: %w", ErrNoFrame)
	}
	d := [1]packet.Desc{{Off: off, Len: uint16(len(frame)), Port: dev, Stamp: uint32(o.now), Verdict: packet.Forward}}
	copy(o.Arena().Bytes(&d[0]), frame)
	o.count.Originated++
	o.enqueue(int(dev), d[:])
	return nil
}

// Reserve passes n free frames of the pool to the caller, who writes packets straight into them and
// passes them to Originate for the same device at once. It is all or nothing: nil means that the
// device's queue, after an attempt to send, or the pool has no room for so many now. The slice is
// the pool's: it is valid until the next call of any method.
func (o *Output) Reserve(dev uint8, n int) []uint32 {
	if int(dev) >= len(o.queues) {
		return nil
	}
	q := o.queues[dev].out
	if q.Room() < n {
		o.transmit(int(dev))
	}
	if q.Room() < n || o.pool.Free() < n {
		return nil
	}
	return o.pool.GetBatch(n)
}

// Originate transmits packets that no packet caused, in frames that Reserve returned: it takes them
// and appends them to the queue of the device. They leave at the end of the iteration, or at Exit.
func (o *Output) Originate(dev uint8, d []packet.Desc) {
	for i := range d {
		d[i].Port, d[i].Verdict, d[i].Stamp = dev, packet.Forward, uint32(o.now)
	}
	o.count.Originated += packet.Packets(d)
	o.enqueue(int(dev), d)
}

// Mark returns a name for the packet that Originate has just taken for a device, for Last.
func (o *Output) Mark(dev uint8) uint64 { return o.queues[dev].seq }

// Last returns the first descriptor of the packet with that name while it is the last one in the queue of the device, nil
// once it has left or others follow. The caller may change the packet in its frame, and grow it by Extend. It is borrowed until
// the next call of any method.
func (o *Output) Last(dev uint8, mark uint64) *packet.Desc {
	q := &o.queues[dev]
	at := len(q.out.D) - 1
	if q.seq != mark || at < 0 {
		return nil
	}
	for at > 0 && q.out.D[at-1].Flags.Has(packet.FlagMore) {
		at--
	}
	return &q.out.D[at]
}

// Extend appends descriptors, in frames that Reserve returned, to the packet that Last has just returned: it takes the frames.
func (o *Output) Extend(dev uint8, d []packet.Desc) {
	q := o.queues[dev].out
	q.D[len(q.D)-1].Flags |= packet.FlagMore
	for i := range d {
		d[i].Port, d[i].Verdict, d[i].Stamp = dev, packet.Forward, uint32(o.now)
	}
	q.D = append(q.D, d...)
}

// ReserveLoopback is Reserve for Loopback.
func (o *Output) ReserveLoopback(n int) []uint32 {
	if o.loopback.Room() < n || o.pool.Free() < n {
		return nil
	}
	return o.pool.GetBatch(n)
}

// Resume carries out the verdicts of whole packets that the handler has held (packet.Hold): it takes their frames. Any
// verdict but Hold and Undecided will do. The loop counts a packet by this verdict alone; while it is held it is in flight
// (Stats.InFlight). In Handle, Resume overtakes the packets of the batch: a handler that has to keep the order
// calls it in the Tick that RequestTick asks for. d is borrowed.
func (o *Output) Resume(d []packet.Desc) { o.dispose(d) }

// Repeat has the handler get whole packets that it has held (packet.Hold) again in the next iteration, as they came: it
// takes their frames. So a Dispatcher chooses among its handlers once more. It reports false, and has taken nothing, where
// there is no room. They count as received once. d is borrowed.
func (o *Output) Repeat(d []packet.Desc) bool {
	if o.loopback.Room() < len(d) {
		return false
	}
	at := len(o.loopback.D)
	o.loopback.D = append(o.loopback.D, d...)
	for i := range o.loopback.D[at:] {
		repeated(&o.loopback.D[at+i], packet.FlagHanded)
	}
	return true
}

// repeated makes a packet one that no handler has seen, without some flags. One that has been handed over twice keeps them,
// so that no packet circulates.
func repeated(d *packet.Desc, without packet.Flags) {
	d.Verdict = packet.Undecided
	if !d.Flags.Has(packet.FlagHandedAgain) {
		d.Flags &^= without
	}
}

// On has loop i of the mesh run f between two iterations, as Loop.Do, with the time of the iteration. It is false where too
// many functions wait there.
func (o *Output) On(i int, f func(now clock.Time)) bool {
	l := o.mesh.loops[i]
	return l.Do(func() { f(l.out.now) })
}

// AtEnd has the loop call f once, when it ends and no packet will come from its devices: a handler that holds packets
// resumes them there, with the reason of a drop, and holds none from then on.
func (o *Output) AtEnd(f func()) { o.atEnd = append(o.atEnd, f) }

// LoopbackDev is Desc.Port of packets of the loopback queue: no device has this place.
const LoopbackDev = 254

// Loopback queues packets for the loop's own handler, which gets them in the next iteration as if
// they had been received, with the findings that are in d: no engine processes them. It takes the
// frames, which ReserveLoopback returned. They count as Originated.
func (o *Output) Loopback(d []packet.Desc) {
	for i := range d {
		d[i].Port, d[i].Verdict, d[i].Stamp = LoopbackDev, packet.Undecided, uint32(o.now)
	}
	o.count.Originated += packet.Packets(d)
	o.loopback.D = append(o.loopback.D, d...)
}

// takeLoopback returns the packets that the handler gets now. The caller resets the batch before the next call.
// What they cause waits for the next iteration, so that two endpoints that answer each other do not
// keep the loop from its devices.
func (o *Output) takeLoopback() *packet.Batch {
	o.loopback, o.delivering = o.delivering, o.loopback
	return o.delivering
}

// forward queues a run of packets for device dev. Packets that only some drivers can segment
// (packet.FlagOffload) are never given to another.
func (o *Output) forward(dev int, d []packet.Desc) {
	if !o.offload || o.queues[dev].caps&pmd.CapOffload != 0 {
		o.enqueue(dev, d)
		return
	}
	for len(d) > 0 {
		n := max(1, packet.Chain(d))
		if d[0].Flags.Has(packet.FlagOffload) {
			o.drop(d[:n], packet.DropTooBig)
		} else {
			o.enqueue(dev, d[:n])
		}
		d = d[n:]
	}
}

// enqueue appends a run of packets to the queue of device dev. What finds the queue full after an
// attempt to send is dropped.
func (o *Output) enqueue(dev int, d []packet.Desc) {
	o.queues[dev].seq++
	q := o.queues[dev].out
	if q.Room() < len(d) {
		o.transmit(dev)
	}
	n := len(d)
	if n > q.Room() {
		n = packet.Whole(d, q.Room())
		o.drop(d[n:], packet.DropTxFull)
	}
	q.D = append(q.D, d[:n]...)
}

// release returns the frames of descriptors that are no packets.
func (o *Output) release(d []packet.Desc) {
	for i := range d {
		o.pool.Put(d[i].Off)
	}
}

// drop returns the frames of whole packets to the pool and counts the packets under their reason.
func (o *Output) drop(d []packet.Desc, why packet.Verdict) {
	o.count.Dropped[why] += packet.Packets(d)
	o.release(d)
}

// transmit offers device dev what waits for it. What does not fit stays for the next iteration;
// what cannot leave because the link is down is dropped.
func (o *Output) transmit(dev int) int {
	q := &o.queues[dev]
	if q.out.Len() == 0 {
		return 0
	}
	n, err := q.drv.Tx(o.now, q.out)
	o.count.Forwarded += packet.Packets(q.out.D[:n])
	q.out.Consume(n)
	if err != nil {
		o.drop(q.out.D, packet.DropLinkDown)
		q.out.Reset()
	}
	return n
}

// flush transmits on all devices and returns the number of descriptors that left.
func (o *Output) flush() (sent int) {
	for i := range o.queues {
		sent += o.transmit(i)
	}
	return sent
}

// waiting returns the number of descriptors that wait in all queues.
func (o *Output) waiting() int {
	n := o.loopback.Len()
	for i := range o.queues {
		n += o.queues[i].out.Len()
	}
	return n
}

// close sends what the devices take and drops the rest, so that the counters balance.
func (o *Output) close() {
	o.flush()
	for i := range o.queues {
		o.drop(o.queues[i].out.D, packet.DropTxFull)
		o.queues[i].out.Reset()
	}
	o.drop(o.loopback.D, packet.DropTxFull)
	o.loopback.Reset()
}

// Holds implements ring.Holder: the frames that wait, between two iterations, to be sent or to be
// given to the handler. The loop must stand still.
func (o *Output) Holds(visit func(off uint32)) {
	for i := range o.queues {
		for _, d := range o.queues[i].out.D {
			visit(d.Off)
		}
	}
	for _, d := range o.loopback.D {
		visit(d.Off)
	}
}
