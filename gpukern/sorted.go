package gpukern

import (
	"cmp"
	"math/bits"
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

// Rows are as wide as their routes pay for: rowBytes for each route below, and for the first row no less
// than firstRow. Measured with a million routes of IPv4 and 200 000 of IPv6: half of it costs a tenth of
// the speed, and more gains nothing.
const (
	rowBytes  = 64
	firstRow  = 32 << 10
	rowLimit  = 18 // 2^18 nodes are 24 bits of the address, 8 MiB
	firstCost = 16
)

// planter makes a trie.
type planter[V uint16 | uint32] struct {
	trie[V]
}

// trieOf makes the trie of routes in order, without a tree between: the routes of a node are a
// range of the list, and so are those of its slots.
func trieOf[V uint16 | uint32](all []route, first int) trie[V] {
	if len(all) == 0 {
		return trie[V]{}
	}
	var p planter[V]
	wide := 0
	for wide < rowLimit && nodeSize<<(wide+1) <= max(first, firstCost*len(all)) && wide+nodeBits < longest(all) {
		wide++
	}
	p.wide = uint8(wide)
	p.nodes = make([]node, 1<<wide)
	p.plantRow(0, all, 0, wide, 0)
	return p.trie
}

// longest returns the length of the longest prefix.
func longest(all []route) int {
	n := uint8(0)
	for i := range all {
		n = max(n, all[i].bits)
	}
	return int(n)
}

// split enters routes that share their first depth bits in the slots of the next width, all of which have
// val from the prefixes above.
func split(all []route, depth, width int, val uint32, out []part) {
	for i := range out {
		out[i] = part{val: val}
	}
	for i := range all {
		r := &all[i]
		s, short := r.at(depth, width), depth+width-int(r.bits)
		if short >= 0 {
			for j := range out[s : s+1<<short] {
				out[int(s)+j].val = r.val
			}
			continue
		}
		if out[s].from == out[s].to {
			out[s].from = int32(i)
		}
		out[s].to = int32(i + 1)
	}
}

// plantRow fills the row at index at with routes that share their first depth bits.
func (p *planter[V]) plantRow(at int, all []route, depth, wide int, val uint32) {
	if wide == 0 {
		p.plant(at, all, depth, val)
		return
	}
	parts := make([]part, 1<<wide)
	split(all, depth, wide, val, parts)
	for i, s := range parts {
		p.plant(at+i, all[s.from:s.to], depth+wide, s.val)
	}
}

// plant fills the node at index at.
func (p *planter[V]) plant(at int, all []route, depth int, val uint32) {
	var parts [1 << nodeBits]part
	split(all, depth, nodeBits, val, parts[:])
	n := node{child: uint32(len(p.nodes)), leaf: uint32(len(p.leaves))}
	last := uint64(1 << 32) // no value is
	for i, s := range parts {
		switch {
		case s.from != s.to:
			n.inner |= 1 << i
		case uint64(s.val) != last:
			n.runs |= 1 << i
			p.leaves = append(p.leaves, V(s.val))
			last = uint64(s.val)
		}
	}
	depth += nodeBits
	wide := rowWidth(parts[:], all, depth)
	n.wide = uint32(wide)
	p.nodes[at] = n
	p.nodes = append(p.nodes, make([]node, bits.OnesCount64(n.inner)<<wide)...)
	kid := int(n.child)
	for _, s := range parts {
		if s.from != s.to {
			p.plantRow(kid, all[s.from:s.to], depth, wide, s.val)
			kid += 1 << wide
		}
	}
}

// rowWidth returns how wide the rows below a node are, all alike.
func rowWidth(parts []part, all []route, depth int) int {
	rows, below, deepest := 0, 0, 0
	for _, s := range parts {
		if s.from != s.to {
			rows++
			below += int(s.to - s.from)
			deepest = max(deepest, longest(all[s.from:s.to]))
		}
	}
	wide := 0
	for wide < rowLimit && rows*nodeSize<<(wide+1) <= rowBytes*below && depth+wide+nodeBits < deepest {
		wide++
	}
	return wide
}
