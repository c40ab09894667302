package lpm

import (
	"cmp"
	"slices"
)

// Prefix is a prefix on its way into a trie.
type Prefix struct {
	Hi, Lo uint64
	N      uint32 // its place in the caller's list
	Val    uint32
	Bits   uint8
}

// Sort sorts routes by address and the shorter first, so that a prefix stands before all that lie
// in it.
func Sort(all []Prefix) {
	slices.SortFunc(all, func(a, b Prefix) int {
		if c := cmp.Compare(a.Hi, b.Hi); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Lo, b.Lo); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Bits, b.Bits); c != 0 {
			return c
		}
		return cmp.Compare(a.N, b.N)
	})
}

// Same reports whether two routes have one prefix.
func (r *Prefix) Same(o *Prefix) bool { return r.Hi == o.Hi && r.Lo == o.Lo && r.Bits == o.Bits }

// at returns the width bits of the address behind the first depth.
func (r *Prefix) at(depth, width int) uint64 {
	v := r.Lo << (depth & 63)
	if depth < 64 {
		v = r.Hi<<depth | r.Lo>>1>>(63-depth)
	}
	return v >> 1 >> (63 - width)
}

// part is one slot of a row or node that is being made: the value that it has from the routes so far,
// and the routes below, which are longer.
type part struct {
	val      uint32
	from, to int32
}

// Contains reports whether p contains the prefix o.
func (p *Prefix) Contains(o *Prefix) bool {
	return p.Bits <= o.Bits && Alike(p.Hi, p.Lo, o.Hi, o.Lo, p.Bits)
}

// Longer returns the prefix one bit longer than p, whose last bit is bit.
func (p Prefix) Longer(bit int) Prefix {
	if p.Bits < 64 {
		p.Hi |= uint64(bit) << (63 - p.Bits)
	} else {
		p.Lo |= uint64(bit) << (127 - p.Bits)
	}
	p.Bits++
	return p
}

// Alike reports whether the first n bits of two addresses are alike.
func Alike(hi, lo, hi2, lo2 uint64, n uint8) bool {
	if n <= 64 {
		return (hi^hi2)>>(64-n) == 0
	}
	return hi == hi2 && (lo^lo2)>>(128-n) == 0
}
