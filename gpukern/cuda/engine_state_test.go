package cuda

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/packet"
)

// stateBed is an engine with a flow table of its own; the oracle has another of the same seed.
func stateBed(t *testing.T, on opener) (b *engineBed, flows *flow.Table) {
	t.Helper()
	newFlows := func() *flow.Table {
		f, err := flow.New(flow.Config{Flows: 5000, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	flows = newFlows()
	b = newEngineBedOn(t, on, func(c *Config) {
		c.Ops = gpukern.OpsHeader | gpukern.OpFlow
		c.Flows = flows
	})
	cfg := b.e.cfg.Config
	cfg.Flows = newFlows()
	b.oracle = gpukern.NewCPU(cfg)
	b.flows = map[uint32]uint32{}
	return b, flows
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

func TestEngineKeepsFlows(t *testing.T) { onBoth(t, testFlows) }

func testFlows(t *testing.T, on opener) {
	b, flows := stateBed(t, on)
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
	if flows.Len() != 0 {
		t.Error("the table was filled before it was read")
	}
	if err := b.e.ReadFlows(); err != nil {
		t.Fatal(err)
	}
	if got := flows.Len(); got != len(distinct)/2 && (got < len(distinct)/2 || got > len(distinct)) {
		t.Errorf("%d flows in the table for %d directions", got, len(distinct))
	}
}

// TestFlowsAreReadBetweenBatches: with a batch inside, the device changes what would be copied.
func TestFlowsAreReadBetweenBatches(t *testing.T) {
	b, flows := stateBed(t, openFakeOnly)
	b.submit(b.batch(100, true))
	if err := b.e.ReadFlows(); err == nil {
		t.Error("the table was read with a batch inside")
	}
	b.drain()
	if err := b.e.ReadFlows(); err != nil || flows.Len() == 0 {
		t.Fatalf("%d flows, %v", flows.Len(), err)
	}
	for slot := range flows.Slots() { // all flows are over for the device, too
		flows.Delete(slot + 1)
	}
	if err := errors.Join(b.e.WriteFlows(), b.e.ReadFlows()); err != nil || flows.Len() != 0 {
		t.Errorf("%d flows were written as none, %v", flows.Len(), err)
	}
}

// TestStateIsNotReadAfterClose: the memory is the driver's again.
func TestStateIsNotReadAfterClose(t *testing.T) {
	b, _ := stateBed(t, openFakeOnly)
	if err := b.e.Close(); err != nil {
		t.Fatal(err)
	}
	for i, f := range []func() error{b.e.ReadFlows, b.e.WriteFlows} {
		if err := f(); !errors.Is(err, gpukern.ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestLossOfState: flows begin anew on the CPU.
func TestLossOfState(t *testing.T) {
	b, flows := stateBed(t, openFakeOnly)
	b.submit(b.batch(200, true))
	b.drain()
	b.drv.Lose(illegalAddress)
	b.noticed()
	clear(b.flows)
	b.submit(b.batch(100, true))
	b.drain()
	if err := b.e.ReadFlows(); err != nil || flows.Len() == 0 { // there is no device to read them from
		t.Errorf("%d flows on the CPU, %v", flows.Len(), err)
	}
}

// TestEngineTellsTheEpoch has flows bear the epoch of their last packet, whichever way its batch went.
func TestEngineTellsTheEpoch(t *testing.T) {
	b, flows := stateBed(t, openFakeOnly)
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
