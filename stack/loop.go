package stack

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// DefaultBurst is the number of packets that a loop receives from a device at once: from 64 on,
// larger bursts no longer make a packet cheaper, they only make the last one later.
const DefaultBurst = 64

// DefaultSpin is the time that a loop on its own thread polls in vain before it sleeps: about what waking
// up costs, so that waiting never costs much more than twice the better of the two. With a packet
// every 7 us a loop that spins for 50 us never sleeps and takes 2.4 us of CPU time for each, with
// 5 us it takes 1.0.
const DefaultSpin = 5 * time.Microsecond

// retryAfter is the time that a loop does not poll a device whose link is down.
const retryAfter = 10 * time.Millisecond

// processStart is the zero of the process's clock; it carries a monotonic and a wall reading.
var processStart = time.Now()

// Now reads the process's monotonic clock. Loops read it once for each iteration and pass it down.
func Now() clock.Time { return clock.Time(time.Since(processStart)) }

// Wall returns the calendar time of a reading of Now, for captures and logs.
func Wall(t clock.Time) time.Time { return processStart.Add(time.Duration(t)) }

// Config describes a loop. Devices, Pool and Engine are required; they and the Handler belong to
// the loop until its runner returns.
type Config struct {
	Devices []pmd.Driver   // Desc.Port is the index in this list
	Pool    *ring.Pool     // frames of dropped packets return to it, and output is written to its frames
	Engine  gpukern.Engine // processes every packet before the handler
	Handler Handler        // nil where SetHandler follows
	Burst   int            // packets received from a device at once; 0 is DefaultBurst

	// Spin is the time that a runner polls in vain before it sleeps. 0 is DefaultSpin for Run, and a time
	// that adapts for Serve (ServeSpin).
	Spin time.Duration

	// Replaceable means that a device which is gone will be replaced (Loop.Replace): the loop goes on without it, also
	// where it was the last one. A file that ends (io.EOF) is not replaced.
	Replaceable bool

	// Now is the clock of Serve and Enter. nil is Now; a test in virtual time has its own.
	Now func() clock.Time

	// ExtraProcessor makes Run and Serve raise GOMAXPROCS by one while they run. Beside as many goroutines that
	// compute as there were processors, round trips then take microseconds instead of parts of a time
	// slice of 10 ms. Beside more of them it only adds a thread that competes for the CPUs. While
	// GOMAXPROCS is set, the runtime does not follow changes of the cgroup's CPU limit.
	ExtraProcessor bool

	// Affinity lists the CPUs that the runner's thread is bound to. Empty leaves the choice to the
	// kernel.
	Affinity []int
}

// Loop moves packets for one queue of each of its devices. Make it with NewLoop and run it with Run
// or Serve, or call Poll in virtual time.
//
// All methods but Do, Stats and the accessors belong to the goroutine that polls it.
type Loop struct {
	cfg     Config
	handler Handler
	devices []rxDevice
	failed  []atomic.Pointer[error] // by device: its final error
	out     Output
	free    []*packet.Batch // empty batches, for the next Rx
	waiting *packet.Batch   // received, but the engine was full
	done    []*packet.Batch // scratch for Engine.Poll
	inside  int             // batches inside the engine
	first   int             // device that receives first
	gro     gro
	joins   atomic.Uint32 // GRO: what gro joins

	// onePacket is set while the last burst was one packet and no Exit has followed it: see
	// LoopLock.Exit.
	onePacket bool

	count       Stats // the loop's own; readers see published
	published   published
	unpublished int // iterations since the counters were published

	notifier *notifier
	commands CommandQueue
	lock     LoopLock
	files    *files   // nil before the first Watch
	after    []func() // see After
	spare    []func() // empty, for the next of after
	pollers  []Poller
	pollBy   clock.Time // as the pollers want it, while the loop sleeps
	maxSleep time.Duration

	// With other loops: see Mesh.
	mesh     *Mesh // nil without
	self     int   // place in the mesh
	peers    []peer
	taken    *packet.Batch // scratch for takeOver
	returned [64]uint32    // scratch for reclaim
	activity *activity     // this loop's part in the mesh's quiescence

	external       bool // each device sends packets with external payload
	verifies       bool // the engine verifies checksums
	completes      bool // senders leave checksums to a device: completesChecksums
	externalFrames int  // frames that the external payload of the burst which is received would need
	paused         bool // it does not receive: a ring to another loop has no room (congested)
}

// rxDevice is the receive side of a device.
type rxDevice struct {
	drv   pmd.Driver
	retry clock.Time // do not poll before: the link was down
	err   error      // last error of Rx, nil when it works
	ended bool       // an error other than a lost link, io.EOF too: no packet will come
	info  pmd.Info   // as it was when the loop was made
}

// NewLoop returns a loop over the given parts. The caller runs it, closes it, and then closes the
// parts.
func NewLoop(cfg Config) (*Loop, error) {
	if len(cfg.Devices) == 0 || cfg.Pool == nil || cfg.Engine == nil {
		return nil, errors.New("loop: devices, pool and engine are all required")
	}
	if len(cfg.Devices) > LoopbackDev {
		return nil, fmt.Errorf("loop: %d devices, at most %d", len(cfg.Devices), LoopbackDev)
	}
	if cfg.Burst <= 0 {
		cfg.Burst = DefaultBurst
	}
	if cfg.Now == nil {
		cfg.Now = Now
	}
	n, err := newNotifier()
	if err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg, handler: cfg.Handler, notifier: n, maxSleep: maxSleep}
	l.commands = CommandQueue{ring.NewMPSC[func()](commandQueueLen), n}
	l.lock.loop, l.lock.notifier = l, n
	l.out.init(&cfg, &l.count)
	l.out.dispose = l.dispose
	for _, drv := range cfg.Devices {
		l.devices = append(l.devices, l.newDevice(drv))
		l.failed = append(l.failed, atomic.Pointer[error]{})
	}
	l.completes = l.completesChecksums()
	l.newBatches()
	l.attachPlacer()
	return l, nil
}

// newDevice returns the receive side of a device, which wakes the loop from now on.
func (l *Loop) newDevice(drv pmd.Driver) rxDevice {
	info := drv.Info()
	if info.Notifier != nil {
		info.Notifier.Attach(l.notifier.wake)
	}
	return rxDevice{drv: drv, info: info}
}

// newBatches makes the receive batches: as many as the engine holds, and one that waits for it. An
// engine may want them in memory of its own.
func (l *Loop) newBatches() {
	engine := l.cfg.Engine.Info()
	l.verifies = engine.Ops&gpukern.OpChecksum != 0
	newBatch := engine.NewBatch
	if newBatch == nil {
		newBatch = packet.NewBatch
	}
	for range engine.Depth + 1 {
		l.free = append(l.free, newBatch(l.out.Arena(), l.cfg.Burst))
	}
	l.done = make([]*packet.Batch, engine.Depth+1)
}

// NewLoops makes a loop of each configuration and joins them where there are several. It is for
// processes whose loops differ in nothing but their queues.
func NewLoops(configs ...Config) ([]*Loop, error) {
	var loops []*Loop
	for i := range configs {
		l, err := NewLoop(configs[i])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("loop %d: %w", i, err), CloseAll(loops...))
		}
		loops = append(loops, l)
	}
	if len(loops) > 1 {
		if _, err := Join(loops...); err != nil {
			return nil, errors.Join(err, CloseAll(loops...))
		}
	}
	return loops, nil
}

// SetHandler sets the handler of the loop, before the first Poll. A handler often needs the Output of
// the loop, so it is made after the loop. It panics where h is nil or the loop has run.
func (l *Loop) SetHandler(h Handler) {
	if h == nil || l.count.Iterations > 0 {
		panic("stack: SetHandler needs a handler, and a loop that has not run")
	}
	l.handler = h
	l.attachPlacer()
}

// GRO selects what a loop joins; see Loop.SetGRO.
type GRO uint32

// Values of GRO.
const (
	GRONone GRO = iota
	GROTCP      // TCP segments
	GROAll      // TCP segments and UDP datagrams: for a handler that treats all datagrams of two addresses and ports alike
)

// SetGRO makes the loop join the segments or datagrams of a flow that come in one burst to one large packet
// (packet.FlagOffload) before its handler gets them, or stops that. Stats.Merged counts those that were joined to another. It
// returns what the loop does now: every device must send large packets (pmd.CapOffload, pmd.CapOffloadUDP), because the handler may send one by
// any.
// Any goroutine may call it.
func (l *Loop) SetGRO(join GRO) GRO {
	for i := range l.out.queues {
		switch caps := l.out.queues[i].caps; {
		case caps&pmd.CapOffload == 0:
			join = GRONone
		case caps&pmd.CapOffloadUDP == 0:
			join = min(join, GROTCP)
		}
	}
	l.joins.Store(uint32(join))
	return join
}

// PayloadPlacer is a Handler that knows where the payload of a large packet belongs before it is received: a host. Its method
// is a pmd.PlaceFunc. What it returns holds for the iteration that calls it.
type PayloadPlacer interface {
	PlacePayload(head []byte, size int) (p pmd.Placement, headers int, pieces [][]byte)
}

// attachPlacer makes the drivers that can place payload ask the handler. The engine must return a batch in the iteration
// that received it.
func (l *Loop) attachPlacer() {
	place, engine := l.placeFunc(), l.cfg.Engine.Info()
	if place == nil || !engine.Synchronous || engine.Depth < len(l.devices) { // a batch that waits for the engine is handled later
		return
	}
	for i := range l.devices {
		if to := l.devices[i].info.Placer; to != nil {
			to.Attach(place)
		}
	}
}

// Replace replaces the driver of device i by one that has the pool of the loop, and returns the old one. Packets that wait to
// be sent there are dropped (link_down). It belongs to the goroutine that polls the loop: call it in a command, and close
// the old driver there, which returns its frames to the pool. A driver with a file cannot take the place of one without, or
// the reverse, because a runner prepares its way to sleep once: that is an error, and nothing is replaced.
func (l *Loop) Replace(i int, drv pmd.Driver) (old pmd.Driver, err error) {
	was := l.devices[i]
	if (drv.Info().Caps^was.info.Caps)&pmd.CapPoll != 0 {
		return nil, fmt.Errorf("loop: replace %s: one driver has a file to sleep on, the other has none", was.info.Device)
	}
	if was.info.Notifier != nil {
		was.info.Notifier.Attach(nil)
	}
	if was.info.Placer != nil { // the handler's answers hold for this loop alone
		was.info.Placer.Attach(nil)
	}
	l.devices[i] = l.newDevice(drv)
	l.completes = l.completesChecksums()
	l.failed[i].Store(nil)
	l.cfg.Devices = slices.Clone(l.cfg.Devices) // others may have borrowed it
	l.cfg.Devices[i] = drv
	l.out.replace(i, drv)
	l.attachPlacer()
	return was.drv, nil
}

// errNoHandler is returned by runners for a loop without a handler.
var errNoHandler = errors.New("loop: no handler")

// Failed returns the error after which device i brings no packet any more, until it is replaced; nil while it may. Any
// goroutine may call it. At the end of a file the error is io.EOF.
func (l *Loop) Failed(i int) error {
	if err := l.failed[i].Load(); err != nil {
		return *err
	}
	return nil
}

// Devices borrows the drivers of the loop's devices.
func (l *Loop) Devices() []pmd.Driver { return l.cfg.Devices }

// Output returns the transmit side, which a Handler may hold.
func (l *Loop) Output() *Output { return &l.out }

// Lock returns the lock by which other goroutines enter a loop that Serve runs.
func (l *Loop) Lock() *LoopLock { return &l.lock }

// Commands returns the queue of functions that run between two iterations.
func (l *Loop) Commands() *CommandQueue { return &l.commands }

// Do is Commands().Do.
func (l *Loop) Do(f func()) bool { return l.commands.Do(f) }

// Stats returns the counters. Any goroutine may call it.
func (l *Loop) Stats() Stats { return l.published.load() }

// Mesh returns the mesh that the loop is joined to, nil without one.
func (l *Loop) Mesh() *Mesh { return l.mesh }

// Self returns the loop's place in its mesh, 0 without one.
func (l *Loop) Self() int { return l.self }

// Holds implements ring.Holder: the frames that wait in the loop's Output.
func (l *Loop) Holds(visit func(off uint32)) { l.out.Holds(visit) }

// Close closes the loop's notifier, and forgets the files that it watches. Call it after the runner has returned; it may be
// called twice.
func (l *Loop) Close() error { return errors.Join(l.files.close(), l.notifier.close()) }

// CloseAll closes loops.
func CloseAll(loops ...*Loop) error {
	var errs []error
	for _, l := range loops {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Handler decides the verdict of each packet: a gateway, a forwarder, a host, or a dispatcher over
// several of them. Its methods are called by the goroutine that polls the loop or, for Tick, by one
// that holds the LoopLock; never by two at a time.
type Handler interface {
	// Handle borrows a batch that the engine has processed and sets the Verdict of every packet:
	// Forward (with Port set to the index of the device to send on), Deliver (the handler takes the
	// frame), Handover (with Flow set to the loop that decides, see Mesh), Hold (the handler takes the frame and decides
	// later, see Output.Resume), or a reason to drop. It
	// may rewrite bytes and move Off and Len within the frame. Undecided counts as
	// DropUnsupported. The verdict of a packet of several descriptors (packet.FlagMore) is that of
	// its first. A handler that leaves a packet fewer descriptors than it had clears FlagMore in its last one, and
	// in the others, whose verdict is Release.
	Handle(now clock.Time, b *packet.Batch)

	// Tick runs the timers that are due, produces output, and returns when it wants to be called
	// again. clock.Never means when something happens: the loop calls Tick again after the next
	// Handle or command, because either may have armed a timer.
	Tick(now clock.Time) clock.Time
}

// Bridge is the Handler of a bump in the wire: what arrives on one device of a pair (0 and 1, 2 and
// 3, ...) leaves by the other, unchanged.
//
// It reads no packet. A verdict that an earlier stage has set, such as a filter's, stands.
type Bridge struct{}

// Handle implements Handler.
func (Bridge) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		if d.Verdict == packet.Undecided {
			d.Verdict = packet.Forward
			d.Port ^= 1
		}
	}
}

// Tick implements Handler: a bridge has no timers.
func (Bridge) Tick(clock.Time) clock.Time { return clock.Never }
