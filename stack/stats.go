package stack

import (
	"sync/atomic"

	"github.com/millrace/millrace/packet"
)

// Stats counts what a loop did with packets (not descriptors: a packet of several frames counts
// once). At rest, when no packet is inside the engine or waits for a transmit ring,
//
//	Received + Originated + Taken = Forwarded + Delivered + sum of Dropped + Handed
//
// exactly. Over all loops of a Mesh Taken = Handed. A running loop has InFlight packets between the two sides.
type Stats struct {
	Received      uint64
	ReceivedBytes uint64
	Originated    uint64 // made here, by Loop.Send
	Taken         uint64 // handed over by other loops; and back, from one that has ended
	Forwarded     uint64 // taken by a driver's Tx
	Delivered     uint64 // taken by the handler
	Handed        uint64 // to other loops
	Dropped       [packet.Verdicts]uint64

	Turns  uint64 // times the loop polled its ports
	Busy   uint64 // turns that moved packets
	Sleeps uint64 // times it went to sleep in poll(2)
}

// TotalDropped is the sum over all reasons.
func (s *Stats) TotalDropped() (n uint64) {
	for _, d := range s.Dropped {
		n += d
	}
	return n
}

// InFlight is what was received, made or taken and has not met its end yet. What lies between two
// loops is in flight in none of them: it is Handed and not Taken.
func (s *Stats) InFlight() uint64 {
	return s.Received + s.Originated + s.Taken - s.Forwarded - s.Delivered - s.TotalDropped() - s.Handed
}

// Add adds t to s: the sum over loops.
func (s *Stats) Add(t Stats) {
	a, b := s.ends(), t.ends()
	for i := range a {
		*a[i] += *b[i]
	}
	for i, n := range t.Dropped {
		s.Dropped[i] += n
	}
}

// ends lists the counters but Dropped, so that they can be copied and added in a loop: where packets come
// from before where they end (see board.read).
func (s *Stats) ends() [10]*uint64 {
	return [...]*uint64{
		&s.Received, &s.ReceivedBytes, &s.Originated, &s.Taken, &s.Forwarded, &s.Delivered, &s.Handed, &s.Turns, &s.Busy, &s.Sleeps,
	}
}

// board is where a loop, the one writer, publishes its counters for readers on other threads.
type board struct {
	ends    [10]atomic.Uint64
	dropped [packet.Verdicts]atomic.Uint64
	shown   [packet.Verdicts]uint64 // what dropped says, for the loop
}

// publish copies the counters that changed.
func (b *board) publish(s *Stats) {
	for i, v := range s.ends() {
		if b.ends[i].Load() != *v {
			b.ends[i].Store(*v)
		}
	}
	if b.shown == s.Dropped { // nearly always
		return
	}
	b.shown = s.Dropped
	for i, v := range s.Dropped {
		b.dropped[i].Store(v)
	}
}

// read returns the counters as last published. Each is right; together they may be a turn apart
// while the loop runs. It reads against the order in which publish writes, so that
// no packet is seen to end that was not seen to come.
func (b *board) read() (s Stats) {
	for i := range b.dropped {
		s.Dropped[i] = b.dropped[i].Load()
	}
	w := s.ends()
	for i := len(w) - 1; i >= 0; i-- {
		*w[i] = b.ends[i].Load()
	}
	return s
}
