package transport

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// A wait that blocks costs a thread 23 us of CPU time on a virtual machine, and its peer an interrupt to another CPU, also
// where the next event comes 10 us later. So a loop that has little time left polls for a moment before it blocks. It
// spends at most the rest of a CPU that is nearly all its own. With more idle time events come further apart: there,
// polling costs 5 to 60 % more than to block at once (docs/design/032).
const (
	spinTime   = 20 * time.Microsecond // of polling before a wait that blocks
	spinPeriod = 20 * time.Millisecond // in which idle time is measured
	spinBelow  = 5                     // percent of idle time below which a loop begins to poll,
	spinAbove  = 15                    // and above which it no longer does
	leastIdle  = 5 * time.Microsecond  // of a wait that has found nothing at once
)

// spin decides whether a loop polls before it blocks.
type spin struct {
	on    bool
	since clock.Time    // begin of the period
	idle  time.Duration // in it
}

// waited notes a wait for events.
func (s *spin) waited(from, to clock.Time) {
	if d := to.Sub(from); d >= leastIdle {
		s.idle += d
	}
	period := to.Sub(s.since)
	if period < spinPeriod {
		return
	}
	most := time.Duration(spinBelow)
	if s.on {
		most = spinAbove
	}
	s.on = s.idle*100 < period*most
	s.since, s.idle = to, 0
}
