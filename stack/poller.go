package stack

import "github.com/millrace/millrace/clock"

// Poller is memory that a loop looks at in each iteration, because what is written there makes no file ready: rings that
// are shared with another process. Its methods are called by the holder of the loop, and must not block.
type Poller interface {
	// Poll moves a bounded amount, at the end of an iteration's input, and returns how much it found.
	Poll(now clock.Time) int

	// Arm makes the other side wake the loop from now on, by a file that the loop watches. One more Poll follows
	// before the loop sleeps, which finds what came before. It returns when the loop shall poll at the latest, clock.Never
	// where only a file wakes it.
	Arm() clock.Time
}

// AddPoller adds p to what the loop polls. The holder of the loop calls it.
func (l *Loop) AddPoller(p Poller) {
	l.pollers = append(l.pollers, p)
	l.notifier.wake() // a loop that sleeps has not armed it
}

// pollAll polls what AddPoller has added.
func (l *Loop) pollAll(now clock.Time) (n int) {
	for _, p := range l.pollers {
		n += p.Poll(now)
	}
	if n > 0 {
		l.out.RequestTick()
	}
	return n
}

// After makes the loop call f once, when it has sent what this iteration causes: for a wakeup of another process, which may
// take the CPU, and does not need to know before the peer does. f may call After again, for the next iteration. The holder of the
// loop calls it.
func (l *Loop) After(f func()) {
	l.after = append(l.after, f)
	l.notifier.wake() // the caller may have entered a sleeping loop
}

// runAfter calls what After has added. What that causes, such as packets, leaves with the next iteration.
func (l *Loop) runAfter() {
	due := l.after
	l.after = l.spare
	for _, f := range due {
		f()
	}
	clear(due)
	l.spare = due[:0]
	l.out.RequestTick()
}

// armAll makes the pollers wake the loop, which is about to sleep.
func (l *Loop) armAll() {
	l.pollBy = clock.Never
	for _, p := range l.pollers {
		l.pollBy = min(l.pollBy, p.Arm())
	}
}
