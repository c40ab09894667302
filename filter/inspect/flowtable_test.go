package inspect

import (
	"math/rand/v2"
	"testing"
)

// TestFlowTableIsAMap compares the table with Go's map, with hashes of few different values too.
func TestFlowTableIsAMap(t *testing.T) {
	for _, mask := range []uint64{1<<64 - 1, 7, 0, 0xfffffffffffffff8} {
		var table flowTable
		want := map[flowKey]*flow{}
		r := rand.New(rand.NewPCG(1, mask))
		for step := range 20_000 {
			k := flowKey{aPort: uint16(r.IntN(300)), proto: 6}
			if table.places == nil {
				table.grow()
			}
			h := table.hash(&k) & mask
			f := table.find(&k, h)
			if f != want[k] {
				t.Fatalf("step %d, mask %x: found %p, want %p", step, mask, f, want[k])
			}
			switch {
			case f == nil:
				f = &flow{key: k}
				table.insert(f, h)
				want[k] = f
			case r.IntN(2) == 0:
				table.remove(f)
				delete(want, k)
			}
			if table.n != len(want) {
				t.Fatalf("step %d: %d flows, want %d", step, table.n, len(want))
			}
		}
		for k, f := range want {
			if table.find(&k, table.hash(&k)&mask) != f {
				t.Fatalf("mask %x: a flow is lost", mask)
			}
		}
	}
}
