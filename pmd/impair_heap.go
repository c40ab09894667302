package pmd

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// heap is a binary min-heap of packets by due time. Packets due at the same time keep the order in which
// they came: seq breaks the tie, because a binary heap is not stable. It owns the frames of its packets.
//
// A packet's descriptors are nodes of a linked list in one slice, so that packets of several
// descriptors need no memory of their own and nothing is allocated while packets move.
//
// container/heap would box each entry in an interface, which allocates.
type heap struct {
	entries []entry
	nodes   []node
	unused  int32 // first node that holds nothing; none at the end
	frames  int   // descriptors held
	seq     uint64
}

type entry struct {
	due   clock.Time
	seq   uint64
	first int32
}

type node struct {
	d    packet.Desc
	next int32
}

const none = int32(-1)

// newHeap returns an empty heap with room for so many descriptors; it grows beyond.
func newHeap(room int) *heap {
	return &heap{entries: make([]entry, 0, room), nodes: make([]node, 0, room), unused: none}
}

func (h *heap) less(i, j int) bool {
	a, b := &h.entries[i], &h.entries[j]
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

// push takes the packet of descriptors d, due at the given time.
func (h *heap) push(due clock.Time, d []packet.Desc) {
	first := none
	for i := len(d) - 1; i >= 0; i-- {
		first = h.add(d[i], first)
	}
	h.seq++
	h.entries = append(h.entries, entry{due, h.seq, first})
	for i := len(h.entries) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h.entries[i], h.entries[up] = h.entries[up], h.entries[i]
		i = up
	}
}

func (h *heap) add(d packet.Desc, next int32) int32 {
	h.frames++
	if h.unused == none {
		h.nodes = append(h.nodes, node{d, next})
		return int32(len(h.nodes) - 1)
	}
	n := h.unused
	h.unused = h.nodes[n].next
	h.nodes[n] = node{d, next}
	return n
}

// due returns when the next packet is due, clock.Never when there is none.
func (h *heap) due() clock.Time {
	if len(h.entries) == 0 {
		return clock.Never
	}
	return h.entries[0].due
}

// firstLen returns the number of descriptors of the first packet.
func (h *heap) firstLen() (length int) {
	for n := h.entries[0].first; n != none; n = h.nodes[n].next {
		length++
	}
	return length
}

// pop moves the first packet to b, stamped with its due time; false means that it does not fit.
func (h *heap) pop(b *packet.Batch) bool {
	if h.firstLen() > b.Room() {
		return false
	}
	e := h.entries[0]
	for n := e.first; n != none; {
		d := h.nodes[n].d
		d.Stamp = uint32(e.due)
		b.Append(d)
		n = h.release(n)
	}
	h.removeFirst()
	return true
}

// free gives the frames of the first packet to the pool.
func (h *heap) free(pool *ring.Pool) {
	for n := h.entries[0].first; n != none; n = h.release(n) {
		pool.Put(h.nodes[n].d.Off)
	}
	h.removeFirst()
}

// removeFirst removes the root, whose nodes are released already.
func (h *heap) removeFirst() {
	last := len(h.entries) - 1
	h.entries[0] = h.entries[last]
	h.entries = h.entries[:last]
	h.siftDown()
}

// release adds node n to the unused nodes and returns the one that followed it.
func (h *heap) release(n int32) int32 {
	next := h.nodes[n].next
	h.nodes[n].next = h.unused
	h.unused = n
	h.frames--
	return next
}

// siftDown restores the heap order after the root was replaced.
func (h *heap) siftDown() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.entries); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.entries[i], h.entries[least] = h.entries[least], h.entries[i]
		i = least
	}
}

// visit visits the frames of all packets.
func (h *heap) visit(visit func(off uint32)) {
	for _, e := range h.entries {
		for n := e.first; n != none; n = h.nodes[n].next {
			visit(h.nodes[n].d.Off)
		}
	}
}
