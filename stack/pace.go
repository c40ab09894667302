package stack

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// How long Serve polls in vain before it sleeps, where Config.Spin says nothing: it begins with ServeSpin and
// moves between the two others. To wake a goroutine that waits for a file costs more than to wake a thread
// in poll(2), and while a served loop is awake others leave their output to it; so it is worth more than
// DefaultSpin where packets come soon, and less where they do not. With 50 us at most, a peer that answers
// after 60 had each of its packets wait for a wake-up, and the loop took no less CPU time.
const (
	ServeSpin      = 20 * time.Microsecond
	ServeSpinLeast = 5 * time.Microsecond
	ServeSpinMost  = 100 * time.Microsecond
)

// wakeUp is about what it takes from the packet that ends a sleep to the turn that finds it.
const wakeUp = 30 * time.Microsecond

// pace decides when a served loop sleeps. After each sleep it looks at how long there was nothing to do: the
// spin doubles where the longest one would have outlasted that, and is halved where it would not.
type pace struct {
	spin  time.Duration
	fixed bool
	slept bool       // since the last work
	last  clock.Time // work
}

// newPace begins at now, with a spin that does not move if it is not 0.
func newPace(spin time.Duration, now clock.Time) pace {
	if spin != 0 {
		return pace{spin: spin, fixed: true, last: now}
	}
	return pace{spin: ServeSpin, last: now}
}

// worked notes that there was something to do.
func (p *pace) worked(now clock.Time) {
	if p.slept && !p.fixed {
		if now.Sub(p.last) <= ServeSpinMost+wakeUp {
			p.spin = min(2*p.spin, ServeSpinMost)
		} else {
			p.spin = max(p.spin/2, ServeSpinLeast)
		}
	}
	p.slept, p.last = false, now
}

// enough reports whether it is time to sleep.
func (p *pace) enough(now clock.Time) bool { return now.Sub(p.last) >= p.spin }
