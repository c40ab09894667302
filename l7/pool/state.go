package pool

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Change is a change of a backend's state.
type Change uint8

// Values of Change.
const (
	Rose     Change = iota // probes found it healthy
	Fell                   // probes found it unhealthy
	Ejected                // by requests: see Outlier
	Returned               // its ejection is over
)

var changes = [...]string{"healthy", "unhealthy", "ejected", "returned"}

// String returns the name of the change, the same as in events of the L4 gateway.
func (c Change) String() string { return changes[c] }

// Event is a change of a backend.
type Event struct {
	Backend *Backend
	Change  Change
	Cause   error         // of Fell and Ejected
	For     time.Duration // of Ejected: how long
}

// lock takes the lock of all that changes. Loops do not wait for it: see maintain and Backend.eject.
func (p *Pool) lock() { p.mu.Lock() }

// unlock brings the snapshot up to date, releases the lock, and then reports what happened.
func (p *Pool) unlock() {
	if p.stale {
		p.rebuild()
	}
	events, notify := p.events, p.snap.Load().Notify
	p.events = nil
	p.mu.Unlock()
	if notify == nil {
		return
	}
	for _, e := range events {
		notify(e)
	}
}

// SetHealthy enters what active probes found. cause is why the backend is unhealthy; it may be nil.
func (b *Backend) SetHealthy(now clock.Time, healthy bool, cause error) {
	b.pool.lock()
	defer b.pool.unlock()
	b.setHealthy(now, healthy, cause)
}

// setHealthy is SetHealthy for a caller that holds pool.mu.
func (b *Backend) setHealthy(now clock.Time, healthy bool, cause error) {
	if b.Gone() {
		return
	}
	if healthy {
		cause = nil
	}
	if healthy == b.healthy {
		if !healthy {
			b.cause = cause
		}
		return
	}
	b.healthy, b.since, b.cause = healthy, now, cause
	change := Fell
	if healthy {
		change = Rose
	}
	b.pool.events = append(b.pool.events, Event{Backend: b, Change: change, Cause: cause})
	b.changed(now)
}

// SetState is an operator's wish, which overrides the configuration until ResetState, or until an update changes the
// state in the configuration.
func (b *Backend) SetState(now clock.Time, s State) {
	b.pool.lock()
	defer b.pool.unlock()
	b.operator.has, b.operator.state = true, s
	b.changed(now)
}

// ResetState returns to the state in the configuration.
func (b *Backend) ResetState(now clock.Time) {
	b.pool.lock()
	defer b.pool.unlock()
	b.operator.has = false
	b.changed(now)
}

// SetWeight is an operator's weight, from 0 to 1,000,000, which overrides the configuration until ResetWeight, or until
// an update changes the weight in the configuration.
func (b *Backend) SetWeight(now clock.Time, weight int) {
	b.pool.lock()
	defer b.pool.unlock()
	b.operator.weight = min(max(weight, 0), maxWeight)
	b.changed(now)
}

// ResetWeight returns to the weight in the configuration.
func (b *Backend) ResetWeight(now clock.Time) {
	b.pool.lock()
	defer b.pool.unlock()
	b.operator.weight = -1
	b.changed(now)
}

// follow takes over a configuration. The caller holds pool.mu and publishes a snapshot after it.
func (b *Backend) follow(c BackendOptions, now clock.Time) {
	if c.State != b.config.State {
		b.operator.has = false
	}
	if c.Weight != b.config.Weight {
		b.operator.weight = -1
	}
	b.config = c
	b.maxRequests.Store(int64(c.Limits.Requests))
	b.maxConns.Store(int64(c.Limits.Connections))
	b.maxPending.Store(int64(c.Limits.Pending))
	b.enter(now)
}

func (b *Backend) wantedWeight() int {
	if b.operator.weight >= 0 {
		return b.operator.weight
	}
	return b.config.Weight
}

func (b *Backend) wantedState() State {
	if b.operator.has {
		return b.operator.state
	}
	return b.config.State
}

func (b *Backend) wantedFlags() (flags uint32) {
	if !b.healthy {
		flags |= flagUnhealthy
	}
	switch b.wantedState() {
	case Draining:
		flags |= flagDraining
	case Inactive:
		flags |= flagInactive
	}
	if b.wantedWeight() == 0 {
		flags |= flagNoWeight
	}
	return flags
}

// changed brings what picks read to what is wanted now. The caller holds pool.mu.
func (b *Backend) changed(now clock.Time) {
	if b.Gone() {
		return
	}
	b.enter(now)
	b.pool.stale = true
	b.pool.refresh(now)
}

// enter is changed without what depends on other backends.
func (b *Backend) enter(now clock.Time) {
	flags := b.wantedFlags()
	if b.flags.Load() != 0 && flags == 0 {
		b.slowFrom.Store(int64(now)) // before the flags: no pick may see it with its full share
	}
	b.weight.Store(int64(b.wantedWeight()))
	b.flags.Store(flags)
}

// refresh counts the backends that are left, and plans when that will change by time alone. The caller holds p.mu.
func (p *Pool) refresh(now clock.Time) {
	s := p.snap.Load()
	active, up, next := 0, 0, clock.Never
	for _, b := range s.list {
		until := clock.Time(b.ejected.Load())
		switch {
		case now < until:
			next = min(next, until)
		case b.out:
			p.returned(now, b)
		}
		if flags := b.flags.Load(); flags&^flagUnhealthy == 0 {
			active++
			if flags == 0 && now >= until {
				up++
			}
		}
	}
	if panics := up*100 < active*s.PanicThreshold; p.panics.Swap(panics) != panics {
		p.stale = true
	}
	if x := s.Outlier; x != nil && x.SuccessRate != nil {
		next = min(next, p.period.end)
	}
	p.review.Store(int64(next))
}

// maintain does what is due. It is called by picks, and leaves it to another one that does so already.
func (p *Pool) maintain(now clock.Time) {
	if !p.mu.TryLock() {
		return
	}
	p.evaluate(now)
	p.refresh(now)
	p.unlock()
}

// Operator returns the state and the weight that an operator has set, nil for each that was not.
func (b *Backend) Operator() (state *State, weight *int) {
	b.pool.lock()
	defer b.pool.unlock()
	o := b.operator
	if o.has {
		state = &o.state
	}
	if o.weight >= 0 {
		weight = &o.weight
	}
	return state, weight
}
