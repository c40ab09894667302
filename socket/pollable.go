package socket

import (
	"net"

	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
)

// Pollable is a socket of this package: *TCPConn, *Listener or *UDPConn.
type Pollable interface {
	// poll sets the interest of each shard of the socket; nil removes it.
	poll(p *Poller, want *Interest) error
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

// readyEvents implements source.
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

// readyEvents implements source. A datagram can always be written, or blocks shortly for the device.
func (e *udpShard) readyEvents() Events {
	switch {
	case e.u == nil:
		return Closed
	case e.u.Readable():
		return Readable | Writable
	}
	return Writable
}
