package ports

import "math/bits"

// Sharers are the sockets that share a scope and a port. Each has an index, which it keeps while others
// come and go, so that flows stay with their sockets. One user may have thousands of them at a port:
// every method looks at one bit for each 64 or 4096 members, and at no member that it does not return.
type Sharers[T any] struct {
	Scope   Scope
	members []*T // by index; nil where one has left
	taken   indexSet
	open    int // members that are not nil
}

// Add assigns the first free index to m and returns it.
func (s *Sharers[T]) Add(m *T) int {
	i := s.taken.firstFree(len(s.members))
	if i == len(s.members) {
		s.members = append(s.members, nil)
	}
	s.members[i] = m
	s.taken.add(i)
	s.open++
	return i
}

// Remove frees the index of a member. Free indexes at the end are forgotten.
func (s *Sharers[T]) Remove(i int) {
	s.members[i] = nil
	s.taken.remove(i)
	s.open--
	if i == len(s.members)-1 {
		s.members = s.members[:s.taken.last()+1]
	}
}

// Empty reports whether no member is left.
func (s *Sharers[T]) Empty() bool { return s.open == 0 }

// Len returns how many members there are.
func (s *Sharers[T]) Len() int { return s.open }

// Indexes returns how many indexes there are, free ones included.
func (s *Sharers[T]) Indexes() int { return len(s.members) }

// First returns the member with the lowest index. There must be one.
func (s *Sharers[T]) First() *T { return s.From(0) }

// From returns the first member from index i on, around the end. There must be one: a flow whose
// socket has left goes to the next one, and all other flows stay.
func (s *Sharers[T]) From(i int) *T {
	if m := s.members[i]; m != nil {
		return m
	}
	if i = s.taken.next(i); i < 0 {
		i = s.taken.next(0)
	}
	return s.members[i]
}

// Next returns the first member from index i on, and the index behind it; nil is the end.
func (s *Sharers[T]) Next(i int) (m *T, next int) {
	if i = s.taken.next(i); i < 0 {
		return nil, 0
	}
	return s.members[i], i + 1
}

// indexSet is a set of small integers as a bitmap, with two bitmaps over its words. It grows to the largest
// index that it has had.
type indexSet struct {
	words    []uint64
	nonEmpty []uint64 // bit i: words[i] is not 0
	full     []uint64 // bit i: words[i] has all bits
}

func (s *indexSet) add(i int) {
	for i/64 >= len(s.words) {
		s.words = append(s.words, 0)
	}
	for i/4096 >= len(s.full) {
		s.nonEmpty, s.full = append(s.nonEmpty, 0), append(s.full, 0)
	}
	w := i / 64
	s.words[w] |= 1 << (i % 64)
	s.nonEmpty[w/64] |= 1 << (w % 64)
	if s.words[w] == ^uint64(0) {
		s.full[w/64] |= 1 << (w % 64)
	}
}

func (s *indexSet) remove(i int) {
	w := i / 64
	s.words[w] &^= 1 << (i % 64)
	s.full[w/64] &^= 1 << (w % 64)
	if s.words[w] == 0 {
		s.nonEmpty[w/64] &^= 1 << (w % 64)
	}
}

// next returns the first index of the set from i on, -1 for none.
func (s *indexSet) next(i int) int {
	w := i / 64
	if w >= len(s.words) {
		return -1
	}
	if rest := s.words[w] >> (i % 64); rest != 0 {
		return i + bits.TrailingZeros64(rest)
	}
	if w = nextBit(s.nonEmpty, w+1); w < 0 {
		return -1
	}
	return 64*w + bits.TrailingZeros64(s.words[w])
}

// last returns the largest index of the set, -1 for none.
func (s *indexSet) last() int {
	for b := len(s.nonEmpty) - 1; b >= 0; b-- {
		if s.nonEmpty[b] != 0 {
			w := 64*b + bits.Len64(s.nonEmpty[b]) - 1
			return 64*w + bits.Len64(s.words[w]) - 1
		}
	}
	return -1
}

// firstFree returns the smallest index below n that is not in the set, n for none.
func (s *indexSet) firstFree(n int) int {
	for b, full := range s.full {
		if full != ^uint64(0) {
			w := 64*b + bits.TrailingZeros64(^full)
			if w >= len(s.words) {
				return min(64*w, n)
			}
			return min(64*w+bits.TrailingZeros64(^s.words[w]), n)
		}
	}
	return min(4096*len(s.full), n)
}

// nextBit returns the first set bit of a bitmap from i on, -1 for none.
func nextBit(b []uint64, i int) int {
	for w := i / 64; w < len(b); w++ {
		rest := b[w]
		if w == i/64 {
			rest &= ^uint64(0) << (i % 64)
		}
		if rest != 0 {
			return 64*w + bits.TrailingZeros64(rest)
		}
	}
	return -1
}
