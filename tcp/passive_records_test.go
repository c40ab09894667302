package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestRecordsAreAMap does at random to a table and a map what can be done to both.
func TestRecordsAreAMap(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	r := records[halfOpen, *halfOpen]{key: sipKey{1, 2}, limit: 3000}
	want := map[wire.Tuple]uint32{}
	for round := range 200000 {
		tuple := from(g.IntN(4000))
		slot, there := want[tuple]
		found := r.find(&tuple)
		if there && (found != slot || r.at(found).iss != slot) || !there && found != noSlot {
			t.Fatalf("round %d: slot %d, want %d (%v)", round, found, slot, there)
		}
		filling := round/20000%2 == 0
		switch {
		case there && (!filling || g.IntN(8) == 0):
			r.remove(slot)
			delete(want, tuple)
		case !there && (filling || g.IntN(8) == 0):
			n := r.insert(&tuple)
			if (n == noSlot) != (len(want) == r.limit) {
				t.Fatalf("round %d: slot %d with %d of %d used", round, n, len(want), r.limit)
			}
			if n != noSlot {
				if h := r.at(n); h.tuple != tuple || h.iss != 0 || h.terms != 0 {
					t.Fatalf("a new record is %+v", *h)
				}
				r.at(n).iss, want[tuple] = n, n
			}
		}
		if r.used != len(want) {
			t.Fatalf("round %d: %d used, want %d", round, r.used, len(want))
		}
	}
	for tuple, slot := range want {
		if r.find(&tuple) != slot {
			t.Fatal("lost")
		}
		r.remove(slot)
	}
	if r.used != 0 || r.slots != nil || r.buckets != nil {
		t.Errorf("%d used, %d slots are kept", r.used, len(r.slots))
	}
}

func TestRecordsAllocateNothingOnceThere(t *testing.T) {
	r := records[halfOpen, *halfOpen]{key: sipKey{1, 2}, limit: 10}
	tuple := from(1)
	r.remove(r.insert(&tuple))
	if n := testing.AllocsPerRun(100, func() { r.remove(r.insert(&tuple)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
