package ring

import "sync/atomic"

// pad keeps what two cores write on different cache lines, so that a store of one does not take the line
// from the other (false sharing). It has 128 bytes because CPUs prefetch lines in pairs.
type pad [128]byte

// SPSC is a bounded ring between one producer and one consumer (Lamport), by value and in batches. Each
// side keeps a copy of the other's index and reads the shared one only when by that copy the ring is full or
// empty, so a batch costs at most one cache miss.
//
// The indices run freely and wrap at 2^32; an element lies at index & mask. end - head is therefore the
// fill level even after a wrap, and a full ring differs from an empty one without a spare slot. The
// atomic store of an index publishes the elements written or read before it.
type SPSC[T any] struct {
	buf  []T
	mask uint32

	_    pad
	head atomic.Uint32 // next to read, written by the consumer
	tail uint32        // consumer's copy of end
	_    pad
	end  atomic.Uint32 // next to write, written by the producer
	read uint32        // producer's copy of head
	_    pad
}

// NewSPSC returns an empty ring for at least n elements (rounded up to a power of two).
func NewSPSC[T any](n int) *SPSC[T] {
	size := 1
	for size < n {
		size <<= 1
	}
	return &SPSC[T]{buf: make([]T, size), mask: uint32(size - 1)}
}

// Cap returns the number of elements that the ring can hold.
func (r *SPSC[T]) Cap() int { return len(r.buf) }

// Len returns the number of elements in the ring; a snapshot when others are at work. Any goroutine
// may call it.
func (r *SPSC[T]) Len() int {
	head := r.head.Load() // before end, which only grows: the other order could compute a negative length
	return min(int(r.end.Load()-head), len(r.buf))
}

// Room returns how many elements Push would take now. Producer only.
func (r *SPSC[T]) Room() int {
	r.read = r.head.Load()
	return len(r.buf) - int(r.end.Load()-r.read)
}

// Push copies as many of v as fit and returns how many. Producer only.
func (r *SPSC[T]) Push(v []T) int {
	end := r.end.Load()
	room := len(r.buf) - int(end-r.read)
	if room < len(v) {
		r.read = r.head.Load()
		room = len(r.buf) - int(end-r.read)
	}
	n := min(len(v), room)
	at := int(end & r.mask)
	first := copy(r.buf[at:], v[:n])
	copy(r.buf, v[first:n])
	r.end.Store(end + uint32(n))
	return n
}

// Pop copies up to len(out) elements out of the ring and returns how many. Consumer only.
func (r *SPSC[T]) Pop(out []T) int {
	head := r.head.Load()
	have := int(r.tail - head)
	if have < len(out) {
		r.tail = r.end.Load()
		have = int(r.tail - head)
	}
	n := min(len(out), have)
	at := int(head & r.mask)
	first := copy(out[:n], r.buf[at:])
	copy(out[first:n], r.buf)
	r.head.Store(head + uint32(n))
	return n
}

// Peek copies up to len(out) elements and leaves them in the ring, for a consumer that decides by their
// contents how many to take. Consumer only.
func (r *SPSC[T]) Peek(out []T) int {
	head := r.head.Load()
	if have := int(r.tail - head); have < len(out) {
		r.tail = r.end.Load()
	}
	n := min(len(out), int(r.tail-head))
	at := int(head & r.mask)
	first := copy(out[:n], r.buf[at:])
	copy(out[first:n], r.buf)
	return n
}

// Skip removes n elements, which Peek has returned. Consumer only.
func (r *SPSC[T]) Skip(n int) { r.head.Store(r.head.Load() + uint32(n)) }

// Visit calls visit with each element, in order, and leaves the ring as it was: every element is popped
// and pushed again. Both sides must be idle.
func (r *SPSC[T]) Visit(visit func(T)) {
	var one [1]T
	for range r.Len() {
		r.Pop(one[:])
		visit(one[0])
		r.Push(one[:])
	}
}
