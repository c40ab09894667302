package datapath

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Maglev hashing: Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer",
// NSDI 2016, section 3.4. Every backend fills the slots of a table in an order of its own, which
// depends only on its name, one slot at a time in a round. The table comes out even, nearly the same when a
// backend leaves, and equal on all gateways with the same names and weights: a packet that another gateway
// forwarded before, or that came before a restart, goes to the same backend without shared state.

// Share is a backend that takes part in a table.
type Share struct {
	Name   string
	Weight int
	ID     uint32 // what the table holds
}

// maglev is a lookup table with a prime number of slots. The zero value holds no backend.
type maglev struct {
	slots []uint16 // index into ids
	ids   []uint32
}

// newMaglev returns the table over the shares with a weight above zero, or an empty one when there
// are none. size is a prime. The order of the shares does not matter.
func newMaglev(shares []Share, size int) maglev {
	list := permutationsOf(shares, size)
	if len(list) == 0 {
		return maglev{}
	}
	m := maglev{slots: make([]uint16, size), ids: idsOf(shares)}
	most := slices.MaxFunc(list, func(a, b permutation) int { return a.Weight - b.Weight }).Weight
	taken := make([]bool, size)
	for filled := 0; filled < size; {
		for i := range list {
			t := &list[i]
			if t.credit += t.Weight; t.credit < most {
				continue
			}
			t.credit -= most
			slot := t.next(taken)
			taken[slot], m.slots[slot] = true, uint16(i)
			if filled++; filled == size {
				break
			}
		}
	}
	return m
}

// permutation is a share while the table is filled: at slots offset, offset+skip, offset+2*skip ... modulo
// size, of which it takes one whenever its credit reaches the largest weight.
type permutation struct {
	Share
	at, skip, size int
	credit         int
}

// permutationsOf returns the shares that take part, in the order of their names.
func permutationsOf(shares []Share, size int) []permutation {
	var list []permutation
	for _, s := range byName(shares) {
		h := sha256.Sum256([]byte(s.Name))
		offset := binary.BigEndian.Uint64(h[:]) % uint64(size)
		skip := binary.BigEndian.Uint64(h[8:])%uint64(size-1) + 1
		list = append(list, permutation{Share: s, at: int(offset), skip: int(skip), size: size})
	}
	return list
}

// byName returns the shares that take part, in the order of their names.
func byName(shares []Share) []Share {
	list := slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.Weight == 0 })
	slices.SortFunc(list, func(a, b Share) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// idsOf returns what the slots of a table over the shares are numbers of.
func idsOf(shares []Share) []uint32 {
	var ids []uint32
	for _, s := range byName(shares) {
		ids = append(ids, s.ID)
	}
	return ids
}

// next returns the first slot of the permutation that is free.
func (t *permutation) next(taken []bool) int {
	for taken[t.at] {
		t.step()
	}
	slot := t.at
	t.step()
	return slot
}

func (t *permutation) step() {
	if t.at += t.skip; t.at >= t.size {
		t.at -= t.size
	}
}

// Pick returns the backend for a hash; false when there is none. It is one load from the table, whatever the
// number of backends.
func (m *maglev) Pick(hash uint64) (uint32, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	return m.ids[m.slots[hash%uint64(len(m.slots))]], true
}

// index is Pick that returns the backend's place in ids.
func (m *maglev) index(hash uint64) (int, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	return int(m.slots[hash%uint64(len(m.slots))]), true
}
