package pool

import (
	"math"
	"math/bits"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// Refusal is the reason why there is no backend for a request.
type Refusal uint8

// Values of Refusal.
const (
	NotRefused Refusal = iota
	NoBackend          // none is active with a weight above 0; of a token: it names none, or an inactive one
	Unhealthy          // all that are active are unhealthy; of a token: its backend is unhealthy or ejected
	Full               // all that are healthy have as many requests as they may
	PoolFull           // the pool has as many requests as it may
	Refusals           // how many there are
)

var refusals = [Refusals]string{"", "no_backend", "unhealthy", "backends_full", "pool_full"}

// String returns the reason for metrics, logs and fields of the response, "" for NotRefused.
func (r Refusal) String() string { return refusals[r] }

// Tried is the backends that a request has tried. The zero value is none. It remembers the last eight.
type Tried struct {
	serials [8]uint32
	n       uint32
}

// Add enters a backend.
func (t *Tried) Add(b *Backend) {
	t.serials[t.n%uint32(len(t.serials))] = b.serial
	t.n++
}

// Has reports whether a backend was tried.
func (t *Tried) Has(b *Backend) bool {
	for _, s := range t.serials[:min(t.n, uint32(len(t.serials)))] {
		if s == b.serial {
			return true
		}
	}
	return false
}

// Len returns how often a backend was tried.
func (t *Tried) Len() int { return int(t.n) }

// draws is the number of draws of a backend before all are looked at: with half of the backends out, less than one request of
// 60,000 has to.
const draws = 16

// choice is a pick in progress.
type choice struct {
	*snapshot
	now    clock.Time
	tried  *Tried // nil is none
	panics bool
}

// Pick chooses a backend for a request. key is the hash of what ConsistentHash is to keep together; the other algorithms do
// not read it. tried, which may be nil, is what the request has tried already: such a backend is chosen only where no
// other can take the request. The caller adds the backend to tried and calls Start.
func (p *Pool) Pick(now clock.Time, key uint64, tried *Tried) (*Backend, Refusal) {
	s := p.snap.Load()
	if int64(now) >= p.review.Load() {
		p.maintain(now)
	}
	if limit := s.Limits.Requests; limit > 0 && p.budget.active() >= int64(limit) {
		return nil, PoolFull
	}
	c := choice{s, now, tried, p.panics.Load()}
	var b *Backend
	switch {
	case s.sequence != nil:
		b = c.inTurn(p)
	case s.slots != nil:
		b = c.byKey(key)
	case s.urn == nil:
	case s.Balance == LeastRequest:
		b = c.lessLoaded(p)
	default:
		b = c.random(p)
	}
	if b != nil {
		return b, NotRefused
	}
	if s.slots == nil {
		key = p.number()
	}
	return c.search(key)
}

// takes reports whether a backend can take the request. toss is any number of this draw: it decides whether a backend in slow
// start, which takes a part of its share, takes this one.
func (c *choice) takes(b *Backend, toss uint64) bool {
	if b.flags.Load() != 0 || int64(c.now) < b.ejected.Load() {
		if !c.panics || b.flags.Load()&^flagUnhealthy != 0 {
			return false
		}
	}
	if b.full() || c.tried != nil && c.tried.Has(b) {
		return false
	}
	part := b.ramp(c.now, c.SlowStart)
	return part == 1 || unit(random.Mix(toss)) < part
}

// unit returns a number from 0 to below 1 by a random one.
func unit(r uint64) float64 { return float64(r>>11) / (1 << 53) }

// inTurn takes the next backend of the cycle. Turns of backends that cannot take the request pass for all loops, so that
// what they would have taken falls to all others, not to the next one.
func (c *choice) inTurn(p *Pool) *Backend {
	for range draws {
		turn := p.turn.Add(1) - 1
		b := c.list[c.sequence[turn%uint64(len(c.sequence))]]
		if c.takes(b, turn) {
			return b
		}
	}
	return nil
}

func (c *choice) random(p *Pool) *Backend {
	for range draws {
		r := p.number()
		if b := c.list[c.urn.draw(r)]; c.takes(b, r) {
			return b
		}
	}
	return nil
}

// lessLoaded draws two different backends by weight and returns the one with fewer requests for its weight; of equals, such as
// idle ones, the first. The request that is to come does not count: it would weigh more with the lighter one, whose
// weight the draw has counted already.
func (c *choice) lessLoaded(p *Pool) *Backend {
	var first *Backend
	for range draws {
		r := p.number()
		b := c.list[c.urn.draw(r)]
		if b == first || !c.takes(b, r) {
			continue
		}
		if first == nil {
			if first = b; len(c.urn) == 1 {
				break
			}
			continue
		}
		if c.load(b) < c.load(first) {
			return b
		}
		return first
	}
	return first
}

// load returns the requests of a backend for its weight.
func (c *choice) load(b *Backend) float64 {
	return float64(b.requests.Load()) / (float64(b.weight.Load()) * b.ramp(c.now, c.SlowStart))
}

// byKey returns the backend of a key. One that cannot take the request leaves it to that of another key, which is computed
// from the first: so all that it cannot take spreads by weight, in the same way each time. In slow start keys come to the
// backend one after the other, and stay.
func (c *choice) byKey(key uint64) *Backend {
	for range draws {
		at, _ := bits.Mul64(random.Mix(key), uint64(len(c.slots)))
		b := c.list[c.slots[at]]
		if c.takes(b, key^b.hash) {
			return b
		}
		key = random.Mix(key + golden)
	}
	return nil
}

// Ranks of what search finds, the best first.
const (
	rankUntried = iota
	rankTried
	rankEjected
	ranks
)

// search looks at all backends, for the rare case that draws found none. Of those that can take the request best it returns one
// by weight: the highest of a random score for each backend and key, so that consistent hashing stays consistent (rendezvous
// hashing; Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998). Without any it says why.
func (c *choice) search(key uint64) (*Backend, Refusal) {
	var found *Backend
	rank, high, why := ranks, 0.0, NoBackend
	for _, b := range c.list {
		if reason := c.refuses(b); reason != NotRefused {
			why = max(why, reason)
			continue
		}
		at := c.rank(b)
		if at > rank {
			continue
		}
		weight := float64(b.weight.Load()) * b.ramp(c.now, c.SlowStart)
		score := weight / -math.Log(unit(random.Mix(key^b.hash))+1e-300)
		if at < rank || score > high {
			found, rank, high = b, at, score
		}
	}
	if found == nil {
		return nil, why
	}
	return found, NotRefused
}

// refuses returns why a backend cannot take the request at all.
func (c *choice) refuses(b *Backend) Refusal {
	flags := b.flags.Load()
	switch {
	case flags&^flagUnhealthy != 0:
		return NoBackend
	case flags != 0 && !c.panics:
		return Unhealthy
	case b.full():
		return Full
	}
	return NotRefused
}

func (c *choice) rank(b *Backend) int {
	switch {
	case !c.panics && int64(c.now) < b.ejected.Load():
		return rankEjected
	case c.tried != nil && c.tried.Has(b):
		return rankTried
	}
	return rankUntried
}
