package kernbench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// The paths: a back end, and where the packets lie.
const (
	PathOne      = "cpu-one"       // one core
	PathAll      = "cpu-all"       // all cores, an engine and a share of the packets for each
	PathRing     = "cuda-ring"     // Submit to Poll by doorbells and the persistent kernel, packets in host memory
	PathHost     = "cuda-host"     // Submit to Poll in bulk, packets in host memory
	PathResident = "cuda-resident" // packets and descriptors in device memory, kernels alone
)

// Paths are all of them, in the order of the columns.
func Paths() []string { return []string{PathOne, PathAll, PathRing, PathHost, PathResident} }

// runner runs the batches of a work once, and says how long that took.
type runner interface {
	run(w *work) (time.Duration, error)
	close() error
}

// path is how to open a runner, and what work suits it.
type path struct {
	name   string
	batch  int // packets
	copies int // of the load in one run
	absent string
	open   func(o *Op, t *tables, l *load) (runner, error)
}

// single runs batches through one engine, on this thread.
type single struct{ gpukern.Engine }

func (s single) run(w *work) (time.Duration, error) {
	start := time.Now()
	err := pump(s.Engine, w.batches)
	return time.Since(start), err
}

func (s single) close() error { return s.Close() }

// one times a batch from Submit to Poll.
func (s single) one(b []*packet.Batch) (time.Duration, error) {
	start := time.Now()
	err := pump(s.Engine, b)
	return time.Since(start), err
}

func onePath() path {
	return path{name: PathOne, batch: packet.BatchSize, copies: 1, open: func(o *Op, t *tables, _ *load) (runner, error) {
		e, err := openCPU(o, t, 4)
		return single{e}, err
	}}
}

// crowd runs shares of the batches on several cores at once.
type crowd struct {
	engines []gpukern.Engine
	work    []chan []*packet.Batch
	done    chan error
	wait    sync.WaitGroup
}

func allPath(cpus []int) path {
	p := path{name: PathAll, batch: packet.BatchSize, copies: 1, open: func(o *Op, t *tables, _ *load) (runner, error) {
		return openCrowd(o, t, cpus)
	}}
	if len(cpus) < 2 {
		p.absent = "there is one core"
	}
	return p
}

func openCrowd(o *Op, t *tables, cpus []int) (*crowd, error) {
	c := &crowd{done: make(chan error, len(cpus))}
	for range cpus {
		e, err := openCPU(o, t, 4)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.engines = append(c.engines, e)
	}
	for i, cpu := range cpus {
		in := make(chan []*packet.Batch)
		c.work = append(c.work, in)
		c.wait.Go(func() { c.loop(c.engines[i], cpu, in) })
	}
	return c, nil
}

// loop is one core's part; its thread ends with it, as it is pinned.
func (c *crowd) loop(e gpukern.Engine, cpu int, in <-chan []*packet.Batch) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	pinned := unix.SchedSetaffinity(0, &set)
	for share := range in {
		if pinned != nil {
			c.done <- fmt.Errorf("pin to CPU %d: %w", cpu, pinned)
			continue
		}
		c.done <- pump(e, share)
	}
}

func (c *crowd) run(w *work) (time.Duration, error) {
	n, k := len(w.batches), len(c.work)
	start := time.Now()
	for i, in := range c.work {
		in <- w.batches[n*i/k : n*(i+1)/k]
	}
	var errs []error
	for range c.work {
		errs = append(errs, <-c.done)
	}
	return time.Since(start), errors.Join(errs...)
}

func (c *crowd) close() error {
	for _, in := range c.work {
		close(in)
	}
	c.wait.Wait()
	var errs []error
	for _, e := range c.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// processors returns the CPUs that this process may run on.
func processors() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return make([]int, 1)
	}
	var cpus []int
	for i := 0; len(cpus) < set.Count(); i++ {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}
