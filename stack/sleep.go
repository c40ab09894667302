package stack

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
)

// Bounds on how long a loop sleeps.
const (
	maxSleep   = 100 * time.Millisecond // so that a lost wakeup costs little
	timedSleep = time.Millisecond       // a device has packets that become ready by time (CapTimed)
	blindSleep = 100 * time.Microsecond // a device cannot wake the loop (no CapPoll)
)

// mayNotSleep reports whether there is work that no notification announces: batches in the engine,
// which is polled, and packets that other loops handed over before the notifier was armed.
func (l *Loop) mayNotSleep() bool {
	return l.inside > 0 || l.waiting != nil || l.handedOver()
}

// hasFile reports whether device i has a file to sleep on.
func (l *Loop) hasFile(i int) bool { return l.devices[i].info.Caps&pmd.CapPoll != 0 }

// wakes reports whether the file of device i shall wake the loop. That of a device that is down would
// do so at once (POLLERR); one with a full transmit ring is polled instead.
func (l *Loop) wakes(i int) bool {
	p := &l.devices[i]
	return l.hasFile(i) && !p.ended && p.err == nil && l.out.queues[i].out.Len() == 0
}

// sleepLimit returns how long an idle loop may sleep at most.
func (l *Loop) sleepLimit(now clock.Time) time.Duration {
	limit := min(maxSleep, max(0, l.out.tick.Sub(now)))
	if l.hasCredits() { // a returned frame does not notify
		limit = min(limit, blindSleep)
	}
	if l.activity != nil && l.activity.isIdle() { // nor does the end of the last loop
		limit = min(limit, timedSleep)
	}
	for i := range l.devices {
		p := &l.devices[i]
		switch {
		case p.ended:
		case p.err != nil:
			limit = min(limit, retryAfter)
		case l.out.queues[i].out.Len() > 0 || !l.hasFile(i) && p.info.Notifier == nil:
			limit = min(limit, blindSleep)
		}
		if p.info.Caps&pmd.CapTimed != 0 {
			limit = min(limit, timedSleep)
		}
	}
	return limit
}
