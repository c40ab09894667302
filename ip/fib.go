package ip

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/wire"
)

// Table is a set of routes, immutable: nodes of several loops may share one. A lookup walks a binary
// trie with compressed paths (Morrison, 1968), one for each IP version, in one slice without pointers.
type Table struct {
	routes []Route // sorted by prefix, then metric
	nodes  []fibNode
	root   [2]int32 // of IPv6, of IPv4
}

// fibNode stands for a prefix, of which nodes below are extensions. Its routes are routes[first:end].
type fibNode struct {
	hi, lo     uint64 // the prefix, IPv4 as ::ffff:0:0/96 and longer
	bits       uint8
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

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Metric, b.Metric))
}

// Routes returns all routes. They are not to be changed.
func (t *Table) Routes() []Route { return t.routes }

// addrWords returns an address as two numbers.
func addrWords(a wire.Addr) (hi, lo uint64) {
	return binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
}

// prefixBits returns the length of p in addresses of 128 bits.
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

// family is the index of a root.
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
		if c == n.bits { // a fork stood there without routes
			m.first, m.end = first, end
			return
		}
		at = &m.child[addrBit(hi, lo, c)]
	}
	*at = t.add(n)
}

// insertBranch puts n beside or above the node at, with which it shares c bits, fewer than at has.
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

// add stores a node. The slice has room for two nodes for each prefix, so that pointers into it stay.
func (t *Table) add(n fibNode) int32 {
	t.nodes = append(t.nodes, n)
	return int32(len(t.nodes) - 1)
}

// Lookup returns the routes of the longest prefix that covers dst and has a route by way of dev
// (AnyDev: any), the best first; none where there is none. Routes by other devices may be among them.
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
