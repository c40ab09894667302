package vhostuser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a connection of one front end and one back end. One goroutine receives, and one sends.
type Conn struct {
	sock *net.UnixConn
	head [headerLen]byte
	oob  [48]byte // of MaxFDs descriptors
	out  []byte
}

// NewConn returns the connection over a stream socket, which it takes.
func NewConn(sock *net.UnixConn) *Conn { return &Conn{sock: sock} }

// Close closes the socket: Recv returns net.ErrClosed. Any goroutine may call it.
func (c *Conn) Close() error { return c.sock.Close() }

// Recv waits for a message. The file descriptors in it are the caller's, and its payload is new. io.EOF is the end between two
// messages.
func (c *Conn) Recv() (*Message, error) {
	n, oobn, flags, _, err := c.sock.ReadMsgUnix(c.head[:], c.oob[:])
	m := &Message{}
	fdErr := m.takeFDs(c.oob[:oobn])
	switch {
	case err != nil:
		return nil, m.drop(err)
	case fdErr != nil:
		return nil, m.drop(fdErr)
	case flags&unix.MSG_CTRUNC != 0:
		return nil, m.drop(fmt.Errorf("%w: a message with more than %d file descriptors", ErrProtocol, MaxFDs))
	case n == 0:
		return nil, m.drop(io.EOF)
	}
	if _, err := io.ReadFull(c.sock, c.head[n:]); err != nil {
		return nil, m.drop(whole(err))
	}
	size, err := m.parseHeader(c.head[:])
	if err != nil {
		return nil, m.drop(err)
	}
	m.Payload = make([]byte, size)
	if _, err := io.ReadFull(c.sock, m.Payload); err != nil {
		return nil, m.drop(whole(err))
	}
	return m, nil
}

// whole turns the end of a stream within a message into an error of the peer.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the connection ends within a message", ErrProtocol)
	}
	return err
}

// takeFDs makes the descriptors of control messages the message's. The kernel has installed them, so those of a message that
// is refused are closed as well.
func (m *Message) takeFDs(oob []byte) error {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %w", ErrProtocol, err)
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return fmt.Errorf("%w: control message: %w", ErrProtocol, err)
		}
		m.FDs = append(m.FDs, fds...)
	}
	return nil
}

// drop closes the descriptors of a message that is not passed on, and returns err.
func (m *Message) drop(err error) error {
	m.CloseFDs()
	return err
}

// CloseFDs closes the file descriptors that the receiver has not taken: those that it has set to -1 stay open.
func (m *Message) CloseFDs() {
	for _, fd := range m.FDs {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	m.FDs = nil
}

// Send sends a message. It borrows the file descriptors.
func (c *Conn) Send(m *Message) error {
	c.out = append(m.header(c.out[:0]), m.Payload...)
	var oob []byte
	if len(m.FDs) > 0 {
		oob = unix.UnixRights(m.FDs...)
	}
	n, _, err := c.sock.WriteMsgUnix(c.out, oob, nil)
	if err == nil && n < len(c.out) {
		_, err = c.sock.Write(c.out[n:])
	}
	return err
}

// SetDeadline bounds Recv and Send, as that of a net.Conn does. Any goroutine may call it.
func (c *Conn) SetDeadline(t time.Time) error { return c.sock.SetDeadline(t) }
