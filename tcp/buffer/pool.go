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

// Pool provides memory within a budget, to all connections of one loop.
type Pool struct {
	Budget int64
	used   int64 // bytes that connections hold
	cached int64 // bytes that wait to be used again
	free   [bufferClasses][][]byte
}

// Used returns the bytes that connections hold.
func (p *Pool) Used() int64 { return p.used }

// class returns the class whose buffers hold n bytes.
func class(n int) int { return max(bits.Len(uint(n-1)), minBufferShift) - minBufferShift }

// get returns a buffer of at least n bytes, its length a power of two; nil where the budget
// does not allow it.
func (p *Pool) get(n int) []byte {
	k := class(n)
	if k >= bufferClasses || p.used+1<<(k+minBufferShift) > p.Budget {
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

// put takes back what get returned. A quarter of the budget is kept for reuse; the garbage
// collector gets the rest.
func (p *Pool) put(b []byte) {
	size := int64(len(b))
	p.used -= size
	if p.cached+size > p.Budget/4 {
		return // the collector may have it
	}
	p.cached += size
	k := class(len(b))
	p.free[k] = append(p.free[k], b)
}

// Tight and Critical are the levels of memory pressure: above the first, buffers stop to
// grow; above the second they shrink, and stalled connections are reset.
func (p *Pool) Tight() bool    { return p.used > p.Budget/2 }
func (p *Pool) Critical() bool { return p.used > p.Budget-p.Budget/8 }
