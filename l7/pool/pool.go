package pool

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// Pool is backends that replace each other. Methods may be called from any goroutine.
type Pool struct {
	snap   atomic.Pointer[snapshot]
	panics atomic.Bool  // too few backends are left: see Options.PanicThreshold
	review atomic.Int64 // clock.Time at which maintain has something to do

	_       [64]byte
	turn    atomic.Uint64 // of RoundRobin
	_       [56]byte
	state   atomic.Uint64 // of the random source
	_       [56]byte
	conns   atomic.Int64
	pending atomic.Int64
	budget  budget

	mu     sync.Mutex
	serial uint32
	seed   uint64
	stale  bool    // the snapshot is to be built again before mu is released
	events []Event // to be reported once mu is released
	period period
}

// snapshot is the configuration in use. It is never changed.
type snapshot struct {
	Options
	list   []*Backend
	tokens map[uint64]*Backend
	names  map[string]*Backend
	key    random.Key // of tokens

	// How backends are drawn, for indices into list. weights are those by which: 0 is not at all.
	weights  []int
	sequence []uint16 // RoundRobin: a whole cycle
	urn      urn      // LeastRequest, Random
	slots    []uint16 // ConsistentHash
}

// Errors of New and Update.
var (
	ErrBackends = errors.New("pool: backends of one name, or more than 65535")
	ErrOptions  = errors.New("pool: wrong options")
)

// New returns a pool. seed is any number: pools with one seed and the same calls choose the same backends.
func New(o Options, backends []BackendOptions, seed uint64) (*Pool, error) {
	p := &Pool{seed: seed, period: period{always}}
	p.state.Store(seed)
	if err := p.Update(always, o, backends); err != nil { // a slow start of then is over
		return nil, err
	}
	return p, nil
}

// Update changes the options and backends. Backends that stay, by name and address, keep their identity, state and counters;
// what an operator set stays unless the configuration changes that very value. Others start slowly. Those that left finish
// what they began. With an error nothing changes.
func (p *Pool) Update(now clock.Time, o Options, backends []BackendOptions) error {
	o = o.withDefaults()
	if err := validate(&o, backends); err != nil {
		return err
	}
	p.lock()
	defer p.unlock()
	s := &snapshot{Options: o, key: p.tokenKey(&o)}
	old := p.known()
	for _, c := range backends {
		c = c.withDefaults(&o)
		id := identity{c.Name, c.Address, c.Path}
		b := old[id]
		if b == nil {
			p.serial++
			b = newBackend(p, p.serial, c, now)
		}
		delete(old, id)
		b.follow(c, now)
		s.list = append(s.list, b)
	}
	for _, b := range old {
		b.flags.Or(flagGone)
	}
	p.publish(s)
	p.budget.configure(o.RetryBudget)
	p.refresh(now)
	return nil
}

// identity decides whether two backends are the same one.
type identity struct {
	name    string
	address netip.AddrPort
	path    string
}

// known returns the backends that are there.
func (p *Pool) known() map[identity]*Backend {
	m := map[identity]*Backend{}
	if s := p.snap.Load(); s != nil {
		for _, b := range s.list {
			m[identity{b.name, b.address, b.path}] = b
		}
	}
	return m
}

// validate returns what is wrong.
func validate(o *Options, backends []BackendOptions) error {
	switch {
	case int(o.Balance) >= len(balances):
		return fmt.Errorf("%w: balance %d", ErrOptions, o.Balance)
	case o.PanicThreshold < 0 || o.PanicThreshold > 100:
		return fmt.Errorf("%w: panic threshold %d", ErrOptions, o.PanicThreshold)
	case o.HashSize > maxHashSize || !big.NewInt(int64(o.HashSize)).ProbablyPrime(0): // below 2^64 that is certain
		return fmt.Errorf("%w: hash size %d is no prime of at most %d", ErrOptions, o.HashSize, maxHashSize)
	case len(backends) > 65535:
		return fmt.Errorf("%w: %d", ErrBackends, len(backends))
	}
	names := map[string]bool{}
	for _, c := range backends {
		c = c.withDefaults(o)
		if names[c.Name] {
			return fmt.Errorf("%w: %s", ErrBackends, c.Name)
		}
		if c.Weight > maxWeight || int(c.State) >= len(states) {
			return fmt.Errorf("%w: backend %s: weight %d, state %d", ErrOptions, c.Name, c.Weight, c.State)
		}
		names[c.Name] = true
	}
	return nil
}

// Bounds of options.
const (
	maxWeight   = 1_000_000
	maxHashSize = 1 << 24
)

// publish completes a snapshot whose list is there, and makes it the pool's. The caller holds p.mu.
func (p *Pool) publish(s *snapshot) {
	s.tokens, s.names = make(map[uint64]*Backend, len(s.list)), make(map[string]*Backend, len(s.list))
	for _, b := range s.list {
		token := s.tokenOf(b)
		b.token.Store(token)
		s.tokens[token], s.names[b.name] = b, b
	}
	s.build(p.snap.Load(), p.panics.Load())
	p.snap.Store(s)
	p.stale = false
}

// rebuild publishes the snapshot with the weights and states that are in force now. The caller holds p.mu.
func (p *Pool) rebuild() {
	old := p.snap.Load()
	s := *old
	s.build(old, p.panics.Load())
	p.snap.Store(&s)
	p.stale = false
}

// Name returns the name of the pool.
func (p *Pool) Name() string { return p.snap.Load().Name }

// ByName returns the backend of a name, nil if there is none.
func (p *Pool) ByName(name string) *Backend { return p.snap.Load().names[name] }

// Backends returns all backends in the order of the configuration. The caller must not change the list.
func (p *Pool) Backends() []*Backend { return p.snap.Load().list }

// Options returns the settings in force, with defaults in place of zero values. The caller must not change them.
func (p *Pool) Options() *Options { return &p.snap.Load().Options }

// Requests returns the number of requests in flight, those of backends that have left included.
func (p *Pool) Requests() int { return int(max(p.budget.active(), 0)) }

// number returns the next random number.
func (p *Pool) number() uint64 { return random.Mix(p.state.Add(golden)) }

// golden is the step of SplitMix64: see random.Source, of which this is the form that several loops share.
const golden = 0x9e3779b97f4a7c15
