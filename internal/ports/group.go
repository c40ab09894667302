package ports

import "slices"

// Group holds the sockets that share a scope and a port. Each has an index, which it keeps while others
// come and go, so that flows stay with their sockets.
type Group[T any] struct {
	Scope   Scope
	members []*T // by index; nil where one has left
	open    int  // members that are not nil
}

// Add gives m the first free index and returns it.
func (g *Group[T]) Add(m *T) int {
	i := slices.Index(g.members, nil)
	if i < 0 {
		i = len(g.members)
		g.members = append(g.members, nil)
	}
	g.members[i] = m
	g.open++
	return i
}

// Remove frees the index of a member. Free indexes at the end are forgotten.
func (g *Group[T]) Remove(i int) {
	g.members[i] = nil
	g.open--
	for n := len(g.members); n > 0 && g.members[n-1] == nil; n-- {
		g.members = g.members[:n-1]
	}
}

// Empty reports whether no member is left.
func (g *Group[T]) Empty() bool { return g.open == 0 }

// Indexes returns how many indexes there are, free ones included.
func (g *Group[T]) Indexes() int { return len(g.members) }

// First returns the member with the lowest index. The group must not be empty.
func (g *Group[T]) First() *T { return g.From(0) }

// From returns the first member from index i on, around the end. The group must not be empty: a flow whose
// socket has left goes to the next one, and all other flows stay.
func (g *Group[T]) From(i int) *T {
	for g.members[i] == nil {
		i = (i + 1) % len(g.members)
	}
	return g.members[i]
}
