package gpukern

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// trie finds the value of the longest prefix of an address. The first 16 bits index a table; from
// there on each node takes 6 bits and keeps its 64 slots as two bitmaps and two positions, so that a
// slot costs bits, not words, and a million routes stay near the second-level cache.
//
//	     16 bits      6        6    ...
//	root[65536] -> node -> node -> leaf
//
//	node: inner  bit s: slot s goes on in child + rank
//	      runs   bit s: the leaves from slot s on have a value of their own
//
// The form is the one of Asai and Ohara, "Poptrie", SIGCOMM 2015. Values have 31 bits; 0 is none.
type trie struct {
	root   []uint32 // leafBit and a value, or the index of a node; empty where there is no prefix
	nodes  []node
	leaves []uint32
}

type node struct {
	inner, runs uint64
	child, leaf uint32 // of the first inner slot, of the first run
}

const (
	rootBits = 16
	nodeBits = 6
	leafBit  = 1 << 31
)

// find returns the value of the longest prefix of the address hi, lo. IPv4 addresses lie in the
// upper half of hi.
func (t *trie) find(hi, lo uint64) uint32 {
	if len(t.root) == 0 {
		return 0
	}
	e := t.root[hi>>(64-rootBits)]
	hi, lo = hi<<rootBits|lo>>(64-rootBits), lo<<rootBits
	for e&leafBit == 0 {
		n := &t.nodes[e]
		slot := hi >> (64 - nodeBits)
		upTo := uint64(2)<<slot - 1
		if n.inner>>slot&1 == 0 {
			return t.leaves[n.leaf+uint32(bits.OnesCount64(n.runs&upTo))-1]
		}
		e = n.child + uint32(bits.OnesCount64(n.inner&upTo)) - 1
		hi, lo = hi<<nodeBits|lo>>(64-nodeBits), lo<<nodeBits
	}
	return e &^ leafBit
}

// size returns the bytes that the trie takes.
func (t *trie) size() int { return len(t.root)*4 + len(t.nodes)*24 + len(t.leaves)*4 }

// words returns an address as find takes it.
func words(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// sapling is the plain binary trie that a trie is made from: one node a bit.
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

// slot is where a prefix walk of some bits ends: at a value, or in the middle of longer prefixes.
type slot struct {
	val  uint32
	node int32 // to go on from; 0 is nothing longer
}

// spread writes into out the slots below n, which has val from above, one for each value of the
// next bits; len(out) is a power of two.
func (s *sapling) spread(n int32, val uint32, out []slot) {
	b := &s.bits[n]
	if b.val != 0 {
		val = b.val
	}
	if len(out) == 1 {
		out[0].val, out[0].node = val, 0
		if b.kid != [2]int32{} {
			out[0].node = n
		}
		return
	}
	half := len(out) / 2
	for i, kid := range b.kid {
		part := out[i*half : (i+1)*half]
		if kid != 0 {
			s.spread(kid, val, part)
			continue
		}
		for j := range part {
			part[j] = slot{val: val}
		}
	}
}

// trie compresses s.
func (s *sapling) trie() *trie {
	t := &trie{root: make([]uint32, 1<<rootBits)}
	slots := make([]slot, 1<<rootBits)
	s.spread(0, 0, slots)
	for i, sl := range slots {
		if sl.node == 0 {
			t.root[i] = leafBit | sl.val
			continue
		}
		t.root[i] = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
		t.grow(int(t.root[i]), s, sl)
	}
	return t
}

// grow fills the node at index at with what lies below from.
func (t *trie) grow(at int, s *sapling, from slot) {
	var slots [1 << nodeBits]slot
	s.spread(from.node, from.val, slots[:])
	n := node{child: uint32(len(t.nodes)), leaf: uint32(len(t.leaves))}
	last := uint32(leafBit) // no value is
	for i, sl := range slots {
		if sl.node != 0 {
			n.inner |= 1 << i
			t.nodes = append(t.nodes, node{})
			continue
		}
		if sl.val != last {
			n.runs |= 1 << i
			t.leaves = append(t.leaves, sl.val)
			last = sl.val
		}
	}
	t.nodes[at] = n
	kid := int(n.child)
	for _, sl := range slots {
		if sl.node != 0 {
			t.grow(kid, s, sl)
			kid++
		}
	}
}
