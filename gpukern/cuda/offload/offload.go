// Package offload has the parts that engines of batched operations share, pubkey and symmetric in gpukern/cuda: a device that is used
// until it is lost, and work that is divided among the cores.
package offload

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern/cuda"
)

// Device is a GPU, or none, that an engine uses until it is lost. The CPU does the work from then on. It is safe for concurrent use
// and must not be copied.
type Device struct {
	gpu     *cuda.Device
	failure atomic.Pointer[error]
}

// Use makes gpu the device; nil is none. It is called before all other methods.
func (d *Device) Use(gpu *cuda.Device) { d.gpu = gpu }

// Lost returns why the device is used no more; nil while it is, and without one.
func (d *Device) Lost() error {
	if err := d.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Lose records why the device is no longer used. The first reason stays.
func (d *Device) Lose(err error) { d.failure.CompareAndSwap(nil, &err) }

// Usable returns the GPU while it can be used, else nil: where there is none, where it was given up, and where another user
// of it has found it lost.
func (d *Device) Usable() *cuda.Device {
	if d.gpu == nil || d.Lost() != nil {
		return nil
	}
	if err := d.gpu.Lost(); err != nil {
		d.Lose(err)
		return nil
	}
	return d.gpu
}

// Parallel calls f for parts of n operations on all cores, at least so many each, and returns when all are done.
func Parallel(n, least int, f func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), (n+least-1)/least)
	if parts <= 1 {
		f(0, n)
		return
	}
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() { f(n*i/parts, n*(i+1)/parts) })
	}
	all.Wait()
}
