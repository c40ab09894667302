package socket

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// ListenPacket returns a *UDPConn that receives datagrams to an address such as ":53" in a network "udp",
// "udp4" or "udp6". For port 0 the stack chooses one.
func (s *Stack) ListenPacket(network, address string) (net.PacketConn, error) {
	c, err := s.ListenPacketWith(context.Background(), &ListenConfig{}, network, address)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ListenPacketWith is ListenPacket with the parameters of cfg.
func (s *Stack) ListenPacketWith(ctx context.Context, cfg *ListenConfig, name, address string) (*UDPConn, error) {
	proto, f, err := parseNetwork(name)
	if err == nil && proto != "udp" {
		err = net.UnknownNetworkError(name)
	}
	if err != nil {
		return nil, opError("listen", name, nil, nil, err)
	}
	at, err := s.resolve(ctx, nil, proto, f, address)
	if err != nil {
		return nil, opError("listen", name, nil, nil, err)
	}
	c, err := s.bind(cfg, name, f, at[0])
	if err != nil {
		return nil, opError("listen", name, nil, net.UDPAddrFromAddrPort(at[0]), errnoError("bind", err))
	}
	return c, nil
}

func (s *Stack) bind(cfg *ListenConfig, name string, f family, at netip.AddrPort) (*UDPConn, error) {
	a, err := localAddr(f, at)
	if err == nil && !cfg.FreeBind {
		err = s.checkLocal(a, true)
	}
	if err != nil {
		return nil, err
	}
	o := udpOptions(cfg.UDPOptions)
	// "udp6" does not receive IPv4, as with package net (RFC 3493 5.3).
	o.V6Only = o.V6Only || f == '6'
	for try := 0; ; try++ {
		c, err := s.tryBind(name, a, at.Port(), &o, cfg.Process)
		if err == nil {
			return c, nil
		}
		if at.Port() != 0 || !errors.Is(err, udp.ErrInUse) || try == maxPortTries {
			return nil, err
		}
	}
}

func (s *Stack) tryBind(name string, a wire.Addr, port uint16, o *udp.Options, of *Process) (*UDPConn, error) {
	c := newUDPConn(s, name, s.group.Hosts)
	c.process.Store(of)
	for i := range c.shards { // the first shard chooses the port, the others bind to the same one
		e := &c.shards[i]
		err := e.open(func(m *udp.Mux) (*udp.Socket, error) { return m.Bind(a, port, o, e) })
		if err != nil {
			c.closeShards()
			return nil, err
		}
		port = e.u.Tuple().LocalPort
	}
	c.bound = a
	c.local.Store(net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.Netip(), port)))
	return c, c.register()
}

func newUDPConn(s *Stack, name string, hosts []*host.Host) *UDPConn {
	c := &UDPConn{s: s, net: name, shards: make([]udpShard, len(hosts))}
	c.fan.hosts = hosts
	for i, h := range hosts {
		c.shards[i] = udpShard{c: c, i: i, h: h}
	}
	return c
}

// open makes the socket of one loop.
func (e *udpShard) open(make func(*udp.Mux) (*udp.Socket, error)) (err error) {
	e.h.Enter()
	defer e.h.Exit()
	e.u, err = make(e.h.UDP)
	return err
}

// register adds c to the sockets that Stack.Close closes.
func (c *UDPConn) register() error {
	if err := c.s.register(c); err != nil {
		c.closeShards()
		return err
	}
	return nil
}

func (s *Stack) dialUDP(ctx context.Context, d *Dialer, name string, r netip.AddrPort) (*UDPConn, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	t, err := s.tuple(d, r)
	if err != nil {
		return nil, err
	}
	o := udpOptions(d.UDPOptions)
	var c *UDPConn
	err = s.eachHost(&t, func(h *host.Host) error {
		c = newUDPConn(s, name, []*host.Host{h})
		c.process.Store(d.Process)
		e := &c.shards[0]
		return e.open(func(m *udp.Mux) (*udp.Socket, error) { return m.Connect(t, &o, e) })
	})
	if err != nil {
		return nil, errnoError("connect", err)
	}
	t = c.shards[0].u.Tuple()
	c.local.Store(net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Local.Netip(), t.LocalPort)))
	c.remote.Store(net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Remote.Netip(), t.RemotePort)))
	return c, c.register()
}

// Connect sets or replaces the peer of a socket of ListenPacketWith, as connect(2) does: it receives from that peer alone, and
// Write sends to it. What waits to be read stays. The zero AddrPort takes the peer away. LocalAddr has the address that it sends
// from meanwhile. Sockets of a Dialer keep their peer: EINVAL. The caller holds no loop.
func (c *UDPConn) Connect(to netip.AddrPort) error {
	if !to.IsValid() {
		return c.each("connect", func(e *udpShard) error { return c.connected(e, e.u.Disconnect()) })
	}
	var d Dialer
	if !c.bound.Unspecified() {
		d.Local, d.FreeBind = netip.AddrPortFrom(c.bound.Netip(), 0), true
	}
	t, err := c.s.tuple(&d, netip.AddrPortFrom(to.Addr().WithZone("").Unmap(), to.Port()))
	if err != nil {
		return c.wrapError("connect", net.UDPAddrFromAddrPort(to), err)
	}
	t.LocalPort = c.local.Load().AddrPort().Port()
	connect := func(e *udpShard) error { return c.connected(e, e.u.Connect(t.Local, t.Remote, t.RemotePort)) }
	// The loop of the flow has all sockets that may be connected so: the others follow without an error.
	if first := c.s.group.Owner(&t).Index(); len(c.shards) == len(c.s.group.Hosts) {
		if err := c.shards[first].held(connect); err != nil {
			return c.wrapError("connect", net.UDPAddrFromAddrPort(to), err)
		}
	}
	return c.each("connect", connect)
}

// held calls f with the loop held.
func (e *udpShard) held(f func(e *udpShard) error) error {
	e.h.Enter()
	defer e.h.Exit()
	if e.u == nil {
		return net.ErrClosed
	}
	return f(e)
}

// connected notes the ends of the socket after Connect or Disconnect has returned err on a loop.
func (c *UDPConn) connected(e *udpShard, err error) error {
	if err != nil {
		return err
	}
	t := e.u.Tuple()
	c.local.Store(net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Local.Netip(), t.LocalPort)))
	var remote *net.UDPAddr
	if t.RemotePort != 0 {
		remote = net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Remote.Netip(), t.RemotePort))
	}
	c.remote.Store(remote)
	return nil
}
