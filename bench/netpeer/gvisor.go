package netpeer

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/link/xdp"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

func init() {
	openers = append(
		openers,
		opener{"gvisor", func(c Config) (Net, error) { return openFDBased(c, false) }},
		opener{"gvisor-gso", func(c Config) (Net, error) { return openFDBased(c, true) }},
		opener{"gvisor-xdp", openXDP},
	)
}

// nic is the number of the only interface.
const nic = 1

// gvisor is a netstack with one interface.
type gvisor struct {
	s    *stack.Stack
	addr netip.Prefix
	undo []func()
}

// newGVisor starts a netstack over a link endpoint.
func newGVisor(ep stack.LinkEndpoint, q stack.QueueingDiscipline, c Config) (*gvisor, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	g := &gvisor{s: s, addr: c.Addr}
	cc := tcpip.CongestionControlOption("cubic")
	if c.CC != "" {
		cc = tcpip.CongestionControlOption(c.CC)
	}
	sack := tcpip.TCPSACKEnabled(!c.NoSACK)
	buffers := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: 1 << 20, Max: 8 << 20}
	sending := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: 1 << 20, Max: 8 << 20}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &cc, &buffers, &sending} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return nil, fmt.Errorf("gvisor: %T: %v", o, err)
		}
	}
	if err := s.CreateNICWithOptions(nic, ep, stack.NICOptions{QDisc: q}); err != nil {
		return nil, fmt.Errorf("gvisor: create interface: %v", err)
	}
	addr := tcpip.ProtocolAddress{Protocol: protocol(c.Addr.Addr()), AddressWithPrefix: tcpip.AddressWithPrefix{
		Address: tcpip.AddrFromSlice(c.Addr.Addr().AsSlice()), PrefixLen: c.Addr.Bits(),
	}}
	if err := s.AddProtocolAddress(nic, addr, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("gvisor: add address: %v", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return g, nil
}

func protocol(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}

func (g *gvisor) Listen(port uint16) (net.Listener, error) {
	return gonet.ListenTCP(g.s, full(netip.AddrPortFrom(g.addr.Addr(), port)), protocol(g.addr.Addr()))
}

func (g *gvisor) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return gonet.DialContextTCP(ctx, g.s, full(to), protocol(to.Addr()))
}

func (g *gvisor) Close() error {
	g.s.Close() // not Wait: a dispatcher that sleeps in poll(2) ends with the process
	for _, f := range g.undo {
		f()
	}
	return nil
}

// macs are link addresses of the ends of a wire in memory.
const macA, macB = tcpip.LinkAddress("\x02\x00\x00\x00\x00\x0a"), tcpip.LinkAddress("\x02\x00\x00\x00\x00\x0b")

// GVisorPair returns two netstacks over gVisor's own wire in memory.
func GVisorPair(mtu, _ int) (*Pair, error) {
	a, b := pipe.New(macA, macB, uint32(mtu)+header.EthernetMinimumSize) // its MTU counts the link header
	client, err := newGVisor(ethernet.New(a), nil, Config{Addr: clientAddr})
	if err != nil {
		return nil, err
	}
	server, err := newGVisor(ethernet.New(b), nil, Config{Addr: serverAddr})
	if err != nil {
		return nil, err
	}
	return &Pair{Client: client, Server: server, ServerAddr: serverAddr.Addr()}, nil
}

// fifoLength is the length of the sending queue, in packets.
const fifoLength = 4096

// openFDBased opens a netstack over a packet socket; with gso over one with segments of up to 64 KiB in
// both directions (PACKET_VNET_HDR).
func openFDBased(c Config, gso bool) (Net, error) {
	in, err := net.InterfaceByName(c.Device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return nil, err
	}
	if gso {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return nil, fmt.Errorf("PACKET_VNET_HDR: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return nil, fmt.Errorf("PACKET_IGNORE_OUTGOING: %w", err)
	}
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 16<<20) // where it may
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: in.Index}); err != nil {
		return nil, err
	}
	o := fdbased.Options{
		FDs: []int{fd}, MTU: uint32(in.MTU), EthernetHeader: true, Address: tcpip.LinkAddress(in.HardwareAddr),
		PacketDispatchMode: fdbased.RecvMMsg, GRO: true,
	}
	if gso {
		o.GSOMaxSize, o.RXChecksumOffload = 64<<10-1, true
	}
	ep, err := fdbased.New(&o)
	if err != nil {
		return nil, err
	}
	return newGVisor(ep, fifo.New(ep, 1, fifoLength), c)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// openXDP opens a netstack over an AF_XDP socket of queue 0.
func openXDP(c Config) (Net, error) {
	in, err := net.InterfaceByName(c.Device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ep, err := xdp.New(&xdp.Options{
		FD: fd, Address: tcpip.LinkAddress(in.HardwareAddr), Bind: true, InterfaceIndex: in.Index, GRO: true,
	})
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	detach, err := redirect(in.Index, fd)
	if err != nil {
		return nil, err
	}
	g, err := newGVisor(ep, fifo.New(ep, 1, fifoLength), c)
	if err != nil {
		detach()
		return nil, err
	}
	g.undo = append(g.undo, detach)
	return g, nil
}
