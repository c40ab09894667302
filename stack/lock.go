package stack

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
)

// LoopLock serializes access to a loop that Serve runs: the loop's own goroutine holds it during an
// iteration, other goroutines between Enter and Exit. A mutex costs 14 ns where a command to the
// loop's goroutine and its answer cost two switches.
//
// It is not for a loop with Run: that one takes commands only.
type LoopLock struct {
	mu       sync.Mutex
	served   atomic.Bool // Serve runs the loop, which may be asleep
	loop     *Loop
	notifier *notifier // of the loop

	// wakeAt is when the loop's goroutine wakes by itself, while it sleeps. Guarded by mu.
	wakeAt clock.Time
}

// Enter makes the caller the holder of the loop: until Exit it may do what else belongs to the
// loop's own goroutine, such as calls of the handler's methods and of Output's. It returns the time.
// Any goroutine may call it, but not one that holds the lock already, nor one within Handle, Tick or
// a command.
//
// It waits for at most one iteration, or for others that have entered.
func (k *LoopLock) Enter() clock.Time {
	k.mu.Lock()
	o := &k.loop.out
	if k.asleep() || !k.served.Load() { // no iteration keeps the time
		o.now = max(o.now, k.loop.cfg.Now())
	}
	return o.now
}

// Exit ends what Enter began. Output that the caller caused leaves at once where the loop sleeps, on
// this goroutine: Tick, and one Tx for each device. Where the loop is awake its next iteration sends
// it, together with what others have caused: unless the last burst was one packet, to which one
// answer at most can be expected, so that waiting for others gains nothing.
func (k *LoopLock) Exit() {
	l := k.loop
	switch {
	case k.asleep():
		k.send()
		l.publish()
	case l.onePacket && k.served.Load():
		l.onePacket = false
		k.send()
	default:
		l.out.RequestTick()
	}
	k.mu.Unlock()
}

// ExitUnchanged is Exit for those who have caused nothing: no output, no timer and no event.
func (k *LoopLock) ExitUnchanged() { k.mu.Unlock() }

// asleep reports whether the loop is served but asleep. Only the lock holder may call it. The result
// can change from true to false at any time (a wakeup), never from false to true.
func (k *LoopLock) asleep() bool { return k.notifier.armed.Load() && k.served.Load() }

// send does the second half of an iteration, and wakes the loop's goroutine for what it leaves
// undone: full transmit rings, loopback packets, and a timer that is due before the loop wakes.
func (k *LoopLock) send() {
	l := k.loop
	l.out.tick = l.handler.Tick(l.out.now)
	l.out.flush()
	if l.out.waiting() > 0 || l.out.tick < k.wakeAt {
		k.notifier.wake()
	}
}
