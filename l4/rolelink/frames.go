package rolelink

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/wire"
)

// sock is a packet socket of a device.
type sock struct {
	fd    int
	index int
	links []Link
	asks  []netip.Addr // addresses of links that are asked for
}

// kind classifies frames about an address that was asked for.
type kind uint8

const (
	nothing kind = iota
	answer       // its sender has it
	watched      // its sender has an address that is watched
	rival        // its sender asks for it as well, without an address of its own
)

// classify returns what a frame says, and of whom.
func (s *sock) classify(b []byte) (wire.MAC, kind) {
	if len(b) < wire.EthernetLen {
		return wire.MAC{}, nothing
	}
	mac, said, about := wire.Ethernet(b).Src(), nothing, netip.Addr{}
	switch body := b[wire.EthernetLen:]; binary.BigEndian.Uint16(b[12:]) {
	case wire.EtherTypeARP:
		said, about, mac = classifyARP(wire.ARP(body), mac)
	case wire.EtherTypeIPv6:
		said, about = classifyND(wire.IPv6(body))
	}
	switch {
	case said == nothing || s.own(mac):
		return mac, nothing
	case said == answer && s.watches(about):
		return mac, watched
	case !slices.Contains(s.asks, about):
		return mac, nothing
	}
	return mac, said
}

func classifyARP(p wire.ARP, src wire.MAC) (kind, netip.Addr, wire.MAC) {
	switch {
	case !p.Valid():
		return nothing, netip.Addr{}, src
	case p.Sender() != [4]byte{}: // an answer, or an announcement
		return answer, p.SenderAddr(), p.SenderMAC()
	case p.Op() == wire.ARPRequest:
		return rival, p.TargetAddr(), p.SenderMAC()
	}
	return nothing, netip.Addr{}, src
}

func classifyND(p wire.IPv6) (kind, netip.Addr) {
	if len(p) < wire.IPv6Len+8 || p.NextHeader() != wire.ProtoICMPv6 || p.HopLimit() != wire.NDHopLimit {
		return nothing, netip.Addr{}
	}
	body := p[wire.IPv6Len:]
	switch {
	case body[0] == wire.ICMPv6NeighborAdvert && wire.NeighborAdvert(body).Valid():
		return answer, wire.NeighborAdvert(body).TargetAddr()
	case body[0] == wire.ICMPv6NeighborSolicit && p.Src() == [16]byte{} && wire.NeighborSolicit(body).Valid():
		return rival, wire.NeighborSolicit(body).TargetAddr()
	}
	return nothing, netip.Addr{}
}

func (s *sock) own(mac wire.MAC) bool {
	for i := range s.links {
		if s.links[i].MAC == mac {
			return true
		}
	}
	return false
}

// watches reports whether an address is watched on a link of the device.
func (s *sock) watches(a netip.Addr) bool {
	return slices.ContainsFunc(s.links, func(l Link) bool { return slices.Contains(l.Watch, a) })
}

// question returns the frame that asks who has an address, without one of its own: an ARP probe (RFC 5227 2.1.1), or a
// solicitation as for duplicate address detection (RFC 4862 5.4.2). Neither changes a neighbour's table.
func question(a netip.Addr, mac wire.MAC, vlan uint16) []byte {
	to, ether := wire.Broadcast, wire.EtherTypeARP
	if a.Is6() {
		to, ether = wire.MulticastMAC6(wire.SolicitedNode(a.As16())), wire.EtherTypeIPv6
	}
	b := wire.AppendEthernet(nil, to, mac, ether)
	if vlan != 0 {
		b = wire.AppendEthernet(nil, to, mac, wire.EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, vlan)
		b = binary.BigEndian.AppendUint16(b, uint16(ether))
	}
	if a.Is4() {
		return wire.AppendARP(b, wire.ARPRequest, wire.ARPHost{MAC: mac}, wire.ARPHost{Addr: a.As4()})
	}
	n := len(b)
	b = wire.AppendIPv6(b, &wire.IPv6Header{
		Dst: wire.SolicitedNode(a.As16()), NextHeader: wire.ProtoICMPv6, HopLimit: wire.NDHopLimit, PayloadLen: wire.NeighborSolicitLen,
	})
	b = append(b, wire.ICMPv6NeighborSolicit, 0, 0, 0, 0, 0, 0, 0)
	target := a.As16()
	b = append(b, target[:]...)
	wire.ICMPv6(b[n+wire.IPv6Len:]).FillChecksum(wire.IPv6(b[n:]).Pseudo())
	return b
}

// etherTypeClaim is the EtherType of claims, for local experiments (IEEE Std 802-2014 9.2.3): no registered protocol has it.
const etherTypeClaim = 0x88b5

// claimFrame returns the frame with a claim for a link.
func claimFrame(c role.Claim, l *Link) []byte {
	c.Addrs = append(lowest(l.Addrs, true, role.MaxClaimed/2), lowest(l.Addrs, false, role.MaxClaimed/2)...)
	b := wire.AppendEthernet(nil, wire.Broadcast, l.MAC, etherTypeClaim)
	if l.VLAN != 0 {
		b = wire.AppendEthernet(nil, wire.Broadcast, l.MAC, wire.EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, l.VLAN)
		b = binary.BigEndian.AppendUint16(b, etherTypeClaim)
	}
	return c.Append(b)
}

// claimOf returns the claim in a frame, if it is one of another gateway for an address of this one, and its sender.
func (s *sock) claimOf(b []byte) (mac wire.MAC, c role.Claim, ok bool) {
	if len(b) < wire.EthernetLen || binary.BigEndian.Uint16(b[12:]) != etherTypeClaim {
		return mac, c, false
	}
	mac = wire.Ethernet(b).Src()
	c, err := role.ParseClaim(b[wire.EthernetLen:])
	return mac, c, err == nil && !s.own(mac) && slices.ContainsFunc(c.Addrs, s.has)
}

// has reports whether this gateway has an address on a link of the device.
func (s *sock) has(a netip.Addr) bool {
	return slices.ContainsFunc(s.links, func(l Link) bool { return slices.Contains(l.Addrs, a) })
}

// openSock opens a packet socket of a device, for ARP and neighbour discovery.
func openSock(device string) (*sock, error) {
	index, err := indexOf(device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // receives nothing yet
	if err != nil {
		return nil, err
	}
	prog := neighbourFilter()
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &sock{fd: fd, index: index}, nil
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// neighbourFilter takes claims, ARP, and neighbour solicitations and advertisements without extension headers, which these have
// (RFC 4861 7.1). The kernel has removed VLAN tags before.
func neighbourFilter() []unix.SockFilter {
	const load, jump, ret = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: load | unix.BPF_H, K: 12},
		{Code: jump, K: uint32(wire.EtherTypeARP), Jt: 7},
		{Code: jump, K: etherTypeClaim, Jt: 6},
		{Code: jump, K: uint32(wire.EtherTypeIPv6), Jf: 6},
		{Code: load | unix.BPF_B, K: 20}, // next header
		{Code: jump, K: uint32(wire.ProtoICMPv6), Jf: 4},
		{Code: load | unix.BPF_B, K: 54}, // type
		{Code: jump, K: uint32(wire.ICMPv6NeighborSolicit), Jt: 1},
		{Code: jump, K: uint32(wire.ICMPv6NeighborAdvert), Jf: 1},
		{Code: ret, K: 2048},
		{Code: ret, K: 0},
	}
}

func indexOf(device string) (int, error) {
	in, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	return in.Index, nil
}
