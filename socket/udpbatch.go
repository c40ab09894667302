package socket

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
)

// ReadBatch reads the datagrams that have arrived, at least one, as recvmmsg(2) does, without a system call.
// OOB receives the control messages that were requested by SyscallConn. Consecutive messages from one peer
// share their Addr, which must not be changed. The only flag is MSG_DONTWAIT.
func (c *UDPConn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if len(ms) == 0 {
		return 0, nil
	}
	w := newWaiter()
	defer w.free()
	msgs := w.messages(len(ms))
	for i := range ms {
		msgs[i].Buffers = ms[i].Buffers
	}
	n, err := c.readMsgs(w, msgs, flags&unix.MSG_DONTWAIT != 0)
	if err != nil {
		return 0, c.wrapError("read", nil, err)
	}
	want := cmsgSet(c.cmsgs.Load())
	var last *net.UDPAddr
	for i := range n {
		m := &msgs[i]
		// One allocation for a run of messages from the same peer.
		if last == nil || m.Remote != msgs[i-1].Remote || m.RemotePort != msgs[i-1].RemotePort {
			last = w.peerOf(m)
		}
		ms[i].Addr, ms[i].N = last, m.N
		ms[i].NN, ms[i].Flags = writeControl(ms[i].OOB, want, m)
	}
	return n, nil
}

// peerOf returns the peer of m. It keeps the last one, because most batches come from one peer.
func (w *waiter) peerOf(m *udp.Message) *net.UDPAddr {
	if w.peer == nil || w.peerAddr != m.Remote || uint16(w.peer.Port) != m.RemotePort {
		w.peer = net.UDPAddrFromAddrPort(m.Peer())
		w.peerAddr = m.Remote
	}
	return w.peer
}

// writeControl writes the control messages of m to b. It returns their length and the flags of the message.
func writeControl(b []byte, want cmsgSet, m *udp.Message) (n, flags int) {
	out, fits := appendControl(b[:0], want, m)
	if !fits {
		flags |= unix.MSG_CTRUNC
	}
	if m.Truncated {
		flags |= unix.MSG_TRUNC
	}
	return len(out), flags
}

// WriteBatch sends datagrams as sendmmsg(2) does. It ignores flags.
func (c *UDPConn) WriteBatch(ms []ipv4.Message, flags int) (int, error) {
	w := newWaiter()
	defer w.free()
	msgs := w.messages(len(ms))
	for i := range ms {
		msgs[i].Buffers = ms[i].Buffers
		if err := c.fillMessage(&msgs[i], ms[i].OOB, ms[i].Addr); err != nil {
			return 0, c.wrapError("write", ms[i].Addr, err)
		}
	}
	n, err := c.writeMsgs(w, msgs)
	for i := range n {
		ms[i].N = msgs[i].N
	}
	return n, c.wrapError("write", nil, err)
}

// fillMessage sets the peer and the control messages of m.
func (c *UDPConn) fillMessage(m *udp.Message, oob []byte, to net.Addr) error {
	if to != nil {
		a, ok := to.(*net.UDPAddr)
		if !ok {
			return syscall.EINVAL
		}
		if a != nil {
			m.SetPeer(a.AddrPort())
		}
	}
	return parseControl(oob, m)
}

// ReadMsgUDP reads one datagram, and its control messages to oob, see SyscallConn.
func (c *UDPConn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	n, oobn, flags, from, err := c.ReadMsgUDPAddrPort(b, oob)
	if err == nil {
		addr = net.UDPAddrFromAddrPort(from)
	}
	return n, oobn, flags, addr, err
}

// ReadMsgUDPAddrPort is ReadMsgUDP without an allocation for the address.
func (c *UDPConn) ReadMsgUDPAddrPort(b, oob []byte) (n, oobn, flags int, from netip.AddrPort, err error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	if _, err := c.readMsgs(w, m, false); err != nil {
		return 0, 0, 0, netip.AddrPort{}, c.wrapError("read", nil, err)
	}
	oobn, flags = writeControl(oob, cmsgSet(c.cmsgs.Load()), &m[0])
	return m[0].N, oobn, flags, m[0].Peer(), nil
}

// WriteMsgUDP sends a datagram to addr, or to the connected peer if that is nil. The control messages in oob
// may be UDP_SEGMENT, which splits b, IP_TOS, IPV6_TCLASS, IP_TTL, IPV6_HOPLIMIT, IP_PKTINFO and
// IPV6_PKTINFO.
func (c *UDPConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if addr == nil {
		return c.writeMsg(b, oob, netip.AddrPort{})
	}
	return c.writeMsg(b, oob, addr.AddrPort())
}

// WriteMsgUDPAddrPort is WriteMsgUDP. The zero address is the connected peer.
func (c *UDPConn) WriteMsgUDPAddrPort(b, oob []byte, to netip.AddrPort) (n, oobn int, err error) {
	return c.writeMsg(b, oob, to)
}

func (c *UDPConn) writeMsg(b, oob []byte, to netip.AddrPort) (n, oobn int, err error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	switch {
	case to.IsValid() && c.remote.Load() != nil:
		err = net.ErrWriteToConnected
	case !to.IsValid() && c.remote.Load() == nil:
		err = syscall.EDESTADDRREQ
	default:
		if to.IsValid() {
			m[0].SetPeer(to)
		}
		err = parseControl(oob, &m[0])
	}
	if err == nil {
		_, err = c.writeMsgs(w, m)
	}
	if err != nil {
		return 0, 0, c.wrapError("write", nil, err)
	}
	return len(b), len(oob), nil
}
