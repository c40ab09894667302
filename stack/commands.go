package stack

import "github.com/millrace/millrace/ring"

// commandQueueLen is how many commands wait at most. A power of two, as the ring wants it.
const commandQueueLen = 256

// CommandQueue brings functions from any goroutine to the one that polls a loop, which runs them
// between two iterations. It is how everything outside of a loop reaches the loop's own state
// without the LoopLock, and the only way into a loop with Run.
type CommandQueue struct {
	ring     *ring.MPSC[func()]
	notifier *notifier
}

// Do queues f and wakes the loop for it; false means that 256 commands wait already. Any goroutine
// may call it, f too: what f queues runs before a later iteration. Once the runner has returned
// no command runs any more.
func (q *CommandQueue) Do(f func()) bool {
	if !q.ring.Push(f) {
		return false
	}
	q.notifier.wake()
	return true
}

// run runs the commands that wait, and no more than the queue holds: a command that queues itself
// again must not keep the loop from its packets. It reports whether there was one. Only the
// goroutine that polls the loop calls it.
func (q *CommandQueue) run() bool {
	for n := range commandQueueLen {
		f, ok := q.ring.Pop()
		if !ok {
			return n > 0
		}
		f()
	}
	return true
}

// runOne runs the command that has waited longest, and reports whether there was one.
func (q *CommandQueue) runOne() bool {
	f, ok := q.ring.Pop()
	if ok {
		f()
	}
	return ok
}
