package quic

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
)

// MessageConn is the capability of a packet conn to carry control messages with datagrams:
// UDP_SEGMENT, ECN bits and the local address, with the levels and types of Linux.
// *socket.UDPConn has it.
//
// It must also have a method ReadBatch like that of golang.org/x/net/ipv4.PacketConn.
type MessageConn interface {
	ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
	WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)
	// SyscallConn gives a file descriptor on which the control messages that reads return are
	// requested by setsockopt(2).
	SyscallConn() (syscall.RawConn, error)
	SetReadBuffer(bytes int) error
}

// batchReader is the rest of a MessageConn.
type batchReader interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
}

// wrapPacketConn returns what quic-go is to see of a packet conn: neither more nor less than what
// was declared. A kernel socket is known by its type, which no wrapper has.
//
// strip, if it is not nil, sees each datagram first.
func wrapPacketConn(conn net.PacketConn, messages MessageConn, strip stripFunc) (net.PacketConn, error) {
	if messages != nil || strip == nil {
		return wrapped(conn, messages, strip)
	}
	seen, err := wrapped(conn, nil, nil)
	if err != nil {
		return nil, err
	}
	to, ok := seen.(interface{ setStrip(f stripFunc) })
	if !ok {
		return nil, fmt.Errorf("%w: Strip needs Messages, or a socket of a kernel with UDP_GRO", ErrConfig)
	}
	to.setStrip(strip)
	return seen, nil
}

// stripFunc is TransportConfig.Strip.
type stripFunc = func(from *net.UDPAddr, datagram []byte) int

func wrapped(conn net.PacketConn, messages MessageConn, strip stripFunc) (net.PacketConn, error) {
	if messages == nil {
		if kernel, ok := conn.(*net.UDPConn); ok {
			if merging := newKernelConn(kernel); merging != nil {
				return merging, nil
			}
			return kernel, nil
		}
		if d, ok := conn.(directConn); ok {
			return d, nil
		}
		return plainConn{conn}, nil
	}
	batches, ok := messages.(batchReader)
	if !ok {
		return nil, fmt.Errorf("%w: Messages has no method ReadBatch", ErrConfig)
	}
	return batchConn{messages, batches, conn, strip}, nil
}

// directConn is a packet conn of this package with all capabilities of a kernel socket: a SharedConn.
type directConn interface {
	net.PacketConn
	direct()
}

// plainConn is a packet conn with no capability beyond net.PacketConn. quic-go would otherwise find
// the methods of a conn that is embedded in a wrapper, and bypass the wrapper.
type plainConn struct{ net.PacketConn }

// SetReadBuffer does nothing: whoever made the conn has sized its buffers.
func (plainConn) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing.
func (plainConn) SetWriteBuffer(int) error { return nil }

// batchConn joins a packet conn and its capability.
type batchConn struct {
	MessageConn
	batchReader
	conn  net.PacketConn
	strip stripFunc
}

// ReadBatch reads datagrams, and keeps those that strip leaves. Messages keep their buffers.
func (c batchConn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for {
		n, err := c.batchReader.ReadBatch(ms, flags)
		if c.strip == nil || n <= 0 {
			return n, err
		}
		kept := 0
		for i := range ms[:n] {
			m := &ms[i]
			from, ok := m.Addr.(*net.UDPAddr)
			at := -1
			if ok {
				at = c.strip(from, m.Buffers[0][:m.N])
			}
			if at < 0 || at >= m.N {
				continue
			}
			to := &ms[kept]
			to.N = copy(to.Buffers[0], m.Buffers[0][at:m.N])
			if kept < i {
				to.NN = copy(to.OOB, m.OOB[:m.NN])
				to.Addr, to.Flags = m.Addr, m.Flags
			}
			kept++
		}
		if kept > 0 || err != nil {
			return kept, err
		}
	}
}

func (c batchConn) ReadFrom(b []byte) (int, net.Addr, error)     { return c.conn.ReadFrom(b) }
func (c batchConn) WriteTo(b []byte, addr net.Addr) (int, error) { return c.conn.WriteTo(b, addr) }
func (c batchConn) Close() error                                 { return c.conn.Close() }
func (c batchConn) LocalAddr() net.Addr                          { return c.conn.LocalAddr() }
func (c batchConn) SetDeadline(t time.Time) error                { return c.conn.SetDeadline(t) }
func (c batchConn) SetReadDeadline(t time.Time) error            { return c.conn.SetReadDeadline(t) }

func (c batchConn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// SetWriteBuffer does nothing: a write blocks while the device has no room.
func (batchConn) SetWriteBuffer(int) error { return nil }
