package symmetric

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/dl"
	"github.com/millrace/millrace/gpukern/cuda/offload"
	"github.com/millrace/millrace/gpukern/digest"
)

// Config limits an Engine.
type Config struct {
	// Device is the GPU. The engine loads its kernels there. nil does everything on the CPU.
	Device *cuda.Device

	// Batch is the most operations of one launch; larger calls make several, three of them under way at once. 0 is
	// DefaultBatch.
	Batch int

	// Bytes is the most memory that one launch copies. 0 is DefaultBytes. Three times as much is pinned. Longer texts are the
	// CPU's.
	Bytes int

	// Keys is the most keys of each kind that are on the device; where more come, they take the places of all others. 0 is
	// DefaultKeys.
	Keys int

	// Least is the fewest bytes of a call that the device gets; the CPU does smaller calls. 0 leaves to the CPU what all cores
	// of an H200's host do sooner: everything but large calls of hashes in an Area. Set it where the cores have other work.
	Least int

	// Patience bounds a launch: its device counts as lost after that. 0 is 10 s.
	Patience time.Duration
}

// Defaults of Config.
const (
	DefaultBatch = 1 << 15
	DefaultBytes = 32 << 20
	DefaultKeys  = 1 << 12
)

// Stats counts operations of an Engine.
type Stats struct {
	Device uint64 // done on the device
	CPU    uint64 // done on the CPU: there was no device, it was lost, the call was small, or no kernel does them
	Lost   uint64 // of those on the CPU: given to a device that was lost before it had done them
	Torn   uint64 // texts of an Area that a lost device was given, and may have changed
	Faults uint64 // operations that the device had no result for, done again on the CPU
}

type counters struct{ device, cpu, lost, torn, faults atomic.Uint64 }

// Engine runs batches. It is safe for concurrent use; calls follow each other.
type Engine struct {
	cfg      Config
	modules  []cuda.ModuleInfo
	counters counters
	device   offload.Device

	mu       sync.Mutex       // of a call
	valid    []aead.Validator // of the processors
	flights  [offload.Flights]*flight
	resolved []place // of the keys of a batch
	lists    [kinds][]int32
	aeadKeys *keyTable[*aead.Key]
	hmacKeys *keyTable[*digest.Key]
	ciphers  sync.Pool // of *aead.CPU
	hashes   sync.Pool // of *digest.CPU
	closed   bool
}

// New returns an engine. The caller closes it before the device, when no call is under way.
func New(cfg Config) (*Engine, error) {
	for _, d := range []struct {
		v  *int
		by int
	}{{&cfg.Batch, DefaultBatch}, {&cfg.Bytes, DefaultBytes}, {&cfg.Keys, DefaultKeys}} {
		if *d.v == 0 {
			*d.v = d.by
		}
	}
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	e := &Engine{cfg: cfg}
	e.ciphers.New = func() any { return aead.NewCPU() }
	e.hashes.New = func() any { return digest.NewCPU() }
	e.device.Use(cfg.Device)
	if cfg.Device == nil {
		return e, nil
	}
	var err error
	if e.modules, err = cfg.Device.Load(dl.Kernels("symmetric")); err != nil {
		return nil, err
	}
	return e, nil
}

// Modules describes the kernels that the engine has loaded.
func (e *Engine) Modules() []cuda.ModuleInfo { return e.modules }

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	c := &e.counters
	return Stats{Device: c.device.Load(), CPU: c.cpu.Load(), Lost: c.lost.Load(), Torn: c.torn.Load(), Faults: c.faults.Load()}
}

// Lost returns why the device is used no more, or nil.
func (e *Engine) Lost() error { return e.device.Lost() }

// ready makes the memory of the engine at its first use, and returns false where there is no device.
func (e *Engine) ready() bool {
	d := e.device.Usable()
	if d == nil {
		return false
	}
	for i := range e.flights {
		if e.flights[i] != nil {
			continue
		}
		f, err := newFlight(d, &e.cfg)
		if err != nil {
			e.device.Lose(err)
			return false
		}
		e.flights[i] = f
	}
	return true
}

// Close overwrites and returns the memory of the engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	for _, f := range e.flights {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	errs = append(errs, e.aeadKeys.close(), e.hmacKeys.close())
	return errors.Join(errs...)
}

// Operations that are worth a goroutine: to copy, and to do on a core.
const (
	leastCopied  = 256
	leastChecked = 4096
	leastDone    = 16
)
