package gpukern

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// trie finds the value of the longest prefix of an address. A node stands for the next 6 bits and keeps
// its 64 slots as two bitmaps and two positions, so that a slot costs bits, not words, and a million
// routes stay near the second-level cache:
//
//	inner  bit s: slot s goes on below, in child + rank
//	runs   bit s: the leaves from slot s on have a value of their own
//
// Where prefixes are dense, nodes stand in rows of 2^wide, which the address indexes before: each step
// then takes wide+6 bits and still touches one node. The first row is nodes[:1<<wide].
//
//	      wide          6              wide         6
//	row[00101...] -> slot -> child -> row[01...] -> slot -> leaf
//
// The nodes are those of Asai and Ohara, "Poptrie", SIGCOMM 2015; the rows are the level compression of
// Nilsson and Karlsson, "IP-address lookup using LC-tries", JSAC 1999. Kernels read the same arrays
// (gpukern/cuda/trie.cuh). The zero value has no prefix.
type trie[V uint16 | uint32] struct {
	nodes  []node
	leaves []V
	wide   uint8
}

// node is half a cache line, and one sector of a GPU's.
type node struct {
	inner, runs uint64
	child       uint32 // the first row below
	leaf        uint32 // of the first run
	wide        uint32 // of each row below
	_           uint32
}

const nodeBits = 6

// find returns the value of the longest prefix of the address hi, lo, 0 for none. IPv4 addresses lie in
// the upper half of hi.
func (t *trie[V]) find(hi, lo uint64) V {
	if len(t.nodes) == 0 {
		return 0
	}
	wide := uint(t.wide)
	at := hi >> 1 >> (63 - wide)
	for {
		n := &t.nodes[at]
		hi, lo = hi<<(wide&63)|lo>>1>>(63-wide&63), lo<<(wide&63)
		s := hi >> (64 - nodeBits)
		upTo := uint64(2)<<s - 1
		if n.inner>>s&1 == 0 {
			return t.leaves[n.leaf+uint32(bits.OnesCount64(n.runs&upTo))-1]
		}
		hi, lo = hi<<nodeBits|lo>>(64-nodeBits), lo<<nodeBits
		wide = uint(n.wide)
		at = uint64(n.child) + uint64(bits.OnesCount64(n.inner&upTo)-1)<<(wide&63) + hi>>1>>(63-wide&63)
	}
}

// size returns the bytes that the trie takes.
func (t *trie[V]) size() int { return len(t.nodes)*nodeSize + len(bytesOf(t.leaves)) }

const nodeSize = 32

// words returns an address as find takes it.
func words(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}
