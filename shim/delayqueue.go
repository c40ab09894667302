package shim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
)

// expiresPerPoll bounds how many entries of a delayQueue expire in one iteration.
const expiresPerPoll = 64

// delayQueue holds work that a loop does after a delay, unless it is over before. A timer of the runtime would wake another thread each time
// one is set that is due before all others: two switches for each connect(2).
type delayQueue struct {
	delay   time.Duration
	entries []delayEntry // in the order of time
}

type delayEntry struct {
	at   clock.Time
	what expiring
}

// expiring is an entry of a delayQueue. The holder of the loop calls its methods.
type expiring interface {
	over() bool // it need not expire
	expire()    // if it is not over
}

// loopQueues are the delayed works of a server's loop.
type loopQueues struct {
	replies *delayQueue // of connect(2), see delayed
	small   *delayQueue // of sockets, see smallBuffer
	unread  *deferred
}

// queuesOf returns the queues of a loop, which is that of the caller.
func (s *Server) queuesOf(in socket.LoopStack) *loopQueues {
	q := &s.later[in.Index()]
	if q.unread == nil {
		q.replies, q.small, q.unread = newDelayQueue(in, connectWait), newDelayQueue(in, smallTime), newDeferred(in)
	}
	return q
}

// newDelayQueue returns a queue of a loop, which is that of the caller.
func newDelayQueue(in socket.LoopStack, delay time.Duration) *delayQueue {
	q := &delayQueue{delay: delay}
	in.AddPoller(q)
	return q
}

// add makes what expire after the delay. The loop is in an iteration.
func (q *delayQueue) add(now clock.Time, what expiring) {
	q.dropOver()
	q.entries = append(q.entries, delayEntry{now.Add(q.delay), what})
}

// Poll implements stack.Poller.
func (q *delayQueue) Poll(now clock.Time) (n int) {
	for n < expiresPerPoll && n < len(q.entries) && q.entries[n].at <= now {
		if e := q.entries[n].what; !e.over() {
			e.expire()
		}
		n++
	}
	q.entries = slices.Delete(q.entries, 0, n)
	return n
}

// Arm implements stack.Poller.
func (q *delayQueue) Arm() clock.Time {
	q.dropOver()
	if len(q.entries) == 0 {
		return clock.Never
	}
	return q.entries[0].at
}

// dropOver removes the first entries that are over.
func (q *delayQueue) dropOver() {
	n := 0
	for n < len(q.entries) && q.entries[n].what.over() {
		n++
	}
	q.entries = slices.Delete(q.entries, 0, n)
}
