package gpukern

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/internal/hostkern"
	"github.com/millrace/millrace/packet"
)

// gkLookups is struct gk_lookups of testdata/lookups.cu.
type gkLookups struct {
	pass   gkPass
	tuples unsafe.Pointer
}

// crowd is packets whose flows threads of a kernel look up.
type crowd struct {
	d []packet.Desc
	t []gkTuple
}

// add appends a packet. What tables would say of it is a word made from its tuple.
func (c *crowd) add(u tuple, f packet.Flags, length uint16) {
	u.end = uint32(u.srcHi>>32)*2654435761 + u.ports + uint32(u.known)<<24
	c.d = append(c.d, packet.Desc{Flags: f, Len: length, Flow: 77})
	c.t = append(c.t, u.gk(f&packet.FlagIPv4 != 0))
}

// random appends n packets of a number of flows, those from one on, in both directions; some have no tuple,
// some are fragments.
func (c *crowd) random(g generator, n, from, flows int) {
	for range n {
		id := from + g.IntN(flows)
		u := tuple{srcHi: uint64(id) << 32, dstHi: uint64(id/3) << 32, ports: uint32(id&3)<<16 | 53, proto: 17, known: knowsPorts}
		f := packet.FlagIPv4
		if id%5 == 0 {
			f, u.srcLo, u.dstLo = packet.FlagIPv6, 7, uint64(id)
		}
		if id%7 == 0 {
			u.known = knowsAddresses // whatever ports says
		}
		if id%11 == 0 { // one flow, of which rules see different things
			u.known = knowsAddresses
			if g.chance(50) {
				u.known = knowsPorts
				f |= packet.FlagFragment
			}
		}
		if g.chance(3) {
			u.known = knowsNothing
		}
		if g.chance(50) {
			u.srcHi, u.srcLo, u.dstHi, u.dstLo = u.dstHi, u.dstLo, u.srcHi, u.srcLo
			u.ports = u.ports>>16 | u.ports<<16
		}
		c.add(u, f, uint16(60+g.IntN(1400)))
	}
}

// tuple is the inverse of gk.
func (g *gkTuple) tuple() tuple {
	return tuple{g.srcHi, g.srcLo, g.dstHi, g.dstLo, g.ports, g.end, g.proto, known(g.known), 0}
}

// onCPU does what the kernel does in the stages of the CPU.
func (c *crowd) onCPU(t *FlowTable, s *Sketch, generation uint32) []packet.Desc {
	b := &packet.Batch{D: slices.Clone(c.d)}
	w, flow, sketch := new(chunk), new(flowWork), new(sketchWork)
	for i := 0; i < len(b.D); {
		for w.n = 0; w.n < chunkSize && i < len(b.D); w.n++ {
			w.at[w.n], w.tuple[w.n] = int32(i), c.t[i].tuple()
			i++
		}
		sketch.sketch(w, b, s)
		flow.flow(w, b, t)
		rest := flow.recall(w, b, t, generation)
		for k := range rest.n {
			d := &b.D[rest.at[k]]
			d.Rule, d.NextHop = uint16(rest.tuple[k].end), uint16(rest.tuple[k].end>>16)
		}
		rest.keep(b, t, generation)
	}
	for i := range b.D { // those that the stages leave out
		if c.t[i].known == uint8(knowsNothing) {
			b.D[i].Rule, b.D[i].NextHop = uint16(c.t[i].end), uint16(c.t[i].end>>16)
		}
	}
	return b.D
}

// onKernel runs the kernel: blocks of 64 threads at once, or a single thread.
func (c *crowd) onKernel(t *testing.T, table *FlowTable, s *Sketch, generation uint32, blocks int) []packet.Desc {
	t.Helper()
	epoch := uint32(0)
	if table != nil {
		epoch = table.Epoch()
	}
	d, end := c.start(t, table, s, epoch, generation, blocks)
	end()
	return d
}

// start begins what onKernel does, in an epoch; end waits for it.
func (c *crowd) start(t *testing.T, table *FlowTable, s *Sketch, epoch, generation uint32, blocks int) (d []packet.Desc, end func()) {
	t.Helper()
	l := hostkern.Open(t, "testdata/lookups.cu")
	d = slices.Clone(c.d)
	m := State(table, s)
	state := m.place()
	p := &gkLookups{
		pass: gkPass{
			desc: unsafe.Pointer(&d[0]), state: unsafe.Pointer(&state[0]), n: uint32(len(d)),
			ops: uint32(OpFlow | OpSketch), epoch: epoch, generation: generation,
		},
		tuples: unsafe.Pointer(&c.t[0]),
	}
	var pin runtime.Pinner
	for _, a := range []any{&d[0], &state[0], &c.t[0], p} {
		pin.Pin(a)
	}
	if blocks == 0 {
		l.Run(t, "gk_lookups", unsafe.Pointer(p), 1, 1, 0)
		return d, pin.Unpin
	}
	ended := l.Start(t, "gk_lookups", unsafe.Pointer(p), blocks, 64, 0)
	return d, func() { <-ended; pin.Unpin() }
}

// sameSketch fails where two sketches of one seed differ.
func sameSketch(t *testing.T, got, want *Sketch) {
	t.Helper()
	if !slices.Equal(got.cells, want.cells) || !slices.Equal(got.registers, want.registers) {
		t.Fatal("the kernel's sketch differs from that of the CPU")
	}
}

// TestOneThreadOfAKernelLaysFlowsOutAsTheCPU compares every byte of the tables: alone, a thread takes the
// same places.
func TestOneThreadOfAKernelLaysFlowsOutAsTheCPU(t *testing.T) {
	for seed := range uint64(6) {
		flows := []int{13, 40, 900}[seed%3]
		g := newGenerator(seed)
		var tables [2]*FlowTable
		var sketches [2]*Sketch
		for i := range tables {
			tables[i] = newFlows(t, FlowConfig{Flows: flows, Idle: 2, Seed: seed + 1})
			sketches[i] = newSketch(t, SketchConfig{Width: 256, Precision: 10 + int(seed), Seed: seed + 1})
		}
		for round := range uint32(30) {
			c := new(crowd)
			c.random(g, 300, int(round)*flows/4, flows*5/4)
			want, got := c.onCPU(tables[0], sketches[0], 1+round/4), c.onKernel(t, tables[1], sketches[1], 1+round/4, 0)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("seed %d, round %d, packet %d: %+v, CPU %+v", seed, round, i, got[i], want[i])
				}
			}
			a, b := tables[0], tables[1]
			if !slices.Equal(a.tags, b.tags) || !slices.Equal(a.entries, b.entries) || !slices.Equal(a.counts, b.counts) {
				t.Fatalf("seed %d, round %d: the tables differ: %+v, %+v", seed, round, a.Stats(), b.Stats())
			}
			sameSketch(t, sketches[1], sketches[0])
			slot := 1 + g.Uint32N(a.Slots())
			advance := g.chance(30)
			for _, f := range tables {
				f.Delete(slot)
				if advance {
					f.Advance()
				}
			}
		}
		if st := tables[0].Stats(); st.TakenOver == 0 || st.Full == 0 && flows < 40 || st.Deleted == 0 {
			t.Errorf("%d flows: not everything happened: %+v", flows, st)
		}
	}
}

// TestManyThreadsAgreeOnFlows runs several blocks at once over few flows with many packets, over a table
// that is nearly full, and over one whose flows are over.
func TestManyThreadsAgreeOnFlows(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		table, flows, packets int
		idle                  int
	}{
		{"few flows", 100, 4, 3000, 8},
		{"one flow", 1, 1, 1000, 1},
		{"some flows", 1000, 300, 3000, 2},
		{"nearly full", 150, 190, 3000, 1},
		{"too full", 60, 300, 2000, 1},
		{"all in one line", 12, 40, 1500, 1},
	} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprint(tc.name, " ", seed), func(t *testing.T) {
				table := newFlows(t, FlowConfig{Flows: tc.table, Idle: tc.idle, Seed: seed + 1})
				sketch := newSketch(t, SketchConfig{Width: 256, Precision: 10, Seed: seed + 1})
				plain := newSketch(t, SketchConfig{Width: 256, Precision: 10, Seed: seed + 1})
				aside := newFlows(t, FlowConfig{Flows: 1000})
				g := newGenerator(seed)
				f := newFinder(table)
				for round := range 8 {
					c := new(crowd)
					c.random(g, tc.packets/8, round*tc.flows/6, tc.flows)
					f.judge(t, c, c.onKernel(t, table, sketch, 3, 5))
					c.onCPU(aside, plain, 3)
					for range g.IntN(4) {
						table.Advance()
					}
				}
				sameSketch(t, sketch, plain)
			})
		}
	}
}

// finder follows what a table says of flows.
type finder struct {
	table *FlowTable
	flows map[flowKey]*found
}

type found struct {
	slot, epoch, first, packets uint32
}

func newFinder(t *FlowTable) *finder { return &finder{t, map[flowKey]*found{}} }

// judge compares what packets of one epoch were told, in whatever order they came, with the rules: one
// slot for a flow and one flow for a slot, exact counts, flows that are over begin anew, the findings of
// the tables, no room for all packets of a flow or for none, and no tag left busy.
func (f *finder) judge(t *testing.T, c *crowd, got []packet.Desc) {
	t.Helper()
	now, idle := f.table.epoch, f.table.idle
	seen := map[flowKey]uint32{} // slots, in this epoch
	for i, d := range got {
		u := c.t[i].tuple()
		if d.Rule != uint16(u.end) || d.NextHop != uint16(u.end>>16) {
			t.Fatalf("packet %d: findings of another: %+v, want %#x", i, d, u.end)
		}
		if u.known == knowsNothing {
			if d.Flow != 0 {
				t.Fatalf("packet %d has no tuple but flow %d", i, d.Flow)
			}
			continue
		}
		var k flowKey
		way := k.set(&u, d.Flags)
		if slot, twice := seen[k]; twice && slot != d.Flow>>1 {
			t.Fatalf("packet %d: flow %+v has slots %d and %d", i, k, slot, d.Flow>>1)
		}
		seen[k] = d.Flow >> 1
		if d.Flow == 0 {
			continue
		}
		if d.Flow&1 != way || d.Flow>>1 == 0 {
			t.Fatalf("packet %d: flow %d, direction %d", i, d.Flow, way)
		}
		e := f.flows[k]
		switch {
		case e == nil || now-e.epoch > idle:
			e = &found{slot: d.Flow >> 1, first: now}
			f.flows[k] = e
		case e.slot != d.Flow>>1:
			t.Fatalf("packet %d: the flow moved from slot %d to %d", i, e.slot, d.Flow>>1)
		}
		e.epoch = now
		e.packets++
	}
	f.entries(t, seen)
}

// entries compares the table with the flows.
func (f *finder) entries(t *testing.T, seen map[flowKey]uint32) {
	t.Helper()
	live := 0
	for i, tag := range f.table.tags {
		if tag&tagBusy != 0 {
			t.Fatalf("slot %d was left busy", i+1)
		}
		if tag>>tagHash != 0 {
			live++
		}
	}
	if live != f.table.Len() {
		t.Fatalf("%d flows, told %d", live, f.table.Len())
	}
	for k, e := range f.flows {
		if f.table.epoch-e.epoch > f.table.idle {
			if _, ok := seen[k]; !ok { // over: its place may be another's
				delete(f.flows, k)
			}
			continue
		}
		at := &f.table.entries[e.slot-1]
		if at.key != k || at.first != e.first || at.packets != e.packets {
			t.Fatalf("slot %d has %+v, want %+v of %+v", e.slot, *at, k, *e)
		}
		if told, _ := f.table.Entry(e.slot); told.Last != e.epoch || told.Idle {
			t.Fatalf("slot %d: %+v, want epoch %d", e.slot, told, e.epoch)
		}
	}
}

func TestAKernelWithoutATableFindsNoFlow(t *testing.T) {
	c := new(crowd)
	c.random(newGenerator(1), 100, 0, 10)
	for i, d := range c.onKernel(t, nil, nil, 1, 2) {
		if d.Flow != 77 {
			t.Fatalf("packet %d: flow %d", i, d.Flow)
		}
	}
}

// TestABatchOfAnOlderEpochTakesNothingOver: a batch may end after the epoch that it began in. What it sees
// of the next epoch is young, and stays of that epoch.
func TestABatchOfAnOlderEpochTakesNothingOver(t *testing.T) {
	table, sketch := newFlows(t, FlowConfig{Flows: 13, Idle: 1, Seed: 1}), newSketch(t, SketchConfig{})
	table.epoch = 100
	young, old := new(crowd), new(crowd)
	young.random(newGenerator(1), 400, 0, 20)
	old.random(newGenerator(2), 400, 0, 40)
	young.onKernel(t, table, sketch, 1, 3)
	tags, full := slices.Clone(table.tags), table.Stats().Full
	table.epoch = 99
	old.onKernel(t, table, sketch, 1, 3)
	for i, tag := range tags {
		if tag != tagEmpty && table.tags[i] != tag {
			t.Errorf("slot %d: tag %#x, was %#x", i+1, table.tags[i], tag)
		}
	}
	if st := table.Stats(); st.TakenOver != 0 || st.Full == full {
		t.Errorf("%+v", st)
	}
}

// TestBatchesOfTwoEpochsAtOnce: flows come back in the last epoch in which they are not over, while others
// that began an epoch later want their places. Either a flow kept its place or it got another one; whatever
// packets were told still holds.
func TestBatchesOfTwoEpochsAtOnce(t *testing.T) {
	for seed := range uint64(30) {
		table, sketch := newFlows(t, FlowConfig{Flows: 100, Idle: 1, Seed: seed + 1}), newSketch(t, SketchConfig{})
		g := newGenerator(seed)
		back, others := new(crowd), new(crowd)
		for id := range 128 {
			back.add(tuple{srcHi: uint64(id) << 32, ports: 1, known: knowsPorts}, packet.FlagIPv4, 64)
		}
		for range 512 {
			others.add(tuple{srcHi: uint64(1000+g.IntN(128)) << 32, ports: 2, known: knowsPorts}, packet.FlagIPv4, 64)
		}
		table.epoch = 9
		back.onKernel(t, table, sketch, 1, 1)
		table.epoch = 11
		d, end := back.start(t, table, sketch, 10, 1, 2)
		e, endOthers := others.start(t, table, sketch, 11, 1, 2)
		end()
		endOthers()
		for _, told := range []struct {
			c *crowd
			d []packet.Desc
		}{{back, d}, {others, e}} {
			for i := range told.d {
				u := told.c.t[i].tuple()
				var k flowKey
				k.set(&u, packet.FlagIPv4)
				if f := told.d[i].Flow; f != 0 && table.entries[f>>1-1].key != k {
					t.Fatalf("seed %d, packet %d: slot %d is another flow's", seed, i, f>>1)
				}
			}
		}
	}
}

// TestStateLayout compares what State lays out, and the Go forms above, with the C compiler's structs.
func TestStateLayout(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19: run `make deps`")
	}
	var text strings.Builder
	text.WriteString("#include \"sketch.cuh\"\n")
	assert := func(what string, n uintptr) { fmt.Fprintf(&text, "static_assert(%s == %d, \"\");\n", what, n) }
	var at []int
	m := State(newFlows(t, FlowConfig{Flows: 1}), newSketch(t, SketchConfig{}))
	for _, p := range m.Parts {
		at = append(at, p.At)
	}
	for i, field := range []string{"flows.tags", "flows.entries", "flows.counts", "sketches.cells", "sketches.registers"} {
		assert("offsetof(struct gk_state, "+field+")", uintptr(at[i]))
	}
	assert("sizeof(struct gk_state)", uintptr(len(m.Struct)))
	assert("offsetof(struct gk_flows, lines)", 24)
	assert("offsetof(struct gk_flows, idle)", 28)
	assert("offsetof(struct gk_flows, key)", 32)
	assert("offsetof(struct gk_sketches, key)", 16)
	assert("offsetof(struct gk_sketches, width)", 40)
	assert("offsetof(struct gk_sketches, precision)", 44)
	var e flowEntry
	assert("sizeof(struct gk_flow_entry)", unsafe.Sizeof(e))
	assert("offsetof(struct gk_flow_entry, first)", unsafe.Offsetof(e.first))
	assert("offsetof(struct gk_flow_entry, packets)", unsafe.Offsetof(e.packets))
	assert("offsetof(struct gk_flow_entry, memo)", unsafe.Offsetof(e.memo))
	assert("sizeof(struct gk_cell)", unsafe.Sizeof(cell{}))
	assert("offsetof(struct gk_cell, bytes)", unsafe.Offsetof(cell{}.bytes))
	assert("sizeof(struct gk_pass)", unsafe.Sizeof(gkPass{}))
	assert("offsetof(struct gk_pass, state)", unsafe.Offsetof(gkPass{}.state))
	assert("offsetof(struct gk_pass, epoch)", unsafe.Offsetof(gkPass{}.epoch))
	assert("offsetof(struct gk_pass, generation)", unsafe.Offsetof(gkPass{}.generation))
	for name, v := range map[string]uintptr{
		"GK_FLOW_LINE": lineTags, "GK_FLOW_WINDOW": lineWindow, "GK_FLOW_DELETED": tagDeleted, "GK_FLOW_BUSY": tagBusy,
		"GK_FLOW_EPOCH": tagEpoch, "GK_FLOW_HALF": tagHalf, "GK_FLOW_INSERTS": flowInserts,
		"GK_FLOW_TAKEN_OVER": flowTakenOver, "GK_FLOW_FULL": flowFull, "GK_FLOW_DELETES": flowDeletes,
	} {
		assert(name, v)
	}
	src := filepath.Join(t.TempDir(), "layout.cc")
	if err := os.WriteFile(src, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-fsyntax-only", "-I"+hostkern.Sources(), src).CombinedOutput(); err != nil {
		t.Errorf("state.h differs from Go:\n%s", out)
	}
}
