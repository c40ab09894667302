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
	c.local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.Netip(), port))
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
	c.local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Local.Netip(), t.LocalPort))
	c.remote = net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Remote.Netip(), t.RemotePort))
	return c, c.register()
}
