package seqnum

import (
	"math/rand/v2"
	"testing"
)

// TestSequenceNumbers compares the arithmetic of the circle with that of whole numbers.
func TestSequenceNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		at, d := int64(r.Uint64()>>20), int64(r.Uint32()>>1)
		if r.Uint32()%8 == 0 {
			d = int64(r.Uint32() % 2)
		}
		a, b := uint32(at), uint32(at+d)
		if Before(a, b) != (d > 0) || Before(b, a) || !AtOrBefore(a, b) || AtOrBefore(b, a) != (d == 0) {
			t.Fatalf("order of %d and %d", a, b)
		}
		if Latest(a, b) != b || Latest(b, a) != b || Earliest(a, b) != a || Earliest(b, a) != a {
			t.Fatalf("bounds of %d and %d", a, b)
		}
		if Distance(a, b) != uint32(d) || Distance(b, a) != 0 {
			t.Fatalf("distance of %d and %d", a, b)
		}
	}
}
