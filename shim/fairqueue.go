package shim

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const (
	// requestQuota is the number of requests of one user that a loop does in an iteration. Packets, and other users, wait for them.
	requestQuota = 8

	// requestsAtOnce is the number of requests of one user that goroutines do at the same time: most of these take every loop.
	requestsAtOnce = 8
)

// fairQueue shares a loop among the users whose programs send requests: each has a quota of requests in an iteration. Channels of a
// user who has used it up wait in a queue, and are not polled meanwhile. It belongs to the loop.
type fairQueue struct {
	of      map[*user]*userQueue
	queued  []*userQueue // those with channels that wait
	polling bool         // the loop polls it: since the first time that a user has used up its quota
}

// userQueue is the quota of one user and the channels that exceed it.
type userQueue struct {
	at      clock.Time // the iteration that left belongs to, while no channel waits
	left    int        // requests that may be done
	waiting []*loopChannel
	late    bool // the first of waiting has come in this iteration, whose quota is used up
}

// fairQueueOf returns the queue of a loop, which is that of the caller.
func (s *Server) fairQueueOf(loop int) *fairQueue {
	if s.queues[loop] == nil {
		s.queues[loop] = &fairQueue{of: map[*user]*userQueue{}}
	}
	return s.queues[loop]
}

// queueOf returns the queue of a user.
func (q *fairQueue) queueOf(u *user) *userQueue {
	if q.of[u] == nil {
		q.of[u] = &userQueue{}
	}
	return q.of[u]
}

// take counts a request of l. False is that its user has used up its quota: l waits, behind those that do already.
func (q *fairQueue) take(in socket.LoopStack, l *loopChannel) bool {
	u := l.queue
	if now := in.Now(); len(u.waiting) == 0 && now != u.at {
		u.at, u.left = now, requestQuota
	}
	if len(u.waiting) == 0 && u.left > 0 {
		u.left--
		return true
	}
	if len(u.waiting) == 0 {
		u.late = true
		q.queued = append(q.queued, u)
	}
	u.waiting = append(u.waiting, l)
	l.waits = true
	l.c.s.stats.waited.Add(1)
	_ = l.watch.Modify(0) // it is watched
	if !q.polling {
		q.polling = true
		in.AddPoller(&queuePoller{q, in})
	}
	return false
}

// queuePoller lets those go on that wait, each for one request. A loop does not sleep while some do.
type queuePoller struct {
	*fairQueue
	in socket.LoopStack
}

// Poll implements stack.Poller.
func (p *queuePoller) Poll(clock.Time) (n int) {
	rest := p.queued[:0]
	for _, u := range p.queued {
		n += u.serve(p.in)
		if len(u.waiting) > 0 {
			rest = append(rest, u)
		}
	}
	clear(p.queued[len(rest):])
	p.queued = rest
	return n
}

// Arm implements stack.Poller: all that wakes a channel is a file.
func (p *queuePoller) Arm() clock.Time { return clock.Never }

// serve does the requests of those that have waited longest.
func (u *userQueue) serve(in socket.LoopStack) int {
	if u.late { // in the next iteration
		u.late = false
		return 1
	}
	n := min(len(u.waiting), requestQuota)
	for _, l := range u.waiting[:n] {
		l.waits = false
		if l.ended {
			continue
		}
		l.read(in)
		if !l.busy && !l.ended {
			_ = l.watch.Modify(stack.FileReadable) // it is watched
		}
	}
	if u.waiting = u.waiting[n:]; len(u.waiting) == 0 {
		u.waiting = nil
		u.at, u.left = in.Now(), 0
	}
	return n
}
