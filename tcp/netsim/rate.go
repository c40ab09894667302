package netsim

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
)

// serializer is a wire that carries one packet at a time, and the queue in front of it.
type serializer struct {
	bits    uint64 // a second
	queue   pmd.Queue
	free    clock.Time // when the last bit of the last packet is sent
	rest    uint64     // and so many parts of a nanosecond later, of bits parts
	waiting []leaving  // not sent yet as far as is known
	first   int        // of waiting
	bytes   int        // of waiting
}

type leaving struct {
	at    clock.Time
	bytes int
}

// send returns when the last bit of a packet of n bytes is sent, or that the queue is full.
func (s *serializer) send(now clock.Time, n int) (clock.Time, bool) {
	s.forget(now)
	packets := len(s.waiting) - s.first
	if s.queue.Packets != 0 && packets >= s.queue.Packets || s.queue.Bytes != 0 && s.bytes+n > s.queue.Bytes {
		return 0, false
	}
	if s.free < now {
		s.free, s.rest = now, 0
	}
	parts := uint64(n)*8*uint64(time.Second) + s.rest
	s.free, s.rest = s.free.Add(time.Duration(parts/s.bits)), parts%s.bits
	at := s.free
	if s.rest > 0 {
		at++
	}
	s.waiting = append(s.waiting, leaving{at, n})
	s.bytes += n
	return at, true
}

// forget drops the packets that are sent by now.
func (s *serializer) forget(now clock.Time) {
	for s.first < len(s.waiting) && s.waiting[s.first].at <= now {
		s.bytes -= s.waiting[s.first].bytes
		s.first++
	}
	if 2*s.first >= len(s.waiting) {
		s.waiting = s.waiting[:copy(s.waiting, s.waiting[s.first:])]
		s.first = 0
	}
}

// Queued returns the bytes that wait for the rate of the pipe, with the packet that is being sent.
func (l *Pipe) Queued() int {
	l.rate.forget(l.net.now)
	return l.rate.bytes
}
