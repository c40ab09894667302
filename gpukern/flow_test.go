package gpukern

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func newFlows(t testing.TB, cfg FlowConfig) *FlowTable {
	t.Helper()
	f, err := NewFlowTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func newSketch(t testing.TB, cfg SketchConfig) *Sketch {
	t.Helper()
	s, err := NewSketch(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// slots checks that the flows of a table are those of the reference, but for the names of slots.
type slots struct {
	ref  *RefFlows
	of   map[uint32]uint32 // by the reference's slot
	used map[uint32]uint32 // the inverse
	seen map[uint32]uint32 // epoch of the last packet, by the reference's slot
}

func newSlots(ref *RefFlows) *slots {
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
func (s *slots) entries(t testing.TB, table *FlowTable) {
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
				cmp.Diff(f, want, cmpopts.EquateComparable(Flow{})))
		}
	}
}

// counted compares s with the reference's counts: never less, and rarely much more.
func counted(t testing.TB, s *Sketch, ref *RefSketch) {
	t.Helper()
	if p, b := s.Total(); p != ref.Packets || b != ref.Bytes {
		t.Fatalf("%d packets and %d bytes in all, reference %d and %d", p, b, ref.Packets, ref.Bytes)
	}
	for src, want := range ref.Sources {
		if p, b := s.Rate(src); p < want.Packets || b < want.Bytes {
			t.Fatalf("%v: %d packets, %d bytes; reference %d, %d", src, p, b, want.Packets, want.Bytes)
		}
	}
}

// agreeFlows runs the engine and the reference over b and fails where they differ.
func agreeFlows(t testing.TB, b *packet.Batch, c *CPU, l Lists, s *slots) {
	t.Helper()
	ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
	if err := c.Submit(b); err != nil {
		t.Fatal(err)
	}
	c.Poll(make([]*packet.Batch, 1))
	Reference(ref, c.ops, l)
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

func TestFlowsAndSketchesAgreeWithTheReference(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			l := Lists{
				Rules: g.rules(100), Routes: g.routes(100),
				Flows: &RefFlows{Idle: 1 + uint32(seed%3)}, Sketch: new(RefSketch),
			}
			table := newFlows(t, FlowConfig{Flows: 4000, Idle: int(l.Flows.Idle), Seed: seed})
			sketch := newSketch(t, SketchConfig{Width: 1 << 10, Precision: 10, Seed: seed})
			c := NewCPU(Config{Ops: OpsHeader | OpFlow | OpSketch, Tables: l.compile(t), Flows: table, Sketch: sketch})
			s := newSlots(l.Flows)
			for round := range 40 {
				if g.chance(40) {
					table.Advance()
					l.Flows.Epoch++
				}
				if g.chance(10) { // other rules: what flows remember of them must go
					l.Rules = g.rules(100)
					if err := c.Load(l.compile(t)); err != nil {
						t.Fatal(err)
					}
				}
				b := g.batch([...]int{1, 100, chunkSize + 1}[round%3])
				agreeFlows(t, b, c, l, s)
				agreeFlows(t, b, c, l, s) // all flows are known now
			}
			s.entries(t, table)
			counted(t, sketch, l.Sketch)
			if st := table.Stats(); st.Full != 0 || st.TakenOver == 0 || st.Lookups != l.Sketch.Packets {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestOperationsWithoutATable leave Flow alone, as an engine without the operation does.
func TestOperationsWithoutATableLeaveFlowAlone(t *testing.T) {
	g := newGenerator(1)
	agree(t, g.batch(300), NewCPU(Config{Ops: OpFlow | OpSketch}), Lists{})
	table, sketch := newFlows(t, FlowConfig{Flows: 100}), newSketch(t, SketchConfig{})
	agree(t, g.batch(300), NewCPU(Config{Flows: table, Sketch: sketch}), Lists{})
	if p, _ := sketch.Total(); p != 0 || table.Len() != 0 {
		t.Errorf("%d packets counted, %d flows", p, table.Len())
	}
}

// TestFragmentsAreOneFlow: the first fragment has ports and the others have none.
func TestFragmentsOfADatagramAreOfOneFlow(t *testing.T) {
	table := newFlows(t, FlowConfig{Flows: 100})
	rules := []Rule{{Proto: wire.ProtoUDP, DstPorts: PortRange(53, 53)}}
	l := Lists{Rules: rules, Flows: &RefFlows{Idle: 8}}
	c := NewCPU(Config{Ops: OpsHeader | OpFlow, Tables: l.compile(t), Flows: table})
	whole := fromHex(t, dnsQuery)
	first, rest := slices.Clone(whole), slices.Clone(whole)
	first[20], rest[21] = 0x20, 1
	cut := whole[:38] // its ports are not known: of the flow of the fragments, but rules see it otherwise
	for range 2 {
		b := batchOf(one(whole), one(rest), one(first), one(cut))
		agreeFlows(t, b, c, l, newSlots(l.Flows))
		if d := b.D; d[1].Flow != d[2].Flow || d[1].Flow != d[3].Flow || d[0].Flow == d[1].Flow {
			t.Fatalf("flows %d %d %d %d", d[0].Flow, d[1].Flow, d[2].Flow, d[3].Flow)
		}
		if d := b.D; d[0].Rule != 1 || d[1].Rule != 0 || d[2].Rule != 1 {
			t.Fatalf("rules %d %d %d", d[0].Rule, d[1].Rule, d[2].Rule)
		}
	}
}

func TestFlowTablesThatAreTooLargeAreRefused(t *testing.T) {
	for want, cfg := range map[string]FlowConfig{
		"16777216":     {Flows: MaxFlows + 1},
		"1 to":         {Flows: 0},
		"4096":         {Flows: 1, Idle: MaxIdle + 1},
		"idle epochs ": {Flows: 1, Idle: -1},
	} {
		if _, err := NewFlowTable(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
	if n := unsafe.Sizeof(flowEntry{}); n != 64 {
		t.Errorf("an entry has %d bytes", n)
	}
}

// TestFlowHash compares with numbers that another program made from the definition.
func TestFlowHash(t *testing.T) {
	v4 := flowKey{0xc0000201 << 32, 0, 0xc0000202 << 32, 0, 4096<<48 | 53<<32 | 17<<16 | 1<<8 | 2}
	v6 := flowKey{0x20010db800000000, 1, 0x20010db800000000, 2, 58<<16 | 1}
	for _, tc := range []struct{ seed, v4, v6, source4, source6 uint64 }{
		{1, 0xc1b85bcad70d4660, 0xa46769cf1d4be3e9, 0xe8d8257b136866d2, 0x6e05676255b67dbe},
		{0xdeadbeefcafe, 0x7c346fa57c188421, 0x4814c303345d510b, 0x1df4319a4b1e849d, 0x3cb32b33d447d599},
	} {
		var h flowHasher
		h.seeded(tc.seed)
		if a, b := h.sum(&v4), h.sum(&v6); a != tc.v4 || b != tc.v6 {
			t.Errorf("seed %x: %#x, %#x", tc.seed, a, b)
		}
		s := newSketch(t, SketchConfig{Seed: tc.seed})
		if a, b := s.hash(true, v4.aHi), s.hash(false, v6.aHi); a != tc.source4 || b != tc.source6 {
			t.Errorf("seed %x: sources %#x, %#x", tc.seed, a, b)
		}
	}
}

// randomKey returns a key that no other call returns.
func randomKey(r *rand.Rand) flowKey {
	return flowKey{r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64()<<32 | uint64(r.Uint32()&0xff)<<16 | 2}
}

// TestATableHoldsItsFlows measures how many flows find no room, at the size that the table was made for
// and above.
func TestATableHoldsItsFlows(t *testing.T) {
	for _, flows := range []int{1, 10, 100, 5000, 1 << 20} {
		table := newFlows(t, FlowConfig{Flows: flows, Seed: 1})
		r := rand.New(rand.NewPCG(uint64(flows), 1))
		fill := func(n int) uint64 {
			before := table.Stats().Full
			for range n {
				k := randomKey(r)
				table.find(&k, table.hash.sum(&k))
			}
			return table.Stats().Full - before
		}
		lost := fill(flows)
		if lost > uint64(flows)/50000 {
			t.Errorf("%d of %d flows found no room", lost, flows)
		}
		if flows < 5000 {
			continue
		}
		if table.Len() != flows-int(lost) {
			t.Errorf("%d flows, want %d", table.Len(), flows)
		}
		more := flows / 8
		full := fill(more)
		t.Logf("%d flows: %d bytes each, %d found no room; of %d more, %d", flows, table.Size()/flows, lost, more, full)
		if full > uint64(more)/100 {
			t.Errorf("%d of %d flows more found no room", full, more)
		}
	}
}

func TestDeletedFlowsAreForgotten(t *testing.T) {
	table := newFlows(t, FlowConfig{Flows: 12, Seed: 1})
	r := rand.New(rand.NewPCG(1, 1))
	keys := make([]flowKey, 16)
	slot := make([]uint32, len(keys))
	for i := range keys {
		keys[i] = randomKey(r)
		slot[i] = table.find(&keys[i], table.hash.sum(&keys[i])) + 1
	}
	for i := range keys {
		if _, ok := table.Entry(slot[i]); !ok || !table.Delete(slot[i]) || table.Delete(slot[i]) {
			t.Fatalf("flow %d is not deleted once", i)
		}
		if table.Len() != len(keys)-1-i {
			t.Fatalf("%d flows", table.Len())
		}
		for k := i + 1; k < len(keys); k++ {
			if got := table.find(&keys[k], table.hash.sum(&keys[k])) + 1; got != slot[k] {
				t.Fatalf("flow %d moved from slot %d to %d", k, slot[k], got)
			}
		}
	}
	if table.Delete(0) || table.Delete(table.Slots()+1) {
		t.Error("slots that do not exist are deleted")
	}
	if _, ok := table.Entry(table.Slots() + 1); ok {
		t.Error("a slot that does not exist has a flow")
	}
}

// TestTheStageAllocatesNothing covers new flows, known ones and the sketch.
func TestFlowsAndSketchesAllocateNothing(t *testing.T) {
	g := newGenerator(4)
	l := fuzzTables()
	table := newFlows(t, FlowConfig{Flows: 1000})
	c := NewCPU(Config{
		Ops: OpsHeader | OpFlow | OpSketch, Tables: l.compile(t),
		Flows: table, Sketch: newSketch(t, SketchConfig{}),
	})
	b := g.batch(600)
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

// TestAFlowWhoseHashIsZero has a tag nevertheless.
func TestAFlowWhoseHashIsZeroHasATag(t *testing.T) {
	table := newFlows(t, FlowConfig{Flows: 1000, Seed: 1})
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		k := randomKey(r)
		for table.hash.sum(&k)&0xffff != 0 {
			k.aHi++
		}
		i := table.find(&k, table.hash.sum(&k))
		if f, ok := table.Entry(i + 1); !ok || f.First != 0 || table.find(&k, table.hash.sum(&k)) != i {
			t.Fatalf("slot %d: %+v", i+1, f)
		}
	}
	if table.Len() != 3 {
		t.Errorf("%d flows, want 3", table.Len())
	}
}

// TestEpochsWrap: tags have 15 bits of them. A flow is over after the idle limit, until it looks young
// again after 16384 epochs, and Entry tells the epoch of its last packet up to there.
func TestEpochsWrap(t *testing.T) {
	table := newFlows(t, FlowConfig{Flows: 1000, Idle: MaxIdle, Seed: 1})
	table.epoch = 1<<32 - 5000 // and the epoch itself wraps
	k := flowKey{aHi: 1, rest: 2}
	i := table.find(&k, table.hash.sum(&k))
	for age, idle := range map[uint32]bool{0: false, 1: false, MaxIdle: false, MaxIdle + 1: true, 1<<14 - 1: true, 1 << 14: false} {
		table.epoch = 1<<32 - 5000 + age
		f, ok := table.Entry(i + 1)
		if !ok || f.Idle != idle || f.First != 1<<32-5000 || f.Last != 1<<32-5000 {
			t.Errorf("age %d: %+v, want idle %v", age, f, idle)
		}
	}
}
