package transport

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// TestSpinFollowsIdleTime: a loop polls before it blocks only while it has little idle time.
func TestSpinFollowsIdleTime(t *testing.T) {
	var s spin
	var now clock.Time
	// period runs for two periods, in which waits of the given length take a share of the time.
	period := func(wait time.Duration, percent int) bool {
		for end := now.Add(2 * spinPeriod); now < end; {
			from := now.Add(wait * time.Duration(100-percent) / time.Duration(percent)) // work
			now = from.Add(wait)
			s.waited(from, now)
		}
		return s.on
	}
	for _, x := range []struct {
		wait    time.Duration
		percent int
		on      bool
	}{
		{30 * time.Microsecond, 60, false},
		{30 * time.Microsecond, 12, false}, // not little enough to begin
		{30 * time.Microsecond, 3, true},
		{8 * time.Microsecond, 12, true}, // it polls through what was idle time
		{30 * time.Microsecond, 60, false},
		{2 * time.Microsecond, 60, true}, // events were there at once
		{time.Second, 99, false},
		{time.Millisecond, 3, true},
	} {
		if on := period(x.wait, x.percent); on != x.on {
			t.Errorf("waits of %v, %d %% of the time: %v", x.wait, x.percent, on)
		}
	}
}

// TestSpinningLoopWakes: what comes while a loop polls, or when it has given up, is not lost.
func TestSpinningLoopWakes(t *testing.T) {
	w := newEpollWorld(t, 1, "127.0.0.1:0")
	l := w.client.(*EpollLoop)
	w.on(l, func() {
		l.SetTick(func(now clock.Time) clock.Time {
			l.spin = spin{on: true, since: now}
			return clock.Never
		})
	})
	at, _ := w.listen(func(Conn) Handler { return newEcho(100) })
	p := &pinger{loop: l, got: make(chan struct{}, 1)}
	p.c = w.dial(at, p)
	next(w, p.got, "the connection")
	for i := range 400 {
		time.Sleep(time.Duration(i%50) * time.Microsecond) // around spinTime
		w.on(l, p.ping)
		next(w, p.got, "an echo")
	}
}
