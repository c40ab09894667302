package transport

// slots are the connections of a loop by number. Numbers are used again.
type slots[T any] struct {
	list []*T
	free []uint32
}

// add returns the number of c.
func (s *slots[T]) add(c *T) uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.list[i] = c
		return i
	}
	s.list = append(s.list, c)
	return uint32(len(s.list) - 1)
}

func (s *slots[T]) remove(i uint32) {
	s.list[i] = nil
	s.free = append(s.free, i)
}

// each calls f, which may remove its argument, for all.
func (s *slots[T]) each(f func(c *T)) {
	for _, c := range s.list {
		if c != nil {
			f(c)
		}
	}
}
