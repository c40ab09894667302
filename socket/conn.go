package socket

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// TCPConn is a TCP connection and implements net.Conn. Its methods may be called by several goroutines at
// once: concurrent reads complete in the order of their calls, and so do concurrent writes.
type TCPConn struct {
	h     *host.Host
	c     *tcp.Conn // nil after Close. The loop guards it and the fields below
	rq    waitQueue
	wq    waitQueue
	extra *extra // nil for most
	tuple wire.Tuple
	flags connFlags
}

// extra has the fields that few connections need, so that an idle TCPConn stays small.
type extra struct {
	read, write clock.Time                   // deadlines; 0 is none
	callback    func(in LoopConn, ev Events) // also receives events; nil for none
	connecting  *Connecting                  // gets the end of the handshake instead; nil for most
	pollers     watchList
	process     *Process      // see SetProcess
	bound       *Bound        // whose address and port it has; nil for most
	idle        time.Duration // of keepalive, while it is off
	linger      int           // in seconds; valid if flags has lingerSet
}

// extras returns c.extra and allocates it first if needed.
func (c *TCPConn) extras() *extra {
	if c.extra == nil {
		c.extra = new(extra)
	}
	return c.extra
}

// readDeadline returns the deadline of reads, 0 for none.
func (c *TCPConn) readDeadline() clock.Time {
	if c.extra == nil {
		return 0
	}
	return c.extra.read
}

// writeDeadline returns the deadline of writes, 0 for none.
func (c *TCPConn) writeDeadline() clock.Time {
	if c.extra == nil {
		return 0
	}
	return c.extra.write
}

// connFlags is the part of a connection's state that package tcp does not have.
type connFlags uint8

const (
	connecting connFlags = 1 << iota
	readClosed
	writeClosed
	lingerSet
	dialing      // DialWith waits for the end of the handshake
	errorTaken   // the error that ended the connection was reported
	connectTaken // FinishConnect has reported success
	dataInSYN    // the dial returns before the SYN leaves, if the SYN can carry the first Write
)

// Ready implements tcp.Owner. It completes the calls of blocked goroutines, on the loop.
func (c *TCPConn) Ready(ev tcp.Events) {
	if c.c == nil {
		return
	}
	if c.flags&dialing != 0 {
		c.handshakeDone(ev)
		return
	}
	if ev&(tcp.Connected|tcp.Closed) != 0 {
		c.flags &^= connecting
		if x := c.extra; x != nil && x.connecting != nil {
			x.connecting.finish()
			return
		}
	}
	now := c.h.Now()
	if ev&(tcp.Readable|tcp.Closed) != 0 {
		c.completeReads(now)
	}
	if ev&(tcp.Writable|tcp.Closed) != 0 {
		c.completeWrites(now)
	}
	if x := c.extra; x != nil {
		c.notify(x, readiness(ev))
	}
}

// notify passes events to the callback and the Pollers.
func (c *TCPConn) notify(x *extra, ev Events) {
	if ev == 0 {
		return
	}
	if x.callback != nil {
		x.callback(LoopConn{c}, c.withEnds(ev))
	}
	if ev&Readable != 0 {
		ev |= PeerClosed // report looks at the state
	}
	x.pollers.mark(ev)
}

// withEnds adds to Readable the ends that it may stand for.
func (c *TCPConn) withEnds(ev Events) Events {
	if ev&Readable == 0 {
		return ev
	}
	if c.c.PeerClosed() {
		ev |= PeerClosed
	}
	if c.pendingError() != nil {
		ev |= Failed
	}
	return ev
}

// ReadBuffer implements tcp.DirectReader: what is left of the buffer of the first blocked reader.
func (c *TCPConn) ReadBuffer() []byte {
	if w := c.rq.head; w != nil {
		return w.buf[w.n:]
	}
	return nil
}

// Filled implements tcp.DirectReader. The reader wakes with Ready, at the end of the burst.
func (c *TCPConn) Filled(n int) { c.rq.head.n += n }

// completeReads copies received data to blocked readers and wakes them.
func (c *TCPConn) completeReads(now clock.Time) {
	for c.rq.head != nil {
		w := c.rq.head
		if w.n > 0 { // of which the loop has filled a part: the error, if any, is that of the next call
			if c.c.Readable() > 0 {
				n, _ := c.read(now, w.buf[w.n:])
				w.n += n
			}
			c.rq.wakeFirst(nil)
			continue
		}
		n, err := c.read(now, w.buf)
		if n == 0 && err == nil && len(w.buf) > 0 {
			return
		}
		w.n = n
		c.rq.wakeFirst(err)
	}
}

// completeWrites copies from blocked writers what the send buffer has room for, and wakes those that are
// done.
func (c *TCPConn) completeWrites(now clock.Time) {
	for c.wq.head != nil {
		w := c.wq.head
		n, err := c.writeWith(now, w.buf, w.flags)
		w.n += n
		w.buf = w.buf[n:]
		if len(w.buf) > 0 && err == nil {
			return
		}
		c.wq.wakeFirst(err)
	}
}

// read copies received data without blocking. 0 and no error means that there is none yet.
func (c *TCPConn) read(now clock.Time, b []byte) (int, error) {
	switch {
	case c.c == nil:
		return 0, net.ErrClosed
	case passed(c.readDeadline(), now):
		return 0, os.ErrDeadlineExceeded
	case c.flags&readClosed != 0: // even if data is left
		return 0, io.EOF
	}
	n := c.c.Read(now, b)
	if n == 0 && len(b) > 0 {
		// The error comes after the data that arrived before it.
		if c.c.Finished() {
			return 0, c.endError(io.EOF)
		}
		c.c.ReleaseSYN() // the server speaks first: nothing will be written before
	}
	return n, nil
}

// endError returns why the connection ended, once as Linux does, and then usual. A reader that was at the end
// before that stays there.
func (c *TCPConn) endError(usual error) error {
	if usual == io.EOF && c.c.ReceivedFIN() {
		return usual
	}
	if err := c.takeError(); err != nil {
		return err
	}
	return usual
}

// write copies what the send buffer has room for, without blocking.
func (c *TCPConn) write(now clock.Time, b []byte) (int, error) { return c.writeWith(now, b, 0) }

// writeError returns why nothing can be written any more, or nil.
func (c *TCPConn) writeError(now clock.Time) error {
	switch {
	case c.c == nil:
		return net.ErrClosed
	case passed(c.writeDeadline(), now):
		return os.ErrDeadlineExceeded
	case c.flags&writeClosed != 0:
		return syscall.EPIPE
	}
	if err := c.takeError(); err != nil {
		return err
	}
	if c.c.State() == tcp.StateClosed {
		return syscall.EPIPE
	}
	return nil
}

// Read implements net.Conn: it returns at least one byte, or io.EOF, or a *net.OpError.
func (c *TCPConn) Read(b []byte) (int, error) {
	now := c.h.Enter()
	// Behind blocked readers there is no data to read, and their order must be kept.
	if c.rq.head == nil || len(b) == 0 {
		n, err := c.read(now, b)
		if n > 0 || err != nil || len(b) == 0 {
			// A read that causes no window update leaves without running the output of the loop.
			c.h.ExitReader()
			return n, c.wrapError("read", err)
		}
	}
	w := newWaiter()
	w.buf = b
	c.rq.park(w, c, c.readDeadline())
	c.h.ExitReader()
	w.wait()
	n, err := w.n, w.err
	w.free()
	if n > 0 { // bytes that the loop has put into b count as read, whatever ended the wait
		err = nil
	}
	return n, c.wrapError("read", err)
}

// Write implements net.Conn. It returns when all of b is in the send buffer, which does not mean that the
// peer has received it.
func (c *TCPConn) Write(b []byte) (int, error) {
	now := c.h.Enter()
	n := 0
	if c.wq.head == nil {
		var err error
		n, err = c.write(now, b)
		if n == len(b) || err != nil {
			c.h.Exit()
			return n, c.wrapError("write", err)
		}
	}
	w := newWaiter()
	w.buf, w.n = b[n:], n
	c.wq.park(w, c, c.writeDeadline())
	c.h.Exit()
	w.wait()
	n, err := w.n, w.err
	w.free()
	return n, c.wrapError("write", err)
}

// wrapError wraps an error in a net.OpError. It leaves io.EOF and nil as they are.
func (c *TCPConn) wrapError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return opError(op, "tcp", c.LocalAddr(), c.RemoteAddr(), errnoError(op, err))
}

// expire implements expirer.
func (c *TCPConn) expire(w *waiter) {
	c.h.Enter()
	c.rq.expire(w, c.readDeadline())
	c.wq.expire(w, c.writeDeadline())
	c.h.Exit()
}

// LocalAddr returns a *net.TCPAddr.
func (c *TCPConn) LocalAddr() net.Addr { return tcpAddr(c.tuple.Local, c.tuple.LocalPort) }

// RemoteAddr returns a *net.TCPAddr.
func (c *TCPConn) RemoteAddr() net.Addr { return tcpAddr(c.tuple.Remote, c.tuple.RemotePort) }

func tcpAddr(a wire.Addr, port uint16) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Netip(), port))
}

// SetDeadline implements net.Conn.
func (c *TCPConn) SetDeadline(t time.Time) error { return c.setDeadline(t, true, true) }

// SetReadDeadline implements net.Conn.
func (c *TCPConn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (c *TCPConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, false, true) }

func (c *TCPConn) setDeadline(t time.Time, read, write bool) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("set", net.ErrClosed)
	}
	x, now := c.extras(), stack.Now()
	if read {
		x.read = deadline(now, t)
		c.rq.setDeadline(now, x.read)
	}
	if write {
		x.write = deadline(now, t)
		c.wq.setDeadline(now, x.write)
	}
	return nil
}
