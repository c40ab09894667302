package socket

import (
	"net"

	"github.com/millrace/millrace/tcp"
)

// Pollable is a socket of this package: *TCPConn, *Listener or *UDPConn.
type Pollable interface {
	// poll changes the interest that p has in each shard of the socket.
	poll(p *Poller, cmd pollCommand, want *Interest) error
}

// poll implements Pollable.
func (c *TCPConn) poll(p *Poller, cmd pollCommand, want *Interest) error {
	ch, err := newPollChange(p, c.h.Group(), cmd, want)
	if err != nil {
		return c.wrapError("poll", err)
	}
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("poll", net.ErrClosed)
	}
	return c.wrapError("poll", c.extras().pollers.apply(c.h, &ch, c))
}

// readyEvents implements source, as tcp_poll of Linux does.
func (c *TCPConn) readyEvents() (ev Events) {
	t := c.c
	if t == nil {
		return Closed
	}
	if c.pendingError() != nil || t.Stamps() > 0 {
		ev |= Failed
	}
	ended := t.State() == tcp.StateClosed
	peerClosed := ended || c.flags&readClosed != 0 || t.PeerClosed()
	if ended || peerClosed && c.flags&writeClosed != 0 {
		ev |= Closed
	}
	if peerClosed {
		ev |= Readable | PeerClosed
	}
	if c.flags&connecting != 0 && !ended {
		return ev
	}
	if t.Readable() > 0 {
		ev |= Readable
	}
	if ended || c.flags&writeClosed != 0 || t.WriteReady() {
		ev |= Writable
	}
	if t.UrgentReady() {
		ev |= Priority
	}
	return ev
}

// poll implements Pollable.
func (l *Listener) poll(p *Poller, cmd pollCommand, want *Interest) error {
	ch, err := newPollChange(p, l.s.group, cmd, want)
	if err != nil {
		return l.wrapError("poll", err)
	}
	return l.each("poll", func(e *listenerShard) error { return e.pollers.apply(l.fan.hosts[e.i], &ch, e) })
}

// readyEvents implements source. It moves a connection from the accept queue to pending, because one in the
// queue may still be rejected (only6): Accept must not block after Readable.
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
func (c *UDPConn) poll(p *Poller, cmd pollCommand, want *Interest) error {
	ch, err := newPollChange(p, c.shards[0].h.Group(), cmd, want)
	if err != nil {
		return c.wrapError("poll", nil, err)
	}
	return c.each("poll", func(e *udpShard) error { return e.pollers.apply(e.h, &ch, e) })
}

// readyEvents implements source. A datagram can always be written, or blocks shortly for the device.
func (e *udpShard) readyEvents() Events {
	if e.u == nil {
		return Closed
	}
	ev := Writable
	if e.u.Readable() {
		ev |= Readable
	}
	if e.u.Failed() {
		ev |= Failed
	}
	return ev
}
