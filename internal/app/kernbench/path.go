package kernbench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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

// runner is an opened path.
type runner interface {
	// work lays out a load in batches of n packets; 0 is what suits the path.
	work(l *load, n int) (*work, error)

	// run runs the batches of a work once, and says how long that took.
	run(w *work) (time.Duration, error)

	close() error
}

// path opens a runner.
type path struct {
	name   string
	batch  int                             // packets
	whole  bool                            // it has no single batches to be timed
	power  func() (watts float64, ok bool) // of the GPU; nil where none works
	absent string
	open   func(c *trial) (runner, error)
}

// single runs batches through one engine, on this thread.
type single struct {
	*engine
	batch, laps int
	null        bool // no packet is touched
}

func (s *single) work(l *load, n int) (*work, error) {
	laps := s.laps
	if n > 0 {
		laps = 1
	} else {
		n = s.batch
	}
	w := newWork(l, laps, n, s.Info())
	w.untouched = s.null
	return w, nil
}

func (s *single) run(w *work) (time.Duration, error) {
	start := time.Now()
	err := pump(s.Engine, w.batches)
	return time.Since(start), err
}

func (s *single) close() error { return s.engine.Close() }

func onePath() path {
	return path{name: PathOne, batch: packet.BatchSize, open: func(c *trial) (runner, error) {
		e, err := openCPU(c.op, c.tables)
		return &single{engine: e, batch: packet.BatchSize, laps: 1}, err
	}}
}

// crowd runs batches on several cores at once. With state each core goes over the whole load, as each has a
// flow table of its own; else over a share.
type crowd struct {
	stateful bool
	engines  []*engine
	in       []chan []*packet.Batch
	done     chan error
	wait     sync.WaitGroup
}

func allPath(cpus []int) path {
	p := path{name: PathAll, batch: packet.BatchSize, whole: true, open: func(c *trial) (runner, error) {
		return openCrowd(c, cpus)
	}}
	if len(cpus) < 2 {
		p.absent = "there is one core"
	}
	return p
}

func openCrowd(t *trial, cpus []int) (_ *crowd, err error) {
	c := &crowd{done: make(chan error, len(cpus)), stateful: t.op.stateful()}
	for _, cpu := range cpus {
		e, err := openCPU(t.op, t.tables)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		in := make(chan []*packet.Batch)
		c.engines, c.in = append(c.engines, e), append(c.in, in)
		c.wait.Go(func() { c.loop(e, cpu, in) })
	}
	return c, nil
}

// loop is one core's part; its thread ends with it, as it is pinned.
func (c *crowd) loop(e *engine, cpu int, in <-chan []*packet.Batch) {
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

func (c *crowd) work(l *load, _ int) (*work, error) {
	if c.stateful {
		return newWork(l, len(c.in), packet.BatchSize, c.engines[0].Info()).own(), nil
	}
	return newWork(l, 1, packet.BatchSize, c.engines[0].Info()), nil
}

func (c *crowd) run(w *work) (time.Duration, error) {
	n, k := len(w.batches), len(c.in)
	start := time.Now()
	for i, in := range c.in {
		in <- w.batches[n*i/k : n*(i+1)/k]
	}
	var errs []error
	for range c.in {
		errs = append(errs, <-c.done)
	}
	return time.Since(start), errors.Join(errs...)
}

func (c *crowd) close() error {
	for _, in := range c.in {
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
