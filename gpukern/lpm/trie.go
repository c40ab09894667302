package lpm

import (
	"math/bits"
	"unsafe"

	"github.com/millrace/millrace/gpukern/image"
)

// Trie finds the value of the longest prefix of an address. A node stands for the next 6 bits and keeps
// its 64 slots as two bitmaps and two positions, so that a slot costs bits, not words, and a million
// routes stay near the second-level cache:
//
//	inner  bit s: slot s goes on below, in child + rank
//	runs   bit s: the leaves from slot s on have a value of their own
//
// A node without inner slots and with few runs has their values in itself, where others have positions.
// In such a node the first run, which begins at slot 0, has no bit.
//
// Where prefixes are dense, nodes stand in rows of 2^wide, which the address indexes before: each step
// then takes wide+6 bits and still touches one node. The first row is nodes[:1<<wide]. Where they are
// sparse, what is below a slot is a bucket: the places among the next 32 bits where the value changes,
// in order, and the values, in the room of one or two nodes.
//
//	      wide          6              wide         6
//	row[00101...] -> slot -> child -> row[01...] -> slot -> leaf, or bucket
//
//	bucket: | key | key | ... | value of less than all keys | value from the first key on | ...
//
// The nodes are those of Asai and Ohara, "Poptrie", SIGCOMM 2015; the rows are the level compression of
// Nilsson and Karlsson, "IP-address lookup using LC-tries", JSAC 1999. Kernels read the same arrays
// (gpukern/cuda/trie.cuh). The zero value has no prefix.
type Trie[V uint16 | uint32] struct {
	nodes  []node
	leaves []V
	wide   uint8
}

// node is half a cache line, and one sector of a GPU's.
type node struct {
	inner, runs uint64
	child       uint32 // the first row or bucket below
	leaf        uint32 // of the first run
	wide        uint32 // of each row below; bucketBit and the logarithm of its nodes for buckets
	_           uint32
}

const (
	nodeBits   = 6
	nodeSize   = 32
	bucketBit  = 32
	bucketBits = 32 // of the address
)

// inNode is the number of values that fit in a node in place of its positions.
func inNode[V uint16 | uint32]() int { return 16 / int(unsafe.Sizeof(V(0))) }

// inBucket is the number of values that a bucket of 2^k nodes has; it has one key less.
func inBucket[V uint16 | uint32](k int) int {
	return (nodeSize<<k + 4) / (4 + int(unsafe.Sizeof(V(0))))
}

// Find returns the value of the longest prefix of the address hi, lo, 0 for none. IPv4 addresses lie in
// the upper half of hi.
func (t *Trie[V]) Find(hi, lo uint64) V {
	if len(t.nodes) == 0 {
		return 0
	}
	return t.FindFrom(0, uint(t.wide), hi, lo)
}

// FindFrom is find from the row of 2^wide nodes at index row on.
func (t *Trie[V]) FindFrom(row uint32, wide uint, hi, lo uint64) V {
	at := row + uint32(hi>>1>>(63-wide&63))
	for {
		n := &t.nodes[at]
		hi, lo = hi<<(wide&63)|lo>>1>>(63-wide&63), lo<<(wide&63)
		s := hi >> (64 - nodeBits)
		upTo := uint64(2)<<s - 1
		if n.inner>>s&1 == 0 {
			rank := bits.OnesCount64(n.runs & upTo)
			if n.holds() {
				return *valueIn[V](n, rank)
			}
			return t.leaves[n.leaf+uint32(rank)-1]
		}
		hi, lo = hi<<nodeBits|lo>>(64-nodeBits), lo<<nodeBits
		wide = uint(n.wide)
		at = n.child + uint32(bits.OnesCount64(n.inner&upTo)-1)<<(wide&31)
		if wide&bucketBit != 0 {
			return valueAt[V](&t.nodes[at], int(wide&31), uint32(hi>>32))
		}
		at += uint32(hi >> 1 >> (63 - wide&63))
	}
}

// holds reports whether n has its values in itself.
func (n *node) holds() bool { return n.inner|n.runs&1 == 0 }

// valueIn returns the place of one of the values that n has in itself.
func valueIn[V uint16 | uint32](n *node, rank int) *V {
	return (*V)(unsafe.Add(unsafe.Pointer(&n.child), rank*int(unsafe.Sizeof(V(0)))))
}

// valueAt returns the value of v in the bucket of 2^k nodes that begins with n.
func valueAt[V uint16 | uint32](n *node, k int, v uint32) V {
	keys, values := bucketOf[V](n, k)
	i := 0
	for _, key := range keys {
		more := 0
		if v >= key {
			more = 1
		}
		i += more
	}
	return values[i]
}

// bucketOf returns the parts of the bucket of 2^k nodes that begins with n.
func bucketOf[V uint16 | uint32](n *node, k int) (keys []uint32, values []V) {
	count := inBucket[V](k)
	p := unsafe.Pointer(n)
	return unsafe.Slice((*uint32)(p), count-1), unsafe.Slice((*V)(unsafe.Add(p, 4*(count-1))), count)
}

// Size returns the bytes that the trie takes.
func (t *Trie[V]) Size() int { return len(t.nodes)*nodeSize + len(image.Bytes(t.leaves)) }

// Empty reports whether the trie has no prefix.
func (t *Trie[V]) Empty() bool { return len(t.nodes) == 0 }

// Arrays appends pointers to the trie's two arrays, as every struct of the kernels that has a trie begins. The
// memory stays the trie's.
func (t *Trie[V]) Arrays(m *image.Image) {
	m.Pointer(image.Bytes(t.nodes))
	m.Pointer(image.Bytes(t.leaves))
}

// Wide returns the logarithm of the nodes of the first row.
func (t *Trie[V]) Wide() uint8 { return t.wide }
