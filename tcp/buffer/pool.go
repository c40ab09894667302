// Package buffer holds a connection's bytes: those that wait to be read or to be
// acknowledged, in memory from a Pool.
//
// A Queue keeps what was written until the peer acknowledges it; a Ring keeps what was
// received until the application reads it, with the gaps between what arrived out of order.
// Both take memory only while they hold something, and every byte of it counts against the
// budget of the Pool.
//
// The package is pure and does not lock: a Pool and all that is made from it belong to one
// loop.
package buffer

import "math/bits"

// Buffers come in powers of two. Those given back are reused last in, first out, by any
// connection: the newest is the one that caches still hold.
const (
	minBufferShift = 9  // 512 B
	maxBufferShift = 23 // 8 MiB
	bufferClasses  = maxBufferShift - minBufferShift + 1
)

// Pool provides memory within a budget, to all connections of one loop. The budget has three
// levels, so that no peer can stop the others:
//
//	0          1/4                1/2                       7/8           1
//	| out of order (all rings)     |                         |             |
//	| whatever connections hold, growth included            | the minimum |
//	                               Tight                     Critical
//
// The last eighth is for connections that hold nothing yet: each gets Minimum bytes of it.
// So one that is at work always makes progress, whatever the others hold. Besides, rings
// alone and queues alone have three quarters at most.
type Pool struct {
	Budget int64
	used   int64 // bytes that connections hold
	queued int64 // bytes that queues hold; part of used
	cached int64 // bytes that wait to be used again
	free   [bufferClasses][][]byte

	// Promised is the content of all rings when every announced window is full, bytes: the caller
	// counts it.
	Promised int64

	outOfOrder     int64 // bytes that rings hold for data out of order; part of used
	oldest, newest *Ring // those rings, by when they began to
}

// Minimum is the memory that a connection gets for each direction from the whole budget,
// bytes: two segments of Ethernet.
const Minimum = 4 << 10

// Used returns the bytes that connections hold.
func (p *Pool) Used() int64 { return p.used }

// class returns the class whose buffers hold n bytes.
func class(n int) int { return max(bits.Len(uint(n-1)), minBufferShift) - minBufferShift }

// classSize returns the length of the buffers that hold n bytes.
func classSize(n int) int { return 1 << (class(n) + minBufferShift) }

// RingSize returns the memory of a ring that holds n bytes.
func RingSize(n int) int {
	if n == 0 {
		return 0
	}
	return classSize(n)
}

// ordinary is the part of the budget that is not kept for minima, bytes.
func (p *Pool) ordinary() int64 { return p.Budget - p.Budget/8 }

// get returns a buffer of at least n bytes, its length a power of two; nil where limit bytes
// in use do not allow it.
func (p *Pool) get(n int, limit int64) []byte {
	k := class(n)
	if k >= bufferClasses || p.used+1<<(k+minBufferShift) > limit {
		return nil
	}
	size := int64(1) << (k + minBufferShift)
	p.used += size
	if l := p.free[k]; len(l) > 0 {
		b := l[len(l)-1]
		l[len(l)-1] = nil
		p.free[k] = l[:len(l)-1]
		p.cached -= size
		return b
	}
	return make([]byte, size)
}

// getFirst returns the first buffer of a ring: n bytes, or at least Minimum where there is
// less.
func (p *Pool) getFirst(n int) []byte {
	if b := p.get(n, p.ringLimit()); b != nil {
		return b
	}
	return p.get(min(n, Minimum), min(p.Budget, p.queued+p.direction()))
}

// direction is the part of the budget that queues and rings get at most, each. A program that echoes reads
// only when it has written: with two of them at the ends, queues that have everything would
// wait for rings that have nothing, for ever.
func (p *Pool) direction() int64 { return p.Budget - p.Budget/4 }

// queueLimit bounds the memory in use after a queue has grown, bytes. What the windows
// promise is not for queues, since a writer can wait and a peer that lost its data does not
// know when to try again; but most windows are never full, so a quarter remains for queues.
func (p *Pool) queueLimit() int64 {
	most := min(max(p.ordinary()-p.Promised, p.Budget/4), p.direction())
	return min(p.ordinary(), p.used-p.queued+most)
}

// ringLimit is the same for a ring.
func (p *Pool) ringLimit() int64 { return min(p.ordinary(), p.queued+p.direction()) }

// RingsMayGrow reports whether there is memory for a minimum beyond those that are kept for
// who holds nothing.
func (p *Pool) RingsMayGrow() bool { return p.used+Minimum <= p.ringLimit() }

// getQueued is get for a queue.
func (p *Pool) getQueued(n int) []byte {
	b := p.get(n, p.queueLimit())
	p.queued += int64(len(b))
	return b
}

// getFirstQueued returns the first buffer of a queue.
func (p *Pool) getFirstQueued(n int) []byte {
	b := p.getQueued(n)
	if b == nil {
		b = p.get(min(n, Minimum), min(p.Budget, p.used-p.queued+p.direction()))
		p.queued += int64(len(b))
	}
	return b
}

// putQueued takes back what a queue got.
func (p *Pool) putQueued(b []byte) {
	p.queued -= int64(len(b))
	p.put(b)
}

// put takes back what get returned. A quarter of the budget is kept for reuse; the garbage
// collector gets the rest.
func (p *Pool) put(b []byte) {
	size := int64(len(b))
	p.used -= size
	if p.cached+size > p.Budget/4 {
		return // the collector may have it
	}
	p.cached += size
	k := bits.TrailingZeros(uint(len(b))) - minBufferShift
	p.free[k] = append(p.free[k], b)
}

// Minima returns for how many queues that hold nothing there is memory now.
func (p *Pool) Minima() int {
	return int(max(min(p.Budget-p.used, p.direction()-p.queued), 0) / Minimum)
}

// Tight and Critical are the levels of memory pressure: above the first, buffers stop to
// grow; above the second, or where queues have nearly all that they may have, they shrink,
// data out of order is kept only where it needs no memory, and stalled connections are reset.
func (p *Pool) Tight() bool { return p.used > p.Budget/2 }

func (p *Pool) Critical() bool {
	return p.used > p.ordinary() || p.queued > p.direction()-p.Budget/8
}

// Out of order, a peer chooses how much memory a byte needs: the ring must reach to it. All
// such memory together is a quarter of the budget at most; the sender keeps the data and
// sends it again (RFC 2018 8).
const (
	outOfOrderPart = 4  // of the budget: 1/4
	sparseFactor   = 16 // bytes of ring for a byte held, above which data is sparse: that gets half the part only
)

// getOutOfOrder returns a buffer of n bytes for a ring that holds held bytes; nil where the
// part does not allow it. before is what the ring takes of the part now.
func (p *Pool) getOutOfOrder(n, held, before int) []byte {
	part := p.Budget / outOfOrderPart
	size := classSize(n)
	if size > sparseFactor*held && size > Minimum {
		part /= 2
	}
	if p.Critical() || p.outOfOrder-int64(before)+int64(size) > part {
		return nil
	}
	return p.get(n, p.ordinary())
}

// OldestOutOfOrder returns the ring that holds data out of order for the longest time; nil
// where none does.
func (p *Pool) OldestOutOfOrder() *Ring { return p.oldest }

// link and unlink keep the list of rings that hold data out of order.
func (p *Pool) link(r *Ring) {
	r.older, r.newer = p.newest, nil
	if p.newest != nil {
		p.newest.newer = r
	} else {
		p.oldest = r
	}
	p.newest = r
}

func (p *Pool) unlink(r *Ring) {
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		p.oldest = r.newer
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		p.newest = r.older
	}
	r.older, r.newer = nil, nil
}
