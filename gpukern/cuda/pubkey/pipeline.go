package pubkey

import (
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// task is a kind of operation: the bytes of one in each array that it reads, writes and needs besides, and its kernels.
type task struct {
	name    string
	in      []int
	out     []int
	scratch []int
	launch  func(e *Engine, f *flight) error
}

// flight is a launch with its memory: the arrays of a task on the device, and on the host those that are copied.
type flight struct {
	offload.Flight
	in   []array
	out  []array
	work []array // on the device alone

	first int // operation of the call
	n     int
}

// array is one array of a flight. mem is its host side.
type array struct {
	ptr  cuda.Ptr
	size int // bytes of an operation
	mem  []byte
}

// pipeline runs one kind of operation.
type pipeline struct {
	e       *Engine
	t       *task
	mu      sync.Mutex
	flights [offload.Flights]*flight
}

// call is what a caller wants done: n operations. fill writes inputs and take reads results of operations from first on
// (indices within a flight and of the call differ by it), and redo does operations on the CPU.
type call struct {
	n    int
	fill func(f *flight, first, from, to int)
	take func(f *flight, first, from, to int)
	redo func(from, to int)
}

// arrayAlign is the boundary that arrays lie on.
const arrayAlign = 256

func newPipeline(e *Engine, d *cuda.Device, t *task) (*pipeline, error) {
	p := &pipeline{e: e, t: t}
	for i := range p.flights {
		f, err := newFlight(d, t, e.cfg.Batch)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.flights[i] = f
	}
	return p, nil
}

func newFlight(d *cuda.Device, t *task, batch int) (*flight, error) {
	f := new(flight)
	place := func(sizes []int, at *int) (all []array) {
		for _, size := range sizes {
			all = append(all, array{ptr: cuda.Ptr(*at), size: size})
			*at += (size*batch + arrayAlign - 1) &^ (arrayAlign - 1)
		}
		return all
	}
	var total int
	f.in, f.out = place(t.in, &total), place(t.out, &total)
	copied := total
	f.work = place(t.scratch, &total)
	if err := f.Open(d, copied, total); err != nil {
		return nil, err
	}
	for _, all := range [][]array{f.in, f.out} {
		for i := range all {
			all[i].mem = f.Host.Mem[all[i].ptr:][:all[i].size*batch]
		}
	}
	for _, all := range [][]array{f.in, f.out, f.work} {
		for i := range all {
			all[i].ptr += f.Dev.Ptr
		}
	}
	return f, nil
}

// at returns the bytes of operation i in an array of the host.
func (a *array) at(i int) []byte { return a.mem[i*a.size:][:a.size:a.size] }

// put copies the inputs, launches the kernels, copies the results and overwrites what the device had of them.
func (f *flight) put(e *Engine, t *task) error {
	for _, a := range f.in {
		if err := f.Stream.CopyIn(a.ptr, f.Host, int(a.ptr-f.Dev.Ptr), a.size*f.n); err != nil {
			return err
		}
	}
	if err := t.launch(e, f); err != nil {
		return err
	}
	for _, a := range f.out {
		if err := f.Stream.CopyOut(f.Host, int(a.ptr-f.Dev.Ptr), a.ptr, a.size*f.n); err != nil {
			return err
		}
	}
	if err := f.wipeDevice(); err != nil {
		return err
	}
	return f.Sent()
}

// wipeDevice overwrites what the device has of the flight, after what is on its stream.
func (f *flight) wipeDevice() error {
	var errs []error
	for _, all := range [][]array{f.in, f.out, f.work} {
		for _, a := range all {
			errs = append(errs, f.Stream.Fill(a.ptr, 0, a.size*f.n))
		}
	}
	return errors.Join(errs...)
}

// wipe overwrites what the host has of some operations of the flight.
func (f *flight) wipe(from, to int) {
	for _, all := range [][]array{f.in, f.out} {
		for i := range all {
			clear(all[i].mem[all[i].size*from : all[i].size*to])
		}
	}
}

func (p *pipeline) close() error {
	var errs []error
	for _, f := range p.flights {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// run does a call: on the device, and what that does not do on the CPU.
func (e *Engine) run(t *task, c *call) {
	var p *pipeline
	if c.n >= e.least(t) {
		p = e.pipeline(t)
	}
	if p == nil {
		e.onCPU(c, 0, c.n)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := 0
	for i := 0; next < c.n; i++ {
		f := p.flights[i%offload.Flights]
		p.land(f, c)
		n := min(e.cfg.Batch, c.n-next)
		if e.device.Usable() == nil {
			e.onCPU(c, next, c.n)
			break
		}
		p.start(f, c, next, n)
		next += n
	}
	for i := range p.flights {
		p.land(p.flights[i], c)
	}
}

// start sends a flight off.
func (p *pipeline) start(f *flight, c *call, first, n int) {
	f.first, f.n = first, n
	f.Begin()
	offload.Parallel(n, leastCopied, func(from, to int) { c.fill(f, first, from, to) })
	if err := f.put(p.e, p.t); err != nil {
		p.fail(f, c, err)
	}
}

// land waits for a flight and takes its results.
func (p *pipeline) land(f *flight, c *call) {
	if !f.Flying() {
		return
	}
	if err := f.Land(f.n, p.e.cfg.Patience); err != nil {
		p.fail(f, c, fmt.Errorf("pubkey: %w", err))
		return
	}
	p.e.counters.device.Add(uint64(f.n))
	offload.Parallel(f.n, leastCopied, func(from, to int) {
		c.take(f, f.first, from, to)
		f.wipe(from, to)
	})
}

// fail does the operations of a flight that a lost device has on the CPU.
func (p *pipeline) fail(f *flight, c *call, err error) {
	p.e.device.Lose(err)
	f.Fail(err, f.wipeDevice)
	f.wipe(0, f.n)
	p.e.counters.lost.Add(uint64(f.n))
	p.e.onCPU(c, f.first, f.first+f.n)
}

func (e *Engine) onCPU(c *call, from, to int) {
	e.counters.cpu.Add(uint64(to - from))
	offload.Parallel(to-from, leastDone, func(a, b int) { c.redo(from+a, from+b) })
}
