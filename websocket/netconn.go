package websocket

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// NetConn returns a net.Conn whose bytes are the contents of messages of one type, one message for each
// Write. Message borders have no meaning for Read. io.EOF is a normal end: a Close frame with
// CloseNormal, CloseGoingAway or no code. A message of the other type fails the connection with
// CloseUnsupportedData.
//
// When ctx is done, the connection is closed at once, by CloseNow. Close makes the closing handshake.
func NetConn(ctx context.Context, c *Conn, op Opcode) net.Conn {
	n := &netConn{c: c, op: op}
	n.stop = context.AfterFunc(ctx, func() { _ = c.CloseNow() })
	return n
}

// netConn presents a Conn as a net.Conn.
type netConn struct {
	c      *Conn
	op     Opcode
	stop   func() bool
	closed atomic.Bool
}

func (n *netConn) Read(p []byte) (int, error) {
	c := n.c
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if n.closed.Load() {
		return 0, net.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if !c.inside {
			if err := n.next(); err != nil {
				return 0, err
			}
		}
		k, err := c.readPart(p)
		if k > 0 || err != nil {
			return k, n.ended(err)
		}
	}
}

// next waits for the next message and checks its type.
func (n *netConn) next() error {
	op, err := n.c.nextMessage()
	if err != nil {
		return n.ended(err)
	}
	if op != n.op {
		return n.c.fail(&ProtocolError{Code: CloseUnsupportedData, Text: "message of type " + op.String() + ", want " + n.op.String()})
	}
	return nil
}

// ended returns io.EOF for a normal end of the connection.
func (n *netConn) ended(err error) error {
	var closed *CloseError
	if errors.As(err, &closed) && (closed.Code == CloseNormal || closed.Code == CloseGoingAway || closed.Code == CloseNoStatus) {
		return io.EOF
	}
	return err
}

func (n *netConn) Write(p []byte) (int, error) {
	if n.closed.Load() {
		return 0, net.ErrClosed
	}
	taken, err := n.c.writeMessage(n.op, p)
	if errors.Is(err, ErrCloseSent) {
		err = net.ErrClosed // after the peer's Close frame
	}
	if taken {
		return len(p), err
	}
	return 0, err
}

func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return net.ErrClosed
	}
	n.stop()
	return n.c.Close(CloseNormal, "")
}

// LocalAddr returns the address of the stream, or one named "websocket" if it has none.
func (n *netConn) LocalAddr() net.Addr {
	if a, ok := n.c.stream.(interface{ LocalAddr() net.Addr }); ok {
		return a.LocalAddr()
	}
	return addr{}
}

// RemoteAddr returns the address of the stream's peer, or one named "websocket" if it has none.
func (n *netConn) RemoteAddr() net.Addr {
	if a, ok := n.c.stream.(interface{ RemoteAddr() net.Addr }); ok {
		return a.RemoteAddr()
	}
	return addr{}
}

func (n *netConn) SetDeadline(t time.Time) error {
	return errors.Join(n.SetReadDeadline(t), n.SetWriteDeadline(t))
}

func (n *netConn) SetReadDeadline(t time.Time) error  { return n.c.SetReadDeadline(t) }
func (n *netConn) SetWriteDeadline(t time.Time) error { return n.c.SetWriteDeadline(t) }

// addr is the address of a stream that has none.
type addr struct{}

func (addr) Network() string { return "websocket" }
func (addr) String() string  { return "websocket" }
