package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
)

// Options of a Limit.
type Options struct {
	Requests int           // that are given back in Interval, evenly; from 1 on
	Interval time.Duration // at least Requests nanoseconds
	Burst    int           // requests that may come at once; 0 is Requests
	Keys     int           // keys in use at a time; from 1 on
}

// Limit is a limit for each of many keys. Any goroutine may call its methods.
type Limit struct {
	opt     Options
	period  clock.Time // in which one request is given back; rounded up, so that no rate is above Requests
	window  clock.Time // Burst periods: how far the theoretical arrival time of a key may be ahead
	table   table
	evicted atomic.Uint64
}

// New returns a limit.
func New(opt Options) *Limit {
	if opt.Burst == 0 {
		opt.Burst = opt.Requests
	}
	n := clock.Time(opt.Requests)
	l := &Limit{opt: opt, period: (clock.Time(opt.Interval) + n - 1) / n}
	l.window = l.period * clock.Time(opt.Burst)
	l.table = newTable(opt.Keys)
	return l
}

// Options returns the options, with defaults filled in.
func (l *Limit) Options() Options { return l.opt }

// Evicted returns how many keys in use had to make room for others.
func (l *Limit) Evicted() uint64 { return l.evicted.Load() }

// Result is the outcome for one request.
type Result struct {
	Allowed    bool
	Remaining  int           // requests of the key that may follow at once
	Reset      time.Duration // until nothing is spent
	RetryAfter time.Duration // until a request is allowed; 0 where this one is
}

// Take spends one request of a key, if it may have one. Times are from 0 on: that of a place without a key.
func (l *Limit) Take(now clock.Time, key uint64) Result {
	if key == 0 {
		key = 1 // 0 is an empty place
	}
	for {
		s := l.table.find(key)
		if s == nil {
			if l.table.enter(now, key, now+l.period, &l.evicted) {
				return l.allowed(now, now+l.period)
			}
			continue // another loop has entered it
		}
		if r, ok := l.spend(now, key, s); ok {
			return r
		}
	}
}

// spend spends a request of a key at its place; false where the place is another key's by now. The order of the loads matters: a
// place that changes its key has another time before it has the other key, and a later one (but for a key that is evicted), so that
// a swap which succeeds has found the key unchanged.
func (l *Limit) spend(now clock.Time, key uint64, s *place) (Result, bool) {
	for {
		old := s.tat.Load()
		if s.key.Load() != key {
			return Result{}, false
		}
		if old == claimed {
			wait()
			continue
		}
		next := max(clock.Time(old), now) + l.period
		if next-now > l.window {
			return l.refused(now, clock.Time(old), next), true
		}
		if s.tat.CompareAndSwap(old, int64(next)) {
			return l.allowed(now, next), true
		}
	}
}

func (l *Limit) allowed(now, tat clock.Time) Result {
	return Result{Allowed: true, Remaining: int((l.window - (tat - now)) / l.period), Reset: tat.Sub(now)}
}

func (l *Limit) refused(now, tat, next clock.Time) Result {
	return Result{Reset: tat.Sub(now), RetryAfter: (next - l.window).Sub(now)}
}
