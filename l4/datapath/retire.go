package datapath

import (
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"
)

// Numbers are reused only once no loop refers to them. Backends come and go by the thousand a day where services scale by themselves, so a
// number that nothing refers to any more must not cost memory for ever. It goes through three steps:
//
//	retired   the configuration has no use for it: the control side publishes it in Snapshot.Retired
//	held      a loop looks at its whole table and ports with that snapshot, and reports which of the
//	          numbers connections or ports still refer to (retirement)
//	free      all loops have reported, and none holds it: Snapshot.Free empties its place
//
// No connection comes to refer to a retired number: its service address opens none, no pool has its backend, and
// Import refuses it. So one pass that begins after the loop has taken the snapshot is proof.
//
// Copies of connections outlive the table's: those for the peer, those that an operator lists. A copy carries the
// era of its loop's snapshot, and each place the era in which its number was given. A copy of an earlier era than
// a place that it refers to meant something else by that number, and is ignored (describes).

// NumberSet is a set of numbers.
type NumberSet struct{ words []uint64 }

// Add enters a number.
func (s *NumberSet) Add(n uint32) {
	for len(s.words) <= int(n>>6) {
		s.words = append(s.words, 0)
	}
	s.words[n>>6] |= 1 << (n & 63)
}

// Has reports whether n is in the set.
func (s *NumberSet) Has(n uint32) bool {
	return int(n>>6) < len(s.words) && s.words[n>>6]>>(n&63)&1 != 0
}

// Remove takes out all numbers of another set.
func (s *NumberSet) Remove(other *NumberSet) {
	for i := range min(len(s.words), len(other.words)) {
		s.words[i] &^= other.words[i]
	}
}

// Empty reports whether there is no number in the set.
func (s *NumberSet) Empty() bool { return empty(s.words) }

// All yields the numbers in rising order.
func (s *NumberSet) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(uint32(i<<6 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// Numbers is a set of numbers of each kind that connections refer to.
type Numbers struct{ VIPs, Backends, Endpoints, SNATs NumberSet }

// Empty reports whether there is no number in any of the sets.
func (x *Numbers) Empty() bool {
	return x.VIPs.Empty() && x.Backends.Empty() && x.Endpoints.Empty() && x.SNATs.Empty()
}

// Remove takes out all numbers of another set.
func (x *Numbers) Remove(other *Numbers) {
	x.VIPs.Remove(&other.VIPs)
	x.Backends.Remove(&other.Backends)
	x.Endpoints.Remove(&other.Endpoints)
	x.SNATs.Remove(&other.SNATs)
}

// Clone returns a copy.
func (x *Numbers) Clone() *Numbers {
	of := func(s *NumberSet) NumberSet { return NumberSet{slices.Clone(s.words)} }
	return &Numbers{of(&x.VIPs), of(&x.Backends), of(&x.Endpoints), of(&x.SNATs)}
}

// Equal reports whether both have the same numbers. nil has none.
func (x *Numbers) Equal(o *Numbers) bool {
	if x == nil || o == nil {
		return x == o || x == nil && o.Empty() || o == nil && x.Empty()
	}
	a, b := x.Clone(), o.Clone()
	a.Remove(o)
	b.Remove(x)
	return a.Empty() && b.Empty()
}

// refers reports whether a connection refers to a number of the sets.
func (x *Numbers) refers(c *Conn) bool {
	return x != nil && (x.VIPs.Has(c.vip) || x.Backends.Has(c.backend) || x.Endpoints.Has(c.endpoint) || x.SNATs.Has(uint32(c.snat)))
}

// intersect adds those numbers of a connection that are among asked.
func (x *Numbers) intersect(asked *Numbers, c *Conn) {
	if !asked.refers(c) {
		return
	}
	if asked.VIPs.Has(c.vip) {
		x.VIPs.Add(c.vip)
	}
	if asked.Backends.Has(c.backend) {
		x.Backends.Add(c.backend)
	}
	x.intersectPair(asked, c.endpoint, c.snat)
}

// intersectPair is intersect for what has an endpoint and an SNAT address alone.
func (x *Numbers) intersectPair(asked *Numbers, endpoint uint32, snat uint16) {
	if asked.Endpoints.Has(endpoint) {
		x.Endpoints.Add(endpoint)
	}
	if asked.SNATs.Has(uint32(snat)) {
		x.SNATs.Add(uint32(snat))
	}
}

// retirement finds which retired numbers a loop holds, in passes over its table beside the sweep.
type retirement struct {
	asked    *Numbers // of the pass under way; nil: none is
	held     Numbers  // what it has found
	reported atomic.Pointer[heldNumbers]
}

// heldNumbers is the result of a pass.
type heldNumbers struct {
	asked *Numbers
	held  Numbers
}

// Holds returns which of the retired numbers this loop holds; false until it has looked at all that it has since it
// took a snapshot with these numbers. Any goroutine may call it. The caller must not change the result.
func (h *Handler) Holds(retired *Numbers) (held *Numbers, ok bool) {
	r := h.retirement.reported.Load()
	if r == nil || r.asked != retired {
		return nil, false
	}
	return &r.held, true
}

// endPass reports the pass that the sweep has ended, and begins another one if there are retired numbers. Where these have
// changed meanwhile the report is not read.
func (h retirer) endPass() {
	r := &h.retirement
	if r.asked != nil {
		h.notePorts()
		r.reported.Store(&heldNumbers{r.asked, r.held})
	}
	r.asked, r.held = h.snap.Retired, Numbers{}
}

// notePorts notes the pairs of SNAT address and endpoint with ports in use, those that rest included, and forgets the
// others that have a retired number.
func (h retirer) notePorts() {
	r := &h.retirement
	if r.asked.Endpoints.Empty() && r.asked.SNATs.Empty() {
		return
	}
	for _, m := range h.ports.list[1:] {
		if m == nil || !r.asked.Endpoints.Has(m.to) && !r.asked.SNATs.Has(uint32(m.snat)) {
			continue
		}
		if m.free == h.ports.span.Size() {
			h.ports.drop(portPair{m.to, m.snat}, m)
			continue
		}
		r.held.intersectPair(r.asked, m.to, m.snat)
	}
}

// ConnCopy is a connection outside of the table: with the era of the snapshot by which its numbers mean something, and the
// sequence numbers of a TCP connection.
type ConnCopy struct {
	Conn
	era       uint32
	sequences sequences
}

// describes reports whether the numbers of a copy still mean what they meant. The snapshot is not older than the copy.
func (s *Snapshot) describes(c *ConnCopy) bool {
	given := func(era uint32) bool { return int32(c.era-era) >= 0 }
	front, _ := s.vip(c.vip)
	to, _ := s.endpoint(c.endpoint)
	return given(front.since) && given(s.Backends[c.backend].since) && given(to.since) &&
		(c.snat == 0 || given(s.snatSince[c.snat]))
}

// Free empties the places of numbers that no loop holds, and of services without backends. Its lists are those of this
// snapshot alone. The handlers have so many loops.
func (s *Snapshot) Free(gone *Numbers, services []uint32, loops int) {
	s.Era++
	for n := range gone.VIPs.All() {
		s.VIPs[n] = VIP{Service: -1, since: s.Era}
	}
	noBackend := NewBackend("", 0, 0, loops)
	noBackend.Usable, noBackend.free, noBackend.since = false, true, s.Era
	for n := range gone.Backends.All() {
		s.Backends[n] = noBackend
	}
	noEndpoint := &Endpoint{free: true, since: s.Era}
	for n := range gone.Endpoints.All() {
		s.Endpoints[n] = noEndpoint
	}
	for n := range gone.SNATs.All() {
		s.snats[n], s.snatStats[n], s.snatSince[n] = addr{}, nil, s.Era
	}
	noService := NewService("", loops)
	for _, n := range services {
		s.Services[n] = noService
	}
}

// Place puts v in place n of a list: the next one, or one that was freed.
func Place[T any](list []T, n uint32, v T) []T {
	if int(n) == len(list) {
		return append(list, v)
	}
	list[n] = v
	return list
}

// begin returns the era of a number that is given now. A place that was freed begins one: handlers look up its counters.
func (s *Snapshot) begin(n uint32, places int) uint32 {
	if int(n) < places {
		s.Era++
	}
	return s.Era
}

// SetVIP assigns number n to a service address without a service.
func (s *Snapshot) SetVIP(n uint32, v VIP) {
	v.since = s.begin(n, len(s.VIPs))
	s.VIPs = Place(s.VIPs, n, v)
}

// SetService assigns number n to a service.
func (s *Snapshot) SetService(n uint32, sv *Service) { s.Services = Place(s.Services, n, sv) }

// SetBackend assigns number n to a backend.
func (s *Snapshot) SetBackend(n uint32, b *Backend) {
	b.since = s.begin(n, len(s.Backends))
	s.Backends = Place(s.Backends, n, b)
}

// SetEndpoint assigns number n to an endpoint.
func (s *Snapshot) SetEndpoint(n uint32, e *Endpoint) {
	e.since = s.begin(n, len(s.Endpoints))
	s.Endpoints = Place(s.Endpoints, n, e)
}
