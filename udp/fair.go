package udp

import "math/bits"

// When the budget is used up, the longest queue makes room: the oldest datagram of about
// the longest of all queues is dropped for one to a socket whose queue is shorter. So
// whatever is flooded, sockets that are read keep receiving (longest queue drop: Suter et
// al., INFOCOM 1998).
//
// Sockets with a queue lie in buckets by the logarithm of its memory, so that a long one is
// found at once.
//
// numBuckets is the number of buckets: queues have less than 1<<numBuckets bytes.
const numBuckets = 48

// lengthBuckets has the sockets by the length of their queues.
type lengthBuckets struct {
	heads [numBuckets]*Socket
	used  uint64 // bit i: bucket i is not empty
}

// update moves s to the bucket that its queue belongs to.
func (r *lengthBuckets) update(s *Socket) {
	shelf := uint8(min(bits.Len(uint(s.queueBytes)), numBuckets-1))
	if shelf == s.bucket {
		return
	}
	if s.bucket > 0 {
		r.remove(s)
	}
	if s.bucket = shelf; shelf > 0 {
		s.bucketPrev, s.bucketNext = nil, r.heads[shelf]
		if s.bucketNext != nil {
			s.bucketNext.bucketPrev = s
		}
		r.heads[shelf] = s
		r.used |= 1 << shelf
	}
}

// remove takes s out of its bucket.
func (r *lengthBuckets) remove(s *Socket) {
	if s.bucketNext != nil {
		s.bucketNext.bucketPrev = s.bucketPrev
	}
	if s.bucketPrev != nil {
		s.bucketPrev.bucketNext = s.bucketNext
	} else if r.heads[s.bucket] = s.bucketNext; s.bucketNext == nil {
		r.used &^= 1 << s.bucket
	}
	s.bucketPrev, s.bucketNext = nil, nil
}

// longest returns a socket whose queue is at least half as long as any.
func (r *lengthBuckets) longest() *Socket {
	if r.used == 0 {
		return nil
	}
	return r.heads[bits.Len64(r.used)-1]
}

// makeRoom reports whether there are n bytes for a datagram to s, at the cost of longer
// queues if need be. A queue never makes room for itself: then the newest datagram is
// dropped, as in a plain FIFO.
func (m *Mux) makeRoom(s *Socket, n int) bool {
	for m.pool.room() < int64(n) {
		h := m.longest.longest()
		if h == nil || h.queueBytes <= s.queueBytes+n {
			return false
		}
		h.free(h.pop())
		h.stats.Lost++
		m.stats.Lost++
	}
	return true
}
