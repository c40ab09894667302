package socket

import (
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/millrace/millrace/stack/host"
)

// source is a connection, or the shard of another socket on one loop.
type source interface {
	// readyEvents returns what it is ready for. The caller holds the loop.
	readyEvents() Events
}

// interest is a socket of a Poller on one loop, which guards it.
type interest struct {
	Interest
	p       *Poller
	i       int // loop
	source  source
	shot    *atomic.Bool // of a one-shot socket, shared by its shards: it was reported
	queued  bool
	removed bool
	next    *interest
}

// current returns what the socket is ready for and the program wants to know.
func (x *interest) current() Events {
	if x.removed {
		return 0
	}
	return x.source.readyEvents() & (x.Events | always)
}

// mark queues the interest if it wants to know of one of the events. It reports whether that woke a goroutine
// in Wait.
func (x *interest) mark(ev Events) bool {
	if ev&(x.Events|always) == 0 || x.OneShot && x.shot.Load() {
		return false
	}
	if !x.queued {
		x.p.shards[x.i].push(x)
	}
	return x.p.notify(x.i)
}

// watchList has the interests of one socket on one loop, which guards it.
type watchList []*interest

// pollCommand is an operation of a Poller on a socket.
type pollCommand uint8

const (
	addInterest pollCommand = iota
	modInterest
	delInterest
)

// pollChange is a change of the interests of all shards of a socket.
type pollChange struct {
	p    *Poller
	cmd  pollCommand
	want *Interest
	shot *atomic.Bool
}

// newPollChange returns a change for a socket of the stack of g, or the error of epoll_ctl(2) for what no
// socket allows. The loops of another stack must not touch the shards of p, which those of its own guard.
func newPollChange(p *Poller, g *host.Group, cmd pollCommand, want *Interest) (pollChange, error) {
	if cmd == addInterest && p.s.group != g {
		return pollChange{}, syscall.EINVAL
	}
	if want.Exclusive && (want.OneShot || cmd == modInterest) {
		return pollChange{}, syscall.EINVAL
	}
	ch := pollChange{p: p, cmd: cmd, want: want}
	if want.OneShot {
		ch.shot = new(atomic.Bool)
	}
	return ch, nil
}

// apply changes the interest of a shard on loop h, which the caller holds, and queues it if it is ready.
func (l *watchList) apply(h *host.Host, ch *pollChange, src source) error {
	at := slices.IndexFunc(*l, func(x *interest) bool { return x.p == ch.p })
	switch {
	case ch.cmd == addInterest && at >= 0:
		return syscall.EEXIST
	case ch.cmd != addInterest && at < 0:
		return syscall.ENOENT
	case ch.cmd == modInterest && (*l)[at].Exclusive:
		return syscall.EINVAL
	}
	if at >= 0 {
		(*l)[at].removed = true // it leaves the queue when report meets it
		*l = slices.Delete(*l, at, at+1)
	}
	if ch.cmd == delInterest {
		return nil
	}
	x := &interest{Interest: *ch.want, p: ch.p, i: h.Index(), source: src, shot: ch.shot}
	*l = append(*l, x)
	x.mark(src.readyEvents())
	return nil
}

// mark passes events to the Pollers: to all that are not exclusive, and of the others to the first whose
// Wait is blocked, which then is the last in turn. Without such a one each of them learns of the events at
// its next Wait.
func (l watchList) mark(ev Events) {
	woken := -1
	for i, x := range l {
		if (!x.Exclusive || woken < 0) && x.mark(ev) && x.Exclusive {
			woken = i
		}
	}
	if woken >= 0 {
		x := l[woken]
		copy(l[woken:], l[woken+1:])
		l[len(l)-1] = x
	}
}

// clear removes all interests, of a socket that is closed.
func (l *watchList) clear() {
	for _, x := range *l {
		x.removed = true
	}
	*l = nil
}
