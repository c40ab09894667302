package socket

import (
	"net"

	"github.com/millrace/millrace/udp"
)

// LoopConn is a connection as what runs on its loop sees it. No method blocks: 0 bytes and no error is
// nothing now, and an event will come. It must not be used after the function that it was given to.
type LoopConn struct{ c *TCPConn }

// Conn returns the connection, for those that do not run on the loop.
func (in LoopConn) Conn() *TCPConn { return in.c }

// Read copies what has arrived to b; the end is io.EOF, or why the connection failed.
func (in LoopConn) Read(b []byte) (int, error) {
	n, err := in.c.read(in.c.h.Now(), b)
	return n, in.c.wrapError("read", err)
}

// Write copies of b what there is room for.
func (in LoopConn) Write(b []byte) (int, error) {
	n, err := in.c.write(in.c.h.Now(), b)
	return n, in.c.wrapError("write", err)
}

// Peek lends what has arrived, in two pieces in order, until the function returns or Discard is called.
func (in LoopConn) Peek() [2][]byte {
	if in.c.c == nil {
		return [2][]byte{}
	}
	return in.c.c.Peek()
}

// Discard drops the next n bytes, which Peek has lent.
func (in LoopConn) Discard(n int) {
	if in.c.c != nil {
		in.c.c.Discard(in.c.h.Now(), n)
	}
}

// WriteZeroCopy gives b itself, which must stay as it is until done is called, by the loop: when the peer has
// all of it or the connection has ended. False is that there is no room now; then done is not called.
func (in LoopConn) WriteZeroCopy(b []byte, done func()) (bool, error) {
	now := in.c.h.Now()
	if err := in.c.writeError(now); err != nil {
		return false, in.c.wrapError("write", err)
	}
	return in.c.c.WriteZeroCopy(now, b, done), nil
}

// CloseWrite sends a FIN behind what was written.
func (in LoopConn) CloseWrite() error { return in.c.closeWrite(in.c.h.Now()) }

// Close closes the connection as TCPConn.Close does.
func (in LoopConn) Close() error { return in.c.close(in.c.h.Now()) }

// callback is a watcher that is a function.
type callback func(in LoopConn, ev Events)

func (f callback) ready(c *TCPConn, ev Events) { f(LoopConn{c}, ev) }

func (f callback) detached(c *TCPConn) {}

// OnReady has f called by the loop when something becomes possible, once at the end of a burst, and once
// soon for what is possible already. Nil ends it. It takes the place of a Poller. After Closed, and Close
// by the program, f is called no more.
func (c *TCPConn) OnReady(f func(in LoopConn, ev Events)) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("set", net.ErrClosed)
	}
	LoopConn{c}.OnReady(f)
	return nil
}

// OnReady is TCPConn.OnReady, for what runs on the loop.
func (in LoopConn) OnReady(f func(in LoopConn, ev Events)) {
	c := in.c
	if f == nil || c.c == nil {
		c.setWatch(nil)
		return
	}
	c.setWatch(callback(f))
	c.c.SetOwner(c) // tells what is possible already
}

// setWatch names who hears of events, beside goroutines that wait.
func (c *TCPConn) setWatch(w watcher) {
	if c.extra == nil && w == nil {
		return
	}
	x := c.extras()
	if old := x.watch; old != nil {
		x.watch = nil
		old.detached(c)
	}
	x.watch = w
}

// Do runs f as the loop would, on the calling goroutine: several operations for one Enter.
func (c *TCPConn) Do(f func(in LoopConn)) {
	c.h.Enter()
	defer c.h.Exit()
	f(LoopConn{c})
}

// LoopUDPConn is the part of a UDPConn on one loop, as what runs on that loop sees it. No method blocks.
type LoopUDPConn struct{ e *udpShard }

// Conn returns the socket, for those that do not run on the loop.
func (in LoopUDPConn) Conn() *UDPConn { return in.e.c }

// Read fills messages with what waits on this loop.
func (in LoopUDPConn) Read(msgs []Message) (int, error) {
	n, err := in.e.read(msgs)
	return n, in.e.c.wrapError("read", nil, err)
}

// Write sends messages; without an error, what it does not count had no room, and Writable will come.
func (in LoopUDPConn) Write(msgs []Message) (int, error) {
	n, err := in.e.write(msgs)
	return n, in.e.c.wrapError("write", nil, err)
}

// Lease is a received datagram in the memory of the loop, until Release.
type Lease = udp.Lease

// Lease takes the next datagram without copying; false is that none waits.
func (in LoopUDPConn) Lease() (Lease, bool) {
	if in.e.u == nil {
		return Lease{}, false
	}
	return in.e.u.Lease(in.e.h.Now())
}

// OnReady has f called by each loop when something is possible there, in place of goroutines that wait
// and of a Poller. Nil ends it.
func (c *UDPConn) OnReady(f func(in LoopUDPConn, ev Events)) error {
	return c.each("set", func(e *udpShard) error {
		e.onReady = f
		e.u.SetOwner(e)
		return nil
	})
}
