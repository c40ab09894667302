package pubkey

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/dl"
	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// Config limits an Engine.
type Config struct {
	// Device is the GPU. The engine loads its kernels there. nil does everything on the CPU.
	Device *cuda.Device

	// Batch is the most operations of one launch; larger calls make several, three of them under way at once. 0 is
	// DefaultBatch. It bounds the memory that is pinned: some 10 KB for each operation where all kinds are used.
	Batch int

	// Least is the fewest operations of a call that the device gets; the CPU does smaller calls. 0 is a switch point of each
	// kind of operation, which depends on the number of cores.
	Least int

	// Patience bounds a launch: its device counts as lost after that. 0 is 10 s.
	Patience time.Duration
}

// DefaultBatch is enough to fill a GPU of 132 multiprocessors.
const DefaultBatch = 1 << 15

// Stats counts operations of an Engine.
type Stats struct {
	Device uint64 // done on the device
	CPU    uint64 // done on the CPU, as there was no device, it has been lost, or the call was too small for it
	Lost   uint64 // of those on the CPU: given to a device that was lost before it had done them
	Faults uint64 // signatures that failed their verification on the device, and were made again on the CPU
}

// counters are those of Stats.
type counters struct{ device, cpu, lost, faults atomic.Uint64 }

// Engine runs operations on a device, or on the CPU. It is safe for concurrent use; calls of one kind follow each other.
type Engine struct {
	cfg      Config
	modules  []cuda.ModuleInfo
	counters counters
	device   offload.Device

	mu        sync.Mutex
	pipelines map[string]*pipeline
	tables    map[string]*cuda.Buffer // of the generators, by curve
	closed    bool
}

// New returns an engine. The caller closes it before the device, when no call is under way.
func New(cfg Config) (*Engine, error) {
	if cfg.Batch == 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	e := &Engine{cfg: cfg, pipelines: map[string]*pipeline{}, tables: map[string]*cuda.Buffer{}}
	e.device.Use(cfg.Device)
	if cfg.Device == nil {
		return e, nil
	}
	var err error
	if e.modules, err = cfg.Device.Load(dl.Kernels("pubkey")); err != nil {
		return nil, err
	}
	return e, nil
}

// Modules describes the kernels that the engine has loaded.
func (e *Engine) Modules() []cuda.ModuleInfo { return e.modules }

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	c := &e.counters
	return Stats{Device: c.device.Load(), CPU: c.cpu.Load(), Lost: c.lost.Load(), Faults: c.faults.Load()}
}

// Lost returns why the device is used no more, or nil.
func (e *Engine) Lost() error { return e.device.Lost() }

// pipeline returns the pipeline of a task, made at its first use. It is nil where there is no device.
func (e *Engine) pipeline(t *task) *pipeline {
	d := e.device.Usable()
	if d == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pipelines[t.name]
	if p != nil {
		return p
	}
	p, err := newPipeline(e, d, t)
	if err != nil {
		e.device.Lose(err)
		return nil
	}
	e.pipelines[t.name] = p
	return p
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
	for _, p := range e.pipelines {
		errs = append(errs, p.close())
	}
	for _, b := range e.tables {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// Operations that are worth a goroutine: to copy, and to do on a core.
const (
	leastCopied = 256
	leastDone   = 8
)
