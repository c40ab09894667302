package stack

import (
	"sync/atomic"

	"github.com/millrace/millrace/packet"
)

// Stats counts what a loop did with packets (not descriptors: a packet of several frames counts
// once). At rest, when no packet is inside the engine or waits for a transmit ring,
//
//	Received + Originated + TakenOver = Forwarded + Delivered + sum of Dropped + HandedOver + Merged
//
// exactly. Over all loops of a Mesh TakenOver = HandedOver. A running loop has InFlight packets
// between the two sides.
type Stats struct {
	Received      uint64
	ReceivedBytes uint64
	Originated    uint64 // by the handler, through Output
	TakenOver     uint64 // from other loops; and taken back, from one that has ended
	Forwarded     uint64 // taken by a driver's Tx
	Delivered     uint64 // taken by the handler
	HandedOver    uint64 // to other loops
	Placed        uint64 // of Received: packets whose payload the driver put where the handler wanted it (PayloadPlacer), or kept (ExternalForwarder)
	Merged        uint64 // segments and datagrams that were joined to a packet received before them, and are a part of it from then on
	Dropped       [packet.Verdicts]uint64

	// WrongChecksums counts packets of Received whose TCP or UDP checksum is wrong, whatever becomes of them. Counted where the
	// engine verifies checksums.
	WrongChecksums uint64

	Iterations uint64 // times the loop polled its devices
	Busy       uint64 // iterations that moved packets
	Sleeps     uint64 // times its runner went to sleep
}

// TotalDropped is the sum over all reasons.
func (s *Stats) TotalDropped() (n uint64) {
	for _, d := range s.Dropped {
		n += d
	}
	return n
}

// InFlight is the number of packets received, originated or taken over that are not accounted for on
// the other side yet. What lies between two loops is in flight in none of them: it is HandedOver and
// not TakenOver.
func (s *Stats) InFlight() uint64 {
	return s.Received + s.Originated + s.TakenOver - s.Forwarded - s.Delivered - s.TotalDropped() - s.HandedOver - s.Merged
}

// Add adds t to s: the sum over loops.
func (s *Stats) Add(t Stats) {
	a, b := s.scalars(), t.scalars()
	for i := range a {
		*a[i] += *b[i]
	}
	for i, n := range t.Dropped {
		s.Dropped[i] += n
	}
}

// scalars lists the counters but Dropped, so that they can be copied and added in a loop: the sources
// of packets before their ends (see published.load).
func (s *Stats) scalars() [13]*uint64 {
	return [...]*uint64{
		&s.Received, &s.ReceivedBytes, &s.Originated, &s.TakenOver,
		&s.Forwarded, &s.Delivered, &s.HandedOver, &s.Merged, &s.Placed, &s.WrongChecksums, &s.Iterations, &s.Busy, &s.Sleeps,
	}
}

// published is the copy of a loop's counters that readers on other threads see. The loop is the only
// writer, so plain loads return what readers see, and unchanged counters cost no store: a store
// would take the cache line from every reader.
type published struct {
	scalars [13]atomic.Uint64
	dropped [packet.Verdicts]atomic.Uint64
	last    [packet.Verdicts]uint64 // what dropped holds, for the loop
}

// store publishes the counters that changed: the sources of packets first, their ends last.
func (b *published) store(s *Stats) {
	for i, v := range s.scalars() {
		if b.scalars[i].Load() != *v {
			b.scalars[i].Store(*v)
		}
	}
	if b.last == s.Dropped { // nearly always
		return
	}
	b.last = s.Dropped
	for i, v := range s.Dropped {
		b.dropped[i].Store(v)
	}
}

// load returns the counters as last published. Each is right; together they may be an iteration apart
// while the loop runs. It reads against the order in which store writes, so that no reader sees a
// packet end that it does not see arrive.
func (b *published) load() (s Stats) {
	for i := range b.dropped {
		s.Dropped[i] = b.dropped[i].Load()
	}
	w := s.scalars()
	for i := len(w) - 1; i >= 0; i-- {
		*w[i] = b.scalars[i].Load()
	}
	return s
}
