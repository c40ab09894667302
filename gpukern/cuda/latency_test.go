package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkRingLatency measures the time from Submit to Poll, one batch at a time, relaunches of the kernel included. A batch
// of 32 that asks for nothing takes some 6 us in the median and 15 us at the 99th percentile on a GPU that does nothing else.
func BenchmarkRingLatency(b *testing.B) {
	for _, c := range []struct {
		n    int
		null bool
	}{{32, true}, {256, true}, {1, false}, {32, false}, {64, false}, {256, false}} {
		b.Run(fmt.Sprintf("packets=%d/null=%v", c.n, c.null), func(b *testing.B) {
			runtime.LockOSThread() // one that the scheduler moves would measure the move
			defer runtime.UnlockOSThread()
			bed := newEngineBedOn(b, openGPUOnly, func(cfg *Config) {
				cfg.Null, cfg.Lifetime, cfg.Slots = c.null, 0, 8
			})
			bed.latencies(b, c.n)
		})
	}
}

// latencies submits a batch of n packets again and again, and reports percentiles of the time until it is back.
func (b *engineBed) latencies(t *testing.B, n int) {
	batch := b.batch(n, true)
	var all []time.Duration
	for t.Loop() {
		start := time.Now()
		if err := b.e.Submit(batch); err != nil {
			t.Fatal(err)
		}
		for b.e.Poll(b.done[:1]) == 0 {
		}
		all = append(all, time.Since(start))
	}
	b.healthy()
	slices.Sort(all)
	for name, share := range map[string]float64{"p50-ns": 0.5, "p90-ns": 0.9, "p99-ns": 0.99, "p99.9-ns": 0.999, "max-ns": 1} {
		t.ReportMetric(float64(all[min(len(all)-1, int(share*float64(len(all))))]), name)
	}
}
