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

// waiter is a goroutine that waits for a socket, and what it came for, so that whoever has the lock of
// the socket's queue can do it in its stead.
type waiter struct {
	next  *waiter
	woken chan struct{}
	timer *time.Timer // made when first needed
	armed bool        // timer has been set
	fired bool        // timer has rung, and its function may still run
	owner expirer     // guarded by the lock of the queue, as all below

	buf  []byte        // to read into, or what is left to write
	msgs []udp.Message // instead of buf
	n    int           // done so far
	err  error
	conn *TCPConn // accepted

	// Memory for calls that read or write messages, whether they wait or not.
	msgBuf   []udp.Message
	bufBuf   [1][]byte
	peer     *net.UDPAddr // of the message that was read last
	peerAddr wire.Addr
}

// expirer is a socket whose queues have deadlines.
type expirer interface {
	// expire takes w out of its queue and wakes it if its deadline has passed; else it sets its timer
	// anew. It takes the lock of the queue.
	expire(w *waiter)
}

var waiters = sync.Pool{New: func() any { return &waiter{woken: make(chan struct{}, 1)} }}

func newWaiter() *waiter { return waiters.Get().(*waiter) }

// wait blocks until wake.
func (w *waiter) wait() { <-w.woken }

// wake ends wait. The caller has taken w out of its queue.
func (w *waiter) wake() { w.woken <- struct{}{} }

// free gives w back after it was woken. One whose timer has rung is left to the timer's function.
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

// arm sets the timer for a deadline; none is 0.
func (w *waiter) arm(now, deadline clock.Time) {
	if w.armed && !w.timer.Stop() {
		w.fired = true
	}
	if w.armed = deadline != 0; !w.armed {
		return
	}
	d := max(deadline.Sub(now), 0)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, func() { w.owner.expire(w) })
		return
	}
	w.timer.Reset(d)
}

// waitQueue holds the goroutines that wait for one direction of a socket, in order. It is guarded by what
// guards the socket: the loop, or a mutex. A deadline of 0 is none.
type waitQueue struct{ head *waiter }

// deadlineQueue is a line with its deadline.
type deadlineQueue struct {
	waitQueue
	deadline clock.Time // 0 is none
}

// park appends w, which then waits.
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

// remove takes w out and reports whether it was there.
func (q *waitQueue) remove(w *waiter) bool {
	for at := &q.head; *at != nil; at = &(*at).next {
		if *at == w {
			*at, w.next = w.next, nil
			return true
		}
	}
	return false
}

// pop takes the first one out.
func (q *waitQueue) pop() *waiter {
	w := q.head
	q.head, w.next = w.next, nil
	return w
}

// wakeFirst takes the first one out and wakes it.
func (q *waitQueue) wakeFirst(err error) {
	w := q.pop()
	w.err = err
	w.wake()
}

// wakeAll wakes all.
func (q *waitQueue) wakeAll(err error) {
	for q.head != nil {
		q.wakeFirst(err)
	}
}

// passed reports whether a deadline has passed.
func passed(deadline, now clock.Time) bool { return deadline != 0 && now >= deadline }

// expire is what an expirer does with the lock held.
func (q *waitQueue) expire(w *waiter, deadline clock.Time) {
	now := stack.Now()
	switch {
	case passed(deadline, now):
		if q.remove(w) {
			w.err = os.ErrDeadlineExceeded
			w.wake()
		}
	case deadline != 0:
		for x := q.head; x != nil; x = x.next {
			if x == w {
				w.arm(now, deadline)
			}
		}
	}
}

// setDeadline has those that wait already do so until deadline.
func (q *waitQueue) setDeadline(now, deadline clock.Time) {
	if passed(deadline, now) {
		q.wakeAll(os.ErrDeadlineExceeded)
		return
	}
	for w := q.head; w != nil; w = w.next {
		w.arm(now, deadline)
	}
}

// park is line.park.
func (q *deadlineQueue) park(w *waiter, owner expirer) { q.waitQueue.park(w, owner, q.deadline) }

// expired reports whether the deadline has passed.
func (q *deadlineQueue) expired(now clock.Time) bool { return passed(q.deadline, now) }

// expire is line.expire.
func (q *deadlineQueue) expire(w *waiter) { q.waitQueue.expire(w, q.deadline) }

// setDeadline changes the deadline, also for those that wait already. The zero time is none.
func (q *deadlineQueue) setDeadline(t time.Time) {
	now := stack.Now()
	q.deadline = deadline(now, t)
	q.waitQueue.setDeadline(now, q.deadline)
}

// deadline converts a calendar time to the clock of the loops.
func deadline(now clock.Time, t time.Time) clock.Time {
	if t.IsZero() {
		return 0
	}
	d := time.Until(t)
	if d <= 0 {
		return 1 // long ago: the clock is that of a machine that runs
	}
	if d > maxWait {
		return 0
	}
	return now.Add(d)
}

// maxWait is what a deadline may lie ahead; beyond, it is none.
const maxWait = 100 * 365 * 24 * time.Hour

// waitAndFree waits and gives w back.
func (w *waiter) waitAndFree() error {
	w.wait()
	err := w.err
	w.free()
	return err
}
