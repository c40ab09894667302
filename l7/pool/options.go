package pool

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/millrace/millrace/gateway/health"
)

// Balance is the method by which backends are selected.
type Balance uint8

// Values of Balance. All of them honour weights.
const (
	// RoundRobin takes backends in turn, in the order of nginx's smooth weighted round robin: weights 5, 1, 1 give
	// a a b a c a a.
	RoundRobin Balance = iota
	// LeastRequest draws two backends by weight and takes the one with fewer requests in flight for its weight
	// (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
	LeastRequest
	// Random draws a backend by weight.
	Random
	// ConsistentHash takes the backend that a Maglev table has for the key of the request. Requests of a backend that cannot take
	// them spread over the others, and return to it; no other request moves.
	ConsistentHash
)

var balances = [...]string{"round_robin", "least_request", "random", "consistent_hash"}

// String returns the name of the algorithm in configuration files.
func (b Balance) String() string { return balances[b] }

// Options are the settings of a pool.
type Options struct {
	Name    string
	Balance Balance
	// HashSize is the number of slots of ConsistentHash, a prime below 2^24. 0 is 65537: the share of each of 600 backends
	// is then within 1 % of its weight.
	HashSize int
	// SlowStart is the time that the share of a backend grows, from a tenth, after it was added, rose, returned from an ejection
	// or became active again. 0 gives it its full share at once. The backends of New have their full share.
	SlowStart time.Duration
	// Outlier defines when requests show that a backend does not serve; nil is never.
	Outlier *Outlier
	// PanicThreshold is the percentage of active backends that must be healthy and not ejected; with fewer, both are ignored,
	// since the rest would not bear the load. 0 is never: unhealthy backends get nothing. Ejected ones get requests in any case
	// once no other backend can take them.
	PanicThreshold int
	Limits         Limits // of the whole pool
	PerBackend     Limits // of each backend
	RetryBudget    RetryBudget
	// Secret keys the tokens of session persistence. Pools with one name and secret understand each other's tokens, also
	// after a restart. Without it the key comes from the seed.
	Secret []byte
	// Check configures the probes of backends; nil is none. See Probes.
	Check *health.Check
	// Notify is called with each change of a backend, from the goroutine that caused or noticed it; nil is no one. It must not
	// call methods of the pool that change anything.
	Notify func(Event)
}

// Limits bound what is open at once (circuit breaking). 0 is no limit.
//
// Loops that pick at the same moment do not see each other's requests: Requests may be exceeded by the number of other
// loops. Connections and Pending are exact.
type Limits struct {
	Requests    int // in flight
	Connections int // open
	Pending     int // requests that wait for a connection
}

// BackendOptions are the settings of a backend. Name and address, or path, are its identity: with both it is the same backend
// in Update.
type BackendOptions struct {
	Name    string // unique in the pool; "" is the address
	Address netip.AddrPort
	Path    string // in place of the address: a socket of this machine
	Weight  int    // its share of requests relative to others, up to 1,000,000; 0 is 1, and NoWeight is none
	State   State  // wanted by the configuration; the zero value is Active
	Down    bool   // of a new backend: it is unhealthy until SetHealthy says otherwise
	// Limits are its own; a 0 in it is the one of Options.PerBackend, and NoLimit is none.
	Limits Limits
}

// Special values of BackendOptions.
const (
	NoWeight = -1 // takes no requests, those of sessions aside
	NoLimit  = -1
)

// DefaultHashSize is the default of Options.HashSize.
const DefaultHashSize = 65537

// State is the administrative state of a backend.
type State uint8

// Values of State.
const (
	Active   State = iota // takes requests
	Draining              // only those of its sessions: see FromToken
	Inactive              // none
)

var states = [...]string{"active", "draining", "inactive"}

// String returns the name of the state.
func (s State) String() string { return states[s] }

// withDefaults returns the options with what their zero values stand for.
func (o Options) withDefaults() Options {
	o.HashSize = cmp.Or(o.HashSize, DefaultHashSize)
	o.RetryBudget = o.RetryBudget.withDefaults()
	if o.Outlier != nil {
		x := o.Outlier.withDefaults()
		o.Outlier = &x
	}
	return o
}

// withDefaults returns the options of a backend with what their zero values stand for.
func (b BackendOptions) withDefaults(o *Options) BackendOptions {
	if b.Name == "" {
		b.Name = cmp.Or(b.Path, b.Address.String())
	}
	b.Weight = max(cmp.Or(b.Weight, 1), 0)
	b.Limits.Requests = max(cmp.Or(b.Limits.Requests, o.PerBackend.Requests), 0)
	b.Limits.Connections = max(cmp.Or(b.Limits.Connections, o.PerBackend.Connections), 0)
	b.Limits.Pending = max(cmp.Or(b.Limits.Pending, o.PerBackend.Pending), 0)
	return b
}
