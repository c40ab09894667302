package gpukern

import (
	"cmp"
	"slices"
)

// route is a prefix on its way into a trie.
type route struct {
	hi, lo uint64
	n      uint32 // its place in the caller's list
	val    uint32
	bits   uint8
}

// order sorts routes by address and the shorter first, so that a prefix stands before all that lie
// in it.
func order(all []route) {
	slices.SortFunc(all, func(a, b route) int {
		if c := cmp.Compare(a.hi, b.hi); c != 0 {
			return c
		}
		if c := cmp.Compare(a.lo, b.lo); c != 0 {
			return c
		}
		if c := cmp.Compare(a.bits, b.bits); c != 0 {
			return c
		}
		return cmp.Compare(a.n, b.n)
	})
}

// same reports whether two routes have one prefix.
func (r *route) same(o *route) bool { return r.hi == o.hi && r.lo == o.lo && r.bits == o.bits }

// at returns the width bits of the address behind the first depth.
func (r *route) at(depth, width int) uint64 {
	v := r.lo << (depth & 63)
	if depth < 64 {
		v = r.hi<<depth | r.lo>>1>>(63-depth)
	}
	return v >> 1 >> (63 - width)
}

// part is one slot of a row or node that is being made: the value that it has from the routes so far,
// and the routes below, which are longer.
type part struct {
	val      uint32
	from, to int32
}
