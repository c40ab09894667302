package shim

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const (
	// requestsPerTurn is how many requests of one user a loop does in an iteration. Packets, and other users, wait for them.
	requestsPerTurn = 8

	// requestsAtOnce is how many requests of one user goroutines do at the same time: most of these take every loop.
	requestsAtOnce = 8
)

// turns shares a loop among the users whose programs send requests. Of a user with more requests than its share the channels
// wait in a queue, and are not polled meanwhile. The loop has it.
type turns struct {
	of      map[*user]*turn
	queued  []*turn // those with channels that wait
	polling bool    // the loop polls it: since the first time that a user has used up its share
}

// turn is the share of one user.
type turn struct {
	at      clock.Time // the iteration that left belongs to, while no channel waits
	left    int        // requests that may be done
	waiting []*loopChannel
	late    bool // the first of waiting has come in this iteration, whose share is used up
}

// turnsOf returns the turns of a loop, which is that of the caller.
func (s *Server) turnsOf(loop int) *turns {
	if s.turns[loop] == nil {
		s.turns[loop] = &turns{of: map[*user]*turn{}}
	}
	return s.turns[loop]
}

// join returns the turn of a user.
func (t *turns) join(u *user) *turn {
	if t.of[u] == nil {
		t.of[u] = &turn{}
	}
	return t.of[u]
}

// take counts a request of l. False is that its user has used up its share: l waits, behind those that do already.
func (t *turns) take(in socket.LoopStack, l *loopChannel) bool {
	u := l.turn
	if now := in.Now(); len(u.waiting) == 0 && now != u.at {
		u.at, u.left = now, requestsPerTurn
	}
	if len(u.waiting) == 0 && u.left > 0 {
		u.left--
		return true
	}
	if len(u.waiting) == 0 {
		u.late = true
		t.queued = append(t.queued, u)
	}
	u.waiting = append(u.waiting, l)
	l.waits = true
	l.c.s.stats.waited.Add(1)
	_ = l.watch.Modify(0) // it is watched
	if !t.polling {
		t.polling = true
		in.AddPoller(&turnPoller{t, in})
	}
	return false
}

// turnPoller lets those go on that wait, each for one request. A loop does not sleep while some do.
type turnPoller struct {
	*turns
	in socket.LoopStack
}

// Poll implements stack.Poller.
func (p *turnPoller) Poll(clock.Time) (n int) {
	rest := p.queued[:0]
	for _, u := range p.queued {
		n += u.goOn(p.in)
		if len(u.waiting) > 0 {
			rest = append(rest, u)
		}
	}
	clear(p.queued[len(rest):])
	p.queued = rest
	return n
}

// Arm implements stack.Poller: all that wakes a channel is a file.
func (p *turnPoller) Arm() {}

// goOn does the requests of those that have waited longest.
func (u *turn) goOn(in socket.LoopStack) int {
	if u.late { // in the next iteration
		u.late = false
		return 1
	}
	n := min(len(u.waiting), requestsPerTurn)
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
