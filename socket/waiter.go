package socket

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// waiter is a goroutine that is blocked in a call on a socket. It has the buffers of the call, so that the
// holder of the queue's lock can complete the call on its behalf, without waking it first. The lock is that of
// the socket: its loop's, or the mutex of a fanIn.
//
//	caller   takes the lock; finds nothing; park(w); releases the lock; w.wait()
//	loop     holds the lock; fills w.buf; removes w from the queue; w.wake()
//	timer    expire(w): takes the lock; removes w if it is still there; w.wake() with ErrDeadlineExceeded
//
// A waiter is woken by what removes it from its queue, so that each park has one wake. The reader finds its data
// in its buffer: one goroutine switch per call, and no second entry of the loop.
type waiter struct {
	next  *waiter
	woken chan wakeup // of capacity 1: wake must not block a loop
	timer *time.Timer // made on first use
	armed bool        // timer has been set
	fired bool        // timer has fired, and its function may still run
	owner expirer     // guarded by the lock of the queue, as all below

	buf   []byte        // to read into, or left to write
	flags SendFlags     // of a write
	msgs  []udp.Message // instead of buf
	n     int           // bytes or messages done so far
	err   error
	conn  *TCPConn // accepted

	// Memory for calls that read or write messages, whether they block or not.
	msgBuf    []udp.Message
	oneBuffer [1][]byte
	peer      *net.UDPAddr // of the last message
	peerAddr  wire.Addr

	_ [48]byte // fills a cache line: the next waiter in memory may belong to a loop on another core
}

// wakeup is the message that ends wait. Its size makes the channel of a waiter two cache lines of its own: of an empty
// struct, two channels that goroutines on different cores use would share one.
type wakeup [16]byte

// expirer is a socket whose queues have deadlines.
type expirer interface {
	// expire removes w from its queue and wakes it if the deadline has passed. Otherwise it sets the timer
	// again. It takes the lock of the queue.
	expire(w *waiter)
}

var waiters = sync.Pool{New: func() any { return &waiter{woken: make(chan wakeup, 1)} }}

func newWaiter() *waiter { return waiters.Get().(*waiter) }

// wait blocks until wake.
func (w *waiter) wait() { <-w.woken }

// wake ends wait. The caller has removed w from its queue.
func (w *waiter) wake() { w.woken <- wakeup{} }

// free returns w to the pool after wake. If its timer has fired, the timer's function may still use w, so
// that w is left to the garbage collector.
func (w *waiter) free() {
	if w.fired || w.armed && !w.timer.Stop() {
		return
	}
	clear(w.msgBuf)
	if cap(w.msgBuf) > maxMsgBuf {
		w.msgBuf = nil
	}
	*w = waiter{woken: w.woken, timer: w.timer, msgBuf: w.msgBuf, peer: w.peer, peerAddr: w.peerAddr}
	waiters.Put(w)
}

// arm sets the timer for a deadline, 0 for none.
func (w *waiter) arm(now, deadline clock.Time) {
	// Stop fails if the function runs already. It takes the lock that the caller holds, so that it will look at
	// this deadline afterwards.
	if w.armed && !w.timer.Stop() {
		w.fired = true
	}
	if w.armed = deadline != 0; !w.armed {
		return
	}
	d := max(deadline.Sub(now), 0)
	if w.timer == nil {
		// The timer stays with the pooled waiter: a call with a deadline allocates nothing.
		w.timer = time.AfterFunc(d, func() { w.owner.expire(w) })
		return
	}
	w.timer.Reset(d)
}

// waitQueue is the FIFO queue of the goroutines that wait for one direction of a socket. It is guarded by the
// lock of the socket: its loop, or a mutex. Methods take a deadline as an argument, because idle connections
// should not have one; 0 is none.
type waitQueue struct{ head *waiter }

// deadlineQueue is a waitQueue with its deadline.
type deadlineQueue struct {
	waitQueue
	deadline clock.Time // 0 is none
}

// park appends w. The caller releases the lock and calls w.wait.
func (q *waitQueue) park(w *waiter, owner expirer, deadline clock.Time) {
	w.owner = owner
	at := &q.head
	for *at != nil {
		at = &(*at).next
	}
	*at = w
	if deadline != 0 {
		w.arm(stack.Now(), deadline)
	}
}

// remove removes w and reports whether it was in the queue.
func (q *waitQueue) remove(w *waiter) bool {
	for at := &q.head; *at != nil; at = &(*at).next {
		if *at == w {
			*at, w.next = w.next, nil
			return true
		}
	}
	return false
}

// pop removes the first waiter.
func (q *waitQueue) pop() *waiter {
	w := q.head
	q.head, w.next = w.next, nil
	return w
}

// wakeFirst removes the first waiter and wakes it.
func (q *waitQueue) wakeFirst(err error) {
	w := q.pop()
	w.err = err
	w.wake()
}

// wakeAll removes all waiters and wakes them.
func (q *waitQueue) wakeAll(err error) {
	for q.head != nil {
		q.wakeFirst(err)
	}
}

// passed reports whether a deadline has passed.
func passed(deadline, now clock.Time) bool { return deadline != 0 && now >= deadline }

// expire implements expirer with the lock held.
func (q *waitQueue) expire(w *waiter, deadline clock.Time) {
	now := stack.Now()
	switch {
	case passed(deadline, now):
		if q.remove(w) {
			w.err = os.ErrDeadlineExceeded
			w.wake()
		}
	case deadline != 0:
		// The deadline was moved while the timer fired. w may have left the queue meanwhile.
		for x := q.head; x != nil; x = x.next {
			if x == w {
				w.arm(now, deadline)
			}
		}
	}
}

// setDeadline applies a new deadline to the waiters.
func (q *waitQueue) setDeadline(now, deadline clock.Time) {
	if passed(deadline, now) {
		q.wakeAll(os.ErrDeadlineExceeded)
		return
	}
	for w := q.head; w != nil; w = w.next {
		w.arm(now, deadline)
	}
}

// park is waitQueue.park.
func (q *deadlineQueue) park(w *waiter, owner expirer) { q.waitQueue.park(w, owner, q.deadline) }

// expired reports whether the deadline has passed.
func (q *deadlineQueue) expired(now clock.Time) bool { return passed(q.deadline, now) }

// expire is waitQueue.expire.
func (q *deadlineQueue) expire(w *waiter) { q.waitQueue.expire(w, q.deadline) }

// setDeadline sets the deadline, also for the waiters. The zero time is none.
func (q *deadlineQueue) setDeadline(t time.Time) {
	now := stack.Now()
	q.deadline = deadline(now, t)
	q.waitQueue.setDeadline(now, q.deadline)
}

// deadline converts a wall-clock time to the clock of the loops.
func deadline(now clock.Time, t time.Time) clock.Time {
	if t.IsZero() {
		return 0
	}
	d := time.Until(t)
	if d <= 0 {
		return 1 // 1 ns after boot: has passed
	}
	if d > maxWait {
		return 0
	}
	return now.Add(d)
}

// maxWait is the longest wait: a later deadline is none.
const maxWait = 100 * 365 * 24 * time.Hour

// waitAndFree waits, frees w and returns its error.
func (w *waiter) waitAndFree() error {
	w.wait()
	err := w.err
	w.free()
	return err
}
