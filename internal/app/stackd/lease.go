package stackd

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/ip/dhcp"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// dhcpClient gets the address of a device by DHCP. One goroutine drives the client; loops pass it the messages of servers.
type dhcpClient struct {
	d      *Daemon
	port   uint8
	client *dhcp.Client
	in     chan []byte   // messages from servers
	taken  chan struct{} // another host has the address
	lease  dhcp.Lease    // in use; the zero Lease is none
	routes []ip.Route    // of the lease
}

// openLeases begins to ask for addresses.
func (d *Daemon) openLeases() error {
	for i, v := range d.cfg.Devices {
		if !v.DHCP {
			continue
		}
		l := &dhcpClient{d: d, port: uint8(i), in: make(chan []byte, 16), taken: make(chan struct{}, 1)}
		l.client = dhcp.New(dhcp.Config{
			Now: stack.Now(), Seed: rand.Uint64(), MAC: d.node.Links()[i].MAC,
			Send: l.send, Bound: l.bound, Lost: l.lost,
		})
		if err := l.listen(); err != nil {
			return fmt.Errorf("dhcp on %s: %w", v.Name, err)
		}
		d.leases = append(d.leases, l)
	}
	return nil
}

// receiver passes the messages of one loop to the client.
type receiver struct {
	l   *dhcpClient
	s   *udp.Socket
	h   *host.Host
	buf [1500]byte
}

// Ready implements udp.Owner.
func (m *receiver) Ready(udp.Events) {
	for {
		msg := [1]udp.Message{{Buffers: [][]byte{m.buf[:]}}}
		if m.s.Read(m.h.Now(), msg[:]) == 0 {
			return
		}
		select {
		case m.l.in <- slices.Clone(m.buf[:min(msg[0].N, len(m.buf))]):
		default: // a flood: servers repeat themselves
		}
	}
}

// listen opens port 68 on every loop: which of them an answer comes to is up to the hash of its addresses.
func (l *dhcpClient) listen() error {
	o := udp.Options{Interface: uint32(l.port) + 1, ReceiveBuffer: 16 << 10}
	return l.d.stack.Group().Each(func(_ clock.Time, h *host.Host) (err error) {
		m := &receiver{l: l, h: h}
		m.s, err = h.UDP.Bind(wire.Unspecified4, dhcp.ClientPort, &o, m)
		return err
	})
}

// run has the client do what is due until ctx ends, and then returns the lease.
func (l *dhcpClient) run(ctx context.Context) {
	for {
		now := stack.Now()
		wait := time.NewTimer(min(l.client.Poll(now).Sub(now), time.Hour))
		select {
		case <-ctx.Done():
			wait.Stop()
			l.client.Release(stack.Now())
			return
		case b := <-l.in:
			l.client.Input(stack.Now(), b)
		case <-l.taken:
			l.client.Decline(stack.Now())
		case <-wait.C:
		}
		wait.Stop()
	}
}

// send sends a message: to everybody from no address, or to the server from the lease's. Sockets send from no
// address but the host's, so the datagram is made here. One that does not go is sent again by the client.
func (l *dhcpClient) send(_ clock.Time, server wire.Addr, msg []byte) {
	src, dst := wire.Unspecified4, wire.Broadcast4
	if server != (wire.Addr{}) {
		src, dst = l.lease.Addr, server
	}
	segment := make([]byte, wire.UDPLen+len(msg))
	binary.BigEndian.PutUint16(segment, dhcp.ClientPort)
	binary.BigEndian.PutUint16(segment[2:], dhcp.ServerPort)
	binary.BigEndian.PutUint16(segment[4:], uint16(len(segment)))
	copy(segment[wire.UDPLen:], msg)
	pseudo := wire.PseudoHeader4(src.As4(), dst.As4(), wire.ProtoUDP, uint32(len(segment)))
	check := wire.Fold(wire.Sum(segment, pseudo))
	if check == 0 {
		check = 0xffff // RFC 768: 0 would say that there is none
	}
	binary.BigEndian.PutUint16(segment[6:], check)
	l.d.leader(func(now clock.Time, h *host.Host) {
		p, v := h.IP.Route(now, dst, src, l.port)
		if p == nil {
			l.d.opt.Log.Warn("dhcp", "device", l.name(), "error", "not sent: "+v.String())
			return
		}
		if v := h.IP.Send(now, p, &ip.Header{Src: src, Dst: dst, Proto: wire.ProtoUDP, TTL: 64}, segment); v != packet.Forward {
			l.d.opt.Log.Warn("dhcp", "device", l.name(), "error", "not sent: "+v.String())
		}
	})
}

func (l *dhcpClient) name() string { return l.d.deviceName(l.port) }

// bound takes a lease into use, or goes on with the one there is. The host looks for another host with the address first.
func (l *dhcpClient) bound(_ clock.Time, n dhcp.Lease) {
	g, log := l.d.stack.Group(), l.d.opt.Log
	until := "for ever"
	if n.Until != clock.Never {
		until = "for " + n.Until.Sub(stack.Now()).Round(time.Second).String()
	}
	log.Info("dhcp", "device", l.name(), "address", fmt.Sprintf("%s/%d", n.Addr, n.Bits), "server", n.Server.String(), "lease", until)
	if n.Addr != l.lease.Addr || n.Bits != l.lease.Bits {
		l.drop()
	}
	if err := l.use(&n); err != nil {
		log.Error("dhcp", "device", l.name(), "error", err.Error())
		return
	}
	l.lease = n
	routes := l.routesOf(&n)
	for _, r := range l.routes {
		if !slices.Contains(routes, r) {
			_ = g.DelRoute(r) // it may have gone with its address
		}
	}
	for _, r := range routes {
		if err := g.AddRoute(r); err != nil && !slices.Contains(l.routes, r) {
			log.Error("dhcp", "device", l.name(), "route", r.Prefix.String(), "error", err.Error())
		}
	}
	l.routes = routes
}

// use gives the host the address of a lease until the lease ends, or prolongs it. The host removes it at that time by
// itself: an address must not outlive its lease because this goroutine is late (RFC 2131 4.4.5). So it may be gone when a
// late answer extends the lease.
func (l *dhcpClient) use(n *dhcp.Lease) error {
	g := l.d.stack.Group()
	if g.SetLifetime(l.port, n.Addr, n.Until, n.Until) == nil {
		return nil
	}
	if err := g.AddAddr(l.port, netip.PrefixFrom(n.Addr.Netip(), n.Bits), ip.DHCP, false); err != nil {
		return err
	}
	return g.SetLifetime(l.port, n.Addr, n.Until, n.Until)
}

// routesOf returns the routes that come with a lease.
func (l *dhcpClient) routesOf(n *dhcp.Lease) (out []ip.Route) {
	for i, r := range n.Routers { // in the order of preference (RFC 2132 3.5)
		out = append(out, ip.Route{
			Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: r, Dev: l.port, Origin: ip.DHCP, Metric: uint32(i),
		})
	}
	for _, r := range n.Routes {
		one := ip.Route{Prefix: netip.PrefixFrom(r.Prefix.Netip(), r.Bits), Dev: l.port, Origin: ip.DHCP}
		if r.Router != wire.Unspecified4 {
			one.Gateway = r.Router
		}
		out = append(out, one)
	}
	return out
}

// lost abandons an address whose lease is over.
func (l *dhcpClient) lost(_ clock.Time, old dhcp.Lease) {
	l.d.opt.Log.Warn("dhcp", "device", l.name(), "address", old.Addr.String(), "state", "the lease is over")
	l.drop()
}

// drop takes the address and its routes from the host.
func (l *dhcpClient) drop() {
	if l.lease.Addr == (wire.Addr{}) {
		return
	}
	g := l.d.stack.Group()
	for _, r := range l.routes {
		_ = g.DelRoute(r)
	}
	_ = g.DelAddr(l.port, l.lease.Addr)
	l.lease, l.routes = dhcp.Lease{}, nil
}
