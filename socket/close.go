package socket

import (
	"net"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
)

// Close implements net.Conn. Written data is still sent, unless SetLinger said otherwise. Unread data makes
// it a reset (RFC 2525 2.17). Blocked calls return net.ErrClosed.
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
	// SO_LINGER of socket(7): 0 s resets at once, more waits for the acknowledgment of all data.
	case c.flags&lingerSet != 0 && c.extra.linger == 0:
		t.Abort(now)
	case c.flags&lingerSet != 0 && t.Unacked() > 0:
		c.linger(now, t, time.Duration(c.extra.linger)*time.Second)
	default:
		t.Close(now)
	}
	return nil
}

// detach separates c from its tcp.Conn, which the caller closes or aborts.
func (c *TCPConn) detach() {
	c.c = nil
	c.rq.wakeAll(net.ErrClosed)
	c.wq.wakeAll(net.ErrClosed)
	if x := c.extra; x != nil {
		x.callback = nil
		x.pollers.clear()
		if b := c.leaveBound(); b != nil {
			b.end(c.h)
		}
		if k := x.connecting; k != nil { // the stack is closed
			x.connecting = nil
			k.end(LoopConn{}, net.ErrClosed)
		}
	}
}

// linger closes t, and resets it when d has passed and the peer has not acknowledged all data.
func (c *TCPConn) linger(now clock.Time, t *tcp.Conn, d time.Duration) {
	h := c.h
	t.SetOwner(nil)
	// Received data is discarded, so that it cannot close the window before the FIN of the peer.
	t.CloseRead(now)
	t.CloseWrite(now)
	// Close does not block: the loop sends what is left, and the timer ends it.
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

// CloseWrite sends a FIN after the written data. Reads still work.
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
		c.flags |= writeClosed // further writes fail with EPIPE, as after shutdown(2)
		c.wq.wakeAll(syscall.EPIPE)
		c.c.CloseWrite(now)
	}
	return nil
}

// CloseRead makes reads return io.EOF from now on. Data that still arrives is discarded.
func (c *TCPConn) CloseRead() error {
	now := c.h.Enter()
	defer c.h.Exit()
	return c.closeRead(now)
}

func (c *TCPConn) closeRead(now clock.Time) error {
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

// Abort resets the connection and discards data that was not sent.
func (c *TCPConn) Abort() error {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.Abort()
}

func (c *TCPConn) abort(now clock.Time) {
	if t := c.c; t != nil {
		c.detach()
		t.Abort(now)
	}
}
