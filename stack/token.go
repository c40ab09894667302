package stack

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
)

// token says who owns a loop that is served (Serve): the goroutine that runs its turns, or another one
// between Enter and Exit. A mutex costs 14 ns where a message to the loop's goroutine and back costs
// two switches.
type token struct {
	mu     sync.Mutex
	wanted atomic.Int32 // goroutines that wait for it
	served atomic.Bool
}

// Enter makes the caller the owner of a loop that is served: until Exit it may do what else belongs to
// the loop's own goroutine, such as calls of the handler's methods and of Send. It returns the time. Any
// goroutine may call it, but not one that is the owner already, nor within Handle, Tick and Do.
//
// It waits for at most one turn, or for others that have entered. It is not for a loop with Run.
func (l *Loop) Enter() clock.Time {
	if !l.token.mu.TryLock() {
		l.token.wanted.Add(1)
		l.token.mu.Lock()
		l.token.wanted.Add(-1)
	}
	if l.idle() || !l.token.served.Load() {
		l.now = max(l.now, l.cfg.Now())
	}
	return l.now
}

// Now returns the time as the loop has it: that of its turn, or of the last Enter that found it asleep.
// It belongs to the holder of the loop.
func (l *Loop) Now() clock.Time { return l.now }

// Exit ends what Enter began. What that caused to be sent leaves at once where the loop sleeps, on this
// goroutine: Tick, and one Tx for each port. Where it is awake its next turn does so, together with what
// others have caused: unless the last burst was one packet, for which one answer at most can be awaited.
func (l *Loop) Exit() {
	switch {
	case l.idle():
		l.settle()
		l.publish()
	case l.lone && l.token.served.Load():
		l.lone = false
		l.settle()
	default:
		l.Again()
	}
	l.token.mu.Unlock()
}

// Leave is Exit for those who have caused nothing: no output, no timer and no event.
func (l *Loop) Leave() { l.token.mu.Unlock() }

// idle reports whether the loop is served but asleep. Owner only; the answer may change to no, since a
// bell may ring at any time, but not to yes.
func (l *Loop) idle() bool { return l.mail.asleep.Load() && l.token.served.Load() }

// settle does the second half of a turn, and wakes the loop's goroutine for what it leaves undone.
func (l *Loop) settle() {
	l.tick = l.cfg.Handler.Tick(l.now)
	left := l.local.Len()
	for i := range l.ports {
		l.transmit(l.now, i)
		left += l.ports[i].out.Len()
	}
	if left > 0 || l.tick < l.until {
		l.mail.wake()
	}
}
