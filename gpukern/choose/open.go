package choose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/ring"
)

// Kind is which engine a user requests.
type Kind string

// The kinds.
const (
	KindCPU  Kind = "cpu"  // the calling core, whatever else there is
	KindCUDA Kind = "cuda" // a GPU, or an error
	KindAuto Kind = "auto" // both, each for what it is faster at; the CPU alone where no GPU can be used
)

// Kinds are all of them.
var Kinds = []Kind{KindCPU, KindCUDA, KindAuto}

// ErrKind reports that a word names no engine.
var ErrKind = errors.New("no engine")

// ParseKind reads a kind.
func ParseKind(word string) (Kind, error) {
	if !slices.Contains(Kinds, Kind(word)) {
		return "", fmt.Errorf("%w %q; say cpu, cuda or auto", ErrKind, word)
	}
	return Kind(word), nil
}

// ErrNoGPU reports that a GPU was asked for and cannot be used. The error beside it says why, and what can be
// done.
var ErrNoGPU = errors.New("no GPU can be used")

// OpenConfig describes an Opener.
type OpenConfig struct {
	Kind   Kind
	Device cuda.Options

	// Lost is called when engines give their GPU up and go on with the CPU, once for each reason, however many
	// engines have it, by a goroutine of its own; nil is not.
	Lost func(error)

	// Without is called for each engine that KindAuto opens without the GPU that there is, by Open: the GPU
	// has no room for the engine, or does not work. nil is not.
	Without func(error)
}

// Opener opens the engines of a program, one for each loop, all of one kind and on one device. It opens
// the device when it is made, so that a program without the GPU that it needs ends before it touches an
// interface.
type Opener struct {
	cfg    OpenConfig
	device *cuda.Device // nil where the CPU does everything
	why    error        // with KindAuto: why there is no device

	measuredOps gpukern.Ops // the operations that measured is about
	measured    []gpukern.Calibration

	mu       sync.Mutex
	reported []string // why GPUs were given up
}

// NewOpener opens the device that the kind wants. The caller closes the Opener after all engines.
func NewOpener(cfg OpenConfig) (*Opener, error) {
	o := &Opener{cfg: cfg}
	if cfg.Kind == KindCPU {
		return o, nil
	}
	d, err := cuda.Open(cfg.Device)
	switch {
	case err == nil:
		o.device = d
	case cfg.Kind == KindCUDA:
		return nil, fmt.Errorf("%w: %w", ErrNoGPU, err)
	default:
		o.why = err
	}
	return o, nil
}

// Device borrows the GPU; nil where there is none.
func (o *Opener) Device() *cuda.Device { return o.device }

// String reports what was found and what is used, in one line for people.
func (o *Opener) String() string {
	switch {
	case o.device != nil:
		i := o.device.Info()
		used := string(o.cfg.Kind)
		if o.cfg.Kind == KindAuto {
			used = "auto: the CPU and the GPU"
		}
		return fmt.Sprintf("%s; found %s at %s, driver for CUDA %s", used, i.Name, i.Bus, i.Driver)
	case o.why != nil:
		return "auto: the CPU alone; " + strings.TrimPrefix(o.why.Error(), "cuda: ")
	}
	return "cpu"
}

// Open opens an engine for the packets of an arena. The caller closes it before the arena. For KindAuto
// the first engine with a set of operations takes DefaultTime to measure both back ends.
func (o *Opener) Open(cfg gpukern.Config, arena *ring.Arena) (gpukern.Engine, error) {
	if o.device == nil {
		return gpukern.NewCPU(cfg), nil
	}
	gpu, err := o.openGPU(cfg, arena)
	switch {
	case o.cfg.Kind == KindCUDA && err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoGPU, err)
	case o.cfg.Kind == KindCUDA:
		return gpu, nil
	case err != nil:
		return o.without(cfg, err), nil
	}
	measured, err := o.calibrations(cfg)
	if err != nil {
		return o.without(cfg, errors.Join(err, gpu.Close())), nil
	}
	return New(Config{CPU: gpukern.NewCPU(cfg), GPU: gpu, Calibrations: measured}), nil
}

// without opens an engine on the CPU alone, and reports why.
func (o *Opener) without(cfg gpukern.Config, why error) gpukern.Engine {
	if o.cfg.Without != nil {
		o.cfg.Without(why)
	}
	return gpukern.NewCPU(cfg)
}

func (o *Opener) openGPU(cfg gpukern.Config, arena *ring.Arena) (gpukern.Engine, error) {
	return cuda.NewEngine(o.device, cuda.Config{Config: cfg, Arena: arena.View(), Lost: o.lost})
}

// lost reports a loss once.
func (o *Opener) lost(err error) {
	why := cause(err)
	o.mu.Lock()
	known := slices.Contains(o.reported, why)
	if !known {
		o.reported = append(o.reported, why)
	}
	o.mu.Unlock()
	if !known && o.cfg.Lost != nil {
		o.cfg.Lost(err)
	}
}

// cause names the reason of a loss. It is the driver's result, where there is one: engines on one device notice
// its loss in whichever call they make next.
func cause(err error) string {
	var e *cuda.Error
	if errors.As(err, &e) && e.Code != 0 {
		return fmt.Sprintf("%s (%d)", e.Name, e.Code)
	}
	return err.Error()
}

// Close returns the device.
func (o *Opener) Close() error {
	if o.device == nil {
		return nil
	}
	return o.device.Close()
}
