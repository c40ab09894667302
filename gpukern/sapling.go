package gpukern

import "net/netip"

// sapling is the plain binary trie of prefixes: one node a bit.
type sapling struct {
	bits []sapNode // the first is the root
}

type sapNode struct {
	kid [2]int32 // 0 is none
	val uint32   // 0 is none
}

func newSapling() *sapling { return &sapling{bits: make([]sapNode, 1)} }

// at returns the place of p's value, making the way there.
func (s *sapling) at(p netip.Prefix) *uint32 {
	hi, lo := words(p.Addr())
	n := int32(0)
	for range p.Bits() {
		kid := s.bits[n].kid[hi>>63]
		if kid == 0 {
			kid = int32(len(s.bits))
			s.bits[n].kid[hi>>63] = kid
			s.bits = append(s.bits, sapNode{})
		}
		n = kid
		hi, lo = hi<<1|lo>>63, lo<<1
	}
	return &s.bits[n].val
}

// routes appends the prefixes below n that have a value, in order; at is the prefix of n.
func (s *sapling) routes(n int32, at route, all []route) []route {
	b := &s.bits[n]
	if b.val != 0 {
		at.val = b.val
		all = append(all, at)
	}
	for i, kid := range b.kid {
		if kid != 0 {
			all = s.routes(kid, at.longer(i), all)
		}
	}
	return all
}

// longer returns the prefix one bit longer than r, whose last bit is bit.
func (r route) longer(bit int) route {
	if r.bits < 64 {
		r.hi |= uint64(bit) << (63 - r.bits)
	} else {
		r.lo |= uint64(bit) << (127 - r.bits)
	}
	r.bits++
	return r
}
