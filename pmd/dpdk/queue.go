package dpdk

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/cuda/dl"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// linkEvery is the interval at which a queue checks whether its link is up: a call into DPDK, or two of the kernel.
const linkEvery = 10 * time.Millisecond

// Queue is one queue of a Device: a pmd.Driver. It belongs to one loop, as its pool does.
type Queue struct {
	dev    *Device
	id     int
	c      uintptr // struct mrd_queue
	counts *counts // in it
	pool   *ring.Pool
	memory *memory
	depth  int // frames that wait for the next packets
	closed bool

	// busy is set while the loop is in the shim: the device may be closed by the loop of another queue.
	busy atomic.Bool

	call burst // the one under way; a part of the queue, so that it is on the heap

	work work // that the device leaves to software

	linkErr  error
	nextLink clock.Time

	final atomic.Pointer[pmd.Stats] // once closed
	back  [mostDepth]uint32         // frames that the shim returns
}

// A queue is audited as a holder: DPDK does not report which frames it has, the shim does.
var (
	_ pmd.Driver  = (*Queue)(nil)
	_ ring.Holder = (*Queue)(nil)
)

// burst is struct mrd_burst of shim.h.
type burst struct {
	queue           uintptr
	d               *packet.Desc
	lend, back      *uint32
	count, most     uint32
	lent, room      uint32
	stamp           uint32
	moved, returned uint32
	_               uint32
}

// enter begins a call of the shim, unless the device is closed.
func (q *Queue) enter() bool {
	q.busy.Store(true)
	if !q.closed && !q.dev.closing.Load() {
		return true
	}
	q.busy.Store(false)
	return false
}

// Rx implements pmd.Driver. A packet of several descriptors waits until b has room for it.
func (q *Queue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if !q.enter() {
		return 0, q.fail("rx", pmd.ErrClosed)
	}
	defer q.busy.Store(false)
	b.Base = int64(now)
	if err := q.checkLink(now); err != nil {
		return 0, q.fail("rx", err)
	}
	had := len(b.D)
	q.flushSegments()
	if !q.finishCut(b, uint32(now)) || b.Room() == 0 {
		return len(b.D) - had, nil
	}
	q.receive(now, b)
	return len(b.D) - had, nil
}

// receive appends what the device has received to b, which has room.
func (q *Queue) receive(now clock.Time, b *packet.Batch) {
	room := b.Room()
	var lend []uint32
	if free := int(q.counts.free); free <= q.depth/2 {
		lend = q.pool.GetBatch(q.depth - free)
	}
	had := len(b.D)
	c := &q.call
	c.d, c.count, c.most, c.stamp = &b.D[:had+1][had], uint32(room), uint32(cap(b.D)), uint32(now)
	c.lend, c.lent = unsafe.SliceData(lend), uint32(len(lend))
	q.invoke(q.dev.shim.rx)
	b.D = b.D[:had+int(c.moved&^workBit)]
	if c.moved&workBit != 0 {
		q.receiveWork(b, had)
	}
}

// Tx implements pmd.Driver.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if !q.enter() {
		return 0, q.fail("tx", pmd.ErrClosed)
	}
	defer q.busy.Store(false)
	if err := q.checkLink(now); err != nil {
		return 0, q.fail("tx", err)
	}
	if len(b.D) == 0 || !q.flushSegments() {
		return 0, nil
	}
	sent := 0
	for sent < len(b.D) {
		n, more := q.transmit(b, sent, 0)
		if sent += n; !more {
			break
		}
		n = q.transmitWork(b, sent)
		if sent += n; !q.flushSegments() {
			break
		}
	}
	return sent, nil
}

// transmit gives the device packets of b from one on and returns the number of descriptors taken. work reports that the next
// packet has work which the device cannot do. mode is 0, or uncounted.
func (q *Queue) transmit(b *packet.Batch, from int, mode uint32) (n int, work bool) {
	c := &q.call
	c.d, c.count = &b.D[from], uint32(len(b.D)-from)|mode
	q.invoke(q.dev.shim.tx)
	return int(c.moved &^ workBit), c.moved&workBit != 0
}

// invoke calls mrd_rx or mrd_tx with q.call, and takes the frames that it returns.
func (q *Queue) invoke(fn uintptr) {
	c := &q.call
	c.queue, c.back, c.room = q.c, &q.back[0], uint32(len(q.back))
	dl.CallBlock(fn, unsafe.Pointer(c))
	c.d, c.lend = nil, nil
	q.putBack(int(c.returned))
}

// putBack puts the frames that the shim has returned into the pool.
func (q *Queue) putBack(n int) {
	for _, off := range q.back[:n] {
		q.pool.Put(off)
	}
}

// checkLink returns ErrDown or ErrGone unless the link was up within linkEvery. A clock that was set back does not stop
// the checks. ErrGone is final.
func (q *Queue) checkLink(now clock.Time) error {
	if now < q.nextLink && q.nextLink <= now.Add(2*linkEvery) {
		return q.linkErr
	}
	q.nextLink = now.Add(linkEvery)
	if q.linkErr == pmd.ErrGone {
		return q.linkErr
	}
	q.linkErr = q.dev.linkState()
	if atomic.LoadUint32(&q.counts.gone) != 0 {
		q.linkErr = pmd.ErrGone
	}
	return q.linkErr
}

func (q *Queue) fail(op string, err error) error {
	return &pmd.OpError{Op: op, Device: q.dev.Name, Queue: q.id, Err: err}
}

// Info implements pmd.Driver. The device counts losses for all its queues: the first reports them.
func (q *Queue) Info() pmd.Info {
	d := q.dev
	i := pmd.Info{
		Driver: "dpdk", Device: d.Name, Queue: q.id, MTU: d.mtu, MAC: [6]byte(d.info.mac[:6]), Caps: d.caps(), FD: -1,
		Negotiated: d.modes,
	}
	if d.flows != nil {
		i.Negotiated += d.flows.status.Load().describe()
	}
	if q.id == 0 {
		i.Extended = d.extended
	}
	if s := q.final.Load(); s != nil {
		i.Stats = *s
		return i
	}
	i.Stats = q.stats()
	return i
}

func (q *Queue) stats() pmd.Stats {
	q.dev.mu.Lock() // not while Close frees the counters
	defer q.dev.mu.Unlock()
	if s := q.final.Load(); s != nil {
		return *s
	}
	return q.statsLocked()
}

func (q *Queue) statsLocked() pmd.Stats {
	c := q.counts
	if c == nil {
		return pmd.Stats{}
	}
	s := pmd.Stats{
		RxPackets: atomic.LoadUint64(&c.rxPackets), RxBytes: atomic.LoadUint64(&c.rxBytes), RxInvalid: atomic.LoadUint64(&c.rxInvalid),
		TxPackets: atomic.LoadUint64(&c.txPackets), TxBytes: atomic.LoadUint64(&c.txBytes),
		TxInvalid: atomic.LoadUint64(&c.txInvalid), TxInvalidBytes: atomic.LoadUint64(&c.txInvalidBytes),
	}
	s.Steered = atomic.LoadUint64(&c.rxSteered)
	if f := q.dev.flows; f != nil && f.status.Load().claims > 0 {
		s.SteeredSoftware = s.RxPackets - min(s.Steered, s.RxPackets)
	}
	q.work.addTo(&s)
	if q.id == 0 {
		if q.dev.done {
			s.Add(q.dev.final)
		} else {
			s.Add(q.dev.losses())
		}
	}
	return s
}

// caps returns what the device can do.
func (d *Device) caps() (c pmd.Caps) {
	if d.chains() {
		c |= pmd.CapMultiBuf
	}
	if d.driver == "net_af_packet" || d.driver == "net_af_xdp" {
		c |= pmd.CapPartialChecksums
	}
	if !copies[d.driver] {
		c |= pmd.CapZeroCopy
	}
	if d.info.rxOffloads&(rxChecksumTCP|rxChecksumUDP) == rxChecksumTCP|rxChecksumUDP {
		c |= pmd.CapRxChecksum
	}
	if d.cuts() {
		c |= pmd.CapOffload | pmd.CapOffloadUDP
	}
	return c
}

// copies lists the drivers of virtual devices that copy packets.
var copies = map[string]bool{"net_pcap": true, "net_memif": true, "net_vhost": true, "net_tap": true, "net_af_packet": true, "net_af_xdp": true}

// Holds implements ring.Holder: frames that wait for packets, and those in the device.
func (q *Queue) Holds(visit func(off uint32)) {
	if q.c == 0 {
		return
	}
	q.work.holds(visit)
	offs := make([]uint32, q.pool.Arena().Frames())
	n := q.dev.shim.call("mrd_owned", q.c, uintptr(unsafe.Pointer(unsafe.SliceData(offs))), uintptr(len(offs)))
	for _, off := range offs[:n] {
		visit(off)
	}
}

// Close implements pmd.Driver. It stops the device, because DPDK's drivers stop none of its queues alone: those of other
// loops return ErrClosed from then on.
func (q *Queue) Close() error {
	err := q.dev.stop()
	if q.closed {
		return err
	}
	q.closed = true
	q.work.free(q.pool)
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	s := q.statsLocked()
	q.final.Store(&s)
	defer q.dev.shim.release(q.memory)
	if q.c == 0 {
		return err
	}
	for {
		n := int(q.dev.shim.call("mrd_return", q.c, uintptr(unsafe.Pointer(&q.back)), uintptr(len(q.back)), 1))
		q.putBack(n)
		if n == 0 {
			break
		}
	}
	q.dev.shim.call("mrd_queue_free", q.c)
	q.c, q.counts = 0, nil
	return err
}
