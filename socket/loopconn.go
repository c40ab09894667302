package socket

import (
	"errors"
	"net"

	"github.com/millrace/millrace/udp"
)

// LoopConn is a connection for callbacks, which run on its loop. No method blocks: 0 bytes without an error
// means that nothing is possible now, and that an event will follow. It is valid until the callback returns.
type LoopConn struct{ c *TCPConn }

// Conn returns the connection, for goroutines outside the loop.
func (in LoopConn) Conn() *TCPConn { return in.c }

// Read copies received data to b. After the last byte it returns io.EOF, or why the connection failed.
func (in LoopConn) Read(b []byte) (int, error) {
	n, err := in.c.read(in.c.h.Now(), b)
	return n, in.c.wrapError("read", err)
}

// Write copies what the send buffer has room for.
func (in LoopConn) Write(b []byte) (int, error) {
	n, err := in.c.write(in.c.h.Now(), b)
	return n, in.c.wrapError("write", err)
}

// Peek returns the received data as two slices of the receive buffer, in order. They are valid until the
// callback returns or calls Discard.
func (in LoopConn) Peek() [2][]byte {
	if in.c.c == nil {
		return [2][]byte{}
	}
	return in.c.c.Peek()
}

// Discard drops the first n bytes of the received data.
func (in LoopConn) Discard(n int) {
	if in.c.c != nil {
		in.c.c.Discard(in.c.h.Now(), n)
	}
}

// Reserve returns free room of the send buffer for at most n bytes, in two pieces to be filled in order, for instance by readv(2)
// from another socket: what Write would copy arrives in place. Both pieces are empty if there is no room, and Writable will
// follow. Commit takes the number of bytes that were filled. Between the two nothing else may be called for connections of the loop.
//
// A large n costs nothing where little is committed: that is copied to a smaller buffer.
func (in LoopConn) Reserve(n int) (room [2][]byte, err error) {
	c := in.c
	if err := c.writeError(c.h.Now()); err != nil {
		return room, c.wrapError("write", err)
	}
	if c.flags&connecting != 0 {
		return room, nil
	}
	return c.c.Reserve(n), nil
}

// Commit writes the first n bytes of what Reserve returned, and releases the rest; 0 releases all. It fails if the
// connection was closed, or written to, after Reserve.
func (in LoopConn) Commit(n int) error {
	c := in.c
	if err := c.writeError(c.h.Now()); err != nil {
		if c.c != nil {
			c.c.Commit(c.h.Now(), 0)
		}
		return c.wrapError("write", err)
	}
	if !c.c.Commit(c.h.Now(), n) {
		return c.wrapError("write", errNotReserved)
	}
	return nil
}

var errNotReserved = errors.New("no room is reserved")

// WriteZeroCopy queues b itself. b must not change until the loop calls done: when the peer has acknowledged
// all of it or the connection has ended. False means that there is no room, and done is not called.
func (in LoopConn) WriteZeroCopy(b []byte, done func()) (bool, error) {
	now := in.c.h.Now()
	if err := in.c.writeError(now); err != nil {
		return false, in.c.wrapError("write", err)
	}
	return in.c.c.WriteZeroCopy(now, b, done), nil
}

// CloseWrite sends a FIN after the written data.
func (in LoopConn) CloseWrite() error { return in.c.closeWrite(in.c.h.Now()) }

// CloseRead makes reads return io.EOF from now on, and discards data that still arrives.
func (in LoopConn) CloseRead() error { return in.c.closeRead(in.c.h.Now()) }

// Close closes the connection as TCPConn.Close does.
func (in LoopConn) Close() error { return in.c.close(in.c.h.Now()) }

// Abort resets the connection and discards data that was not sent.
func (in LoopConn) Abort() error {
	if in.c.c == nil {
		return in.c.wrapError("close", net.ErrClosed)
	}
	in.c.abort(in.c.h.Now())
	return nil
}

// Ready returns all that the connection is ready for now, as poll(2) does: PeerClosed after the peer's FIN, with the data
// before it still to be read; Failed with Closed after a reset or a time-out, which SocketError returns; Closed alone
// after Close.
func (in LoopConn) Ready() Events { return in.c.readyEvents() }

// OnReady makes the loop call f with the events of the connection: at the end of each burst that has some,
// and once for what is possible already. With Readable come PeerClosed and Failed as long as they hold: the peer's FIN
// is PeerClosed, a reset or time-out Failed. Nil removes f. The last call is that with Closed; after Close there is none.
func (c *TCPConn) OnReady(f func(in LoopConn, ev Events)) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.wrapError("set", net.ErrClosed)
	}
	LoopConn{c}.OnReady(f)
	return nil
}

// OnReady is TCPConn.OnReady for callbacks.
func (in LoopConn) OnReady(f func(in LoopConn, ev Events)) {
	c := in.c
	if c.c == nil || f == nil && c.extra == nil {
		return
	}
	c.extras().callback = f
	if f != nil {
		c.c.SetOwner(c) // at the end of this burst, Ready reports what is possible already
	}
}

// Do calls f on the calling goroutine, which holds the loop for that time: several operations for the price
// of one entry.
func (c *TCPConn) Do(f func(in LoopConn)) {
	c.h.Enter()
	defer c.h.Exit()
	f(LoopConn{c})
}

// LoopUDPConn is the shard of a UDPConn on one loop, for callbacks of that loop. No method blocks.
type LoopUDPConn struct{ e *udpShard }

// Conn returns the socket, for goroutines outside the loop.
func (in LoopUDPConn) Conn() *UDPConn { return in.e.c }

// Read fills msgs with datagrams that arrived on this loop.
func (in LoopUDPConn) Read(msgs []Message) (int, error) {
	n, err := in.e.read(msgs)
	return n, in.e.c.wrapError("read", nil, err)
}

// Write sends msgs. Messages that it does not count without an error found no room; Writable will follow.
func (in LoopUDPConn) Write(msgs []Message) (int, error) {
	n, err := in.e.write(msgs)
	return n, in.e.c.wrapError("write", nil, err)
}

// Lost returns the number of datagrams that were not queued on this loop for want of space.
func (in LoopUDPConn) Lost() uint64 {
	if in.e.u == nil {
		return 0
	}
	return in.e.u.Stats().Lost
}

// SocketError takes what ICMP has said of a datagram of this loop, as SO_ERROR does; nil is nothing. Readable was reported.
func (in LoopUDPConn) SocketError() error {
	if in.e.u == nil {
		return nil
	}
	return in.e.c.wrapError("getsockopt", nil, in.e.u.TakeErr())
}

// Lease is a received datagram in the memory of the loop, valid until Release.
type Lease = udp.Lease

// Lease returns the next datagram without copying it. False means that there is none.
func (in LoopUDPConn) Lease() (Lease, bool) {
	if in.e.u == nil {
		return Lease{}, false
	}
	return in.e.u.Lease(in.e.h.Now())
}

// OnReady makes each loop call f with its events, in place of blocked goroutines. A Poller reports what f
// has left. Nil removes f.
func (c *UDPConn) OnReady(f func(in LoopUDPConn, ev Events)) error {
	return c.each("set", func(e *udpShard) error {
		e.onReady = f
		e.u.SetOwner(e)
		return nil
	})
}
