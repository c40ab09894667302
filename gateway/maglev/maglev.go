// Package maglev fills the look-up tables by which the gateway selects backends by a hash.
//
// Maglev hashing: Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer",
// NSDI 2016, section 3.4. Every backend fills the slots of a table in an order of its own, which
// depends only on its name, one slot at a time in a round. The table comes out even, nearly the same when a
// backend leaves, and equal on all gateways with the same names and weights: a packet that another gateway
// forwarded before, or that came before a restart, goes to the same backend without shared state.
//
// The L4 gateway (l4/datapath) and the pools of the L7 gateway (l7/pool) share it. The package has no state.
package maglev

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Share is a backend that takes part in a table.
type Share struct {
	Name   string // unique in the table
	Weight int    // 0 takes no part
}

// Fill returns a table of size slots, which is a prime. A slot holds the index of a share in its list, of which there
// are at most 65536. The order of the list does not change which share a slot belongs to. Without any weight it returns nil.
func Fill(shares []Share, size int) []uint16 {
	list := permutationsOf(shares, size)
	if len(list) == 0 {
		return nil
	}
	most := slices.MaxFunc(list, func(a, b permutation) int { return a.weight - b.weight }).weight
	slots, taken := make([]uint16, size), make([]bool, size)
	for filled := 0; filled < size; {
		for i := range list {
			t := &list[i]
			if t.credit += t.weight; t.credit < most {
				continue
			}
			t.credit -= most
			slot := t.next(taken)
			taken[slot], slots[slot] = true, t.index
			if filled++; filled == size {
				break
			}
		}
	}
	return slots
}

// permutation is a share while the table is filled: at slots offset, offset+skip, offset+2*skip ... modulo
// size, of which it takes one whenever its credit reaches the largest weight.
type permutation struct {
	name           string
	index          uint16
	weight         int
	at, skip, size int
	credit         int
}

// permutationsOf returns the shares that take part, in the order of their names.
func permutationsOf(shares []Share, size int) []permutation {
	var list []permutation
	for i, s := range shares {
		if s.Weight == 0 {
			continue
		}
		h := sha256.Sum256([]byte(s.Name))
		offset := binary.BigEndian.Uint64(h[:]) % uint64(size)
		skip := binary.BigEndian.Uint64(h[8:])%uint64(size-1) + 1
		list = append(list, permutation{
			name: s.Name, index: uint16(i), weight: s.Weight, at: int(offset), skip: int(skip), size: size,
		})
	}
	slices.SortFunc(list, func(a, b permutation) int { return cmp.Compare(a.name, b.name) })
	return list
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
