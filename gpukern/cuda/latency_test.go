package cuda

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestRingLatency logs the time from Submit to Poll, one batch at a time, relaunches of the kernel included. A batch of 32
// that asks for nothing takes some 6 us in the median and 15 us at the 99th percentile on a GPU that does nothing else.
func TestRingLatency(t *testing.T) { t.Run("gpu", testLatency) }

func testLatency(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		n    int
		null bool
	}{{32, true}, {256, true}, {1, false}, {32, false}, {64, false}, {256, false}} {
		b := newEngineBedOn(t, openGPUOnly, func(cfg *Config) {
			cfg.Null, cfg.Lifetime, cfg.Slots = c.null, 0, 8
		})
		p := b.latencies(c.n, 200000)
		t.Logf("%3d packets, null %-5v: p50 %v p90 %v p99 %v p99.9 %v max %v", c.n, c.null,
			p(50), p(90), p(99), p(99.9), p(100))
		if err := b.e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// latencies submits a batch of n packets again and again and returns the percentiles of the time until it
// is back.
func (b *engineBed) latencies(n, times int) func(percent float64) time.Duration {
	batch := b.batch(n, true)
	all := make([]time.Duration, times)
	for i := range all {
		start := time.Now()
		if err := b.e.Submit(batch); err != nil {
			b.t.Fatal(err)
		}
		for b.e.Poll(b.done[:1]) == 0 {
		}
		all[i] = time.Since(start)
	}
	b.healthy()
	slices.Sort(all)
	return func(percent float64) time.Duration { return all[min(len(all)-1, int(percent/100*float64(len(all))))] }
}
