package ports

import (
	"math/bits"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Set is a set of ports: a bitmap of 8 KiB.
type Set [1 << 16 / 64]uint64

// Add puts a port into the set.
func (s *Set) Add(port uint16) { s[port/64] |= 1 << (port % 64) }

// Remove takes a port out of the set.
func (s *Set) Remove(port uint16) { s[port/64] &^= 1 << (port % 64) }

// Has reports whether a port is in the set.
func (s *Set) Has(port uint16) bool { return s[port/64]>>(port%64)&1 != 0 }

// Missing returns the first port that is not in the set, from one on, around the end of the range. ok is
// false where every port of the range is in the set. It looks at 64 ports at a time.
func (s *Set) Missing(from, first, last uint16) (port uint16, ok bool) {
	if port, ok = s.missing(from, last); ok || from == first {
		return port, ok
	}
	return s.missing(first, from-1)
}

// missing is Missing without the wrap.
func (s *Set) missing(from, last uint16) (port uint16, ok bool) {
	for i := int(from); i <= int(last); i = (i/64 + 1) * 64 {
		if free := ^s[i/64] >> (i % 64); free != 0 {
			i += bits.TrailingZeros64(free)
			return uint16(i), i <= int(last)
		}
	}
	return 0, false
}

// Searches remembers, for destinations to which nearly every local port is in use, the ports that are not
// free. A search then skips them, 64 at a time, instead of looking each up in the tables: without it, a
// program that goes on dialing when no port is left would hold the loop for milliseconds with each dial.
//
// A destination has a Search only after QuickTries ports were in use, so that others cost nothing.
// Callers report every flow that ends by Release.
type Searches struct {
	byDest map[destination]*Search
}

// Limits of searches.
const (
	QuickTries  = 64  // ports that are tried before a destination gets a Search; where 90 % are in use at random, all fail once in 850
	StepTries   = 512 // ports that one call tries before it lets others have the loop: some 100 us
	maxSearches = 32  // destinations, of 16 KiB each
)

// destination is a flow without its local port.
type destination struct {
	local, remote wire.Addr
	remotePort    uint16
}

func destinationOf(t *wire.Tuple) destination { return destination{t.Local, t.Remote, t.RemotePort} }

// Search records the local ports of one destination.
type Search struct {
	busy    Set        // not free when they were tried last
	waiting Set        // of busy: those that become free by themselves
	retry   clock.Time // when the first of them may be free; Never without any
}

// Find returns the search of a flow's destination, nil without one.
func (s *Searches) Find(t *wire.Tuple) *Search {
	if len(s.byDest) == 0 {
		return nil
	}
	return s.byDest[destinationOf(t)]
}

// Begin makes a search for a flow's destination. Another one is forgotten where there are too many.
func (s *Searches) Begin(t *wire.Tuple) *Search {
	if s.byDest == nil {
		s.byDest = map[destination]*Search{}
	}
	if len(s.byDest) == maxSearches {
		for d := range s.byDest { // any: the map's order is random
			delete(s.byDest, d)
			break
		}
	}
	x := &Search{retry: clock.Never}
	s.byDest[destinationOf(t)] = x
	return x
}

// Release reports that the flow t has ended, or may be used again. A nil s has no searches.
func (s *Searches) Release(t *wire.Tuple) {
	if s == nil || len(s.byDest) == 0 {
		return
	}
	if x := s.byDest[destinationOf(t)]; x != nil {
		x.busy.Remove(t.LocalPort)
		x.waiting.Remove(t.LocalPort)
	}
}

// Reset forgets all searches: ports may be free that no flow has used, such as that of a listener.
func (s *Searches) Reset() { clear(s.byDest) }

// Next returns the next port that may be free, from one on, around the end of the range. The caller tries
// it, and reports by Reject that it is not free. ok is false where no port of the range is free.
func (x *Search) Next(now clock.Time, from, first, last uint16) (port uint16, ok bool) {
	if now >= x.retry {
		for i := range x.busy {
			x.busy[i] &^= x.waiting[i]
		}
		x.waiting, x.retry = Set{}, clock.Never
	}
	return x.busy.Missing(from, first, last)
}

// Step tries ports that may be free for the flow t, at most StepTries of them, from one on. found means that
// one is, and t has it; more, that the search is to go on with another call. free tries a port, as Reject
// wants it. Where none was found t has no local port.
func (x *Search) Step(now clock.Time, t *wire.Tuple, from, first, last uint16, free func() (ok bool, until clock.Time)) (found, more bool) {
	for range StepTries {
		port, ok := x.Next(now, from, first, last)
		if !ok {
			t.LocalPort = 0
			return false, false
		}
		t.LocalPort = port
		ok, until := free()
		if ok {
			return true, false
		}
		x.Reject(port, until)
	}
	t.LocalPort = 0
	return false, true
}

// Reject reports that a port is not free. until is when it becomes free without a Release, or Never.
func (x *Search) Reject(port uint16, until clock.Time) {
	x.busy.Add(port)
	if until != clock.Never {
		x.waiting.Add(port)
		x.retry = min(x.retry, until)
	}
}
