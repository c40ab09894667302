package socket

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Events are the operations that a socket is ready for.
type Events uint16

// The bits of Events, with those of epoll(7) that they stand for. Those of tcp and udp have the same values,
// so that converting them costs nothing.
const (
	Readable   = Events(tcp.Readable) // EPOLLIN: data, its end or an error can be read, or a connection accepted
	Writable   = Events(tcp.Writable) // EPOLLOUT: there is room to write, or a write fails at once
	Closed     = Events(tcp.Closed)   // EPOLLHUP: both directions are closed; always reported
	Priority   = Events(tcp.Urgent)   // EPOLLPRI: an urgent byte can be read
	PeerClosed = Events(1 << 14)      // EPOLLRDHUP: the peer has closed its direction, or CloseRead was called
	Failed     = Events(1 << 15)      // EPOLLERR: SocketError or ReadError has something; always reported
)

// always are the events that are reported whatever the Interest has.
const always = Closed | Failed

// It does not compile unless the values are equal.
var _ = [1]struct{}{}[Readable^Events(udp.Readable)|Writable^Events(udp.Writable)]

// readiness converts the events of package tcp.
func readiness(ev tcp.Events) Events {
	out := Events(ev) & (Readable | Writable | Closed | Priority)
	if ev&tcp.Stamped != 0 {
		out |= Failed
	}
	return out
}

// Poller reports to one goroutine which of many sockets are ready, as epoll does. There is no goroutine per
// socket, and the cost depends on the number of ready sockets only.
//
// By default a socket is level-triggered: each Wait reports it as long as it is ready. An edge-triggered
// socket is reported once for each change, with all that it is ready for then, so that the program has to read
// until nothing is left. A one-shot socket is reported once, until Mod. A socket may be in several Pollers.
//
// A Listener or UDPConn has a shard on each loop, and may be reported once for each of them.
//
// A loop sets its ready bit and then reads sleeping. Wait sets sleeping and then reads the ready bits. One of
// the two sees the other, so that no wakeup is lost, and a busy Wait costs a loop no channel operation.
type Poller struct {
	s        *Stack
	shards   []pollShard   // by loop
	ready    atomic.Uint64 // bit i: shard i is not empty
	sleeping atomic.Bool   // the sender to woken clears it
	woken    chan struct{} // of capacity 1

	wait  sync.Mutex // held by Wait
	timer *time.Timer
	done  atomic.Bool
}

// pollShard is the part of a Poller on one loop, which guards it.
type pollShard struct {
	head, tail *interest // queue of those that may be ready
	n          int
}

// Event is a ready socket.
type Event struct {
	Events Events
	Data   any // of the Interest
}

// Interest selects the events of a socket that are reported.
type Interest struct {
	Events    Events // Closed and Failed always are
	Edge      bool   // report changes, not states (EPOLLET)
	OneShot   bool   // report once, and again after Mod (EPOLLONESHOT)
	Exclusive bool   // of the Pollers that say so and block in Wait, wake one (EPOLLEXCLUSIVE); not with OneShot
	Data      any    // copied to each event
}

// NewPoller returns an empty Poller.
func (s *Stack) NewPoller() *Poller {
	return &Poller{s: s, shards: make([]pollShard, len(s.group.Hosts)), woken: make(chan struct{}, 1)}
}

// Add adds a socket of the Poller's Stack. If it is ready already, it is reported. The error is EEXIST for a
// socket that this Poller has, and EINVAL for one of another Stack or an Interest with Exclusive and OneShot.
func (p *Poller) Add(c Pollable, want Interest) error { return c.poll(p, addInterest, &want) }

// Mod changes the interest of a socket. The error is ENOENT for a socket that this Poller does not have, and
// EINVAL if the old or the new interest is exclusive.
func (p *Poller) Mod(c Pollable, want Interest) error { return c.poll(p, modInterest, &want) }

// Del removes a socket, as closing it does. A concurrent Wait may still report it. The error is ENOENT for a
// socket that this Poller does not have.
func (p *Poller) Del(c Pollable) error { return c.poll(p, delInterest, &Interest{}) }

func (s *pollShard) push(x *interest) {
	x.queued, x.next = true, nil
	if s.head == nil {
		s.head = x
	} else {
		s.tail.next = x
	}
	s.tail = x
	s.n++
}

func (s *pollShard) pop() *interest {
	x := s.head
	s.head, x.next, x.queued = x.next, nil, false
	s.n--
	return x
}

// notify sets the ready bit of loop i and wakes Wait. It reports whether a Wait was blocked.
func (p *Poller) notify(i int) bool {
	p.ready.Or(1 << i)
	if p.sleeping.Load() && p.sleeping.CompareAndSwap(true, false) {
		p.woken <- struct{}{}
		return true
	}
	return false
}

// Wait fills events with ready sockets and returns their number. If there are none it blocks until the
// timeout has passed; a negative timeout is none, and 0 does not block. After Close it returns
// net.ErrClosed. Concurrent calls run one after another.
func (p *Poller) Wait(events []Event, timeout time.Duration) (int, error) {
	p.wait.Lock()
	defer p.wait.Unlock()
	var until time.Time
	if timeout > 0 {
		until = time.Now().Add(timeout)
	}
	for {
		if p.done.Load() {
			return 0, net.ErrClosed
		}
		if n := p.collect(events); n > 0 || timeout == 0 || len(events) == 0 {
			return n, nil
		}
		if !p.sleep(timeout, until) {
			timeout = 0 // collect once more
		}
	}
}

// collect enters the loops whose ready bit is set.
func (p *Poller) collect(events []Event) (n int) {
	for set := p.ready.Load(); set != 0 && n < len(events); set &= set - 1 {
		i := bits.TrailingZeros64(set)
		h := p.s.group.Hosts[i]
		h.Enter()
		n += p.report(i, events[n:])
		h.Exit()
	}
	return n
}

// report fills events with the ready sockets of one loop. Level-triggered sockets that are ready stay in the
// queue for the next Wait.
func (p *Poller) report(i int, events []Event) (n int) {
	s := &p.shards[i]
	for left := s.n; left > 0 && n < len(events); left-- {
		x := s.pop()
		// The state counts, not what happened since: it may be over by now.
		ev := x.current()
		if ev == 0 || x.OneShot && x.shot.Swap(true) {
			continue
		}
		if !x.Edge && !x.OneShot {
			s.push(x)
		}
		events[n] = Event{ev, x.Data}
		n++
	}
	// The loop is held, so that mark cannot add one in between.
	if s.n == 0 {
		p.ready.And(^(uint64(1) << i))
	}
	return n
}

// sleep blocks until notify. It returns false after the timeout.
func (p *Poller) sleep(timeout time.Duration, until time.Time) bool {
	p.sleeping.Store(true)
	if p.ready.Load() != 0 || p.done.Load() {
		p.cancelSleep()
		return true
	}
	if timeout < 0 {
		<-p.woken
		return true
	}
	if p.timer == nil {
		p.timer = time.NewTimer(time.Until(until))
	} else {
		p.timer.Reset(time.Until(until))
	}
	select {
	case <-p.woken:
		p.timer.Stop()
		return true
	case <-p.timer.C:
		p.cancelSleep()
		return false
	}
}

// cancelSleep clears sleeping. If a concurrent notify was first, it consumes the wakeup.
func (p *Poller) cancelSleep() {
	if !p.sleeping.CompareAndSwap(true, false) {
		<-p.woken
	}
}

// Close makes Wait return net.ErrClosed from now on. Sockets stay open.
func (p *Poller) Close() error {
	if p.done.Swap(true) {
		return net.ErrClosed
	}
	if p.sleeping.CompareAndSwap(true, false) {
		p.woken <- struct{}{}
	}
	return nil
}
