package pmd

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Serializer is a link that sends one packet at a time at a fixed rate, and the drop-tail queue in front
// of it. Its arithmetic is exact: what is left of a nanosecond is carried to the next packet, so n packets
// take n x size / rate even where one takes no whole nanosecond.
type Serializer struct {
	Rate  uint64 // bits a second, not 0
	Queue Queue  // limit of what waits, the packet being sent included

	free     clock.Time     // when the last bit of the last packet is sent
	fraction uint64         // and so many parts of a nanosecond later, of Rate parts
	waiting  []queuedPacket // packets that are not sent yet, as far as is known, in order
	first    int            // of them
	bytes    int            // of them
}

type queuedPacket struct {
	at    clock.Time // when the last bit is sent
	bytes int
}

// Send returns when the last bit of a packet of n bytes is sent, rounded up to a nanosecond. False means
// that the queue is full.
func (s *Serializer) Send(now clock.Time, n int) (clock.Time, bool) {
	s.removeSent(now)
	if s.Queue.full(len(s.waiting)-s.first, s.bytes, n) {
		return 0, false
	}
	if s.free < now {
		s.free, s.fraction = now, 0
	}
	parts := uint64(n)*8*uint64(time.Second) + s.fraction // 2^64 is 2 GB
	s.free, s.fraction = s.free.Add(time.Duration(parts/s.Rate)), parts%s.Rate
	at := s.free
	if s.fraction > 0 {
		at++
	}
	s.enqueue(queuedPacket{at, n})
	return at, true
}

// Waiting returns the bytes that wait at now, the packet being sent included.
func (s *Serializer) Waiting(now clock.Time) int {
	s.removeSent(now)
	return s.bytes
}

// removeSent removes the packets that are sent by now.
func (s *Serializer) removeSent(now clock.Time) {
	for s.first < len(s.waiting) && s.waiting[s.first].at <= now {
		s.bytes -= s.waiting[s.first].bytes
		s.first++
	}
}

// enqueue appends w. It moves the packets to the front of a full slice first, so that nothing is allocated
// once the slice has the size of the longest queue.
func (s *Serializer) enqueue(w queuedPacket) {
	if len(s.waiting) == cap(s.waiting) && s.first > 0 {
		s.waiting = s.waiting[:copy(s.waiting, s.waiting[s.first:])]
		s.first = 0
	}
	s.waiting = append(s.waiting, w)
	s.bytes += w.bytes
}

// full reports whether a packet of n bytes finds the queue too full.
func (q Queue) full(packets, bytes, n int) bool {
	return q.Packets != 0 && packets >= q.Packets || q.Bytes != 0 && bytes+n > q.Bytes
}
