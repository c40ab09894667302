package pool

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
)

// RetryBudget bounds retries to a share of requests, so that a pool that fails is not asked twice as often. It is a token
// bucket over a window: each request brings in Percent of a retry, each second MinPerSecond.
type RetryBudget struct {
	Percent      int           // retries for each 100 requests; 0 is 20, and -1 none
	MinPerSecond int           // retries that are allowed however few requests there are; 0 is 10, and -1 none
	Window       time.Duration // how long unused ones last; 0 is 10 s
}

func (r RetryBudget) withDefaults() RetryBudget {
	r.Percent = max(cmp.Or(r.Percent, 20), 0)
	r.MinPerSecond = max(cmp.Or(r.MinPerSecond, 10), 0)
	r.Window = cmp.Or(r.Window, 10*time.Second)
	return r
}

// marks is the number of parts that the window has.
const marks = 10

// budget counts requests and retries of a pool. The window is cumulative counters, remembered at the start of each part.
type budget struct {
	started atomic.Uint64 // requests, retries among them
	_       [56]byte
	ended   atomic.Uint64
	_       [56]byte
	due     atomic.Int64 // clock.Time at which the next part begins

	mu      sync.Mutex
	set     RetryBudget
	retries int64
	denied  uint64
	ring    [marks]mark // at the start of each part
	begun   bool
	zero    clock.Time // start of part 0
	part    int64      // number of the part under way
}

// mark is the state of the counters at a moment. A retry counts before it starts, so requests may lack it for a while.
type mark struct{ requests, retries int64 }

// request counts a request.
func (g *budget) request(now clock.Time) {
	if int64(now) >= g.due.Load() && g.mu.TryLock() { // first: the request is of the part that begins
		g.advance(now)
		g.mu.Unlock()
	}
	g.started.Add(1)
}

func (g *budget) done() { g.ended.Add(1) }

// active returns the number of requests in flight.
func (g *budget) active() int64 {
	ended := g.ended.Load() // first: else a request that ends meanwhile would count as -1
	return int64(g.started.Load() - ended)
}

// configure sets the limits.
func (g *budget) configure(set RetryBudget) {
	g.mu.Lock()
	if set.Window != g.set.Window {
		g.begun, g.part = false, 0
		for i := range g.ring {
			g.ring[i] = g.now()
		}
	}
	g.set = set
	g.due.Store(int64(always))
	g.mu.Unlock()
}

// advance enters the parts that have begun. The caller holds g.mu.
func (g *budget) advance(now clock.Time) {
	if !g.begun {
		g.begun, g.zero = true, now
	}
	length := max(g.set.Window/marks, 1)
	part := int64(now.Sub(g.zero) / length)
	for g.part = max(g.part, part-marks); g.part < part; {
		g.part++
		g.ring[g.part%marks] = g.now()
	}
	g.due.Store(int64(g.zero.Add(time.Duration(g.part+1) * length)))
}

// now returns the counters. Requests are those that are no retries.
func (g *budget) now() mark { return mark{int64(g.started.Load()) - g.retries, g.retries} }

// allow takes a retry out of the budget.
func (g *budget) allow(now clock.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if int64(now) >= g.due.Load() {
		g.advance(now)
	}
	oldest, n := g.ring[(g.part+1)%marks], g.now()
	requests := max(n.requests-oldest.requests, 0)
	limit := requests*int64(g.set.Percent)/100 + int64(g.set.MinPerSecond)*int64(g.set.Window)/int64(time.Second)
	if n.retries-oldest.retries >= limit {
		g.denied++
		return false
	}
	g.retries++
	return true
}

// RetryAllowed reports whether a request may be tried once more, and counts that it is. It is asked once Pick has found a
// backend, and Start follows as for any request.
func (p *Pool) RetryAllowed(now clock.Time) bool { return p.budget.allow(now) }

// counts returns the retries that were allowed and denied.
func (g *budget) counts() (allowed, denied uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return uint64(g.retries), g.denied
}
