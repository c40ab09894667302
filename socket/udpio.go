package socket

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/udp"
)

// ReadFrom implements net.PacketConn. Bytes that do not fit in b are lost.
func (c *UDPConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return n, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDPAddrPort is ReadFrom without an allocation for the address.
func (c *UDPConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	if _, err := c.readMsgs(w, m, false); err != nil {
		return 0, netip.AddrPort{}, c.wrapError("read", nil, err)
	}
	return m[0].N, m[0].Peer(), nil
}

// Read implements net.Conn.
func (c *UDPConn) Read(b []byte) (int, error) {
	n, _, err := c.ReadFromUDPAddrPort(b)
	return n, err
}

// Write implements net.Conn: it sends b to the peer of a connected socket.
func (c *UDPConn) Write(b []byte) (int, error) {
	if c.remote.Load() == nil {
		return 0, c.wrapError("write", nil, syscall.EDESTADDRREQ)
	}
	return c.writeTo(b, nil, netip.AddrPort{})
}

// WriteTo implements net.PacketConn. The address is a *net.UDPAddr.
func (c *UDPConn) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, c.wrapError("write", to, syscall.EINVAL)
	}
	if c.remote.Load() != nil {
		return 0, c.wrapError("write", to, net.ErrWriteToConnected)
	}
	return c.writeTo(b, to, a.AddrPort())
}

// WriteToUDPAddrPort is WriteTo without an allocation for the address.
func (c *UDPConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if c.remote.Load() != nil {
		return 0, c.wrapError("write", net.UDPAddrFromAddrPort(to), net.ErrWriteToConnected)
	}
	return c.writeTo(b, nil, to)
}

// writeTo sends one datagram. The zero address is the connected peer.
func (c *UDPConn) writeTo(b []byte, addr net.Addr, to netip.AddrPort) (int, error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	if to.IsValid() {
		m[0].SetPeer(to)
	}
	if _, err := c.writeMsgs(w, m); err != nil {
		if addr == nil && to.IsValid() {
			addr = net.UDPAddrFromAddrPort(to)
		}
		return 0, c.wrapError("write", addr, err)
	}
	return len(b), nil
}

// message returns one message with the buffer b, in memory of w.
func (w *waiter) message(b []byte) []udp.Message {
	m := w.messages(1)
	w.oneBuffer[0] = b
	m[0].Buffers = w.oneBuffer[:]
	return m
}

// messages returns n empty messages in memory of w.
func (w *waiter) messages(n int) []udp.Message {
	if cap(w.msgBuf) < n {
		w.msgBuf = make([]udp.Message, n)
	}
	m := w.msgBuf[:n]
	clear(m)
	return m
}

// maxMsgBuf is the largest number of messages that a pooled waiter keeps memory for.
const maxMsgBuf = 64

// Message is a datagram with its metadata, or several of equal size from or to one peer.
type Message = udp.Message

// ReadMessages blocks until datagrams arrive and fills msgs with them. With the option GRO one message may
// hold several datagrams of one flow.
func (c *UDPConn) ReadMessages(msgs []Message) (int, error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	w := newWaiter()
	defer w.free()
	n, err := c.readMsgs(w, msgs, false)
	return n, c.wrapError("read", nil, err)
}

// WriteMessages sends msgs and returns how many were sent. A message with a SegmentSize becomes several
// datagrams.
func (c *UDPConn) WriteMessages(msgs []Message) (int, error) {
	w := newWaiter()
	defer w.free()
	n, err := c.writeMsgs(w, msgs)
	return n, c.wrapError("write", nil, err)
}

// PathMTU returns the largest packet on the path to the peer, bytes; ENOTCONN is that there is no peer.
func (c *UDPConn) PathMTU() (mtu int, err error) {
	err = c.each("getsockopt", func(e *udpShard) error {
		t := e.u.Tuple()
		if t.RemotePort == 0 {
			return syscall.ENOTCONN
		}
		p, _ := e.h.IP.Route(e.h.Now(), t.Remote, t.Local, ip.AnyDev)
		if p == nil {
			return syscall.ENETUNREACH
		}
		mtu = e.h.IP.MTU(e.h.Now(), p, t.Remote)
		return nil
	})
	return mtu, err
}

// SetOptions changes the options of the socket. change runs with a loop held, once for each loop.
func (c *UDPConn) SetOptions(change func(o *UDPOptions)) error {
	return c.each("set", func(e *udpShard) error {
		o := e.u.Options()
		change(&o)
		e.u.SetOptions(&o)
		return nil
	})
}

// SetReadBuffer limits the memory of unread datagrams on each loop, in bytes.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	c.options.setBuffers(bytes, 0)
	return c.SetOptions(func(o *UDPOptions) { o.ReceiveBuffer = bytes })
}

// SetWriteBuffer has no effect: datagrams wait in the transmit queue of the device, which all sockets share.
func (c *UDPConn) SetWriteBuffer(bytes int) error {
	c.options.setBuffers(0, bytes)
	return nil
}

// Steering is a rule that distributes datagrams over sockets that share an address and port.
type Steering = udp.Steering

// SetSteering sets how datagrams are distributed over the sockets that share an address and port (the option
// Share): by QUIC connection ID, or by flow if st is nil.
func (c *UDPConn) SetSteering(st *Steering) error {
	return c.each("set", func(e *udpShard) error { return e.u.Steer(st) })
}

// Index returns the index of the socket among those that share its address and port, -1 if it is closed.
func (c *UDPConn) Index() int {
	e := &c.shards[0]
	e.h.Enter()
	defer e.h.Exit()
	if e.u == nil {
		return -1
	}
	return e.u.Index()
}
