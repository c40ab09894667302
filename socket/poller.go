package socket

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Events say what a socket is ready for.
type Events uint16

// The bits of Events. They are those of tcp and udp, so that a loop converts them for nothing.
const (
	Readable = Events(tcp.Readable) // data, its end or an error can be read, or a connection accepted
	Writable = Events(tcp.Writable) // there is room to write
	Closed   = Events(tcp.Closed)   // the connection is closed or reset
)

var _ = [1]struct{}{}[Readable^Events(udp.Readable)|Writable^Events(udp.Writable)]

// readiness returns those of the events of a connection that Events has.
func readiness(ev tcp.Events) Events { return Events(ev) & (Readable | Writable | Closed) }

// Poller tells one goroutine which of many sockets are ready, as epoll does: there is no goroutine per
// socket, and the cost goes by those that are ready.
//
// Level-triggered sockets (the default) are reported by each Wait as long as they are ready;
// edge-triggered ones once for each change, so whoever is told reads until nothing is left.
//
// A listener or packet socket lies on several loops, and may be reported once for each of them.
type Poller struct {
	s        *Stack
	shards   []pollShard // by loop
	ready    atomic.Uint64
	sleeping atomic.Bool
	woken    chan struct{}

	wait  sync.Mutex // held by Wait
	timer *time.Timer
	done  atomic.Bool
}

// pollShard is what a Poller has on one loop, to which it belongs.
type pollShard struct {
	head, tail *interest // those that may be ready
	n          int
}

// Event says that a socket is ready.
type Event struct {
	Events Events
	Data   any // as given to Add
}

// Interest says what of a socket is to be reported.
type Interest struct {
	Events Events // Readable, Writable; Closed always is
	Edge   bool   // report changes, not states
	Data   any    // given back with each event
}

// interest is a socket of a Poller on one loop.
type interest struct {
	Interest
	p       *Poller
	i       int // loop
	source  source
	pending Events // what happened since it was reported
	queued  bool
	removed bool
	next    *interest
}

// NewPoller returns a Poller without sockets.
func (s *Stack) NewPoller() *Poller {
	return &Poller{s: s, shards: make([]pollShard, len(s.group.Hosts)), woken: make(chan struct{}, 1)}
}

// source is a socket, or its part on one loop.
type source interface {
	// readyEvents returns what it is ready for. The loop calls it.
	readyEvents() Events
}

// Pollable is a socket of this package: *TCPConn, *Listener or *UDPConn.
type Pollable interface {
	// poll gives every loop that the socket lies on an interest, nil takes it away.
	poll(p *Poller, want *Interest) error
}

// Add has p report a socket of its Stack. What is possible already is reported too. A socket has one
// Poller at a time.
func (p *Poller) Add(c Pollable, want Interest) error { return c.poll(p, &want) }

// Mod changes what is reported of a socket.
func (p *Poller) Mod(c Pollable, want Interest) error { return c.poll(p, &want) }

// Del has p forget a socket; closing it does too. An event that Wait has taken already may still be seen.
func (p *Poller) Del(c Pollable) error { return c.poll(p, nil) }

// newInterest makes an interest for a loop, whose holder calls it, and marks it to be looked at.
func (p *Poller) newInterest(h *host.Host, want *Interest, src source) *interest {
	x := &interest{Interest: *want, p: p, i: h.Index(), source: src}
	x.mark(src.readyEvents())
	return x
}

// mark notes that something happened. The loop calls it.
func (x *interest) mark(ev Events) {
	ev &= x.Events | Closed
	if ev == 0 || x.removed {
		return
	}
	x.pending |= ev
	if !x.queued {
		x.p.shards[x.i].push(x)
	}
	x.p.notify(x.i)
}

// ready implements watcher.
func (x *interest) ready(_ *TCPConn, ev Events) { x.mark(ev) }

// detached implements watcher: it is dropped when its turn comes.
func (x *interest) detached(*TCPConn) { x.removed = true }

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

// notify says that loop i has something, and ends the sleep of Wait.
func (p *Poller) notify(i int) {
	p.ready.Or(1 << i)
	if p.sleeping.Load() && p.sleeping.CompareAndSwap(true, false) {
		p.woken <- struct{}{}
	}
}

// Wait fills events with sockets that are ready, and returns how many. Without any it waits: until the
// timeout has passed, for ever if that is negative, not at all if it is 0. After Close it returns
// net.ErrClosed. Calls of several goroutines follow one another.
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
			timeout = 0 // one more look
		}
	}
}

// collect looks at the loops that may have something.
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

// report reports sockets of one loop. Level-triggered ones that were ready are looked at again next time.
func (p *Poller) report(i int, events []Event) (n int) {
	s := &p.shards[i]
	for left := s.n; left > 0 && n < len(events); left-- {
		x := s.pop()
		if x.removed {
			continue
		}
		ev := x.pending
		x.pending = 0
		if !x.Edge {
			if ev = x.source.readyEvents() & (x.Events | Closed); ev != 0 {
				s.push(x)
			}
		}
		if ev != 0 {
			events[n] = Event{ev, x.Data}
			n++
		}
	}
	if s.n == 0 {
		p.ready.And(^(uint64(1) << i))
	}
	return n
}

// sleep waits for a ring; false is that the time is over.
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

// cancelSleep takes back that Wait sleeps; a ring that came first is taken too.
func (p *Poller) cancelSleep() {
	if !p.sleeping.CompareAndSwap(true, false) {
		<-p.woken
	}
}

// Close ends Wait, now and later. Sockets stay open.
func (p *Poller) Close() error {
	if p.done.Swap(true) {
		return net.ErrClosed
	}
	if p.sleeping.CompareAndSwap(true, false) {
		p.woken <- struct{}{}
	}
	return nil
}

// poll implements Pollable.
func (c *TCPConn) poll(p *Poller, want *Interest) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("poll", net.ErrClosed)
	}
	if want == nil {
		c.setWatch(nil)
	} else {
		c.setWatch(p.newInterest(c.h, want, c))
	}
	return nil
}

// readyEvents returns what a connection is ready for.
func (c *TCPConn) readyEvents() (ev Events) {
	if c.c == nil {
		return Closed
	}
	if c.c.Readable() > 0 || c.c.Finished() || c.flags&readClosed != 0 {
		ev |= Readable
	}
	if c.c.Writable() > 0 {
		ev |= Writable
	}
	if c.c.State() == tcp.StateClosed {
		ev |= Closed
	}
	return ev
}

// poll implements Pollable.
func (l *Listener) poll(p *Poller, want *Interest) error {
	for i, h := range l.fan.hosts {
		if err := l.shards[i].poll(h, p, want); err != nil {
			return l.wrapError("poll", err)
		}
	}
	return nil
}

func (e *listenerShard) poll(h *host.Host, p *Poller, want *Interest) error {
	h.Enter()
	defer h.Exit()
	if e.t == nil {
		return net.ErrClosed
	}
	if e.watch != nil {
		e.watch.removed = true
		e.watch = nil
	}
	if want != nil {
		e.watch = p.newInterest(h, want, e)
	}
	return nil
}

// readyEvents returns Readable where a connection waits on the loop: one is taken aside, so that Accept is
// certain to find it.
func (e *listenerShard) readyEvents() Events {
	if e.pending == nil {
		e.pending = e.next(e.l.fan.hosts[e.i])
	}
	if e.pending != nil {
		return Readable
	}
	return 0
}

// poll implements Pollable.
func (c *UDPConn) poll(p *Poller, want *Interest) error {
	return c.each("poll", func(e *udpShard) error {
		if e.watch != nil {
			e.watch.removed = true
			e.watch = nil
		}
		if want != nil {
			e.watch = p.newInterest(e.h, want, e)
		}
		return nil
	})
}

// readyEvents implements source. A datagram can always be written, or waits for the device a moment.
func (e *udpShard) readyEvents() Events {
	switch {
	case e.u == nil:
		return Closed
	case e.u.Readable():
		return Readable | Writable
	}
	return Writable
}
