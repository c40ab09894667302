package proxy

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/pool"
)

// A backend has at most as many connections as its pool says. Requests beyond them wait here, in order, up to the pool's limit of
// pending ones. The connections of other workers count too, and these free them without notice: a queue is looked at again
// every queueCheck, and the others are asked for an idle one.
const queueCheck = 5 * time.Millisecond

// enqueue has an exchange wait for a connection. It reports false where as many wait as may.
func (w *Worker) enqueue(x *exchange, bs *backends) bool {
	if !x.backend.PendingAdded() {
		return false
	}
	if len(bs.queue) == 0 {
		w.queues = append(w.queues, bs)
	}
	bs.queue = append(bs.queue, x)
	x.queued = bs
	return true
}

// dequeue takes an exchange from its queue.
func (w *Worker) dequeue(x *exchange) {
	bs := x.queued
	if bs == nil {
		return
	}
	x.queued = nil
	x.backend.PendingRemoved()
	bs.queue = slices.DeleteFunc(bs.queue, func(o *exchange) bool { return o == x })
	if len(bs.queue) == 0 {
		w.queues = slices.DeleteFunc(w.queues, func(o *backends) bool { return o == bs })
	}
}

// nextQueued takes the first exchange of a queue, nil if there is none.
func (w *Worker) nextQueued(bs *backends) *exchange {
	if len(bs.queue) == 0 {
		return nil
	}
	x := bs.queue[0]
	w.dequeue(x)
	return x
}

// checkQueues begins the requests for which there is a connection by now, and gives up those that have waited too long. It
// returns when it is to be called again.
func (w *Worker) checkQueues() clock.Time {
	if len(w.queues) == 0 {
		return clock.Never
	}
	if w.now < w.queuesAt {
		return w.queuesAt
	}
	for _, bs := range slices.Clone(w.queues) {
		for _, x := range slices.Clone(bs.queue) {
			if x.queued == nil {
				continue
			}
			if w.now.Sub(x.started) > cmp.Or(x.pooled.Connect, DefaultConnect) {
				w.dequeue(x)
				x.backFailed(errLimit)
			}
		}
		if len(bs.queue) > 0 {
			if x := bs.queue[0]; x.backend.MayConnect() {
				w.dequeue(x)
				w.open(x)
			} else {
				w.askForRoom(x.backend)
			}
		}
	}
	w.queuesAt = w.now.Add(queueCheck)
	if len(w.queues) == 0 {
		return clock.Never
	}
	return w.queuesAt
}

// askForRoom has each worker close an idle connection to a backend that has as many as it may.
func (w *Worker) askForRoom(b *pool.Backend) {
	w.makeRoom(b)
	if w.endpoints == nil {
		return
	}
	w.endpoints.mu.Lock()
	others := slices.Clone(w.endpoints.workers)
	w.endpoints.mu.Unlock()
	for _, o := range others {
		if o != w {
			o.loop.Do(func() {
				o.enter()
				o.makeRoom(b)
			})
		}
	}
}

// makeRoom closes the connection to a backend that has been idle for the longest time, if the backend may have no more.
func (w *Worker) makeRoom(b *pool.Backend) {
	if b.MayConnect() {
		return
	}
	for k, bs := range w.backs {
		if k.backend != b {
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
