package cache

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/semantics"
)

// flights are the responses that are being fetched. Requests for one of them wait for it, so that a backend gets one request in place of
// as many as there are clients (RFC 9111 4).
type flights struct {
	shards [flightShards]flightShard
}

type flightShard struct {
	mu   sync.Mutex
	of   map[uint64]*Flight
	pass [passes]pass
}

const (
	flightShards = 64
	// passes is the number of URLs of a shard for which no request waits, as the last response was none for others.
	passes = 64
	// passTime bounds the time for which that is remembered.
	passTime = 10 * time.Second
	// maxWaiters bounds the requests that wait for one response.
	maxWaiters = 1 << 14
)

// pass is a URL whose responses are not stored. A newer one takes the place of an older one.
type pass struct {
	hash  uint64
	until time.Time
}

// Flight is a response that one request fetches for all that wait.
type Flight struct {
	key     Key
	hash    uint64
	vary    []semantics.Field // by which the last response has varied, with the values of the request that fetches
	shard   *flightShard
	waiters []*Waiter
}

// Waiter is a request that waits for a Flight. It is for one wait.
type Waiter struct {
	wake   func()
	flight *Flight
	state  waiterState // guarded by the mutex of the shard
}

// waiterState is the state of a Waiter.
type waiterState uint8

const (
	waiting waiterState = iota
	woken               // wake was called, or is about to be
	left                // the request has gone on by itself
)

// Join is the outcome of Cache.Join.
type Join uint8

// Values of Join.
const (
	Leads   Join = iota // the request fetches the response, and ends the flight
	Waits               // the waiter is woken at the end of the flight
	Alone               // it fetches for itself: responses of the URL are not for others, or too many wait
	Differs             // the same: the response under way varies by a field that differs
)

// Join has a request wait for a response that is under way, or fetch it for others. wake is called once at most, from any goroutine.
func (c *Cache) Join(k Key, fields []semantics.Field, now time.Time, w *Waiter, wake func()) (*Flight, Join) {
	hash := c.flightHash(k)
	s := &c.flights.shards[hash%flightShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := &s.pass[hash/flightShards%passes]; p.hash == hash && now.Before(p.until) {
		return nil, Alone
	}
	f := s.of[hash]
	if f == nil {
		if s.of == nil {
			s.of = map[uint64]*Flight{}
		}
		f = &Flight{key: k.clone(), hash: hash, shard: s, vary: c.variesBy(k, fields)}
		s.of[hash] = f
		return f, Leads
	}
	switch {
	case f.key != k || len(f.waiters) >= maxWaiters:
		return nil, Alone
	case !selects(f.vary, fields):
		return nil, Differs
	}
	w.wake, w.flight = wake, f
	f.waiters = append(f.waiters, w)
	return nil, Waits
}

// variesBy returns the fields by which stored responses of a key vary, with the values of a request.
func (c *Cache) variesBy(k Key, fields []semantics.Field) []semantics.Field {
	g := c.find(c.hash(k.URL), k.URL)
	if g == nil {
		return nil
	}
	list := *g.entries.Load()
	for i := len(list) - 1; i >= 0; i-- {
		if e := list[i]; e.Variant == k.Variant {
			names := make([]string, len(e.vary))
			for n := range e.vary {
				names[n] = e.vary[n].Name
			}
			return varying(names, fields)
		}
	}
	return nil
}

func (c *Cache) flightHash(k Key) uint64 {
	return maphash.String(c.seed, k.URL) ^ 3*maphash.String(c.seed, k.Variant)
}

// Outcome classifies the end of a flight.
type Outcome uint8

// Values of Outcome.
const (
	Landed   Outcome = iota // the response is stored
	Failed                  // it is not, and another request may try
	Unshared                // the response is none for others: no request waits for the next ones
)

// End ends a flight: all that wait are woken, and look again.
func (f *Flight) End(o Outcome, now time.Time) {
	s := f.shard
	s.mu.Lock()
	if s.of[f.hash] == f {
		delete(s.of, f.hash)
	}
	if o == Unshared {
		s.pass[f.hash/flightShards%passes] = pass{f.hash, now.Add(passTime)}
	}
	waiters := f.waiters
	f.waiters = nil
	for _, w := range waiters {
		w.state = woken
	}
	s.mu.Unlock()
	for _, w := range waiters {
		w.wake()
	}
}

// Leave ends a wait, and reports whether it did so before the flight has: otherwise wake was called, or is about to be.
func (w *Waiter) Leave() bool {
	f := w.flight
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	if w.state != waiting {
		return false
	}
	w.state = left
	if i := slices.Index(f.waiters, w); i >= 0 {
		last := len(f.waiters) - 1
		f.waiters[i], f.waiters[last] = f.waiters[last], nil
		f.waiters = f.waiters[:last]
	}
	return true
}
