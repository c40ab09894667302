package flow

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
)

// gkLookups is struct gk_lookups of testdata/lookups.cu.
type gkLookups struct {
	pass   hostkern.Pass
	tuples unsafe.Pointer
}

// opFlow is what kernels know gpukern.OpFlow by.
const opFlow = 1 << 5

// source makes packets from a seed.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 1))} }

func (g source) chance(percent int) bool { return g.IntN(100) < percent }

// crowd is packets whose flows threads of a kernel look up.
type crowd struct {
	d []packet.Desc
	t []hostkern.Tuple
}

// add appends a packet. What tables would say of it is a word made from its tuple.
func (c *crowd) add(u tuple.Tuple, f packet.Flags, length uint16) {
	u.End = uint32(u.SrcHi>>32)*2654435761 + u.Ports + uint32(u.Known)<<24
	c.d = append(c.d, packet.Desc{Flags: f, Len: length, Flow: 77})
	c.t = append(c.t, hostkern.TupleOf(&u, f&packet.FlagIPv4 != 0))
}

// random appends n packets of a number of flows, those from one on, in both directions; some have no tuple,
// some are fragments.
func (c *crowd) random(g source, n, from, flows int) {
	for range n {
		id := from + g.IntN(flows)
		u := tuple.Tuple{SrcHi: uint64(id) << 32, DstHi: uint64(id/3) << 32, Ports: uint32(id&3)<<16 | 53, Proto: 17, Known: tuple.Ports}
		f := packet.FlagIPv4
		if id%5 == 0 {
			f, u.SrcLo, u.DstLo = packet.FlagIPv6, 7, uint64(id)
		}
		if id%7 == 0 {
			u.Known = tuple.Addresses // whatever ports says
		}
		if id%11 == 0 { // one flow, of which rules see different things
			u.Known = tuple.Addresses
			if g.chance(50) {
				u.Known = tuple.Ports
				f |= packet.FlagFragment
			}
		}
		if g.chance(3) {
			u.Known = tuple.None
		}
		if g.chance(50) {
			u.SrcHi, u.SrcLo, u.DstHi, u.DstLo = u.DstHi, u.DstLo, u.SrcHi, u.SrcLo
			u.Ports = u.Ports>>16 | u.Ports<<16
		}
		c.add(u, f, uint16(60+g.IntN(1400)))
	}
}

// onCPU does what the kernel does in the stages of the CPU.
func (c *crowd) onCPU(t *Table, generation uint32) []packet.Desc {
	b := &packet.Batch{D: slices.Clone(c.d)}
	w, flow := new(tuple.Chunk), new(Stage)
	for i := 0; i < len(b.D); {
		for w.N = 0; w.N < tuple.ChunkSize && i < len(b.D); w.N++ {
			w.At[w.N], w.Tuple[w.N] = int32(i), c.t[i].Tuple()
			i++
		}
		flow.Assign(w, b, t)
		rest := flow.Recall(w, b, t, generation)
		for k := range rest.N {
			d := &b.D[rest.At[k]]
			d.Rule, d.NextHop = uint16(rest.Tuple[k].End), uint16(rest.Tuple[k].End>>16)
		}
		flow.Remember(rest, b, t, generation)
	}
	for i := range b.D { // those that the stages leave out
		if c.t[i].Tuple().Known == tuple.None {
			b.D[i].Rule, b.D[i].NextHop = uint16(c.t[i].Tuple().End), uint16(c.t[i].Tuple().End>>16)
		}
	}
	return b.D
}

// onKernel runs the kernel: blocks of 64 threads at once, or a single thread.
func (c *crowd) onKernel(t *testing.T, table *Table, generation uint32, blocks int) []packet.Desc {
	t.Helper()
	epoch := uint32(0)
	if table != nil {
		epoch = table.Epoch()
	}
	d, end := c.start(t, table, epoch, generation, blocks)
	end()
	return d
}

// start begins what onKernel does, in an epoch; end waits for it.
func (c *crowd) start(t *testing.T, table *Table, epoch, generation uint32, blocks int) (d []packet.Desc, end func()) {
	t.Helper()
	l := hostkern.Open(t, "testdata/lookups.cu")
	d = slices.Clone(c.d)
	m := table.Image()
	state := hostkern.Place(m)
	p := &gkLookups{
		pass: hostkern.Pass{
			Desc: unsafe.Pointer(&d[0]), State: unsafe.Pointer(&state[0]), N: uint32(len(d)),
			Ops: opFlow, Epoch: epoch, Generation: generation,
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

// TestOneThreadOfAKernelLaysFlowsOutAsTheCPU compares every byte of the tables: alone, a thread takes the
// same places.
func TestOneThreadOfAKernelLaysFlowsOutAsTheCPU(t *testing.T) {
	for seed := range uint64(6) {
		flows := []int{13, 40, 900}[seed%3]
		g := newSource(seed)
		var tables [2]*Table
		for i := range tables {
			tables[i] = newFlows(t, Config{Flows: flows, Idle: 2, Seed: seed + 1})
		}
		for round := range uint32(30) {
			c := new(crowd)
			c.random(g, 300, int(round)*flows/4, flows*5/4)
			want, got := c.onCPU(tables[0], 1+round/4), c.onKernel(t, tables[1], 1+round/4, 0)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("seed %d, round %d, packet %d: %+v, CPU %+v", seed, round, i, got[i], want[i])
				}
			}
			a, b := tables[0], tables[1]
			if !slices.Equal(a.tags, b.tags) || !slices.Equal(a.entries, b.entries) || !slices.Equal(a.counts, b.counts) {
				t.Fatalf("seed %d, round %d: the tables differ: %+v, %+v", seed, round, a.Stats(), b.Stats())
			}
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
				table := newFlows(t, Config{Flows: tc.table, Idle: tc.idle, Seed: seed + 1})
				g := newSource(seed)
				f := newFinder(table)
				for round := range 8 {
					c := new(crowd)
					c.random(g, tc.packets/8, round*tc.flows/6, tc.flows)
					f.judge(t, c, c.onKernel(t, table, 3, 5))
					for range g.IntN(4) {
						table.Advance()
					}
				}
			})
		}
	}
}

// finder follows what a table says of flows.
type finder struct {
	table *Table
	flows map[key]*found
}

type found struct {
	slot, epoch, first, packets uint32
}

func newFinder(t *Table) *finder { return &finder{t, map[key]*found{}} }

// judge compares what packets of one epoch were told, in whatever order they came, with the rules: one
// slot for a flow and one flow for a slot, exact counts, flows that are over begin anew, the findings of
// the tables, no room for all packets of a flow or for none, and no tag left busy.
func (f *finder) judge(t *testing.T, c *crowd, got []packet.Desc) {
	t.Helper()
	now, idle := f.table.epoch, f.table.idle
	seen := map[key]uint32{} // slots, in this epoch
	for i, d := range got {
		u := c.t[i].Tuple()
		if d.Rule != uint16(u.End) || d.NextHop != uint16(u.End>>16) {
			t.Fatalf("packet %d: findings of another: %+v, want %#x", i, d, u.End)
		}
		if u.Known == tuple.None {
			if d.Flow != 0 {
				t.Fatalf("packet %d has no tuple but flow %d", i, d.Flow)
			}
			continue
		}
		var k key
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
func (f *finder) entries(t *testing.T, seen map[key]uint32) {
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
	c.random(newSource(1), 100, 0, 10)
	for i, d := range c.onKernel(t, nil, 1, 2) {
		if d.Flow != 77 {
			t.Fatalf("packet %d: flow %d", i, d.Flow)
		}
	}
}

// TestABatchOfAnOlderEpochTakesNothingOver: a batch may end after the epoch that it began in. What it sees
// of the next epoch is young, and stays of that epoch.
func TestABatchOfAnOlderEpochTakesNothingOver(t *testing.T) {
	table := newFlows(t, Config{Flows: 13, Idle: 1, Seed: 1})
	table.epoch = 100
	young, old := new(crowd), new(crowd)
	young.random(newSource(1), 400, 0, 20)
	old.random(newSource(2), 400, 0, 40)
	young.onKernel(t, table, 1, 3)
	tags, full := slices.Clone(table.tags), table.Stats().Full
	table.epoch = 99
	old.onKernel(t, table, 1, 3)
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
		table := newFlows(t, Config{Flows: 100, Idle: 1, Seed: seed + 1})
		g := newSource(seed)
		back, others := new(crowd), new(crowd)
		for id := range 128 {
			back.add(tuple.Tuple{SrcHi: uint64(id) << 32, Ports: 1, Known: tuple.Ports}, packet.FlagIPv4, 64)
		}
		for range 512 {
			others.add(tuple.Tuple{SrcHi: uint64(1000+g.IntN(128)) << 32, Ports: 2, Known: tuple.Ports}, packet.FlagIPv4, 64)
		}
		table.epoch = 9
		back.onKernel(t, table, 1, 1)
		table.epoch = 11
		d, end := back.start(t, table, 10, 1, 2)
		e, endOthers := others.start(t, table, 11, 1, 2)
		end()
		endOthers()
		for _, told := range []struct {
			c *crowd
			d []packet.Desc
		}{{back, d}, {others, e}} {
			for i := range told.d {
				u := told.c.t[i].Tuple()
				var k key
				k.set(&u, packet.FlagIPv4)
				if f := told.d[i].Flow; f != 0 && table.entries[f>>1-1].key != k {
					t.Fatalf("seed %d, packet %d: slot %d is another flow's", seed, i, f>>1)
				}
			}
		}
	}
}
