package main

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// atHalf reports whether the long form of the tests of upgrades offers half of what saturates the machine (make soak-upgrades LOAD=half).
func atHalf() bool {
	return os.Getenv("MILLRACE_SOAK") != "" && os.Getenv("MILLRACE_SOAK_LOAD") == "half"
}

// calibration is for how long clients without a pause show what saturates the machine.
const calibration = 10 * time.Second

// schedule spaces what a client sends, in an open loop: what comes late does not move what follows, so that the rate stays as it is
// offered. With an interval of 0 it waits for nothing.
type schedule struct {
	interval atomic.Int64 // nanoseconds; set by another goroutine
	next     time.Time    // of the client alone
	late     atomic.Int64 // the longest time in nanoseconds from when something was due to its end
}

// wait waits until the next is due. It gives up when the load ends.
func (s *schedule) wait(done *atomic.Bool) {
	every := time.Duration(s.interval.Load())
	if every == 0 {
		return
	}
	if s.next.IsZero() {
		s.next = time.Now().Add(time.Duration(rand.Int64N(int64(every))))
	} else {
		s.next = s.next.Add(every)
	}
	const look = 100 * time.Millisecond
	for rest := time.Until(s.next); rest > 0 && !done.Load(); rest = time.Until(s.next) {
		time.Sleep(min(rest, look))
	}
}

// ended notes how long after its time something has ended.
func (s *schedule) ended() {
	if !s.next.IsZero() {
		s.late.Store(max(s.late.Load(), int64(time.Since(s.next))))
	}
}

// client is one of the clients of a load.
type client struct {
	schedule
	answered atomic.Int64
}

// halve measures how much the clients get answered without a pause, and from then on has each send half as often as it did.
func (l *load) halve(t *testing.T) {
	t.Helper()
	before := make([]int64, len(l.clients))
	for i, c := range l.clients {
		before[i] = c.answered.Load()
	}
	idle, begin := idleShare(t), time.Now()
	time.Sleep(calibration)
	took := time.Since(begin)
	sum := 0.0
	for i, c := range l.clients {
		n := max(c.answered.Load()-before[i], 1)
		c.interval.Store(2 * int64(took) / n)
		sum += float64(n)
	}
	l.offered = sum / took.Seconds() / 2
	t.Logf("%d clients without a pause: %.0f answers and messages per second, processors %.0f %% idle; half of it is offered", len(l.clients), 2*l.offered, idle())
}

// reportHalf logs what has become of the offered load.
func (l *load) reportHalf(t *testing.T, begin time.Time, answered int64, idle func() float64) {
	t.Helper()
	late := int64(0)
	for _, c := range l.clients {
		late = max(late, c.late.Load())
	}
	t.Logf("offered %.0f per second, answered %.0f, the latest %v after its time; processors %.0f %% idle", l.offered, float64(answered)/time.Since(begin).Seconds(),
		time.Duration(late).Round(time.Millisecond), idle())
}

// idleShare returns a function that says which percentage of the processors' time was idle since.
func idleShare(t *testing.T) func() float64 {
	t.Helper()
	read := func() (idle, all float64) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		for i, field := range strings.Fields(line)[1:9] { // user, nice, system, idle, iowait, irq, softirq, steal: proc_stat(5)
			n := 0.0
			for _, digit := range field {
				n = 10*n + float64(digit-'0')
			}
			if all += n; i == 3 || i == 4 {
				idle += n
			}
		}
		return idle, all
	}
	idle, all := read()
	return func() float64 {
		i, a := read()
		return 100 * (i - idle) / max(a-all, 1)
	}
}
