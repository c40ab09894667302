package acl

import (
	"net/netip"

	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// prefixTree is the plain binary trie of prefixes: one node a bit.
type prefixTree struct {
	bits []treeNode // the first is the root
}

type treeNode struct {
	child [2]int32 // 0 is none
	val   uint32   // 0 is none
}

func newPrefixTree() *prefixTree { return &prefixTree{bits: make([]treeNode, 1)} }

// at returns the place of p's value, making the way there.
func (s *prefixTree) at(p netip.Prefix) *uint32 {
	hi, lo := tuple.Words(p.Addr())
	n := int32(0)
	for range p.Bits() {
		child := s.bits[n].child[hi>>63]
		if child == 0 {
			child = int32(len(s.bits))
			s.bits[n].child[hi>>63] = child
			s.bits = append(s.bits, treeNode{})
		}
		n = child
		hi, lo = hi<<1|lo>>63, lo<<1
	}
	return &s.bits[n].val
}

// routes appends the prefixes below n that have a value, in order; at is the prefix of n.
func (s *prefixTree) routes(n int32, at lpm.Prefix, all []lpm.Prefix) []lpm.Prefix {
	b := &s.bits[n]
	if b.val != 0 {
		at.Val = b.val
		all = append(all, at)
	}
	for i, child := range b.child {
		if child != 0 {
			all = s.routes(child, at.Longer(i), all)
		}
	}
	return all
}
