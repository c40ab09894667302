package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// Config describes an engine on a device.
type Config struct {
	gpukern.Config // Depth 0 is 8

	// Arena is where the packets of all batches lie: a whole one, also where several engines share it. The
	// engine registers it with the device until Close.
	Arena *packet.Arena

	Slots    int           // batches of up to 256 packets that the device works on at once; 0 is Depth, at most 64
	Room     int           // descriptors of the batches that NewBatch makes; 0 is 256 for each of 2*Depth+8
	Copy     int           // most descriptors of a batch that NewBatch did not make; 0 is 4096
	Search   int           // most descriptors of any batch with OpLiterals; 0 is 4096, for which it takes 900 KB of each of Depth
	Bulk     int           // packets from which on a batch is launched by itself over the whole device; 0 is 4096
	Lifetime time.Duration // of a persistent kernel, until the next takes its place; 0 is 100 ms
	Patience time.Duration // for how long each side waits for a sign of the other; 0 is 1 s

	// Lost is called once when the device is given up, by a goroutine of its own: to write a log.
	Lost func(error)

	// Null has the device touch no packet: what remains is the price of handing over.
	Null bool

	// For tests: threads of a block, of which the CPU takes fewer, and the time between two checks of the watchdog.
	threads, searchThreads int
	every                  time.Duration
}

// maxSlots keeps one engine from taking the device for itself.
const maxSlots = 64

func (c *Config) setDefaults() error {
	if c.Arena == nil || len(c.Arena.Mem) == 0 {
		return errors.New("cuda: an engine needs an arena")
	}
	if c.Ops == 0 {
		c.Ops = gpukern.OpsHeader
	}
	c.Ops |= gpukern.OpParse
	if c.Null {
		c.Ops &^= gpukern.OpLiterals // nothing says where texts are
	}
	orElse(&c.Depth, 8)
	orElse(&c.Slots, min(c.Depth, maxSlots))
	orElse(&c.Room, slotMax*(2*c.Depth+8))
	orElse(&c.Copy, 4096)
	orElse(&c.Search, 4096)
	orElse(&c.Bulk, 4096)
	orElse(&c.threads, slotMax)
	if c.Lifetime <= 0 {
		c.Lifetime = 100 * time.Millisecond
	}
	if c.Patience <= 0 {
		c.Patience = time.Second
	}
	if c.every == 0 {
		c.every = min(max(c.Lifetime/8, time.Millisecond), 25*time.Millisecond)
	}
	if c.Slots > maxSlots {
		return fmt.Errorf("cuda: %d slots, at most %d", c.Slots, maxSlots)
	}
	return nil
}

func orElse(v *int, usual int) {
	if *v <= 0 {
		*v = usual
	}
}

// Engine is a gpukern.Engine on a GPU. Batches go by the slots of a persistent kernel, or, where they are
// large or their payloads are searched, by launches of their own; they come back in the order of their
// submission. No batch of the first kind costs a call of the driver.
//
// An engine whose device is lost (a failed call, a kernel that makes no progress, a slot in state ERROR) does
// all batches inside again on the calling core, and every later one there too: Info.Fault is the reason.
//
// Load and Info may be called from any goroutine; all other methods belong to the loop.
type Engine struct {
	dev *Device
	cfg Config

	region   *Region // the arena
	shared   sharedMemory
	state    *state
	searches *searches            // nil without OpLiterals
	ring     *Stream              // of the persistent kernel
	bulk     [bulkStreams]*Stream // of the other launches
	serve    *Kernel              // gk_ring
	mark     *Kernel              // gk_mark

	tables  atomic.Pointer[loaded]
	loader  loader
	flights flights
	posts   posts
	jobs    chan bulkJob  // for the caller
	sent    uint64        // of them
	ran     atomic.Uint64 // of them: the device has their launches

	asked []atomic.Uint32 // what the mark of each flight is to say when the device has done what was launched last

	fault  atomic.Pointer[fault]
	redone atomic.Uint64
	byGPU  workCounter
	byCPU  workCounter // since the device is lost
	closed bool

	// Once the device is lost:
	cpu   *gpukern.CPU
	onCPU *loaded // tables that it has
	back  [1]*packet.Batch

	launched uint32        // persistent kernels so far; of the caller
	wake     chan struct{} // for the caller: look after the launches
	quit     chan struct{}
	running  sync.WaitGroup // the keeper and the caller
}

var _ gpukern.Engine = (*Engine)(nil)

// Errors of Submit, besides those of gpukern.
var (
	ErrArena    = errors.New("cuda: the batch's packets do not lie in the engine's arena")
	ErrTooLarge = errors.New("cuda: the batch has more descriptors than Config.Copy or Config.Search allows")
)

// NewEngine starts an engine on the device, which stays the caller's and is closed after it. Errors are
// those of the device, or say what of cfg cannot be.
func NewEngine(d *Device, cfg Config) (*Engine, error) {
	if cfg.Patience == 0 {
		cfg.Patience = d.wait
	}
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{
		dev: d, cfg: cfg,
		jobs: make(chan bulkJob, cfg.Depth), wake: make(chan struct{}, 1), quit: make(chan struct{}),
		asked: make([]atomic.Uint32, cfg.Depth),
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.free())
	}
	e.running.Add(2)
	go e.watchDevice()
	go e.makeCalls()
	return e, nil
}

// open takes what the engine needs of the device and launches the persistent kernel last: most calls wait
// for kernels that run.
func (e *Engine) open() (err error) {
	d := e.dev
	if e.serve, err = d.Kernel("gk_ring"); err != nil {
		return err
	}
	if e.mark, err = d.Kernel("gk_mark"); err != nil {
		return err
	}
	n, err := e.serve.Resident(e.cfg.threads, 0)
	if err != nil {
		return err
	}
	if e.cfg.Slots > n {
		return fmt.Errorf("cuda: %d slots, the device runs %d blocks at once", e.cfg.Slots, n)
	}
	if e.region, err = d.Register(e.cfg.Arena.Mem); err != nil {
		return err
	}
	if err := e.shared.open(d, &e.cfg); err != nil {
		return err
	}
	e.flights.init(&e.shared, e.cfg.Depth)
	if e.ring, err = d.NewStream(Urgent); err != nil {
		return err
	}
	for i := range e.bulk {
		if e.bulk[i], err = d.NewStream(Patient); err != nil {
			return err
		}
	}
	e.loader.d = d
	if e.state, err = newState(&e.loader, e.cfg.Flows); err != nil {
		return err
	}
	if e.cfg.Ops&gpukern.OpLiterals != 0 {
		if e.searches, err = newSearches(d, &e.cfg); err != nil {
			return err
		}
	}
	if err := e.Load(e.cfg.Tables); err != nil {
		return err
	}
	if err := e.loader.reserve(e.tables.Load().mem); err != nil {
		return err
	}
	return e.relaunch()
}

// Close waits for the batches inside, which Poll returns afterwards, and ends the engine. Of the batches that
// NewBatch made only those may be used then; their descriptors lie on the heap.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	for !e.drain() {
		runtime.Gosched()
	}
	close(e.quit)
	e.running.Wait()
	return e.free()
}

// free gives back what the engine took, when its kernels have ended. What belongs to a lost device goes with
// its context.
func (e *Engine) free() error {
	if e.shared.block != nil {
		stop(e.shared.slots)
	}
	var errs []error
	for _, s := range append(e.bulk[:], e.ring) {
		if s != nil && e.dev.Lost() == nil {
			errs = append(errs, s.Wait())
		}
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	errs = append(errs, e.loader.close())
	if e.searches != nil {
		errs = append(errs, e.searches.close())
	}
	if e.shared.block != nil {
		errs = append(errs, e.shared.block.Close())
	}
	if e.region != nil {
		errs = append(errs, e.region.Close())
	}
	if e.dev.Lost() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// workCounter counts the batches that one side has done, for Info.
type workCounter struct{ packets, batches atomic.Uint64 }

func (t *workCounter) count(b *packet.Batch) {
	t.packets.Add(uint64(len(b.D)))
	t.batches.Add(1)
}

func (t *workCounter) work(name string, share float64) gpukern.BackendStats {
	return gpukern.BackendStats{Name: name, Packets: t.packets.Load(), Batches: t.batches.Load(), Share: share}
}

// Info describes the engine.
func (e *Engine) Info() gpukern.Info {
	i := gpukern.Info{
		Name: "cuda", Device: e.dev.info.Name, Ops: e.cfg.Ops, Depth: e.cfg.Depth,
		Redone: e.redone.Load(), NewBatch: e.NewBatch,
	}
	share := 1.0
	if f := e.fault.Load(); f != nil {
		i.Fault, share = f.err.Error(), 0
	}
	i.Backends = []gpukern.BackendStats{e.byCPU.work("cpu", 1-share), e.byGPU.work("cuda", share)}
	return i
}
