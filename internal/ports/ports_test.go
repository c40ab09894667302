package ports

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

func TestMissingFindsWhatALinearScanFinds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		first := uint16(rnd.IntN(1 << 16))
		last := first + uint16(rnd.IntN(min(300, 1<<16-int(first))))
		from := first + uint16(rnd.IntN(int(last-first)+1))
		var s Set
		for p := int(first); p <= int(last); p++ {
			if rnd.IntN(20) > 0 {
				s.Add(uint16(p))
			}
		}
		want, wantOK := uint16(0), false
		for i := range int(last-first) + 1 {
			p := first + uint16((int(from-first)+i)%(int(last-first)+1))
			if !s.Has(p) {
				want, wantOK = p, true
				break
			}
		}
		if got, ok := s.Missing(from, first, last); ok != wantOK || ok && got != want {
			t.Fatalf("[%d, %d] from %d: %d %v, want %d %v", first, last, from, got, ok, want, wantOK)
		}
	}
}

func TestSearchesKnowWhatIsFree(t *testing.T) {
	var s Searches
	flow := func(port uint16) *wire.Tuple {
		return &wire.Tuple{Local: wire.Addr{1}, Remote: wire.Addr{2}, RemotePort: 80, LocalPort: port}
	}
	if s.Release(flow(1)); s.Find(flow(1)) != nil {
		t.Fatal("a search that was not begun")
	}
	x := s.Begin(flow(0))
	x.Reject(10, clock.Never)
	x.Reject(11, 1000)
	x.Reject(12, clock.Never)
	next := func(now clock.Time) (uint16, bool) { return s.Find(flow(9)).Next(now, 11, 10, 12) }
	if p, ok := next(999); ok {
		t.Errorf("port %d is free", p)
	}
	if p, ok := next(1000); !ok || p != 11 {
		t.Errorf("port %d %v after the wait, want 11", p, ok)
	}
	x.Reject(11, clock.Never)
	other := *flow(10)
	other.RemotePort++
	if s.Release(&other); x.busy.Has(10) == false {
		t.Error("a flow to another destination frees the port")
	}
	if s.Release(flow(10)); x.busy.Has(10) {
		t.Error("a flow that ended keeps its port")
	}
	for n := range 2 * maxSearches {
		d := *flow(0)
		d.RemotePort = uint16(1000 + n)
		s.Begin(&d)
	}
	if len(s.byDest) > maxSearches {
		t.Errorf("%d searches", len(s.byDest))
	}
	if s.Reset(); s.Find(flow(0)) != nil || len(s.byDest) != 0 {
		t.Error("a search outlives Reset")
	}
}

func TestSharersKeepIndexes(t *testing.T) {
	var g Sharers[int]
	a, b, c := new(int), new(int), new(int)
	if i, j, k := g.Add(a), g.Add(b), g.Add(c); i != 0 || j != 1 || k != 2 {
		t.Fatal(i, j, k)
	}
	g.Remove(1)
	if g.From(1) != c || g.From(0) != a || g.First() != a || g.Indexes() != 3 {
		t.Error("others have moved")
	}
	if g.Add(b) != 1 || g.From(1) != b {
		t.Error("the free index is not used again")
	}
	g.Remove(2)
	g.Remove(0)
	if g.Indexes() != 2 || g.First() != b || g.Empty() {
		t.Errorf("%d indexes", g.Indexes())
	}
	if g.Remove(1); !g.Empty() || g.Indexes() != 0 {
		t.Error("not empty")
	}
}

func TestOverlapIsSymmetricAndMeansACommonAddress(t *testing.T) {
	four, six := wire.AddrFrom4([4]byte{198, 18, 0, 1}), wire.Addr{0x20, 1, 15: 1}
	scopes := []Scope{
		NewScope(wire.Addr{}, false), NewScope(wire.Addr{}, true), NewScope(wire.Unspecified4, false),
		NewScope(four, true), NewScope(wire.AddrFrom4([4]byte{198, 18, 0, 2}), false), NewScope(six, false), NewScope(wire.Addr{0x20, 1, 15: 2}, true),
	}
	samples := []wire.Addr{four, wire.AddrFrom4([4]byte{198, 18, 0, 2}), wire.AddrFrom4([4]byte{198, 18, 0, 3}), six, {0x20, 1, 15: 2}, {0x20, 1, 15: 3}}
	for _, a := range scopes {
		for _, b := range scopes {
			common := false
			for _, x := range samples {
				common = common || a.Covers(x) && b.Covers(x)
			}
			if a.Overlaps(b) != common || b.Overlaps(a) != common {
				t.Errorf("%v and %v: %v %v, want %v", a, b, a.Overlaps(b), b.Overlaps(a), common)
			}
		}
	}
}
