// Package collectiveperf measures collective operations between the ranks of a communicator, for the command `millrace collective`
// and the benchmarks. All ranks call the same functions; the lowest one has the results.
package collectiveperf

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/collective"
)

// Test describes a measurement.
type Test struct {
	Kind       collective.Kind
	Type       collective.Type
	Op         collective.Op
	Algorithm  collective.Algorithm // "" is the choice by cost
	Bytes      int                  // of the vector: rounded up to whole elements for each rank
	Iterations int
	Warmup     int
}

// Result is the time of an operation.
type Result struct {
	Kind        collective.Kind      `json:"operation"`
	Algorithm   collective.Algorithm `json:"algorithm"`
	Chosen      bool                 `json:"chosen"` // by cost
	Bytes       int                  `json:"bytes"`
	Median      float64              `json:"median_us"` // over iterations, of the slowest rank
	Least       float64              `json:"min_us"`
	Worst       float64              `json:"max_us"`
	Algorithmic float64              `json:"algorithm_gb_per_second"` // bytes of the vector by the median
	Bus         float64              `json:"bus_gb_per_second"`       // what each link carries, as nccl-tests count it
	CPU         float64              `json:"cpu_us"`                  // of all ranks, for an operation
	Estimated   float64              `json:"estimated_us"`
}

// operation returns a function that does the operation once, and one that checks its result.
func operation(c *collective.Comm, t *Test) (do func() error, check func() error, bytes int, err error) {
	n, me := c.Size(), c.Rank()
	if t.Type != collective.Float32 {
		return nil, nil, 0, fmt.Errorf("type %v, want float32", t.Type)
	}
	each := (t.Bytes + 4*n - 1) / (4 * n) // elements for each rank
	whole := each * n
	if t.Kind == collective.KindAllReduce || t.Kind == collective.KindReduce || t.Kind == collective.KindBroadcast {
		whole = (t.Bytes + 3) / 4
	}
	a, b := make([]float32, whole), make([]float32, whole)
	fill := func(v []float32, rank int) {
		for i := range v {
			v[i] = float32((rank*13 + i) % 64)
		}
	}
	fill(a, me)
	all, result := collective.Slice(a), collective.Slice(b)
	part, own := all.Range(0, min(each, whole)), result.Range(0, min(each, whole))
	want := func(got []float32, element func(i int) float32) error {
		for i := range got {
			if got[i] != element(i) {
				return fmt.Errorf("%s of %d bytes by %d ranks: element %d is %v, want %v", t.Kind, t.Bytes, n, i, got[i], element(i))
			}
		}
		return nil
	}
	value := func(rank, i int) float32 { return float32((rank*13 + i) % 64) }
	reduced := func(i int) (v float32) {
		for r := range n {
			switch w := value(r, i); {
			case r == 0:
				v = w
			case t.Op == collective.Min:
				v = min(v, w)
			case t.Op == collective.Max:
				v = max(v, w)
			default:
				v += w
			}
		}
		if t.Op == collective.Avg {
			v /= float32(n)
		}
		return v
	}
	switch t.Kind {
	case collective.KindAllReduce:
		return func() error { return c.AllReduce(result, all, t.Op) }, func() error { return want(b, reduced) }, 4 * whole, nil
	case collective.KindReduce:
		return func() error { return c.Reduce(result, all, t.Op, 0) }, func() error {
			if me != 0 {
				return nil
			}
			return want(b, reduced)
		}, 4 * whole, nil
	case collective.KindBroadcast:
		return func() error { return c.Broadcast(all, 0) }, func() error { return want(a, func(i int) float32 { return value(0, i) }) }, 4 * whole, nil
	case collective.KindAllGather:
		return func() error { return c.AllGather(result, part) }, func() error {
			return want(b, func(i int) float32 { return value(i/each, i%each) })
		}, 4 * whole, nil
	case collective.KindReduceScatter:
		return func() error { return c.ReduceScatter(own, all, t.Op) }, func() error {
			return want(b[:each], func(i int) float32 { return reduced(me*each + i) })
		}, 4 * whole, nil
	case collective.KindAllToAll:
		return func() error { return c.AllToAll(result, all) }, func() error {
			return want(b, func(i int) float32 { return value(i/each, me*each+i%each) })
		}, 4 * whole, nil
	case collective.KindGather:
		return func() error { return c.Gather(result, part, 0) }, func() error {
			if me != 0 {
				return nil
			}
			return want(b, func(i int) float32 { return value(i/each, i%each) })
		}, 4 * whole, nil
	case collective.KindScatter:
		return func() error { return c.Scatter(own, all, 0) }, func() error {
			return want(b[:each], func(i int) float32 { return value(0, me*each+i) })
		}, 4 * whole, nil
	case collective.KindBarrier:
		return c.Barrier, func() error { return nil }, 0, nil
	}
	return nil, nil, 0, fmt.Errorf("operation %q, want one of %v", t.Kind, collective.Kinds())
}

// Run measures an operation. The result is the same on all ranks.
func Run(c *collective.Comm, t Test) (r Result, err error) {
	if t.Op == collective.Prod {
		return r, fmt.Errorf("reduction %v, want another: its result overflows", t.Op)
	}
	do, check, bytes, err := operation(c, &t)
	if err != nil {
		return r, err
	}
	if err := c.SetAlgorithm(t.Kind, t.Algorithm); err != nil {
		return r, err
	}
	plan := c.Plan(t.Kind, bytes)
	r = Result{Kind: t.Kind, Algorithm: t.Algorithm, Bytes: bytes}
	if r.Algorithm == "" {
		r.Algorithm, r.Chosen = plan[0].Algorithm, true
	}
	for _, e := range plan {
		if e.Algorithm == r.Algorithm {
			r.Estimated = e.Seconds * 1e6
		}
	}
	for range t.Warmup + 1 {
		if err := do(); err != nil {
			return r, err
		}
	}
	if err := check(); err != nil {
		return r, err
	}
	times := make([]float64, t.Iterations)
	used := cpuTime()
	for i := range times {
		begin := time.Now()
		if err := do(); err != nil {
			return r, err
		}
		times[i] = float64(time.Since(begin)) / 1e3
	}
	cpu := []float64{(cpuTime() - used) / float64(t.Iterations)}
	if err := c.AllReduce(collective.Slice(cpu), collective.Slice(cpu), collective.Sum); err != nil {
		return r, err
	}
	r.CPU = cpu[0]
	// Of each iteration the slowest rank counts.
	if err := c.AllReduce(collective.Slice(times), collective.Slice(times), collective.Max); err != nil {
		return r, err
	}
	slices.Sort(times)
	r.Least, r.Median, r.Worst = times[0], times[len(times)/2], times[len(times)-1]
	if r.Median > 0 {
		r.Algorithmic = float64(bytes) / r.Median / 1e3
		r.Bus = r.Algorithmic * busFactor(t.Kind, c.Size())
	}
	return r, check()
}

// cpuTime returns the CPU time of this process, in microseconds.
func cpuTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // it does not fail for the process itself
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// busFactor is by how much the bytes through a rank's link exceed those of the vector, at least, as in nccl-tests.
func busFactor(k collective.Kind, n int) float64 {
	switch k {
	case collective.KindAllReduce:
		return 2 * float64(n-1) / float64(n)
	case collective.KindAllGather, collective.KindReduceScatter, collective.KindAllToAll, collective.KindGather, collective.KindScatter:
		return float64(n-1) / float64(n)
	}
	return 1
}

// Sweep measures all algorithms, and at last the choice.
func Sweep(c *collective.Comm, t Test) (results []Result, err error) {
	for _, e := range append(c.Plan(t.Kind, t.Bytes), collective.Estimate{}) {
		t.Algorithm = e.Algorithm
		r, err := Run(c, t)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// Excess returns by how much the algorithm that the choice took is slower than the fastest, such as 0.05, by the medians of each
// algorithm alone, so that the noise of a run counts once.
func Excess(results []Result) float64 {
	least, chosen := math.Inf(1), math.NaN()
	for _, r := range results[:len(results)-1] {
		least = min(least, r.Median)
		if r.Algorithm == results[len(results)-1].Algorithm {
			chosen = r.Median
		}
	}
	return chosen/least - 1
}
