package proxy

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/pool"
)

// A backend has at most as many connections as its pool says. Requests beyond them, and connections that are passed through, wait
// here in order, up to the pool's limit of pending ones. The connections of other workers count too, and these free them
// without notice: a queue is looked at again every queueCheck, and the others are asked for an idle one.
//
// Each worker has a queue of its own. They are one in effect: a worker that gets a connection lets it go where a request has
// waited at another one for longer than at its own queue, by more than waitSlack.
//
// Waiting in order is what keeps the limit fair: without it a request that comes when a connection is free would pass those that
// wait, and under load the oldest would wait until they time out.
const (
	queueCheck = 5 * time.Millisecond
	waitSlack  = 4 * queueCheck
)

// waiter is an exchange or a pass that may wait for a connection. It is part of its owner, so that waiting allocates nothing.
//
// Invariant: bs != nil exactly while it is in the list of bs, counted by PendingAdded of backend, and named by waits of x.
type waiter struct {
	x       *exchange // either,
	p       *pass     // or
	pool    *Pool
	backend *pool.Backend
	bs      *backConns // in whose queue it is, nil if in none
	turn    uint64     // its place in the order of all of the worker, 0 if it has not waited for this attempt
	since   clock.Time // when it got its turn
}

// queue holds waiters in the order of their turns. The pool's limit of pending requests bounds it, so that moving
// pointers to insert and remove costs less than following those of a linked list. Any waiter may leave from the middle:
// its client goes, or its time is over.
type queue struct {
	waiters []*waiter
	at      int // in Worker.queues
}

// first returns the waiter whose turn it is, nil if none waits.
func (q *queue) first() *waiter {
	if len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

// insert enters a waiter: at the end, but for one that has waited before, whose turn is an older one.
func (q *queue) insert(v *waiter) { q.waiters = slices.Insert(q.waiters, q.place(v), v) }

// remove takes a waiter out.
func (q *queue) remove(v *waiter) {
	i := q.place(v)
	q.waiters = slices.Delete(q.waiters, i, i+1)
}

// place returns the index of a waiter, or where it belongs.
func (q *queue) place(v *waiter) int {
	i, _ := slices.BinarySearchFunc(q.waiters, v.turn, func(o *waiter, turn uint64) int { return cmp.Compare(o.turn, turn) })
	return i
}

// enqueue has v wait for a connection to a backend. It reports false where as many wait as may.
func (w *Worker) enqueue(v *waiter, bs *backConns, p *Pool, b *pool.Backend) bool {
	if !b.PendingAdded() {
		return false
	}
	if v.turn == 0 { // one that was taken and found no connection keeps its turn, and with it its place and its time
		w.turns++
		v.turn, v.since = w.turns, w.Now
	}
	if len(bs.waiters) == 0 {
		bs.at = len(w.queues)
		w.queues = append(w.queues, bs)
	}
	v.bs, v.pool, v.backend = bs, p, b
	bs.insert(v)
	if v.x != nil {
		v.x.waits = v
		v.x.on(enqueued)
	}
	w.publishWait(bs, b)
	return true
}

// dequeue takes v from its queue, if it is in one.
func (w *Worker) dequeue(v *waiter) {
	bs := v.bs
	if bs == nil {
		return
	}
	bs.remove(v)
	if v.bs = nil; v.x != nil {
		v.x.waits = nil
	}
	v.backend.PendingRemoved()
	w.publishWait(bs, v.backend)
	if len(bs.waiters) == 0 { // the last queue takes its place in the list: the order of queues means nothing
		last := len(w.queues) - 1
		w.queues[bs.at] = w.queues[last]
		w.queues[bs.at].at = bs.at
		w.queues[last] = nil
		w.queues = w.queues[:last]
	}
}

// publishWait tells the other workers since when the first of a queue waits. Connections that belong to one client are no use to
// them.
func (w *Worker) publishWait(bs *backConns, b *pool.Backend) {
	since := clock.Never
	switch {
	case bs.owned:
		return
	case len(bs.waiters) > 0:
		since = bs.waiters[0].since
	}
	if since != bs.published {
		bs.published = since
		b.SetWait(w.id, since)
	}
}

// yields reports whether another worker's request is to have a connection before one that waits here. The slack keeps two workers
// whose requests have waited for about as long from yielding to each other, with the connection unused: what a worker publishes
// is up to queueCheck old.
func (w *Worker) yields(b *pool.Backend, since clock.Time) bool {
	other := b.LongestWait(w.id)
	return other < since.Add(-waitSlack) && other > w.Now.Add(-maxYield)
}

// maxYield bounds how long the others yield to a worker that takes no connection. A worker that hangs never withdraws its wait:
// without the bound it would hold up all others.
const maxYield = 10 * time.Second

// overtakes reports whether an exchange or a pass that has just come would take a connection that others wait for. One with a turn
// has waited, and its turn has come: checking it again would send it back to the queue without end.
func (w *Worker) overtakes(v *waiter, bs *backConns, b *pool.Backend) bool {
	return v.turn == 0 && (len(bs.waiters) > 0 || !bs.owned && w.yields(b, w.Now))
}

// takeTurn takes the first of a queue out, nil if there is none, or if another worker's request has waited for longer: yielded
// says so.
func (w *Worker) takeTurn(bs *backConns) (v *waiter, yielded bool) {
	if v = bs.first(); v == nil {
		return nil, false
	}
	if !bs.owned && w.yields(v.backend, v.since) {
		return nil, true
	}
	v.take()
	return v, false
}

// takeQueued begins requests that wait on a connection that they share. One that another worker needs becomes unused, and makeRoom
// closes it.
func (w *Worker) takeQueued(bs *backConns, s *backConn) {
	for s.available() && !w.draining {
		v, _ := w.takeTurn(bs)
		if v == nil {
			return
		}
		s.begin(v.x)
	}
}

// withdraw implements awaited.
func (v *waiter) withdraw(x *exchange) { x.w.dequeue(v) }

// take takes a waiter out of its queue: there is a connection for it.
func (v *waiter) take() {
	if v.p != nil {
		v.p.w.dequeue(v)
		return
	}
	v.x.w.dequeue(v)
	v.x.on(dequeued)
}

// begin has a waiter go on: it takes a connection, or waits again at its place. Room that was there a moment ago may be another
// worker's by now.
func (v *waiter) begin() {
	if v.p != nil {
		v.p.connect()
		return
	}
	v.x.w.open(v.x)
}

// expire gives up a waiter that has waited for too long. An exchange may go on at another backend: mayRetry decides as for any failure.
func (v *waiter) expire() {
	v.backend.PendingExpired()
	if v.p != nil {
		v.p.failure = errLimit.name
		v.p.unavailable()
		return
	}
	v.x.backFailed(errLimit)
}

// connClosed ends what ConnOpened of a backend has counted: there may be a connection for a request that waits.
func (w *Worker) connClosed(b *pool.Backend) {
	b.ConnClosed()
	w.queuesAt = w.Now
}

// checkQueues begins the requests for which there is a connection by now, and gives up those that have waited too long. It goes
// through the queues from the last to the first: a queue that becomes empty is replaced by the last one, which has been seen.
func (w *Worker) checkQueues() {
	if len(w.queues) == 0 || w.Now < w.queuesAt {
		return
	}
	w.queuesAt = w.Now.Add(queueCheck) // it may become earlier meanwhile
	for i := len(w.queues) - 1; i >= 0; i-- {
		if i < len(w.queues) {
			w.checkQueue(w.queues[i])
		}
	}
}

// nextCheck returns when checkQueues is to be called again.
func (w *Worker) nextCheck() clock.Time {
	if len(w.queues) == 0 {
		return clock.Never
	}
	return w.queuesAt
}

// checkQueue is checkQueues for one backend.
func (w *Worker) checkQueue(bs *backConns) {
	for v := bs.first(); v != nil && v.pool.Wait >= 0 && w.Now.Sub(v.since) >= cmp.Or(v.pool.Wait, DefaultWait); v = bs.first() {
		w.dequeue(v)
		v.expire()
	}
	if v := bs.first(); v != nil && w.dials.short() {
		w.askForRoom(v.backend, true)
	}
	// Room does not count connections that open after the batch yet: begun does, or all that wait would be taken for one place.
	begun := 0
	for v := bs.first(); v != nil && min(v.backend.Room(), w.dials.most()) > begun && (bs.owned || !w.yields(v.backend, v.since)); v = bs.first() {
		v.take()
		if v.begin(); bs.first() == v { // it found no connection and is back at its place: so would be the others
			break
		}
		if v.x != nil && v.x.waits == awaited(batchEnd{}) {
			begun++
		}
	}
	if v := bs.first(); v != nil {
		w.askForRoom(v.backend, false)
	}
}

// askForRoom has each worker close an idle connection to a backend that has as many as it may. A backend's limit counts the
// connections of all workers. An idle one at another worker would else hold its place until it times out, while requests wait
// here. The list is copied, so that no lock is held while commands are queued.
func (w *Worker) askForRoom(b *pool.Backend, descriptor bool) {
	w.makeRoom(b, descriptor)
	if w.endpoints == nil {
		return
	}
	w.endpoints.mu.Lock()
	others := slices.Clone(w.endpoints.workers)
	w.endpoints.mu.Unlock()
	for _, o := range others {
		if o != w {
			o.Loop.Do(func() {
				o.Enter()
				o.makeRoom(b, descriptor)
			})
		}
	}
}

// makeRoom closes the connection to a backend that has been idle for the longest time, if the backend may have no more. The call
// may come late, by another worker's command: where the backend may have another connection by then, nothing is closed in vain.
// Where a descriptor is needed, the connection of any backend will do.
func (w *Worker) makeRoom(b *pool.Backend, descriptor bool) {
	if !descriptor && b.MayConnect() {
		return
	}
	for k, bs := range w.backs {
		if !descriptor && k.backend != b {
			continue
		}
		if len(bs.idle) > 0 {
			bs.idle[0].drop()
			return
		}
		for _, s := range bs.shared {
			if s.unused() {
				s.leave()
				return
			}
		}
	}
}
