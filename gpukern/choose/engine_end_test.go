package choose

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// comesBack polls until batches have come back in this order.
func comesBack(t *testing.T, w *world, e *Engine, want ...*packet.Batch) {
	t.Helper()
	var done [1]*packet.Batch
	for end := w.now + second; len(want) > 0; w.now += 100 {
		if w.now > end {
			t.Fatalf("%d batches never came back", len(want))
		}
		if e.Poll(done[:]) == 0 {
			continue
		}
		if done[0] != want[0] {
			t.Fatal("batches came back out of order")
		}
		want = want[1:]
	}
}

// TestARefusedBatchThatWaitedComesBack has the CPU take a batch before the GPU refuses an older one that has
// waited in the group.
func TestARefusedBatchThatWaitedComesBack(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	g.refuse = errors.New("too large")
	e := engineOf(w, c, g, []gpukern.Calibration{{Bytes: 64, BreakEven: 100}})
	e.climber.share, e.credit = 0.5, 0.5
	older, younger := batchOf(40), batchOf(40)
	for _, b := range []*packet.Batch{older, younger} {
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.group) != 1 || len(c.inside) != 1 {
		t.Fatalf("%d batches wait, the CPU has %d", len(e.group), len(c.inside))
	}
	w.now += int64(DefaultBudget) // both come back by one Poll
	comesBack(t, w, e, older, younger)
	if n := e.Info().Backends[onCPU].Packets; n != 80 {
		t.Errorf("the CPU is said to have done %d packets", n)
	}
}

// TestCloseSendsWhatAFullGPULeftWaiting closes an engine whose GPU has no room for the batches that wait.
func TestCloseSendsWhatAFullGPULeftWaiting(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1e4)
	e := engineOf(w, c, g, always)
	var all []*packet.Batch
	for range g.info.Depth + 2 {
		b := batchOf(8)
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if len(e.group) != 2 {
		t.Fatalf("%d batches wait", len(e.group))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, w, e, all...)
	for _, n := range []int{1, 200} {
		if err := e.Submit(batchOf(n)); !errors.Is(err, gpukern.ErrClosed) {
			t.Errorf("Submit after Close: %v", err)
		}
	}
}

// TestTablesThatTheGPURefusesChangeNothing: both go on with the old ones.
func TestTablesThatTheGPURefusesChangeNothing(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, always)
	g.refuse = errors.New("out of memory")
	if err := e.Load(gpukern.Tables{}); !errors.Is(err, g.refuse) || c.loads != 0 {
		t.Errorf("the CPU has loaded %d tables, %v", c.loads, err)
	}
}

// TestRefusedBatchesAreStillOwed: asking again and again gives the GPU no batch that is the CPU's.
func TestRefusedBatchesAreStillOwed(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, always)
	e.climber.share, e.credit = 0.25, 0
	for range c.info.Depth {
		c.inside = append(c.inside, job{at: second})
	}
	for range 10 {
		if err := e.Submit(batchOf(8)); !errors.Is(err, gpukern.ErrFull) {
			t.Fatal(err)
		}
	}
	if e.credit != 0 {
		t.Errorf("the GPU is owed %v batches for none", e.credit)
	}
}
