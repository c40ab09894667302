package ring

import "sync/atomic"

// MPSC is a bounded ring from many producers to one consumer, by value: the mailbox of a loop. Each
// slot carries a sequence number that says whose turn it is (Vyukov's bounded queue), so producers
// meet in one compare-and-swap and never wait for each other's copies.
type MPSC[T any] struct {
	slots []slot[T]
	mask  uint64

	_    pad
	tail atomic.Uint64 // next to write, shared by the producers
	_    pad
	head uint64 // next to read, the consumer's own
	_    pad
}

// slot is free for the producer of turn seq, and full for the consumer at seq = turn+1.
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

// Push appends v; false says that the ring is full. Any goroutine may call it.
func (r *MPSC[T]) Push(v T) bool {
	for {
		turn := r.tail.Load()
		s := &r.slots[turn&r.mask]
		switch seq := s.seq.Load(); {
		case seq == turn:
			if r.tail.CompareAndSwap(turn, turn+1) {
				s.v = v
				s.seq.Store(turn + 1)
				return true
			}
		case seq < turn:
			return false // the slot still holds the element of the round before
		}
	}
}

// Pop takes the oldest element out; false says that the ring is empty. Consumer only.
func (r *MPSC[T]) Pop() (v T, ok bool) {
	s := &r.slots[r.head&r.mask]
	if s.seq.Load() != r.head+1 {
		return v, false
	}
	v = s.v
	var zero T
	s.v = zero
	s.seq.Store(r.head + uint64(len(r.slots)))
	r.head++
	return v, true
}
