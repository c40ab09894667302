package gpukern_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func newFlows(t testing.TB, cfg flow.Config) *flow.Table {
	t.Helper()
	f, err := flow.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// slots checks that the flows of a table are those of the reference, but for the names of slots.
type slots struct {
	ref  *kernref.Flows
	of   map[uint32]uint32 // by the reference's slot
	used map[uint32]uint32 // the inverse
	seen map[uint32]uint32 // epoch of the last packet, by the reference's slot
}

func newSlots(ref *kernref.Flows) *slots {
	return &slots{ref, map[uint32]uint32{}, map[uint32]uint32{}, map[uint32]uint32{}}
}

// pair takes note that a packet has flow got of the table and flow want of the reference.
func (s *slots) pair(got, want uint32) error {
	if got&1 != want&1 || (got == 0) != (want == 0) || got == 1 {
		return fmt.Errorf("flow %d, reference %d: one has no slot, or another direction", got, want)
	}
	if got == 0 {
		return nil
	}
	slot, name := got>>1, want>>1
	if old, ok := s.of[name]; ok && old != slot {
		return fmt.Errorf("flow %d of the reference moved from slot %d to %d", name, old, slot)
	}
	if other, ok := s.used[slot]; ok && other != name && s.ref.Epoch-s.seen[other] <= s.ref.Idle {
		return fmt.Errorf("flow %d of the reference got slot %d of flow %d, which is not over", name, slot, other)
	}
	s.of[name], s.used[slot], s.seen[name] = slot, name, s.ref.Epoch
	return nil
}

// entries compares the table's entries with the reference's flows.
func (s *slots) entries(t testing.TB, table *flow.Table) {
	t.Helper()
	for slot := range table.Slots() + 2 {
		f, ok := table.Entry(slot)
		if !ok {
			continue
		}
		want, name := s.ref.Flow(f)
		if want.First != f.First && f.Idle { // it began anew elsewhere
			continue
		}
		if s.of[name] != slot || f != want {
			t.Fatalf("slot %d (reference: %d): table -, reference +:\n%s", slot, s.of[name],
				cmp.Diff(f, want, cmpopts.EquateComparable(flow.Flow{})))
		}
	}
}

// agreeFlows runs the engine and the reference over b and fails where they differ.
func agreeFlows(t testing.TB, b *packet.Batch, c *CPU, l kernref.Lists, s *slots) {
	t.Helper()
	ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
	if err := c.Submit(b); err != nil {
		t.Fatal(err)
	}
	c.Poll(make([]*packet.Batch, 1))
	kernref.Reference(ref, c.Info().Ops, l)
	more := false
	for i := range b.D {
		got, want := b.D[i], ref.D[i]
		if !more {
			if err := s.pair(got.Flow, want.Flow); err != nil {
				t.Fatalf("packet %d: %v\n% x", i, err, b.Bytes(i))
			}
			want.Flow = got.Flow
		}
		more = got.Flags&packet.FlagMore != 0
		if got != want {
			t.Fatalf("packet %d of %d: engine -, reference +:\n%s\n% x", i, len(b.D), cmp.Diff(got, want), b.Bytes(i))
		}
	}
}

func TestFlowsAgreeWithTheReference(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := kernref.NewGenerator(seed)
			l := kernref.Lists{
				Rules: g.Rules(100), Routes: g.Routes(100),
				Flows: &kernref.Flows{Idle: 1 + uint32(seed%3)},
			}
			table := newFlows(t, flow.Config{Flows: 4000, Idle: int(l.Flows.Idle), Seed: seed})
			c := NewCPU(Config{Ops: OpsHeader | OpFlow, Tables: compile(t, l), Flows: table})
			s := newSlots(l.Flows)
			for round := range 40 {
				if g.Chance(40) {
					table.Advance()
					l.Flows.Epoch++
				}
				if g.Chance(10) { // other rules: what flows remember of them must go
					l.Rules = g.Rules(100)
					if err := c.Load(compile(t, l)); err != nil {
						t.Fatal(err)
					}
				}
				b := g.Batch([...]int{1, 100, tuple.ChunkSize + 1}[round%3])
				agreeFlows(t, b, c, l, s)
				agreeFlows(t, b, c, l, s) // all flows are known now
			}
			s.entries(t, table)
			if st := table.Stats(); st.Full != 0 || st.TakenOver == 0 || st.Lookups == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestOperationsWithoutATable leave Flow alone, as an engine without the operation does.
func TestOperationsWithoutATableLeaveFlowAlone(t *testing.T) {
	g := kernref.NewGenerator(1)
	agree(t, g.Batch(300), NewCPU(Config{Ops: OpFlow}), kernref.Lists{})
	table := newFlows(t, flow.Config{Flows: 100})
	agree(t, g.Batch(300), NewCPU(Config{Flows: table}), kernref.Lists{})
	if n := table.Len(); n != 0 {
		t.Errorf("%d flows", n)
	}
}

// TestFragmentsAreOneFlow: the first fragment has ports and the others have none.
func TestFragmentsOfADatagramAreOfOneFlow(t *testing.T) {
	table := newFlows(t, flow.Config{Flows: 100})
	rules := []acl.Rule{{Proto: wire.ProtoUDP, DstPorts: acl.PortRange(53, 53)}}
	l := kernref.Lists{Rules: rules, Flows: &kernref.Flows{Idle: 8}}
	c := NewCPU(Config{Ops: OpsHeader | OpFlow, Tables: compile(t, l), Flows: table})
	whole := fromHex(t, dnsQuery)
	first, rest := slices.Clone(whole), slices.Clone(whole)
	first[20], rest[21] = 0x20, 1
	cut := whole[:38] // its ports are not known: of the flow of the fragments, but rules see it otherwise
	for range 2 {
		b := kernref.BatchOf(kernref.One(whole), kernref.One(rest), kernref.One(first), kernref.One(cut))
		agreeFlows(t, b, c, l, newSlots(l.Flows))
		if d := b.D; d[1].Flow != d[2].Flow || d[1].Flow != d[3].Flow || d[0].Flow == d[1].Flow {
			t.Fatalf("flows %d %d %d %d", d[0].Flow, d[1].Flow, d[2].Flow, d[3].Flow)
		}
		if d := b.D; d[0].Rule != 1 || d[1].Rule != 0 || d[2].Rule != 1 {
			t.Fatalf("rules %d %d %d", d[0].Rule, d[1].Rule, d[2].Rule)
		}
	}
}

// TestFlowsAllocateNothing covers new flows and known ones.
func TestFlowsAllocateNothing(t *testing.T) {
	g := kernref.NewGenerator(4)
	l := fuzzTables()
	table := newFlows(t, flow.Config{Flows: 1000})
	c := NewCPU(Config{
		Ops: OpsHeader | OpFlow, Tables: compile(t, l), Flows: table,
	})
	b := g.Batch(600)
	done := make([]*packet.Batch, 4)
	if n := testing.AllocsPerRun(20, func() {
		table.Advance()
		if err := c.Submit(b); err != nil {
			t.Fatal(err)
		}
		c.Poll(done)
		table.Delete(b.D[0].Flow >> 1)
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
