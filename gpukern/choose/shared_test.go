package choose

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/packet"
)

// offer submits a batch of n packets every so many ns, whatever the engine does, up to a time. It returns how long each was inside.
func offer(t *testing.T, w *world, e *Engine, every int64, n int, until int64) (inside []int64) {
	t.Helper()
	type sent struct {
		b  *packet.Batch
		at int64
	}
	var waiting, flying []sent
	done := make([]*packet.Batch, 32)
	for next := w.now; w.now < until || len(flying) > 0; w.now += 1000 {
		for ; next <= w.now && next < until; next += every {
			waiting = append(waiting, sent{batchOf(n), next})
		}
		for len(waiting) > 0 && e.Submit(waiting[0].b) == nil {
			flying, waiting = append(flying, waiting[0]), waiting[1:]
		}
		for _, b := range done[:e.Poll(done)] {
			if b != flying[0].b {
				t.Fatal("batches came back out of order")
			}
			inside = append(inside, w.now-flying[0].at)
			flying = flying[1:]
		}
	}
	return inside
}

// percentile returns what a share of the times is not above.
func percentile(times []int64, share float64) int64 {
	slices.Sort(times)
	return times[int(share*float64(len(times)-1))]
}

// TestAGPUThatAnotherProgramTakesIsLeft: its batches take 50 times as long from one moment on. The engine uses it no more within 100 ms,
// the time of a batch stays bounded, and it comes back when the GPU is itself again.
func TestAGPUThatAnotherProgramTakesIsLeft(t *testing.T) {
	const ms = second / 1000
	for name, load := range map[string]struct {
		every int64
		n     int
	}{
		"6.4 Mpps": {10_000, 64},
		"80 kpps":  {100_000, 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := new(world)
			c, g := fakes(w, 100, 1)
			e := engineOf(w, c, g, always)
			slow := int64(1)
			device := g.device
			g.device = func(n int) int64 { return slow * (device(n) + 5000) }
			g.delay = 0
			before := offer(t, w, e, load.every, load.n, 100*ms)
			if share := e.Info().Backends[onGPU].Share; share < 0.5 || e.Info().Retreats != 0 || e.Info().Backends[onGPU].Late != 0 {
				t.Fatalf("the GPU's share is %v before: %+v", share, e.Info())
			}
			slow = 50
			first := offer(t, w, e, load.every, load.n, w.now+100*ms)
			i := e.Info()
			if i.Backends[onGPU].Share > 0.13 || i.Retreats == 0 || i.Backends[onGPU].Late == 0 { // 1/8 is a try
				t.Errorf("100 ms later: %+v", i)
			}
			left := i.Backends[onGPU].Batches
			times := append(first, offer(t, w, e, load.every, load.n, w.now+2*second)...)
			if p := percentile(times, 0.99); p > int64(DefaultBudget) {
				t.Errorf("99 %% of the batches take up to %d us with a slow GPU, %d before", p/1000, percentile(before, 0.99)/1000)
			}
			if i = e.Info(); i.Backends[onGPU].Batches-left > uint64(len(times)/50) {
				t.Errorf("a slow GPU gets %d more batches of %d", i.Backends[onGPU].Batches-left, len(times))
			}
			if load.n < 64 { // its windows are long
				return
			}
			slow = 1
			offer(t, w, e, load.every, load.n, w.now+int64(mostPatience+64)*windowTime)
			if share := e.Info().Backends[onGPU].Share; share < 0.3 {
				t.Errorf("the share of a GPU that is fast again is %v", share)
			}
		})
	}
}

// TestALoopThatWasAwayBlamesNoGPU: it does not know how long a batch was ready.
func TestALoopThatWasAwayBlamesNoGPU(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 100, 1)
	e := engineOf(w, c, g, always)
	for range 20 {
		offer(t, w, e, 10_000, 64, w.now+second/200)
		if err := e.Submit(batchOf(64)); err != nil {
			t.Fatal(err)
		}
		w.now += second / 100
		for done := make([]*packet.Batch, 1); e.Poll(done) == 0; {
			w.now += 1000
		}
	}
	if i := e.Info(); i.Retreats != 0 || i.Backends[onGPU].Late != 0 || i.Backends[onGPU].WaitNs < uint64(second/10) {
		t.Errorf("%+v", i)
	}
}
