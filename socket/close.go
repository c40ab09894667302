package socket

import (
	"net"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
)

// Close implements net.Conn. What was written is still sent, unless SetLinger said otherwise; data that
// nobody has read makes it a reset. Goroutines that wait return net.ErrClosed.
func (c *TCPConn) Close() error {
	now := c.h.Enter()
	defer c.h.Exit()
	return c.close(now)
}

func (c *TCPConn) close(now clock.Time) error {
	if c.c == nil {
		return c.wrapError("close", net.ErrClosed)
	}
	t := c.c
	c.detach()
	switch {
	case c.flags&lingerSet != 0 && c.extra.linger == 0:
		t.Abort(now)
	case c.flags&lingerSet != 0 && t.Unacked() > 0:
		c.linger(now, t, time.Duration(c.extra.linger)*time.Second)
	default:
		t.Close(now)
	}
	return nil
}

// detach parts from the connection of the Mux, which the caller ends.
func (c *TCPConn) detach() {
	c.c = nil
	c.rq.wakeAll(net.ErrClosed)
	c.wq.wakeAll(net.ErrClosed)
	c.setWatch(nil)
}

// linger gives t some time to bring away what it has, and resets it if that does not suffice.
func (c *TCPConn) linger(now clock.Time, t *tcp.Conn, d time.Duration) {
	h := c.h
	t.SetOwner(nil)
	t.CloseRead(now)
	t.CloseWrite(now)
	time.AfterFunc(d, func() {
		now := h.Enter()
		defer h.Exit()
		if t.Unacked() > 0 {
			t.Abort(now)
		} else {
			t.Close(now)
		}
	})
}

// CloseWrite sends a FIN behind what was written; reading goes on.
func (c *TCPConn) CloseWrite() error {
	now := c.h.Enter()
	defer c.h.Exit()
	return c.closeWrite(now)
}

func (c *TCPConn) closeWrite(now clock.Time) error {
	if c.c == nil {
		return c.wrapError("close", net.ErrClosed)
	}
	if c.flags&writeClosed == 0 {
		c.flags |= writeClosed
		c.wq.wakeAll(syscall.EPIPE)
		c.c.CloseWrite(now)
	}
	return nil
}

// CloseRead has reads return io.EOF, now and later. What comes is thrown away.
func (c *TCPConn) CloseRead() error {
	now := c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("close", net.ErrClosed)
	}
	if c.flags&readClosed == 0 {
		c.flags |= readClosed
		c.c.CloseRead(now)
		c.completeReads(now)
	}
	return nil
}

// Abort closes the connection with a reset, and drops what was written and not sent.
func (c *TCPConn) Abort() error {
	now := c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("close", net.ErrClosed)
	}
	c.abort(now)
	return nil
}

func (c *TCPConn) abort(now clock.Time) {
	if t := c.c; t != nil {
		c.detach()
		t.Abort(now)
	}
}
