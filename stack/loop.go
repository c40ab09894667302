// Package stack runs the house: a Loop takes batches from drivers, passes them through the engine
// to a handler, sends what the handler forwards, and gives the frames of the rest back.
//
//	Driver.Rx -> Engine.Submit ... Engine.Poll -> Handler.Handle -> Driver.Tx | Pool.Put
//
// There is one loop for each queue. A loop is one OS thread that runs each packet to completion
// and shares nothing with other loops: its drivers, pool, engine and handler are its own. It spins
// while there is work and sleeps in poll(2) when there is none.
package stack

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Handler decides what becomes of packets: a gateway, a forwarder, a transport.
type Handler interface {
	// Handle borrows a batch that the engine has been through and sets the Verdict of every
	// packet: Forward (with Port set to the port of the loop to send on), Deliver (the handler has
	// taken the frame), Handover (with Flow set to the loop that decides, see Mesh), or a reason to drop. It may rewrite bytes and move Off and Len inside of
	// the frame. Undecided counts as DropUnsupported. A packet of several descriptors
	// (packet.FlagMore) is decided at its first.
	Handle(now clock.Time, b *packet.Batch)

	// Tick runs the timers that are due and returns when it wants to run again. clock.Never is until
	// something happens: Tick is asked once more after the next Handle or function of Do, which may
	// have armed a timer.
	Tick(now clock.Time) clock.Time
}

// DefaultBurst is the number of packets that a loop takes from a port at once: from 64 on, larger
// bursts no longer make a packet cheaper, they only make the last one later.
const DefaultBurst = 64

// DefaultSpin is how long a loop polls in vain before it sleeps: about what waking up costs, so that
// waiting never costs much more than twice the better of the two. With a packet every 7 us a loop
// that spins for 50 us never sleeps and takes 2.4 us of CPU time for each, with 5 us it takes 1.0.
const DefaultSpin = 5 * time.Microsecond

// backlog is how many bursts wait for a full transmit ring before packets are dropped.
const backlog = 8

// retryAfter is how long a loop leaves a port alone whose link is down.
const retryAfter = 10 * time.Millisecond

// Config describes a loop. Ports, Pool, Engine and Handler are required and belong to the loop
// until Run returns.
type Config struct {
	Ports    []pmd.Driver   // Desc.Port is the index in this list
	Pool     *ring.Pool     // where frames of dropped packets go
	Engine   gpukern.Engine // looks at every packet before the handler
	Handler  Handler
	Burst    int               // packets taken from a port at once; 0 is DefaultBurst
	Spin     time.Duration     // how long the loop polls in vain before it sleeps; 0 is DefaultSpin, and has Serve adapt (ServeSpin)
	Now      func() clock.Time // clock of Serve and Enter; nil is Now, and a test in virtual time has its own
	Affinity []int             // CPUs that Run's thread is bound to; empty leaves it to the kernel
}

// Loop moves packets for one queue. Make it with NewLoop, run it with Run, or drive it by hand in
// virtual time with Poll.
type Loop struct {
	cfg     Config
	ports   []port
	free    []*packet.Batch // empty batches, for the next Rx
	waiting *packet.Batch   // received, but the engine was full
	done    []*packet.Batch // scratch for Engine.Poll
	inside  int             // batches inside the engine
	large   bool            // a driver may bring packets with packet.FlagOffload
	first   int             // port that receives first

	now           clock.Time // of the turn
	tick          clock.Time // when the handler wants Tick
	count         Stats      // the loop's own; readers see the board
	board         board
	mail          *mailbox
	spin          time.Duration // of Run
	token         token
	until         clock.Time    // how long it sleeps at most, while it is served and sleeps
	unshown       int           // turns since the counters were published
	lone          bool          // one packet came with the last burst, and its answer has not left: see Exit
	local, coming *packet.Batch // made here for the own handler: see Local

	// With other loops: see Mesh.
	mesh  *Mesh // nil without
	self  int   // place in the mesh
	peers []peer
	taken *packet.Batch // scratch for take
	home  [64]uint32    // scratch for collect
	quiet quiet
	looks []uint32 // scratch for settled
}

// port is a driver and what waits to leave by it.
type port struct {
	drv   pmd.Driver
	out   *packet.Batch
	retry clock.Time // do not poll before: the link was down
	err   error      // last error of Rx, nil when it works
	ended bool       // an error other than a lost link, io.EOF too: nothing will come
	info  pmd.Info   // as it was when the loop was made
}

// NewLoop returns a loop over the given parts. The caller runs it, closes it, and then closes the
// parts.
func NewLoop(cfg Config) (*Loop, error) {
	if len(cfg.Ports) == 0 || cfg.Pool == nil || cfg.Engine == nil || cfg.Handler == nil {
		return nil, errors.New("loop: ports, pool, engine and handler are all required")
	}
	if len(cfg.Ports) > 255 {
		return nil, fmt.Errorf("loop: %d ports, at most 255", len(cfg.Ports))
	}
	if cfg.Burst <= 0 {
		cfg.Burst = DefaultBurst
	}
	if cfg.Now == nil {
		cfg.Now = Now
	}
	mail, err := newMailbox()
	if err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg, mail: mail, spin: cfg.Spin}
	if cfg.Spin == 0 {
		l.spin = DefaultSpin
	}
	view := cfg.Pool.Arena().View()
	for _, drv := range cfg.Ports {
		l.ports = append(l.ports, port{
			drv:  drv,
			out:  packet.NewBatch(view, backlog*cfg.Burst),
			info: drv.Info(),
		})
		l.large = l.large || drv.Info().Caps&pmd.CapOffload != 0
		if bell := drv.Info().Bell; bell != nil {
			bell.Attach(mail.wake)
		}
	}
	l.local, l.coming = packet.NewBatch(view, backlog*cfg.Burst), packet.NewBatch(view, backlog*cfg.Burst)
	engine := cfg.Engine.Info()
	newBatch := engine.NewBatch
	if newBatch == nil {
		newBatch = packet.NewBatch
	}
	batches := engine.Depth + 1 // those inside, and one that waits
	for range batches {
		l.free = append(l.free, newBatch(view, cfg.Burst))
	}
	l.done = make([]*packet.Batch, batches)
	return l, nil
}

// Stats returns the counters. Any goroutine may call it.
func (l *Loop) Stats() Stats { return l.board.read() }

// Poll does one turn: receive from each port, run the engine, handle, take what other loops hand over
// and handle it, run timers, transmit. It
// returns the number of descriptors that it moved, 0 for a turn in vain. Run calls it; tests in virtual time call it
// themselves, with times that never go back.
func (l *Loop) Poll(now clock.Time) int {
	moved := l.poll(now)
	l.publish()
	return moved
}

// publish shows the counters to other goroutines.
func (l *Loop) publish() {
	l.board.publish(&l.count)
	l.unshown = 0
}

// poll is Poll without the counters being published.
func (l *Loop) poll(now clock.Time) int {
	l.now = now
	if l.mail.run() {
		l.rearm()
	}
	moved := 0
	for i := range l.ports {
		moved += l.receive(now, (l.first+i)%len(l.ports))
	}
	if l.waiting != nil { // the engine was full before all ports had their turn
		l.first = (l.first + 1) % len(l.ports)
	}
	moved += l.finish(now)
	moved += l.exchange(now)
	moved += l.comeBack(now)
	if now >= l.tick {
		l.tick = l.cfg.Handler.Tick(now)
	}
	for i := range l.ports {
		moved += l.transmit(now, i)
	}
	moved += l.local.Len()
	l.count.Turns++
	if moved > 0 {
		l.count.Busy++
	}
	return moved
}

// rearm has a handler that wanted no Tick asked again: there may be a timer now.
func (l *Loop) rearm() {
	if l.tick == clock.Never {
		l.tick = l.now
	}
}

// receive takes one burst from port i and submits it to the engine.
func (l *Loop) receive(now clock.Time, i int) int {
	p := &l.ports[i]
	if !l.resubmit() || len(l.free) == 0 || p.ended || now < p.retry {
		return 0
	}
	b := l.free[len(l.free)-1]
	n, err := p.drv.Rx(now, b)
	if err != nil {
		p.fail(now, err)
	} else {
		p.err = nil
	}
	if n == 0 {
		return 0
	}
	l.free = l.free[:len(l.free)-1]
	l.account(b, uint8(i))
	l.lone = n == 1
	l.waiting = b
	l.resubmit()
	return n
}

// account stamps the port on a received burst and counts it.
func (l *Loop) account(b *packet.Batch, in uint8) {
	bytes, more := 0, 0
	for i := range b.D {
		d := &b.D[i]
		d.Port = in
		d.Verdict = packet.Undecided
		bytes += int(d.Len)
		if d.Flags.Has(packet.FlagMore) {
			more++
		}
	}
	l.count.Received += uint64(len(b.D) - more)
	l.count.ReceivedBytes += uint64(bytes)
}

// resubmit offers a batch that the engine had no room for once more; it reports whether none waits
// any longer. An engine that refuses for another reason will not take the batch later either.
func (l *Loop) resubmit() bool {
	b := l.waiting
	if b == nil {
		return true
	}
	err := l.cfg.Engine.Submit(b)
	if errors.Is(err, gpukern.ErrFull) {
		return false
	}
	l.waiting = nil
	if err == nil {
		l.inside++
		return true
	}
	l.drop(b.D, packet.DropEngine)
	b.Reset()
	l.free = append(l.free, b)
	return true
}

// finish takes batches out of the engine, has them handled, and sorts the packets.
func (l *Loop) finish(now clock.Time) int {
	moved := 0
	n := l.cfg.Engine.Poll(l.done)
	for _, b := range l.done[:n] {
		l.inside--
		moved += b.Len()
		l.handle(now, b)
		b.Reset()
		l.free = append(l.free, b)
	}
	return moved
}

// handle has a batch decided and sorts its packets.
func (l *Loop) handle(now clock.Time, b *packet.Batch) {
	l.cfg.Handler.Handle(now, b)
	l.rearm()
	l.sort(now, b)
}

// sort sends each packet of b where its verdict says, in runs of packets with the same end: they
// are many more than runs in ordinary traffic.
func (l *Loop) sort(now clock.Time, b *packet.Batch) {
	for d := b.D; len(d) > 0; {
		n := run(d)
		v := d[0].Verdict
		switch {
		case v == packet.Forward && int(d[0].Port) < len(l.ports):
			l.forward(now, int(d[0].Port), d[:n])
		case v == packet.Handover:
			l.hand(d[:n])
		case v == packet.Deliver:
			l.count.Delivered += packet.Packets(d[:n])
		case v.Dropped():
			l.drop(d[:n], v)
		default:
			l.drop(d[:n], packet.DropUnsupported)
		}
		d = d[n:]
	}
	l.flush()
}

// run returns the number of leading descriptors that belong to packets with the verdict and the
// port of the first. A descriptor that goes on a packet (the one before has FlagMore) belongs to it
// whatever it says.
func run(d []packet.Desc) int {
	v, out := d[0].Verdict, d[0].Port
	n := 1
	for n < len(d) && (d[n].Verdict == v && d[n].Port == out || d[n-1].Flags.Has(packet.FlagMore)) {
		n++
	}
	return n
}

// forward has a run of packets leave by port out. Large packets that only some drivers can cut are never
// given to another.
func (l *Loop) forward(now clock.Time, out int, d []packet.Desc) {
	if !l.large || l.ports[out].info.Caps&pmd.CapOffload != 0 {
		l.enqueue(now, out, d)
		return
	}
	for len(d) > 0 {
		n := max(1, packet.Chain(d))
		if d[0].Flags.Has(packet.FlagOffload) {
			l.drop(d[:n], packet.DropTooBig)
		} else {
			l.enqueue(now, out, d[:n])
		}
		d = d[n:]
	}
}

// enqueue puts a run of packets into the transmit queue of port out. What finds the queue full
// after a try to send is dropped.
func (l *Loop) enqueue(now clock.Time, out int, d []packet.Desc) {
	q := l.ports[out].out
	if q.Room() < len(d) {
		l.transmit(now, out)
	}
	n := len(d)
	if n > q.Room() {
		n = packet.Whole(d, q.Room())
		l.drop(d[n:], packet.DropTxFull)
	}
	q.D = append(q.D, d[:n]...)
}

// drop gives the frames of whole packets back and counts them under their reason.
func (l *Loop) drop(d []packet.Desc, why packet.Verdict) {
	l.count.Dropped[why] += packet.Packets(d)
	for i := range d {
		l.cfg.Pool.Put(d[i].Off)
	}
}

// transmit offers port i what waits for it. What does not fit stays for the next turn; what cannot
// leave because the link is down is dropped.
func (l *Loop) transmit(now clock.Time, i int) int {
	p := &l.ports[i]
	if p.out.Len() == 0 {
		return 0
	}
	n, err := p.drv.Tx(now, p.out)
	l.count.Forwarded += packet.Packets(p.out.D[:n])
	p.out.Consume(n)
	if err != nil {
		l.drop(p.out.D, packet.DropLinkDown)
		p.out.Reset()
	}
	return n
}

// fail notes an error of Rx: a port whose link is down is left alone for a while, any other error
// is final.
func (p *port) fail(now clock.Time, err error) {
	p.err = err
	p.ended = !errors.Is(err, pmd.ErrDown)
	p.retry = now.Add(retryAfter)
}

// Close ends the loop's mailbox. Call it after Run has returned; it may be called twice.
func (l *Loop) Close() error { return l.mail.close() }
