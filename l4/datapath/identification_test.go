package datapath

import (
	"math"
	"testing"

	"github.com/millrace/millrace/internal/random"
)

// Packets that may be cut have an identification other than 0, also where the counters begin anew.
func TestIdentificationsAreNeverZero(t *testing.T) {
	var seed random.Source
	f := newFragments(8, &seed)
	for _, loops := range []int{1, 2, 3, 16} {
		for loop := range loops {
			f.next = math.MaxUint32 - 3
			last := uint32(0)
			for range 3 << 16 {
				id := f.nextID(loop, loops)
				if uint16(id) == 0 || id == last {
					t.Fatalf("loop %d of %d: identification %#x after %#x", loop, loops, id, last)
				}
				last = id
			}
		}
	}
	h := tunneler{&Handler{lastID: math.MaxUint16 - 1}}
	for _, want := range []uint16{math.MaxUint16, 1, 2} {
		if id := h.outerID(false); id != want {
			t.Errorf("identification %d of an outer header, want %d", id, want)
		}
	}
	if id := h.outerID(true); id != 0 {
		t.Errorf("identification %d beside Don't Fragment", id)
	}
}
