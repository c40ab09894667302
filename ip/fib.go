package ip

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/wire"
)

// Table is an immutable set of routes: the nodes of several loops may share one without a lock. A lookup walks a binary
// trie with compressed paths (Morrison, 1968), one for each IP version, in one slice without pointers that the garbage
// collector would scan. A compressed path has a node only where a prefix ends or two prefixes differ, not one for each of
// 128 bits. A change of a route builds a new table: routes change rarely, lookups happen for every new path.
type Table struct {
	routes []Route // sorted by prefix, then metric
	nodes  []fibNode
	root   [2]int32 // of IPv6, of IPv4
}

// fibNode stands for a prefix, of which the nodes below are extensions. Its routes are routes[first:end], which is empty
// for a node that only joins two branches.
type fibNode struct {
	hi, lo     uint64 // the prefix, IPv4 as ::ffff:0:0/96 and longer
	bits       uint8  // length of the prefix, of 128: IPv4 ones count from 96
	first, end int32
	child      [2]int32 // by the bit behind the prefix; 0 is none
}

// NewTable returns a table of routes, which it copies. Prefixes are masked; a route whose prefix is not
// valid is left out.
func NewTable(routes []Route) *Table {
	t := &Table{nodes: make([]fibNode, 1, 2*len(routes)+1)} // node 0 is none
	for _, r := range routes {
		if r.Prefix = r.Prefix.Masked(); r.Prefix.IsValid() {
			t.routes = append(t.routes, r)
		}
	}
	slices.SortStableFunc(t.routes, compareRoutes)
	for i := 0; i < len(t.routes); {
		j := i + 1
		for j < len(t.routes) && t.routes[j].Prefix == t.routes[i].Prefix {
			j++
		}
		t.insert(t.routes[i].Prefix, int32(i), int32(j))
		i = j
	}
	return t
}

// compareRoutes sorts by prefix, which makes the routes of one prefix adjacent, and then by metric: the smallest is the
// best. Equal ones keep their order.
func compareRoutes(a, b Route) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Metric, b.Metric))
}

// Routes returns all routes. They are not to be changed.
func (t *Table) Routes() []Route { return t.routes }

// addrWords returns an address as two numbers, most significant first, so that prefixes compare by XOR.
func addrWords(a wire.Addr) (hi, lo uint64) {
	return binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
}

// prefixBits returns the length of p in addresses of 128 bits: IPv4 addresses are mapped, ::ffff:0:0/96.
func prefixBits(p netip.Prefix) uint8 {
	if p.Addr().Is4() {
		return uint8(p.Bits()) + 96
	}
	return uint8(p.Bits())
}

// commonBits returns how many leading bits two addresses share.
func commonBits(hi1, lo1, hi2, lo2 uint64) uint8 {
	if x := hi1 ^ hi2; x != 0 {
		return uint8(bits.LeadingZeros64(x))
	}
	return 64 + uint8(bits.LeadingZeros64(lo1^lo2))
}

// addrBit returns bit i of an address, counted from the left.
func addrBit(hi, lo uint64, i uint8) int {
	if i < 64 {
		return int(hi >> (63 - i) & 1)
	}
	return int(lo >> (127 - i) & 1)
}

// family is the index of a root, and of a link's querier. The versions have a trie each: a default route of IPv6 must
// not match the mapped addresses of IPv4.
func family(is4 bool) int {
	if is4 {
		return 1
	}
	return 0
}

// insert adds the node of p with its routes.
func (t *Table) insert(p netip.Prefix, first, end int32) {
	hi, lo := addrWords(wire.AddrFrom(p.Addr()))
	n := fibNode{hi: hi, lo: lo, bits: prefixBits(p), first: first, end: end}
	at := &t.root[family(p.Addr().Is4())]
	for *at != 0 {
		m := &t.nodes[*at]
		c := min(commonBits(hi, lo, m.hi, m.lo), n.bits, m.bits)
		if c < m.bits {
			t.insertBranch(at, n, c)
			return
		}
		if c == n.bits { // a branch without routes of its own stood there
			m.first, m.end = first, end
			return
		}
		at = &m.child[addrBit(hi, lo, c)]
	}
	*at = t.add(n)
}

// insertBranch puts n above the node at, where n is a prefix of it, or beside it under a new branch of their c common
// bits. c is smaller than the length of at.
func (t *Table) insertBranch(at *int32, n fibNode, c uint8) {
	old := *at
	o := t.nodes[old]
	if c == n.bits {
		n.child[addrBit(o.hi, o.lo, c)] = old
		*at = t.add(n)
		return
	}
	f := fibNode{hi: n.hi, lo: n.lo, bits: c}
	f.child[addrBit(o.hi, o.lo, c)] = old
	f.child[addrBit(n.hi, n.lo, c)] = t.add(n)
	*at = t.add(f)
}

// add stores a node. NewTable reserves two nodes for each prefix, the most that inserting one can add. So the slice is
// never moved, and the pointer that insert holds into it stays valid.
func (t *Table) add(n fibNode) int32 {
	t.nodes = append(t.nodes, n)
	return int32(len(t.nodes) - 1)
}

// Lookup returns the routes of the longest prefix that covers dst and has a route by way of dev (AnyDev: any), the best
// first. The result is empty without such a route. Routes by other devices may be among them. A longer prefix on another
// device does not hide a shorter one on dev: a socket that is bound to a device may send by the default route there.
func (t *Table) Lookup(dst wire.Addr, dev uint8) []Route {
	hi, lo := addrWords(dst)
	var best []Route
	for i := t.root[family(dst.Is4())]; i != 0; {
		n := &t.nodes[i]
		if commonBits(hi, lo, n.hi, n.lo) < n.bits {
			break
		}
		if r := t.routes[n.first:n.end]; anyVia(r, dev) {
			best = r
		}
		if n.bits == 128 {
			break
		}
		i = n.child[addrBit(hi, lo, n.bits)]
	}
	return best
}

// anyVia reports whether one of the routes is by way of dev.
func anyVia(routes []Route, dev uint8) bool {
	for i := range routes {
		if dev == AnyDev || routes[i].Dev == dev {
			return true
		}
	}
	return false
}
