package ring

import "sync/atomic"

// MPSC is a bounded ring from many producers to one consumer, by value: the command queue of a loop. Each
// slot carries the sequence number of the position that it serves (Vyukov's bounded queue), so
// producers meet in one compare-and-swap and never wait for each other's copies.
//
// Slot s serves the positions s, s+len, s+2*len, ... Its sequence number goes round as follows:
//
//	seq = pos      free: the producer that gets position pos may write
//	seq = pos+1    full: the consumer at position pos may read
//	seq = pos+len  free for the position of the next round
type MPSC[T any] struct {
	slots []slot[T]
	mask  uint64

	_    pad
	tail atomic.Uint64 // next to write, shared by the producers
	_    pad
	head uint64 // next to read, the consumer's own
	_    pad
}

// slot is one element, and the sequence number that decides which side may use it.
type slot[T any] struct {
	seq atomic.Uint64
	v   T
}

// NewMPSC returns an empty ring for at least n elements (rounded up to a power of two, at least 2).
func NewMPSC[T any](n int) *MPSC[T] {
	size := 2
	for size < n {
		size <<= 1
	}
	r := &MPSC[T]{slots: make([]slot[T], size), mask: uint64(size - 1)}
	for i := range r.slots {
		r.slots[i].seq.Store(uint64(i))
	}
	return r
}

// Push appends v, and returns false where the ring is full. Any goroutine may call it.
func (r *MPSC[T]) Push(v T) bool {
	for {
		pos := r.tail.Load()
		s := &r.slots[pos&r.mask]
		switch seq := s.seq.Load(); {
		case seq == pos:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.v = v
				s.seq.Store(pos + 1)
				return true
			}
		case seq < pos:
			return false // the slot still holds the element of the round before
		}
	}
}

// Pop removes the oldest element. It returns false where the ring is empty, or where the producer of the oldest
// element has not finished its copy. Consumer only.
func (r *MPSC[T]) Pop() (v T, ok bool) {
	s := &r.slots[r.head&r.mask]
	if s.seq.Load() != r.head+1 {
		return v, false
	}
	v = s.v
	var zero T
	s.v = zero // or the ring would keep what the element refers to from the garbage collector
	s.seq.Store(r.head + uint64(len(r.slots)))
	r.head++
	return v, true
}
