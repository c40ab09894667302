package flow

import (
	"math/rand/v2"
	"testing"
)

// FuzzFlowTable runs sequences of lookups, epochs and deletions against a map: two bytes each, the first
// of which says what happens.
func FuzzFlowTable(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{10, 100, 1000} {
		var seed []byte
		for range n {
			seed = append(seed, byte(r.Uint32()), byte(r.Uint32()))
		}
		f.Add(byte(n), seed)
	}
	f.Fuzz(func(t *testing.T, size byte, ops []byte) {
		table := newFlows(t, Config{Flows: 1 + int(size), Idle: 1 + int(size%3), Seed: 1})
		f := newFinder(table)
		for ; len(ops) >= 2; ops = ops[2:] {
			id := uint32(ops[1])
			switch kind := ops[0]; {
			case kind < 16:
				table.Advance()
			case kind < 32:
				f.forget(t, 1+id%table.Slots())
			default:
				f.lookUp(t, key{aHi: uint64(id), bHi: uint64(kind >> 6), rest: 2})
			}
		}
	})
}

// forget deletes a slot from the table and from the map.
func (f *finder) forget(t *testing.T, slot uint32) {
	t.Helper()
	had, want := f.table.Delete(slot), false
	for k, e := range f.flows {
		if e.slot == slot && f.table.epoch-e.epoch <= f.table.idle {
			delete(f.flows, k)
			want = true
		}
	}
	if want && !had {
		t.Fatalf("slot %d has a flow and was not deleted", slot)
	}
}

// lookUp looks a flow up in the table and in the map.
func (f *finder) lookUp(t *testing.T, k key) {
	t.Helper()
	now, idle := f.table.epoch, f.table.idle
	i := f.table.find(&k, f.table.hash.sum(&k))
	e := f.flows[k]
	if e != nil && now-e.epoch > idle {
		e = nil
	}
	if i == noSlot {
		if e != nil || !f.full(&k) {
			t.Fatalf("no room for a flow that is there, or where room is")
		}
		return
	}
	f.table.entries[i].packets++
	if e == nil {
		for other, o := range f.flows {
			if o.slot == i+1 && now-o.epoch <= idle {
				t.Fatalf("slot %d was taken from %+v", i+1, other)
			}
		}
		e = &found{slot: i + 1, first: now}
		f.flows[k] = e
	}
	e.epoch = now
	e.packets++
	f.entries(t, map[key]uint32{})
}

// full reports whether all places of k have flows that are not over.
func (f *finder) full(k *key) bool {
	s := f.table.search(f.table.hash.sum(k))
	for range lineWindow {
		for i := range uint32(lineTags) {
			if tag := f.table.tags[s.line*lineTags+i]; tag>>tagHash == 0 || f.table.over(tag) {
				return false
			}
		}
		s.next(f.table.lines)
	}
	return true
}
