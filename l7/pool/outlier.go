package pool

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/health"
)

// Outlier defines when requests show that a backend does not serve. It is then ejected: picks pass it over for a while, which doubles
// with each repetition, as those of the L4 gateway do (health.Passive).
type Outlier struct {
	Errors        int // responses 500 to 599 and failures in a row; 0 is 5, and -1 never
	GatewayErrors int // responses 502, 503 and 504 and failures in a row; 0 is never
	// SuccessRate compares backends with each other; nil is not at all.
	SuccessRate *SuccessRate

	Down    time.Duration // how long the first ejection lasts; 0 is 30 s
	MaxDown time.Duration // how long any lasts at most; 0 is 5 m
	// MaxEjected is the most percent of the active backends that are out at once; 0 is 50, and -1 none. One of few may always
	// be out, the last never.
	MaxEjected int
}

// SuccessRate ejects backends whose share of successes, over an interval, is far below that of the others:
// more than Factor standard deviations below the mean.
type SuccessRate struct {
	Interval    time.Duration // 0 is 10 s
	MinBackends int           // with enough requests, for a comparison; 0 is 5
	MinRequests int           // of a backend in the interval, for it to be compared; 0 is 100
	Factor      float64       // 0 is 1.9
}

// ErrEjected is the cause of every ejection.
var ErrEjected = health.ErrEjected

func (x Outlier) withDefaults() Outlier {
	x.Errors = cmp.Or(x.Errors, 5)
	x.Down = cmp.Or(x.Down, 30*time.Second)
	x.MaxDown = max(cmp.Or(x.MaxDown, 5*time.Minute), x.Down)
	x.MaxEjected = cmp.Or(x.MaxEjected, 50)
	if r := x.SuccessRate; r != nil {
		x.SuccessRate = &SuccessRate{
			Interval: cmp.Or(r.Interval, 10*time.Second), MinBackends: cmp.Or(r.MinBackends, 5),
			MinRequests: cmp.Or(r.MinRequests, 100), Factor: cmp.Or(r.Factor, 1.9),
		}
	}
	return x
}

// streak is the number of requests in a row that have failed.
type streak struct{ errors, gatewayErrors atomic.Int64 }

// count adds a failure to n, or ends the row.
func count(n *atomic.Int64, failed bool) int64 {
	if failed {
		return n.Add(1)
	}
	if n.Load() != 0 { // most often it is 0, and the line stays shared
		n.Store(0)
	}
	return 0
}

// failed reports whether a request counts against the backend, and whether it did not even get a response of its own.
func (o *Outcome) failed() (failed, gateway bool) {
	if o.Failure != NoFailure {
		return true, true
	}
	return o.Status >= 500, o.Status >= 502 && o.Status <= 504
}

// observe enters an outcome, and ejects the backend if it is one too many. What ends during an ejection began before it.
func (b *Backend) observe(now clock.Time, o *Outcome) {
	x := b.pool.snap.Load().Outlier
	if x == nil || o.Failure == Canceled || int64(now) < b.ejected.Load() {
		return
	}
	failed, gateway := o.failed()
	errs, gatewayErrs := count(&b.streak.errors, failed), count(&b.streak.gatewayErrors, gateway)
	switch {
	case x.GatewayErrors > 0 && gatewayErrs >= int64(x.GatewayErrors):
		b.eject(now, x, fmt.Errorf("%w: %d requests in a row without a response of its own", ErrEjected, gatewayErrs))
	case x.Errors > 0 && errs >= int64(x.Errors):
		b.eject(now, x, fmt.Errorf("%w: %d requests in a row failed", ErrEjected, errs))
	}
}

// eject ejects a backend if enough others are left. While another goroutine changes the pool it does nothing: the row goes
// on, and the next failure ejects.
func (b *Backend) eject(now clock.Time, x *Outlier, cause error) {
	p := b.pool
	if !p.mu.TryLock() {
		return
	}
	defer p.unlock()
	p.refresh(now)
	p.eject(now, x, b, cause)
	p.refresh(now)
}

// eject is Backend.eject for a caller that holds p.mu, after refresh.
func (p *Pool) eject(now clock.Time, x *Outlier, b *Backend, cause error) {
	b.streak.errors.Store(0) // where it may not be ejected now, it takes as many failures to ask again
	b.streak.gatewayErrors.Store(0)
	active, out := 0, 0
	for _, other := range p.snap.Load().list {
		if flags := other.flags.Load(); flags == 0 || other.out {
			active++
		}
		if other.out {
			out++
		}
	}
	if b.out || x.MaxEjected < 0 || b.flags.Load()&flagGone != 0 || out >= max(active*x.MaxEjected/100, 1) || active-out < 2 {
		return
	}
	down := b.backoff.Next(now, x.Down, x.MaxDown)
	b.out, b.since, b.cause = true, now, cause
	b.stats.ejections.Add(1)
	b.slowFrom.Store(int64(now.Add(down)))
	b.ejected.Store(int64(now.Add(down)))
	p.events = append(p.events, Event{Backend: b, Change: Ejected, Cause: cause, For: down})
}

// returned notes that the ejection of a backend is over. The caller holds p.mu.
func (p *Pool) returned(now clock.Time, b *Backend) {
	until := clock.Time(b.ejected.Load())
	b.backoff.Returned(until)
	b.out, b.since = false, until
	if b.healthy {
		b.cause = nil
	}
	b.sample = b.stats.sample()
	p.events = append(p.events, Event{Backend: b, Change: Returned})
}

// sample holds the counters of a backend at one time.
type sample struct{ requests, failures uint64 }

// sample returns the counts so far.
func (c *counters) sample() (s sample) {
	for i := range c.statuses {
		s.requests += c.statuses[i].Load()
	}
	for i := range c.failures {
		if Failure(i) != Canceled {
			s.failures += c.failures[i].Load()
		}
	}
	s.requests += s.failures
	s.failures += c.statuses[5].Load()
	return s
}

// period is the interval over which success rates are compared.
type period struct{ end clock.Time }

// rated is a backend with enough requests for a comparison.
type rated struct {
	*Backend
	rate float64
}

// evaluate compares the success rates of the interval that has ended. The caller holds p.mu.
func (p *Pool) evaluate(now clock.Time) {
	s := p.snap.Load()
	if s.Outlier == nil || s.Outlier.SuccessRate == nil || now < p.period.end {
		return
	}
	r := s.Outlier.SuccessRate
	var list []rated
	for _, b := range s.list {
		last, is := b.sample, b.stats.sample()
		b.sample = is
		n := is.requests - last.requests
		if p.period.end != always && b.flags.Load() == 0 && now >= clock.Time(b.ejected.Load()) && n >= uint64(r.MinRequests) {
			list = append(list, rated{b, 1 - float64(is.failures-last.failures)/float64(n)})
		}
	}
	p.period.end = now.Add(r.Interval)
	if len(list) < max(r.MinBackends, 2) {
		return
	}
	p.refresh(now)
	mean, deviation := statistics(list)
	for _, x := range list {
		if x.rate < mean-r.Factor*deviation {
			p.eject(now, s.Outlier, x.Backend, fmt.Errorf("%w: %.1f %% of its requests succeeded, of all backends %.1f %% on average",
				ErrEjected, 100*x.rate, 100*mean))
		}
	}
}

// statistics returns the mean and the standard deviation of rates.
func statistics(list []rated) (mean, deviation float64) {
	for _, x := range list {
		mean += x.rate
	}
	mean /= float64(len(list))
	for _, x := range list {
		deviation += (x.rate - mean) * (x.rate - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(list)))
}
