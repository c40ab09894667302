package pool

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Status is a pool at one moment.
type Status struct {
	Name          string
	Balance       Balance
	Panic         bool   // too few backends are left, and health is ignored
	Retries       uint64 // that the budget allowed
	RetriesDenied uint64
	Backends      []BackendStatus
}

// BackendStatus is a backend at one moment.
type BackendStatus struct {
	Backend   *Backend
	State     State
	Operator  bool // an operator set the state or the weight
	Weight    int
	Share     float64 // of its weight, below 1 in slow start
	Healthy   bool
	Ejected   time.Duration // how long it is still ejected
	Since     clock.Time    // of the last change of health or ejection; 0 before the first
	Cause     error         // why it is unhealthy or ejected
	Requests  int           // in flight
	Conns     int           // open
	Pending   int           // requests that wait for a connection
	Refused   uint64        // requests that found as many waiting as may
	Expired   uint64        // requests that waited for too long
	Statuses  [6]uint64     // responses by the hundreds of their status; 0: ended without one and without a failure
	Failures  [Failures]uint64
	Retries   uint64        // requests that were retries of others
	Ejections uint64        // so far
	Latency   time.Duration // to the head of a response, smoothed
}

// Status returns the state of the pool.
func (p *Pool) Status(now clock.Time) Status {
	p.lock()
	defer p.unlock()
	snap := p.snap.Load()
	s := Status{Name: snap.Name, Balance: snap.Balance, Panic: p.panics.Load()}
	s.Retries, s.RetriesDenied = p.budget.counts()
	for _, b := range snap.list {
		s.Backends = append(s.Backends, b.status(now, snap))
	}
	return s
}

func (b *Backend) status(now clock.Time, s *snapshot) BackendStatus {
	x := BackendStatus{
		Backend: b, State: b.wantedState(), Operator: b.operator.has || b.operator.weight >= 0, Weight: b.wantedWeight(),
		Share: b.ramp(now, s.SlowStart), Healthy: b.healthy, Since: b.since, Cause: b.cause,
		Requests: b.Requests(), Conns: b.Connections(), Pending: int(b.pending.Load()),
		Refused: b.waits.refused.Load(), Expired: b.waits.expired.Load(),
		Retries: b.stats.retries.Load(), Ejections: b.stats.ejections.Load(), Latency: time.Duration(b.stats.latency.Load()),
	}
	if until := clock.Time(b.ejected.Load()); now < until {
		x.Ejected = until.Sub(now)
	}
	for i := range x.Statuses {
		x.Statuses[i] = b.stats.statuses[i].Load()
	}
	for i := range x.Failures {
		x.Failures[i] = b.stats.failures[i].Load()
	}
	return x
}
