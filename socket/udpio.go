package socket

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// ReadFrom implements net.PacketConn. What does not fit b is lost.
func (c *UDPConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return n, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDPAddrPort is ReadFrom without memory for the address.
func (c *UDPConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	if _, err := c.readMsgs(w, m, false); err != nil {
		return 0, netip.AddrPort{}, c.fault("read", nil, err)
	}
	return m[0].N, netip.AddrPortFrom(m[0].Remote.Netip(), m[0].RemotePort), nil
}

// Read implements net.Conn.
func (c *UDPConn) Read(b []byte) (int, error) {
	n, _, err := c.ReadFromUDPAddrPort(b)
	return n, err
}

// Write implements net.Conn: it sends b to the peer of a connected socket.
func (c *UDPConn) Write(b []byte) (int, error) {
	if c.remote == nil {
		return 0, c.fault("write", nil, syscall.EDESTADDRREQ)
	}
	return c.writeTo(b, nil, netip.AddrPort{})
}

// WriteTo implements net.PacketConn. The address is a *net.UDPAddr.
func (c *UDPConn) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, c.fault("write", to, syscall.EINVAL)
	}
	if c.remote != nil {
		return 0, c.fault("write", to, net.ErrWriteToConnected)
	}
	return c.writeTo(b, to, a.AddrPort())
}

// WriteToUDPAddrPort is WriteTo without memory for the address.
func (c *UDPConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if c.remote != nil {
		return 0, c.fault("write", net.UDPAddrFromAddrPort(to), net.ErrWriteToConnected)
	}
	return c.writeTo(b, nil, to)
}

// writeTo sends one datagram; the zero address is the connected peer.
func (c *UDPConn) writeTo(b []byte, addr net.Addr, to netip.AddrPort) (int, error) {
	w := newWaiter()
	defer w.free()
	m := w.message(b)
	if to.IsValid() {
		m[0].Remote, m[0].RemotePort = wire.AddrFrom(to.Addr()), to.Port()
	}
	if _, err := c.writeMsgs(w, m); err != nil {
		if addr == nil && to.IsValid() {
			addr = net.UDPAddrFromAddrPort(to)
		}
		return 0, c.fault("write", addr, err)
	}
	return len(b), nil
}

// message returns a list of one message with one buffer, which lie in w.
func (w *waiter) message(b []byte) []udp.Message {
	m := w.scratch(1)
	w.one[0] = b
	m[0].Buffers = w.one[:]
	return m
}

// scratch returns n empty messages, which lie in w.
func (w *waiter) scratch(n int) []udp.Message {
	if cap(w.store) < n {
		w.store = make([]udp.Message, n)
	}
	m := w.store[:n]
	clear(m)
	return m
}

// keep is how many messages the scratch of a waiter keeps room for.
const keep = 64

// Message is a datagram, or several of equal size to or from one peer, with what the headers say.
type Message = udp.Message

// ReadMessages waits for datagrams and fills messages with as many as there are. With the option GRO a
// message may have several of one flow.
func (c *UDPConn) ReadMessages(msgs []Message) (int, error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	w := newWaiter()
	defer w.free()
	n, err := c.readMsgs(w, msgs, false)
	return n, c.fault("read", nil, err)
}

// WriteMessages sends messages and returns how many have gone. Those with a SegmentSize are cut.
func (c *UDPConn) WriteMessages(msgs []Message) (int, error) {
	w := newWaiter()
	defer w.free()
	n, err := c.writeMsgs(w, msgs)
	return n, c.fault("write", nil, err)
}

// SetOptions changes the options by a function, which may be called several times.
func (c *UDPConn) SetOptions(change func(o *UDPOptions)) error {
	return c.each("set", func(e *udpEnd) error {
		o := e.u.Options()
		change(&o)
		e.u.SetOptions(&o)
		return nil
	})
}

// SetReadBuffer bounds the memory of datagrams that wait on each loop, in bytes.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	c.shadow.want(bytes, 0)
	return c.SetOptions(func(o *UDPOptions) { o.ReceiveBuffer = bytes })
}

// SetWriteBuffer has no effect: datagrams wait in the queue of the device, which all sockets share.
func (c *UDPConn) SetWriteBuffer(bytes int) error {
	c.shadow.want(0, bytes)
	return nil
}

// Steering is the rule by which sockets that share an address and port divide datagrams.
type Steering = udp.Steering

// SetSteering says how datagrams are spread over the sockets that share an address and port (the option
// Share): by QUIC connection ID, or, where it is nil, by flow.
func (c *UDPConn) SetSteering(st *Steering) error {
	return c.each("set", func(e *udpEnd) error { return e.u.Steer(st) })
}

// Index returns the place of the socket among those that share its address and port.
func (c *UDPConn) Index() int {
	e := &c.ends[0]
	e.h.Enter()
	defer e.h.Exit()
	if e.u == nil {
		return -1
	}
	return e.u.Index()
}

// Join has the socket receive a multicast group by an interface (a port of the host + 1; 0: by the
// routes), from source, or from anywhere where that is the zero address (RFC 3678).
func (c *UDPConn) Join(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		switch s := wire.AddrFrom(source.WithZone("")); {
		case !source.IsValid() && include && len(sources) == 0:
			return false, nil, nil
		case source.IsValid() && include:
			return true, append(sources, s), nil
		}
		return include, sources, udp.ErrInUse
	})
}

// Leave undoes a Join.
func (c *UDPConn) Leave(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		if !source.IsValid() {
			return true, nil, nil
		}
		for i, x := range sources {
			if include && x == wire.AddrFrom(source) {
				return true, append(sources[:i], sources[i+1:]...), nil
			}
		}
		return include, sources, udp.ErrNotMember
	})
}

// Block has a socket that has joined a group from anywhere receive nothing from source.
func (c *UDPConn) Block(iface int, group, source netip.Addr) error {
	return c.membership(iface, group, func(include bool, sources []wire.Addr) (bool, []wire.Addr, error) {
		if include {
			return include, sources, udp.ErrNotMember
		}
		return false, append(sources, wire.AddrFrom(source)), nil
	})
}

func (c *UDPConn) membership(iface int, group netip.Addr, change func(bool, []wire.Addr) (bool, []wire.Addr, error)) error {
	if !group.IsValid() || iface < 0 || iface > 255 {
		return c.fault("set", nil, syscall.EINVAL)
	}
	g := wire.AddrFrom(group)
	return c.each("setsockopt", func(e *udpEnd) error {
		include, sources, err := change(e.u.Filter(uint32(iface), g))
		if err == nil {
			err = e.u.Listen(e.h.Loop.Now(), uint32(iface), g, include, sources)
		}
		return err
	})
}

// InnerUDP is the part of a UDPConn on one loop, as what runs on that loop sees it. No method blocks.
type InnerUDP struct{ e *udpEnd }

// Conn returns the socket, for those that do not run on the loop.
func (in InnerUDP) Conn() *UDPConn { return in.e.c }

// Read fills messages with what waits on this loop.
func (in InnerUDP) Read(msgs []Message) (int, error) {
	n, err := in.e.read(msgs)
	return n, in.e.c.fault("read", nil, err)
}

// Write sends messages; without an error, what it does not count had no room, and Writable will come.
func (in InnerUDP) Write(msgs []Message) (int, error) {
	n, err := in.e.write(msgs)
	return n, in.e.c.fault("write", nil, err)
}

// Lease is a received datagram in the memory of the loop, until Release.
type Lease = udp.Lease

// Lease takes the next datagram without copying; false is that none waits.
func (in InnerUDP) Lease() (Lease, bool) {
	if in.e.u == nil {
		return Lease{}, false
	}
	return in.e.u.Lease(in.e.h.Loop.Now())
}

// OnReady has f called by each loop when something is possible there, in place of goroutines that wait
// and of a Poller. Nil ends it.
func (c *UDPConn) OnReady(f func(in InnerUDP, ev Events)) error {
	return c.each("set", func(e *udpEnd) error {
		e.call = f
		e.u.SetOwner(e)
		return nil
	})
}

// poll implements Pollable.
func (c *UDPConn) poll(p *Poller, want *Interest) error {
	return c.each("poll", func(e *udpEnd) error {
		if e.watch != nil {
			e.watch.dead = true
			e.watch = nil
		}
		if want != nil {
			e.watch = p.newInterest(e.h, want, e)
		}
		return nil
	})
}

// possible implements source. A datagram can always be written, or waits for the device a moment.
func (e *udpEnd) possible() Events {
	switch {
	case e.u == nil:
		return Closed
	case e.u.Readable():
		return Readable | Writable
	}
	return Writable
}
