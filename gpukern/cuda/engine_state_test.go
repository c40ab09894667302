package cuda

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/sketch"
	"github.com/millrace/millrace/packet"
)

// stateBed is an engine with a flow table and a sketch of its own; the oracle has others of the same seed.
func stateBed(t *testing.T, on opener) (b *engineBed, flows *flow.Table, mine, its *sketch.Sketch) {
	t.Helper()
	newFlows := func() *flow.Table {
		f, err := flow.New(flow.Config{Flows: 5000, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	newSketch := func() *sketch.Sketch {
		s, err := sketch.New(sketch.Config{Width: 1024, Precision: 10, Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	flows, mine, its = newFlows(), newSketch(), newSketch()
	b = newEngineBedOn(t, on, func(c *Config) {
		c.Ops = gpukern.OpsHeader | gpukern.OpFlow | gpukern.OpSketch
		c.Flows, c.Sketch = flows, mine
	})
	cfg := b.e.cfg.Config
	cfg.Flows, cfg.Sketch = newFlows(), its
	b.oracle = gpukern.NewCPU(cfg)
	b.flows = map[uint32]uint32{}
	return b, flows, mine, its
}

// sameFlows replaces the slots of got by those of want where they have always stood for the same flow.
func (b *engineBed) sameFlows(got, want []packet.Desc) {
	b.t.Helper()
	for i := range got {
		g, w := &got[i], &want[i]
		if old, known := b.flows[w.Flow]; known && old != g.Flow {
			b.t.Fatalf("packet %d: flow %d of the CPU was %d and is %d on the device", i, w.Flow, old, g.Flow)
		}
		b.flows[w.Flow] = g.Flow
		if g.Flow&1 != w.Flow&1 || (g.Flow == 0) != (w.Flow == 0) {
			b.t.Fatalf("packet %d: flow %d, the CPU's is %d", i, g.Flow, w.Flow)
		}
		g.Flow = w.Flow
	}
}

func TestEngineKeepsFlowsAndSketches(t *testing.T) { onBoth(t, testFlowsAndSketches) }

func testFlowsAndSketches(t *testing.T, on opener) {
	b, flows, mine, its := stateBed(t, on)
	for step := range 60 {
		if step%20 == 19 {
			flows.Advance()
			b.load(someTables(t, 1+step%3))
		}
		b.submit(b.batch([]int{64, 300, 700}[step%3], step%2 == 0))
		b.drain()
	}
	b.healthy()
	distinct := map[uint32]bool{}
	for _, slot := range b.flows {
		if distinct[slot] {
			t.Fatalf("slot %d is of two flows", slot)
		}
		distinct[slot] = true
	}
	if len(distinct) < 100 {
		t.Errorf("only %d flows", len(distinct))
	}
	if mine.Distinct() != 0 {
		t.Error("the sketch was filled before it was read")
	}
	b.readSketch()
	b.equalSketches(mine, its)
	if p, _ := mine.Total(); p < 1000 {
		t.Errorf("%d packets counted", p)
	}
	if err := b.e.ReadFlows(); err != nil {
		t.Fatal(err)
	}
	if got := flows.Len(); got != len(distinct)/2 && (got < len(distinct)/2 || got > len(distinct)) {
		t.Errorf("%d flows in the table for %d directions", got, len(distinct))
	}
}

func (b *engineBed) readSketch() {
	b.t.Helper()
	if err := b.e.ReadSketch(); err != nil {
		b.t.Fatal(err)
	}
}

// equalSketches compares what two sketches tell, counter by counter as far as they can be asked.
func (b *engineBed) equalSketches(a, z *sketch.Sketch) {
	b.t.Helper()
	ap, ab := a.Total()
	zp, zb := z.Total()
	if ap != zp || ab != zb || a.Distinct() != z.Distinct() {
		b.t.Errorf("%d packets, %d bytes, %v sources; want %d, %d, %v", ap, ab, a.Distinct(), zp, zb, z.Distinct())
	}
	for i := range 4 {
		source := netip.AddrFrom4([4]byte{10, byte(i), 0, 1})
		ap, ab := a.Rate(source)
		if zp, zb := z.Rate(source); ap != zp || ab != zb {
			b.t.Errorf("%v: %d packets, %d bytes; want %d, %d", source, ap, ab, zp, zb)
		}
	}
}

// TestSketchBeginsAnew resets the sketch between two windows.
func TestSketchBeginsAnew(t *testing.T) {
	b, _, mine, its := stateBed(t, openFakeOnly)
	b.submit(b.batch(100, true))
	if err := b.e.ReadSketch(); err == nil {
		t.Error("the sketch was read with a batch inside")
	}
	b.drain()
	mine.Reset()
	its.Reset()
	if err := b.e.WriteSketch(); err != nil {
		t.Fatal(err)
	}
	b.submit(b.batch(50, true))
	b.drain()
	b.readSketch()
	b.equalSketches(mine, its)
	if p, _ := mine.Total(); p == 0 || p > 50 {
		t.Errorf("%d packets in a window of 50", p)
	}
}

// TestStateIsNotReadAfterClose: the memory is the driver's again.
func TestStateIsNotReadAfterClose(t *testing.T) {
	b, _, _, _ := stateBed(t, openFakeOnly)
	if err := b.e.Close(); err != nil {
		t.Fatal(err)
	}
	for i, f := range []func() error{b.e.ReadSketch, b.e.ReadFlows, b.e.WriteSketch, b.e.WriteFlows} {
		if err := f(); !errors.Is(err, gpukern.ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestLossOfState: flows begin anew on the CPU, the sketch goes on from what was read last.
func TestLossOfState(t *testing.T) {
	b, _, mine, its := stateBed(t, openFakeOnly)
	b.submit(b.batch(200, true))
	b.drain()
	b.readSketch()
	b.drv.Lose(illegalAddress)
	b.noticed()
	clear(b.flows)
	b.submit(b.batch(100, true))
	b.drain()
	b.equalSketches(mine, its)
	b.readSketch() // there is no device to read it from
	b.equalSketches(mine, its)
}

// TestEngineTellsTheEpoch has flows bear the epoch of their last packet, whichever way its batch went.
func TestEngineTellsTheEpoch(t *testing.T) {
	b, flows, _, _ := stateBed(t, openFakeOnly)
	for _, n := range []int{20, 700} {
		for range 3 {
			flows.Advance()
		}
		batch := b.batch(n, true)
		b.submit(batch)
		b.drain()
		if err := b.e.ReadFlows(); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for i := range batch.D {
			if f, ok := flows.Entry(b.flows[batch.D[i].Flow] >> 1); ok {
				seen++
				if f.Last != flows.Epoch() {
					t.Fatalf("batch of %d: a flow's last packet was in epoch %d, want %d", n, f.Last, flows.Epoch())
				}
			}
		}
		if seen < n/2 {
			t.Errorf("batch of %d: %d packets of flows", n, seen)
		}
	}
}
