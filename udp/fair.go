package udp

import "math/bits"

// When the budget is spent, whoever has most makes room: the datagram that has waited longest in about
// the longest of all queues is dropped for one to a socket whose queue is shorter. So whatever is flooded,
// sockets that are read keep receiving. (Longest queue drop: Suter et al., INFOCOM 1998.)
//
// Sockets with a queue lie in lists by the logarithm of its memory, so that a long one is found at once.

// shelves is the number of lists: queues have less than 1<<shelves bytes.
const shelves = 48

// ranking is the lists.
type ranking struct {
	first [shelves]*Socket
	used  uint64 // bit i: list i is not empty
}

// rank moves s to the list that its queue belongs to.
func (r *ranking) rank(s *Socket) {
	shelf := uint8(min(bits.Len(uint(s.held)), shelves-1))
	if shelf == s.shelf {
		return
	}
	if s.shelf > 0 {
		r.take(s)
	}
	if s.shelf = shelf; shelf > 0 {
		s.rankPrev, s.rankNext = nil, r.first[shelf]
		if s.rankNext != nil {
			s.rankNext.rankPrev = s
		}
		r.first[shelf] = s
		r.used |= 1 << shelf
	}
}

func (r *ranking) take(s *Socket) {
	if s.rankNext != nil {
		s.rankNext.rankPrev = s.rankPrev
	}
	if s.rankPrev != nil {
		s.rankPrev.rankNext = s.rankNext
	} else if r.first[s.shelf] = s.rankNext; s.rankNext == nil {
		r.used &^= 1 << s.shelf
	}
	s.rankPrev, s.rankNext = nil, nil
}

// longest returns a socket whose queue is at least half as long as any.
func (r *ranking) longest() *Socket {
	if r.used == 0 {
		return nil
	}
	return r.first[bits.Len64(r.used)-1]
}

// makeRoom reports whether there are n bytes for a datagram to s, at the cost of longer queues if need be.
func (m *Mux) makeRoom(s *Socket, n int) bool {
	for m.pool.room() < int64(n) {
		h := m.ranking.longest()
		if h == nil || h.held <= s.held+n {
			return false
		}
		h.free(h.pop())
		h.stats.Lost++
		m.stats.Lost++
	}
	return true
}
