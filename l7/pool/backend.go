package pool

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/random"
)

// Backend is one of a pool. It stays the same one as long as its name and address do, over all updates.
//
// Methods may be called from any goroutine.
type Backend struct {
	pool    *Pool
	name    string
	address netip.AddrPort
	path    string // in place of the address
	serial  uint32 // in the pool; never used again
	hash    uint64 // of the name
	token   atomic.Uint64

	// What each pick reads. Only changes write it.
	flags       atomic.Uint32 // why it takes no new requests; 0 is that it does
	weight      atomic.Int64  // in force
	ejected     atomic.Int64  // clock.Time at which its ejection ends, or ended
	slowFrom    atomic.Int64  // clock.Time from which its share grows; always is no slow start
	maxRequests atomic.Int64
	maxConns    atomic.Int64
	maxPending  atomic.Int64

	_        [64]byte // what follows is written by each request
	requests atomic.Int64
	conns    atomic.Int64
	pending  atomic.Int64
	stats    counters
	streak   streak
	waits    waits

	// Guarded by pool.mu.
	config   BackendOptions
	operator struct {
		state  State
		has    bool // state is set
		weight int  // -1 is none
	}
	healthy bool
	since   clock.Time // of the last change of health or ejection
	cause   error      // why it is unhealthy or ejected
	backoff health.Backoff
	out     bool // ejected, and its return is not reported yet
	sample  sample
}

// Flags of Backend.flags.
const (
	flagUnhealthy uint32 = 1 << iota
	flagDraining
	flagInactive
	flagGone     // Update has removed it
	flagNoWeight // its weight is 0
)

// nameKey is public: gateways agree on consistent hashing.
var nameKey = random.Key{}

// always is a time before all others.
const always = clock.Time(math.MinInt64)

func newBackend(p *Pool, serial uint32, o BackendOptions, now clock.Time) *Backend {
	b := &Backend{
		pool: p, name: o.Name, address: o.Address, path: o.Path, serial: serial, hash: nameKey.Sum([]byte(o.Name)), healthy: !o.Down, config: o,
	}
	b.operator.weight = -1
	b.ejected.Store(int64(always))
	b.slowFrom.Store(int64(now))
	return b
}

// Name returns the name in the configuration.
func (b *Backend) Name() string { return b.name }

// Address returns where the backend is; the zero value with a Path.
func (b *Backend) Address() netip.AddrPort { return b.address }

// Path returns the path of the socket on this machine where the backend is; "" with an Address.
func (b *Backend) Path() string { return b.path }

// Where returns the address or the path as text.
func (b *Backend) Where() string {
	if b.path != "" {
		return "unix:" + b.path
	}
	return b.address.String()
}

// Pool returns the pool that the backend is of.
func (b *Backend) Pool() *Pool { return b.pool }

// Gone reports whether an update has removed the backend. Its idle connections should be closed.
func (b *Backend) Gone() bool { return b.flags.Load()&flagGone != 0 }

// Idle reports whether nothing is open to the backend: once it drains, it has drained.
func (b *Backend) Idle() bool {
	return b.requests.Load() == 0 && b.conns.Load() == 0 && b.pending.Load() == 0
}

// Requests returns the number of requests in flight.
func (b *Backend) Requests() int { return int(b.requests.Load()) }

// Connections returns the number of open connections.
func (b *Backend) Connections() int { return int(b.conns.Load()) }

// Start counts a request, or a connection of a TCP pool, that goes to the backend. Each is followed by one Done.
func (b *Backend) Start(now clock.Time) {
	b.requests.Add(1)
	b.pool.budget.request(now)
}

// Done ends what Start began.
func (b *Backend) Done(now clock.Time, o Outcome) {
	b.requests.Add(-1)
	b.pool.budget.done()
	b.stats.add(&o)
	b.observe(now, &o)
}

// ConnOpened counts a connection that is to be opened. It returns false, and counts nothing, where the backend or the pool has
// as many as it may.
func (b *Backend) ConnOpened() bool {
	return enter(&b.conns, b.maxConns.Load(), &b.pool.conns, b.pool.snap.Load().Limits.Connections)
}

// MayConnect reports whether ConnOpened would return true now.
func (b *Backend) MayConnect() bool { return b.Room() > 0 }

// Room returns how often ConnOpened would return true now.
func (b *Backend) Room() int {
	room := int64(math.MaxInt32)
	if limit := b.maxConns.Load(); limit > 0 {
		room = limit - b.conns.Load()
	}
	if all := int64(b.pool.snap.Load().Limits.Connections); all > 0 {
		room = min(room, all-b.pool.conns.Load())
	}
	return int(max(0, room))
}

// ConnClosed ends what ConnOpened counted, also where no connection came about.
func (b *Backend) ConnClosed() {
	b.conns.Add(-1)
	b.pool.conns.Add(-1)
}

// PendingAdded counts a request that waits for a connection. It returns false, and counts nothing, where as many wait as may.
func (b *Backend) PendingAdded() bool {
	added := enter(&b.pending, b.maxPending.Load(), &b.pool.pending, b.pool.snap.Load().Limits.Pending)
	if !added {
		b.waits.refused.Add(1)
	}
	return added
}

// PendingExpired counts a request that has waited for too long.
func (b *Backend) PendingExpired() { b.waits.expired.Add(1) }

// PendingRemoved ends what PendingAdded counted.
func (b *Backend) PendingRemoved() {
	b.pending.Add(-1)
	b.pool.pending.Add(-1)
}

// enter adds one to a counter of a backend and to that of its pool, unless one of them is at its limit.
func enter(n *atomic.Int64, limit int64, all *atomic.Int64, allLimit int) bool {
	if v := n.Add(1); limit > 0 && v > limit {
		n.Add(-1)
		return false
	}
	if v := all.Add(1); allLimit > 0 && v > int64(allLimit) {
		n.Add(-1)
		all.Add(-1)
		return false
	}
	return true
}

// full reports whether as many requests are in flight as may be.
func (b *Backend) full() bool {
	limit := b.maxRequests.Load()
	return limit > 0 && b.requests.Load() >= limit
}

// slowest is the share of its weight that a backend starts with: with less, a pool of few requests would never find out.
const slowest = 0.1

// ramp returns how much of its weight a backend has, from slowest to 1.
func (b *Backend) ramp(now clock.Time, slow time.Duration) float64 {
	from := clock.Time(b.slowFrom.Load())
	if from == always || slow <= 0 {
		return 1
	}
	passed := now.Sub(from)
	if passed >= slow {
		return 1
	}
	return max(slowest, float64(passed)/float64(slow))
}
