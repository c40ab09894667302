package socket

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/tcp"
)

// StartDial begins to connect and does not wait for the handshake, as connect(2) of a non-blocking socket that
// returns EINPROGRESS. A numeric address is needed; Timeout of d has no effect. When the handshake ends the
// connection is Writable for a Poller, and FinishConnect or SocketError has the result. Before that reads and
// writes block, or return EAGAIN where they must not.
func (s *Stack) StartDial(d *Dialer, remote netip.AddrPort) (*TCPConn, error) {
	c, err := s.startDial(d, remote)
	if err != nil {
		return nil, opError("dial", "tcp", d.sourceAddr("tcp"), net.TCPAddrFromAddrPort(remote), connectError(err))
	}
	return c, nil
}

func (s *Stack) startDial(d *Dialer, remote netip.AddrPort) (*TCPConn, error) {
	t, err := s.tuple(d, remote)
	if err != nil {
		return nil, err
	}
	o := s.dialOptions(d)
	if err := s.takeBound(d); err != nil {
		return nil, err
	}
	c := &TCPConn{flags: connecting | d.dataInSYN()}
	if err := s.connect(c, nil, d, t, o); err != nil {
		d.dropBound(nil)
		return nil, err
	}
	return c, nil
}

// FinishConnect returns how the handshake of StartDial ended, as a second connect(2) does: EALREADY while it has
// not, nil once it has succeeded and EISCONN from then on, or why it failed, which SocketError then no longer
// has.
func (c *TCPConn) FinishConnect() error {
	c.h.Enter()
	defer c.h.Exit()
	return c.wrapError("connect", c.finishConnect())
}

func (c *TCPConn) finishConnect() error {
	if c.c == nil {
		return net.ErrClosed
	}
	if c.c.State() == tcp.StateClosed {
		return c.endError(syscall.ECONNABORTED)
	}
	switch {
	case c.flags&connecting != 0:
		return syscall.EALREADY
	case c.flags&connectTaken != 0:
		return syscall.EISCONN
	}
	c.flags |= connectTaken
	return nil
}

// SocketError returns why the connection failed and forgets it (SO_ERROR): nil while it has not, after an
// orderly end, and if a read, a write or SocketError has returned the error before. Pollers report Failed while
// there is one.
func (c *TCPConn) SocketError() error {
	c.h.Enter()
	defer c.h.Exit()
	return LoopConn{c}.SocketError()
}

// SocketError is TCPConn.SocketError for callbacks.
func (in LoopConn) SocketError() error {
	if in.c.c == nil {
		return in.c.wrapError("getsockopt", net.ErrClosed)
	}
	return in.c.wrapError("getsockopt", in.c.takeError())
}

// pendingError returns the error that ended the connection if it was not reported yet.
func (c *TCPConn) pendingError() error {
	if c.flags&errorTaken != 0 {
		return nil
	}
	err := c.c.Err()
	if err == tcp.ErrReset && c.c.ReceivedFIN() {
		return syscall.EPIPE // its FIN ended what it sends, and the reset says that it takes no more
	}
	return err
}

// takeError returns pendingError, once: later reads return io.EOF and later writes EPIPE.
func (c *TCPConn) takeError() error {
	err := c.pendingError()
	if err != nil {
		c.flags |= errorTaken
	}
	return err
}
