package gpukern

import (
	"cmp"
	"slices"
)

// route is a prefix on its way into a trie: 24 bytes, so that a million are sorted quickly.
type route struct {
	hi, lo uint64
	n      uint32 // its place in the caller's list
	val    uint16
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
	return v >> (64 - width)
}

// part is one slot of a node that is being made: the value that it has from the routes so far, and the
// routes below, which are longer.
type part struct {
	val      uint32
	from, to int32
}

// trieOf makes the trie of routes in order, without a tree between: the routes of a node are a
// range of the list, and so are those of its slots.
func trieOf(all []route) trie {
	if len(all) == 0 {
		return trie{}
	}
	t := trie{root: make([]uint32, 1<<rootBits)}
	parts := make([]part, 1<<rootBits)
	split(all, 0, rootBits, parts)
	for i, p := range parts {
		if p.from == p.to {
			t.root[i] = leafBit | p.val
			continue
		}
		t.root[i] = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
		t.plant(int(t.root[i]), all[p.from:p.to], rootBits, p.val)
	}
	return t
}

// split enters routes that share their first depth bits in the slots of the next width.
func split(all []route, depth, width int, out []part) {
	for i := range all {
		r := &all[i]
		s, short := r.at(depth, width), depth+width-int(r.bits)
		if short >= 0 {
			for j := range out[s : s+1<<short] {
				out[int(s)+j].val = uint32(r.val)
			}
			continue
		}
		if out[s].from == out[s].to {
			out[s].from = int32(i)
		}
		out[s].to = int32(i + 1)
	}
}

// plant fills the node at index at with routes that share their first depth bits; val is that of the
// prefixes above.
func (t *trie) plant(at int, all []route, depth int, val uint32) {
	var parts [1 << nodeBits]part
	for i := range parts {
		parts[i].val = val
	}
	split(all, depth, nodeBits, parts[:])
	n := node{child: uint32(len(t.nodes)), leaf: uint32(len(t.leaves))}
	last := uint32(leafBit) // no value is
	for i, p := range parts {
		switch {
		case p.from != p.to:
			n.inner |= 1 << i
			t.nodes = append(t.nodes, node{})
		case p.val != last:
			n.runs |= 1 << i
			t.leaves = append(t.leaves, p.val)
			last = p.val
		}
	}
	t.nodes[at] = n
	kid := int(n.child)
	for _, p := range parts {
		if p.from != p.to {
			t.plant(kid, all[p.from:p.to], depth+nodeBits, p.val)
			kid++
		}
	}
}
