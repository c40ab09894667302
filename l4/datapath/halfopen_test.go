package datapath

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHalfOpenQueuesAgreeWithSlices does random operations on the queues and on slices.
func TestHalfOpenQueuesAgreeWithSlices(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := halfOpenTable{slots: make([]halfOpenSlot, 11), high: 1}
		type entry struct{ conn, slot, pair uint32 } // pair 3 is none
		var all []entry
		var pairs [3]queue
		of := func(e entry) *queue {
			if e.pair == 3 {
				return nil
			}
			return &pairs[e.pair]
		}
		for next := range uint32(4000) {
			if h.full() != (len(all) == 10) {
				t.Fatalf("full is %v with %d", h.full(), len(all))
			}
			if !h.full() && r.IntN(2) == 0 {
				e := entry{conn: next, pair: r.Uint32N(4)}
				e.slot = h.push(e.conn, hashes{e.conn, e.pair}, of(e))
				all = append(all, e)
			} else if len(all) > 0 {
				i := r.IntN(len(all))
				h.remove(all[i].slot, of(all[i]))
				all = slices.Delete(all, i, i+1)
			}
			var want [4][]uint32
			for _, e := range all {
				want[3] = append(want[3], e.conn)
				if e.pair < 3 {
					want[e.pair] = append(want[e.pair], e.conn)
				}
			}
			for i := range pairs {
				sameQueue(t, &h, &pairs[i], byPair, want[i])
			}
			sameQueue(t, &h, &h.all, byAge, want[3])
		}
	}
}

// sameQueue compares a queue, read from both ends, with the connections in it by age.
func sameQueue(t *testing.T, h *halfOpenTable, q *queue, by int, want []uint32) {
	t.Helper()
	var up, down []uint32
	for s := q.oldest; s != 0; s = h.slots[s].links[by].newer {
		up = append(up, h.slots[s].conn)
	}
	for s := q.newest; s != 0; s = h.slots[s].links[by].older {
		down = append(down, h.slots[s].conn)
	}
	slices.Reverse(down)
	if !slices.Equal(up, want) || !slices.Equal(down, want) {
		t.Fatalf("queue %v, backwards %v, want %v", up, down, want)
	}
}
