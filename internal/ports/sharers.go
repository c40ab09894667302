package ports

import "slices"

// Sharers are the sockets that share a scope and a port. Each has an index, which it keeps while others
// come and go, so that flows stay with their sockets.
type Sharers[T any] struct {
	Scope   Scope
	members []*T // by index; nil where one has left
	open    int  // members that are not nil
}

// Add gives m the first free index and returns it.
func (s *Sharers[T]) Add(m *T) int {
	i := slices.Index(s.members, nil)
	if i < 0 {
		i = len(s.members)
		s.members = append(s.members, nil)
	}
	s.members[i] = m
	s.open++
	return i
}

// Remove frees the index of a member. Free indexes at the end are forgotten.
func (s *Sharers[T]) Remove(i int) {
	s.members[i] = nil
	s.open--
	for n := len(s.members); n > 0 && s.members[n-1] == nil; n-- {
		s.members = s.members[:n-1]
	}
}

// Empty reports whether no member is left.
func (s *Sharers[T]) Empty() bool { return s.open == 0 }

// Indexes returns how many indexes there are, free ones included.
func (s *Sharers[T]) Indexes() int { return len(s.members) }

// First returns the member with the lowest index. There must be one.
func (s *Sharers[T]) First() *T { return s.From(0) }

// From returns the first member from index i on, around the end. There must be one: a flow whose
// socket has left goes to the next one, and all other flows stay.
func (s *Sharers[T]) From(i int) *T {
	for s.members[i] == nil {
		i = (i + 1) % len(s.members)
	}
	return s.members[i]
}
