package stack

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// TestTheSpinFollowsThePackets has packets come after given times and looks at how long a loop then spins,
// and how often it slept.
func TestTheSpinFollowsThePackets(t *testing.T) {
	const us = time.Microsecond
	for name, c := range map[string]struct {
		fixed  time.Duration
		gaps   []time.Duration
		spins  []time.Duration // after each
		sleeps int
	}{
		"soon":            {0, []time.Duration{95 * us, 95 * us, 95 * us, 95 * us, 99 * us}, []time.Duration{40 * us, 80 * us, 100 * us, 100 * us, 100 * us}, 3},
		"sooner than all": {0, []time.Duration{3 * us, 19 * us}, []time.Duration{20 * us, 20 * us}, 0},
		"late":            {0, []time.Duration{time.Millisecond, 140 * us, 140 * us}, []time.Duration{10 * us, 5 * us, 5 * us}, 3},
		"at the edge":     {0, []time.Duration{130 * us, 131 * us}, []time.Duration{40 * us, 20 * us}, 2},
		"late, then soon": {0, []time.Duration{140 * us, 140 * us, 30 * us, 30 * us, 30 * us, 30 * us}, []time.Duration{10 * us, 5 * us, 10 * us, 20 * us, 40 * us, 40 * us}, 5},
		"fixed":           {7 * us, []time.Duration{70 * us, 30 * us, 6 * us}, []time.Duration{7 * us, 7 * us, 7 * us}, 2},
	} {
		now := clock.Time(1_000)
		p := newSpin(c.fixed, now)
		sleeps := 0
		for i, gap := range c.gaps {
			for wait := time.Duration(0); wait < gap; wait += us {
				if p.enough(now.Add(wait)) {
					p.slept = true
					sleeps++
					break
				}
			}
			now = now.Add(gap)
			if p.worked(now); p.length != c.spins[i] {
				t.Errorf("%s: it spins %v after packet %d, want %v", name, p.length, i, c.spins[i])
			}
		}
		if sleeps != c.sleeps {
			t.Errorf("%s: %d sleeps, want %d", name, sleeps, c.sleeps)
		}
	}
}

func TestTheSpinEndsInTime(t *testing.T) {
	p := newSpin(7*time.Microsecond, 1_000)
	if p.enough(7_999) || !p.enough(8_000) {
		t.Errorf("at the edge: %v, %v", p.enough(7_999), p.enough(8_000))
	}
}
