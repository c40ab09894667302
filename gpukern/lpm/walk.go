package lpm

import (
	"math/bits"
	"unsafe"

	"github.com/millrace/millrace/gpukern/tuple"
)

// Walk finds many addresses in a trie at once: all take a step before any takes the next, and the memory
// of the next step is asked for before it is needed, so that many reads are under way. A step has no
// branch that depends on an address.
type Walk struct {
	X  [tuple.ChunkSize]uint64 // the address from the next row on
	Lo [tuple.ChunkSize]uint64 // its second word; find does not look at it
	at [tuple.ChunkSize]uint32 // the node of that row
	by [tuple.ChunkSize]uint8  // whose

	leafAt [tuple.ChunkSize]uint32
	leafBy [tuple.ChunkSize]uint8

	bucketAt [tuple.ChunkSize]uint32
	bucket   [tuple.ChunkSize]bucketQuery

	Out  [tuple.ChunkSize]uint16
	hops [tuple.ChunkSize]uint16 // of the direct form
	who  [tuple.ChunkSize]uint8  // whom it has sent to the trie
}

// LookupChunk returns the next hops of the n addresses in w.x and w.lo.
func (t *Table) LookupChunk(w *Walk, v4 bool, n int) *[tuple.ChunkSize]uint16 {
	switch {
	case v4 && len(t.direct) > 0:
		t.lookupDirect(w, n)
		return &w.hops
	case v4 && len(t.v4.nodes) > 0:
		w.Find(&t.v4, 0, t.v4.wide, n)
	case !v4 && len(t.v6.nodes) > 0 && !t.deep6:
		w.Find(&t.v6, 0, t.v6.wide, n)
	case !v4:
		for i := range n {
			w.Out[i] = t.v6.Find(w.X[i], w.Lo[i])
		}
	default:
		clear(w.Out[:n])
	}
	return &w.Out
}

// lookupDirect stores in w.hops the next hops of the n IPv4 addresses in w.x. The first loop does nothing
// but read, so that as many reads as possible are under way.
func (t *Table) lookupDirect(w *Walk, n int) {
	direct := (*[1 << directBits]uint16)(t.direct)
	x, hops := w.X[:n], w.hops[:n]
	for i := range hops {
		hops[i] = direct[x[i]>>(64-directBits)]
	}
	more := 0
	for i, hop := range hops {
		w.who[more&(tuple.ChunkSize-1)] = uint8(i)
		more += int(hop >> 15)
	}
	if more == 0 {
		return
	}
	for k := range more {
		w.X[k] = w.X[w.who[k]] // which is not before k
	}
	w.Find(&t.v4, 0, t.v4.wide, more)
	for k := range more {
		hops[w.who[k]] = w.Out[k]
	}
}

// bucketQuery asks for the value of an address in the bucket of 2^k nodes at an index.
type bucketQuery struct {
	x, at, k, by uint32
}

// block is the number of addresses that take a step before the memory for their next is asked for.
const block = 32

// Find stores in w.out the values of the n addresses whose first 64 bits are in w.x, from the row of 2^wide
// nodes at index row on. t has a prefix, and none of more than 64 bits.
func (w *Walk) Find(t *Trie[uint16], row uint32, wide uint8, n int) {
	base := unsafe.Pointer(&t.nodes[0])
	wide &= 63
	for i := range n {
		x := w.X[i]
		w.at[i], w.X[i], w.by[i] = row+uint32(x>>1>>(63-wide)), x<<wide, uint8(i)
	}
	Prefetch(base, 5, w.at[:n])
	leaves, buckets := 0, 0
	for n > 0 {
		left := 0
		for from := 0; from < n; from += block {
			l, b, k := leaves, buckets, left
			left, leaves, buckets = w.step(base, from, min(from+block, n), left, leaves, buckets)
			Prefetch(base, 5, w.at[k:left])
			Prefetch(base, 5, w.bucketAt[b:buckets])
			if l < leaves {
				Prefetch(unsafe.Pointer(&t.leaves[0]), 1, w.leafAt[l:leaves])
			}
		}
		n = left
	}
	for k := range leaves {
		w.Out[w.leafBy[k]] = t.leaves[w.leafAt[k]]
	}
	searchBuckets(base, w.bucket[:buckets], &w.Out)
}

// step looks at one node for each of the addresses from one to another, and moves what goes on to place
// left and behind. It returns how many addresses are left, and leaves and buckets to look at.
func (w *Walk) step(base unsafe.Pointer, from, to, left, leaves, buckets int) (int, int, int) {
	for j := from; j < to; j++ {
		d := (*node)(unsafe.Add(base, uint64(w.at[j&(tuple.ChunkSize-1)])*nodeSize))
		x, i := w.X[j&(tuple.ChunkSize-1)], w.by[j&(tuple.ChunkSize-1)]
		s := x >> (64 - nodeBits)
		upTo := uint64(2)<<s - 1
		x <<= nodeBits
		rank := uint32(bits.OnesCount64(d.runs & upTo))
		w.Out[i] = *valueIn[uint16](d, int(rank&7)) // of a node that holds values; else written again
		empty := d.inner | d.runs&1
		holds := (empty - 1) &^ empty >> 63
		inner, wide := d.inner>>s&1, uint64(d.wide)
		isBucket := inner & (wide >> 5)
		child := d.child + uint32(bits.OnesCount64(d.inner&upTo)-1)<<(wide&31)
		w.bucketAt[buckets&(tuple.ChunkSize-1)] = child
		w.bucket[buckets&(tuple.ChunkSize-1)] = bucketQuery{uint32(x >> 32), child, uint32(wide & 1), uint32(i)}
		buckets += int(isBucket)
		w.leafAt[leaves&(tuple.ChunkSize-1)], w.leafBy[leaves&(tuple.ChunkSize-1)] = d.leaf+rank-1, i
		leaves += int((inner ^ 1) &^ holds)
		at := left & (tuple.ChunkSize - 1)
		w.at[at], w.X[at], w.by[at] = child+uint32(x>>1>>(63-wide&63)), x<<(wide&63), i
		left += int(inner &^ isBucket)
	}
	return left, leaves, buckets
}

// searchBucketsPlain is the form of searchBuckets for every machine.
func searchBucketsPlain(base unsafe.Pointer, q []bucketQuery, out *[tuple.ChunkSize]uint16) {
	for i := range q {
		p := unsafe.Add(base, uint64(q[i].at)*nodeSize)
		x, keys := q[i].x, (*[10]uint32)(p)
		n := atLeast(x, keys[0]) + atLeast(x, keys[1]) + atLeast(x, keys[2]) + atLeast(x, keys[3]) + atLeast(x, keys[4])
		first := 20
		if q[i].k != 0 {
			n += atLeast(x, keys[5]) + atLeast(x, keys[6]) + atLeast(x, keys[7]) + atLeast(x, keys[8]) + atLeast(x, keys[9])
			first = 40
		}
		out[q[i].by&(tuple.ChunkSize-1)] = *(*uint16)(unsafe.Add(p, first+2*n))
	}
}

// atLeast returns 1 where a >= b, else 0, without a branch.
func atLeast(a, b uint32) int { return int((uint64(a)-uint64(b))>>63 ^ 1) }
