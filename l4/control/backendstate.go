package control

import (
	"time"

	"github.com/millrace/millrace/gateway/config"
)

// backendState is the state set for a backend of a service, over all its addresses: by the configuration, and
// by an operator. What the operator set outlives reloads until the operator resets it or the file changes
// that very key.
type backendState struct {
	config    config.Backend
	weight    int  // an operator's; -1 is none
	drained   bool // an operator drains it
	drainOver bool // its time of draining is over

	drainSince time.Time // zero unless it drains
	until      time.Time // when that ends; zero is never
}

// endpointState is the state of one address of a backend.
type endpointState struct {
	state config.State // as last reported; "" before it was ever in the configuration
	since time.Time    // of that state
	slow  bool         // its share grows from nothing
	from  time.Time    // since when; zero while its next hop is not known
}

// want returns the state that a backend should be in, slow start aside.
func (m *backendState) want() config.State {
	switch {
	case m.drainOver:
		return config.StateInactive
	case m.drained:
		return config.StateDraining
	}
	return m.config.State
}

// takesNew reports whether new connections are wanted on the backend.
func (m *backendState) takesNew() bool {
	state := m.want()
	return (state == config.StateActive || state == config.StateFilling) && m.share() > 0
}

// share returns the weight in force.
func (m *backendState) share() int {
	if m.weight >= 0 {
		return m.weight
	}
	return m.config.Weight
}

// drain starts to drain, for d or, with 0, until the connections end.
func (m *backendState) drain(now time.Time, d time.Duration) {
	m.drainOver, m.drainSince, m.until = false, now, time.Time{}
	if d > 0 {
		m.until = now.Add(d)
	}
}

// settle makes the times of draining follow the wanted state.
func (m *backendState) settle(now time.Time, d time.Duration) {
	switch {
	case !m.drained && m.config.State != config.StateDraining:
		m.drainOver, m.drainSince, m.until = false, time.Time{}, time.Time{}
	case m.drainSince.IsZero():
		m.drain(now, d)
	}
}

// follow takes over a new configuration. A key that it changes wins over what an operator set.
func (m *backendState) follow(b config.Backend) {
	if b.Weight != m.config.Weight {
		m.weight = -1
	}
	if b.State != m.config.State {
		m.drained, m.drainOver, m.drainSince = false, false, time.Time{}
	}
	m.config = b
}

// expire ends the draining of a backend whose time is over, or that an operator drains and that has
// no connections left.
func (m *backendState) expire(now time.Time, flows uint64) {
	if m.drainSince.IsZero() {
		return
	}
	late := !m.until.IsZero() && !now.Before(m.until)
	m.drainOver = m.drainOver || late || m.drained && flows == 0 && now.Sub(m.drainSince) >= drainPoll
}

// drainPoll is the interval at which the connections of a backend that an operator drains are counted.
const drainPoll = 250 * time.Millisecond

// next returns when expire may find something; zero is never.
func (m *backendState) next(now time.Time) time.Time {
	switch {
	case m.drainOver || m.drainSince.IsZero():
		return time.Time{}
	case !m.drained:
		return m.until
	}
	return earlier(now.Add(drainPoll), m.until)
}

// earlier returns the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// The share of an endpoint in slow start grows in at most growthSteps steps, at least growthStep apart.
const (
	growthSteps = 20
	growthStep  = 250 * time.Millisecond
)

// steps returns in how many steps a share grows for d, and how long each lasts.
func steps(d time.Duration) (int, time.Duration) {
	n := min(growthSteps, max(1, int(d/growthStep)))
	return n, d / time.Duration(n)
}

// fraction returns how much of its weight an endpoint has, as a fraction: below 1 until slow has passed.
func (t *endpointState) fraction(now time.Time, slow time.Duration) (part, of int) {
	n, each := steps(slow)
	switch {
	case !t.slow || slow == 0:
		return n + 1, n + 1
	case t.from.IsZero():
		return 1, n + 1
	}
	return min(n, int(now.Sub(t.from)/each)) + 1, n + 1
}

// next returns when an endpoint in slow start takes its next step; zero is never.
func (t *endpointState) next(now time.Time, slow time.Duration) time.Time {
	part, of := t.fraction(now, slow)
	if part == of || t.from.IsZero() {
		return time.Time{}
	}
	_, each := steps(slow)
	return t.from.Add(time.Duration(part) * each)
}
