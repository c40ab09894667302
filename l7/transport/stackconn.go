package transport

import (
	"io"
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// stackConn is a connection of a StackLoop. It takes 80 bytes of the heap, beside what package tcp has for it.
type stackConn struct {
	loop    *StackLoop
	t       *tcp.Conn // nil once closed
	handler Handler
	tuple   wire.Tuple
	slot    uint32
	errno   uint8 // why it failed, a syscall.Errno; 0 while it has not
	flags   connFlags
}

// Ready implements tcp.Owner.
func (c *stackConn) Ready(e tcp.Events) {
	ev := c.events(e)
	c.loop.worked = true
	if ev != 0 && c.t != nil && c.handler != nil {
		c.handler.Ready(c, ev)
	}
}

// events translates the events of package tcp, where Closed comes with all others.
func (c *stackConn) events(e tcp.Events) (ev Events) {
	if e&tcp.Closed != 0 {
		was := c.flags
		c.flags &^= connecting
		if was&connecting != 0 && c.Err() == nil {
			c.errno = uint8(syscall.ECONNABORTED) // there is nothing else to report
		}
		if err := c.Err(); err != nil && was&failed == 0 {
			c.flags |= failed
			ev = Failed
		}
		if was&connecting == 0 {
			ev |= Readable
		}
		return ev
	}
	if e&tcp.Readable != 0 {
		ev |= Readable
	}
	if e&tcp.Writable != 0 && c.flags&wantWrite != 0 || e&tcp.Connected != 0 && c.flags&connecting != 0 {
		c.flags &^= connecting | wantWrite
		ev |= Writable
	}
	return ev
}

// Err implements Conn.
func (c *stackConn) Err() error {
	if c.errno == 0 && c.t != nil && c.t.State() == tcp.StateClosed {
		c.errno = uint8(c.reason())
	}
	if c.errno == 0 {
		return nil
	}
	return syscall.Errno(c.errno)
}

// reason returns why package tcp has closed the connection: 0 if it ended in order.
func (c *stackConn) reason() syscall.Errno {
	err := c.t.Err()
	if err == tcp.ErrReset && c.t.ReceivedFIN() {
		return syscall.EPIPE // its FIN ended what it sends, and the reset says that it takes no more, as on Linux
	}
	n, _ := socket.Errno(err)
	return n
}

// Read implements Conn.
func (c *stackConn) Read(p []byte) (int, error) {
	if c.t == nil {
		return 0, ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	n := c.t.Read(c.loop.h.Now(), p)
	if n == 0 {
		return 0, c.readError()
	}
	if n < len(p) && (c.t.Finished() || c.t.Readable() > 0) {
		c.t.SetOwner(c) // which reports once more the end or, behind urgent data, bytes that have been reported with these
	}
	return n, nil
}

// readError returns why there is nothing to read.
func (c *stackConn) readError() error {
	if !c.t.Finished() {
		return ErrAgain
	}
	if err := c.Err(); err != nil && !c.t.ReceivedFIN() {
		return err
	}
	return io.EOF
}

// Write implements Conn.
func (c *stackConn) Write(p []byte) (int, error) {
	if c.t == nil {
		return 0, ErrClosed
	}
	n := c.t.Write(c.loop.h.Now(), p)
	if n < len(p) {
		c.flags |= wantWrite
	}
	if n == 0 && len(p) > 0 {
		return 0, c.writeError()
	}
	return n, nil
}

// writeError returns why nothing could be written.
func (c *stackConn) writeError() error {
	if err := c.Err(); err != nil {
		return err
	}
	if c.flags&outputEnd != 0 || c.t.State() == tcp.StateClosed || c.t.State() == tcp.StateTimeWait {
		return syscall.EPIPE
	}
	return ErrAgain
}

// CloseWrite implements Conn.
func (c *stackConn) CloseWrite() error {
	if c.t == nil {
		return ErrClosed
	}
	if c.Err() != nil || c.flags&connecting != 0 {
		return syscall.ENOTCONN
	}
	c.flags |= outputEnd
	c.t.CloseWrite(c.loop.h.Now())
	return nil
}

// Close implements Conn.
func (c *stackConn) Close() {
	if t := c.detach(); t != nil {
		t.Close(c.loop.h.Now())
	}
}

// Abort implements Conn.
func (c *stackConn) Abort() {
	if t := c.detach(); t != nil {
		t.Abort(c.loop.h.Now())
	}
}

// detach takes the connection of package tcp out of c; nil if it has none. The caller closes it.
func (c *stackConn) detach() *tcp.Conn {
	t := c.t
	if t != nil {
		_ = c.Err() // which notes it
		c.t, c.handler = nil, nil
		c.loop.conns.remove(c.slot)
	}
	return t
}

// Linger implements Conn.
func (c *stackConn) Linger() {
	if c.t != nil {
		c.loop.lingering.add(c.loop.h.Now(), c)
	}
}

// SetHandler implements Conn.
func (c *stackConn) SetHandler(h Handler) { c.handler = h }

// Local implements Conn.
func (c *stackConn) Local() netip.AddrPort {
	return netip.AddrPortFrom(c.tuple.Local.Netip(), c.tuple.LocalPort)
}

// Remote implements Conn.
func (c *stackConn) Remote() netip.AddrPort {
	return netip.AddrPortFrom(c.tuple.Remote.Netip(), c.tuple.RemotePort)
}
