package pmd

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Serializer is a wire that carries one packet at a time, and the queue in front of it.
type Serializer struct {
	Rate  uint64 // bits a second, not 0
	Queue Queue  // how much may wait, with the packet being sent

	free    clock.Time // when the last bit of the last packet is sent
	rest    uint64     // and so many parts of a nanosecond later, of Rate parts
	waiting []sent     // packets that are not sent yet, as far as is known, in order
	first   int        // of them
	bytes   int        // of them
}

type sent struct {
	at    clock.Time // when the last bit is sent
	bytes int
}

// Send returns when the last bit of a packet of n bytes is sent: rounded up to a nanosecond, but
// without an error that adds up. False is that the queue is full.
func (s *Serializer) Send(now clock.Time, n int) (clock.Time, bool) {
	s.forget(now)
	if s.Queue.full(len(s.waiting)-s.first, s.bytes, n) {
		return 0, false
	}
	if s.free < now {
		s.free, s.rest = now, 0
	}
	parts := uint64(n)*8*uint64(time.Second) + s.rest // 2^64 is 2 GB
	s.free, s.rest = s.free.Add(time.Duration(parts/s.Rate)), parts%s.Rate
	at := s.free
	if s.rest > 0 {
		at++
	}
	s.wait(sent{at, n})
	return at, true
}

// Waiting returns the bytes that wait at now, with the packet that is being sent.
func (s *Serializer) Waiting(now clock.Time) int {
	s.forget(now)
	return s.bytes
}

// forget drops the packets that are sent by now.
func (s *Serializer) forget(now clock.Time) {
	for s.first < len(s.waiting) && s.waiting[s.first].at <= now {
		s.bytes -= s.waiting[s.first].bytes
		s.first++
	}
}

// wait appends w and closes the gap in front when the slice is full.
func (s *Serializer) wait(w sent) {
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
