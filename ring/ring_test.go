package ring

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/packet"
)

func newArena(t testing.TB, cfg ArenaConfig) *Arena {
	t.Helper()
	a, err := NewArena(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func cut(t testing.TB, a *Arena, n int) *Pool {
	t.Helper()
	p, err := a.Cut(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestArenaIsAlignedAndWritable(t *testing.T) {
	for _, cfg := range []ArenaConfig{
		{Frames: 1, Huge: HugeOff},
		{Frames: 3, FrameSize: 4096},
		{Frames: 5000, FrameSize: 2048},
		{Frames: 100, FrameSize: 65536, Huge: HugeOff},
	} {
		a := newArena(t, cfg)
		if a.Frames() < cfg.Frames {
			t.Errorf("%+v: %d frames", cfg, a.Frames())
		}
		align := uintptr(4096)
		if a.Pages() != PagesSmall {
			align = hugePage
		}
		if at := uintptr(unsafe.Pointer(&a.Mem[0])); at%align != 0 {
			t.Errorf("%+v: starts at %#x with pages of %s", cfg, at, a.Pages())
		}
		a.Mem[0], a.Mem[len(a.Mem)-1] = 1, 2
	}
}

func TestNewArenaRejectsInvalidSizes(t *testing.T) {
	for want, cfg := range map[string]ArenaConfig{
		"not a power of two": {Frames: 1, FrameSize: 3000},
		"from 2048":          {Frames: 1, FrameSize: 1024},
		"at least 1":         {},
		"4 GiB":              {Frames: 1 << 21, FrameSize: 2048},
	} {
		if _, err := NewArena(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", cfg, err, want)
		}
	}
}

func TestReservedHugePages(t *testing.T) {
	const knob = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(knob)
	if err != nil {
		t.Skip(err)
	}
	if os.WriteFile(knob, []byte("8"), 0o644) != nil {
		t.Skip("reserving huge pages needs root")
	}
	defer os.WriteFile(knob, before, 0o644)
	if got, _ := os.ReadFile(knob); number(got) < 4 {
		t.Skipf("the kernel reserved only %d huge pages", number(got))
	}
	a := newArena(t, ArenaConfig{Frames: 1024, Huge: HugeRequire})
	if a.Pages() != PagesHugeTLB {
		t.Errorf("pages: %s", a.Pages())
	}
	if _, err := NewArena(ArenaConfig{Frames: 1 << 20, Huge: HugeRequire}); !errors.Is(err, ErrNoHugePages) {
		t.Errorf("2 GiB of huge pages: %v", err)
	}
}

func number(text []byte) int {
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// frameSet holds frames by their index.
type frameSet struct {
	a    *Arena
	held map[uint32]bool
}

// add reports whether the frame at off was not in the set before.
func (s frameSet) add(off uint32) bool {
	f := s.a.Frame(off)
	was := s.held[f]
	s.held[f] = true
	return !was
}

func (s frameSet) Holds(visit func(off uint32)) {
	for f := range s.held {
		visit(f << s.a.Shift)
	}
}

func TestPoolGivesEachFrameOnce(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 64, Huge: HugeOff})
	p, q := cut(t, a, 40), cut(t, a, 0)
	if p.Size() != 40 || q.Size() != a.Frames()-40 {
		t.Fatalf("sizes %d and %d of %d", p.Size(), q.Size(), a.Frames())
	}
	for _, n := range []int{1, 0} {
		if _, err := a.Cut(n); err == nil {
			t.Errorf("Cut(%d) of an arena that is all cut", n)
		}
	}
	held := frameSet{a: a, held: map[uint32]bool{}}
	for _, pool := range []*Pool{p, q} {
		for {
			off, ok := pool.Get()
			if !ok {
				break
			}
			if off%2048 != 0 || !held.add(off) {
				t.Fatalf("frame %#x given twice or crooked", off)
			}
		}
	}
	if len(held.held) != a.Frames() {
		t.Errorf("%d frames given, want %d", len(held.held), a.Frames())
	}
	if err := Audit(a, p, q, held); err != nil {
		t.Error(err)
	}
}

func TestPutAcceptsAnyOffsetInsideOfTheFrame(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 4, Huge: HugeOff})
	p := cut(t, a, 0)
	off, _ := p.Get()
	p.Put(off + 300)
	if again, _ := p.Get(); again != off {
		t.Errorf("got %#x, want %#x", again, off)
	}
}

func TestPutIntoAFullPoolPanics(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 4, Huge: HugeOff})
	p := cut(t, a, 0)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	p.Put(0)
}

func TestPutBatchEmptiesTheBatch(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 8, Huge: HugeOff})
	p := cut(t, a, 0)
	b := packet.NewBatch(a.View(), 8)
	for range 5 {
		off, _ := p.Get()
		b.Append(packet.Desc{Off: off + 64, Len: 60})
	}
	p.PutBatch(b)
	if b.Len() != 0 || p.Free() != a.Frames() {
		t.Errorf("%d in the batch, %d of %d free", b.Len(), p.Free(), a.Frames())
	}
	if err := Audit(a, p); err != nil {
		t.Error(err)
	}
}

// offsets is a Holder for tests.
type offsets []uint32

func (o offsets) Holds(visit func(uint32)) {
	for _, off := range o {
		visit(off)
	}
}

func TestAuditFindsMissingDuplicateAndForeignFrames(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 8, Huge: HugeOff})
	p := cut(t, a, 0)
	one, _ := p.Get()
	two, _ := p.Get()
	for name, c := range map[string]struct {
		held offsets
		want string
	}{
		"sound":      {offsets{one + 5, two}, ""},
		"lost":       {offsets{one}, "1 are missing, 0 held twice"},
		"twice":      {offsets{one, two, two + 9}, "0 are missing, 1 held twice"},
		"also free":  {offsets{one, two, two - 2048}, "1 held twice"},
		"not a part": {offsets{one, two, uint32(len(a.Mem))}, "1 outside"},
	} {
		err := Audit(a, p, c.held)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrAudit) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAuditFindsAFrameOfNoPool(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 8, Huge: HugeOff})
	p := cut(t, a, 4)
	if err := Audit(a, p); err != nil {
		t.Error(err)
	}
	if err := Audit(a, p, offsets{4 << a.Shift}); err == nil || !strings.Contains(err.Error(), "1 outside") {
		t.Errorf("a frame that was never cut: %v", err)
	}
}

// TestSPSCLenIsInRangeForOtherGoroutines reads the length while both ends move.
func TestSPSCLenIsInRangeForOtherGoroutines(t *testing.T) {
	r := NewSPSC[int](8)
	var quit atomic.Bool
	var both sync.WaitGroup
	in, out := make([]int, 5), make([]int, 5)
	both.Go(func() {
		for !quit.Load() {
			r.Push(in)
		}
	})
	both.Go(func() {
		for !quit.Load() {
			r.Pop(out)
		}
	})
	defer both.Wait()
	defer quit.Store(true)
	for range 300_000 {
		if n := r.Len(); n < 0 || n > r.Cap() {
			t.Fatalf("%d elements in a ring of %d", n, r.Cap())
		}
	}
}

func TestSPSCIsFirstInFirstOutAndBounded(t *testing.T) {
	r := NewSPSC[int](5)
	if r.Cap() != 8 || r.Room() != 8 {
		t.Fatalf("cap %d, room %d", r.Cap(), r.Room())
	}
	next, want := 0, 0
	out := make([]int, 8)
	for round := range 100 {
		in := make([]int, round%9)
		for i := range in {
			in[i] = next + i
		}
		next += r.Push(in)
		if r.Len() > 8 || r.Room() != 8-r.Len() {
			t.Fatalf("len %d, room %d", r.Len(), r.Room())
		}
		for _, v := range out[:r.Pop(out[:round%7])] {
			if v != want {
				t.Fatalf("popped %d, want %d", v, want)
			}
			want++
		}
	}
	if want < 100 {
		t.Errorf("only %d elements went through", want)
	}
}

func TestSPSCPushRereadsTheHeadWhenItsCopyIsStale(t *testing.T) {
	r := NewSPSC[int](8)
	r.Push(make([]int, 8))
	out := make([]int, 8)
	r.Pop(out[:2])
	r.Push(make([]int, 1)) // looks: one more fits
	r.Pop(out[:6])
	if n := r.Push(make([]int, 8)); n != 7 {
		t.Errorf("took %d of 8, room was for 7", n)
	}
	if n := r.Pop(out); n != 8 {
		t.Errorf("gave %d of 8", n)
	}
}

func TestMPSCHoldsAtLeastTwo(t *testing.T) {
	r := NewMPSC[*int](1)
	values := []int{1, 2}
	if !r.Push(&values[0]) || !r.Push(&values[1]) || r.Push(nil) {
		t.Fatal("a ring for one does not hold two")
	}
	for i := range values {
		if v, ok := r.Pop(); !ok || v != &values[i] {
			t.Errorf("popped %v, %v", v, ok)
		}
	}
	for i := range r.slots {
		if r.slots[i].v != nil {
			t.Errorf("slot %d keeps what was popped alive", i)
		}
	}
}

func TestSPSCBetweenTwoGoroutines(t *testing.T) {
	const n = 200_000
	r := NewSPSC[packet.Desc](256)
	go func() {
		var b [17]packet.Desc
		for sent := uint32(0); sent < n; {
			k := min(uint32(len(b)), n-sent)
			for i := range k {
				b[i].Off, b[i].Hash = sent+i, ^(sent + i)
			}
			sent += uint32(r.Push(b[:k]))
			runtime.Gosched()
		}
	}()
	out := make([]packet.Desc, 31)
	for want := uint32(0); want < n; {
		k := r.Pop(out)
		for _, d := range out[:k] {
			if d.Off != want || d.Hash != ^want {
				t.Fatalf("got %d/%#x, want %d", d.Off, d.Hash, want)
			}
			want++
		}
		if k == 0 {
			runtime.Gosched()
		}
	}
}

func TestMPSCIsBounded(t *testing.T) {
	r := NewMPSC[int](3)
	for round := range 10 {
		for i := range 4 {
			if !r.Push(round*4 + i) {
				t.Fatalf("round %d: full after %d", round, i)
			}
		}
		if r.Push(-1) {
			t.Fatal("a fifth element went into a ring of four")
		}
		for i := range 4 {
			if v, ok := r.Pop(); !ok || v != round*4+i {
				t.Fatalf("popped %d %v", v, ok)
			}
		}
		if _, ok := r.Pop(); ok {
			t.Fatal("an empty ring gave an element")
		}
	}
}

func TestMPSCKeepsEachProducersOrder(t *testing.T) {
	const producers, each = 4, 20_000
	r := NewMPSC[[2]int](64)
	for p := range producers {
		go func() {
			for i := 0; i < each; {
				if r.Push([2]int{p, i}) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		}()
	}
	var next [producers]int
	for got := 0; got < producers*each; {
		v, ok := r.Pop()
		if !ok {
			runtime.Gosched()
			continue
		}
		if v[1] != next[v[0]] {
			t.Fatalf("producer %d: got %d, want %d", v[0], v[1], next[v[0]])
		}
		next[v[0]]++
		got++
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 64, Huge: HugeOff})
	p := cut(t, a, 0)
	r := NewSPSC[packet.Desc](64)
	buf := make([]packet.Desc, 32)
	if n := testing.AllocsPerRun(100, func() {
		off, _ := p.Get()
		r.Push(buf)
		r.Pop(buf)
		p.Put(off)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPeekLeavesElementsUntilSkip(t *testing.T) {
	r := NewSPSC[int](8)
	next, want := 0, 0
	push := func(n int) {
		for range n {
			if r.Push([]int{next}) == 1 {
				next++
			}
		}
	}
	var out [16]int
	for round := range 50 { // so that the ends wrap
		push(5)
		n := r.Peek(out[:round%4+2])
		if again := r.Peek(out[:n]); again != n || r.Len() < n {
			t.Fatalf("round %d: %d elements, then %d of %d", round, n, again, r.Len())
		}
		for _, v := range out[:n] {
			if v != want {
				t.Fatalf("round %d: %d, want %d", round, v, want)
			}
			want++
		}
		r.Skip(n)
	}
	if n := r.Peek(out[:]); n != r.Len() || n != next-want || n > 0 && out[n-1] != next-1 {
		t.Errorf("%d elements at last, want %d", n, next-want)
	}
}

func TestVisitLeavesTheRingUnchanged(t *testing.T) {
	r := NewSPSC[int](4)
	var out [3]int
	r.Push([]int{0, 0, 0})
	r.Pop(out[:]) // so that what follows wraps
	for n := range 5 {
		var want, got, after []int
		for i := range n {
			want = append(want, i+1)
		}
		r.Push(want)
		for range 2 {
			got = nil
			r.Visit(func(v int) { got = append(got, v) })
			if !slices.Equal(got, want) {
				t.Errorf("visited %v of %v", got, want)
			}
		}
		after = make([]int, 8)
		if after = after[:r.Pop(after)]; !slices.Equal(after, want) {
			t.Errorf("%v is left of %v", after, want)
		}
	}
}
