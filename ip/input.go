package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Datagram is the payload of an IP packet, as passed to a transport. It borrows everything, from the frame of the packet or
// from the node's reassembly buffer, until the next call of Input.
type Datagram struct {
	Src, Dst  wire.Addr
	Proto     uint8
	TTL       uint8
	TOS       uint8 // type of service or traffic class, with ECN in the low two bits
	Dev       uint8
	Kind      Kind   // of Dst
	FlowLabel uint32 // IPv6
	Packets   uint16 // 1, or the number of fragments that were reassembled
	Payload   []byte // transport header and data
	Packet    []byte // the packet from its IP header on, for Reject; the start of it where it was reassembled
}

// ECN returns the congestion notification field; that of a reassembled datagram is CE if one of its
// fragments had it (RFC 3168 5.3).
func (g *Datagram) ECN() wire.ECN { return wire.ECN(g.TOS & 3) }

// Input handles the frame that d describes, with its Ethernet header, as an engine's header pass left it: it relies on
// d.L3, d.L4, d.Payload, d.Proto and d.Flags. It answers ARP, neighbour discovery and ICMP itself. The verdict is one of
//
//   - Undecided: g is a datagram for a transport, whole (a packet, or reassembled), with valid lengths and a right
//     checksum (or none, in UDP). The caller delivers it. What g points at is valid until the next call.
//   - Deliver: the node has processed the packet; the frame is free.
//   - Handover: the leader must process the packet.
//   - a reason to drop it.
//
// The frame is borrowed.
func (n *Node) Input(now clock.Time, dev uint8, frame []byte, d *packet.Desc, g *Datagram) packet.Verdict {
	n.setNow(now)
	if int(dev) >= len(n.links) && dev != LoopDev {
		return packet.DropNotOurs
	}
	switch {
	case d.Flags.Has(packet.FlagMalformed):
		return packet.DropMalformed
	case d.Flags.Has(packet.FlagTruncated):
		return packet.DropTruncated
	case !n.accepts(dev, frame):
		return packet.DropNotOurs
	case d.Flags.Has(packet.FlagIPv4):
		return n.input4(dev, frame, d, g)
	case d.Flags.Has(packet.FlagIPv6):
		return n.input6(dev, frame, d, g)
	}
	return n.inputOther(dev, frame)
}

// accepts reports whether the frame's link address is this device's, a group's or broadcast. Devices in promiscuous mode
// and switches that flood deliver other hosts' unicast frames as well: answering one would be a second answer.
func (n *Node) accepts(dev uint8, frame []byte) bool {
	if dev == LoopDev {
		return true
	}
	if len(frame) < wire.EthernetLen {
		return false
	}
	dst := wire.Ethernet(frame).Dst()
	return dst == n.links[dev].MAC || dst.Multicast()
}

// inputOther takes a frame that is not IP: ARP, behind at most wire.MaxTags VLAN tags.
func (n *Node) inputOther(dev uint8, frame []byte) packet.Verdict {
	t, off, ok := wire.Network(frame)
	if !ok {
		return packet.DropMalformed
	}
	if t != wire.EtherTypeARP || dev == LoopDev {
		return packet.DropUnsupported
	}
	if n.cfg.Follower {
		return packet.Handover
	}
	return n.inputARP(dev, frame[off:])
}

// martian reports whether src cannot be the source of a packet that came in on dev: an address that no host has
// (wire.Addr.Martian), a directed broadcast of a connected network, or an address of this host, which only the loopback
// queue carries. Accepting one would let an outsider impersonate this host (RFC 1122 3.2.1.3), and an answer to a broadcast
// source would reach all hosts of the link. The unspecified address is left to the caller, since IGMP, duplicate address
// detection and DHCP begin with it.
func (n *Node) martian(dev uint8, src wire.Addr) bool {
	if src.Multicast() || src == wire.Broadcast4 {
		return true
	}
	if dev == LoopDev {
		return n.isDirectedBroadcast(src, dev)
	}
	return src.Martian() && !src.Unspecified() || n.ownOrBroadcast(dev, src)
}

// ownOrBroadcast reports whether a is an address of this host, on any device, or the broadcast address of a connected
// network.
func (n *Node) ownOrBroadcast(dev uint8, a wire.Addr) bool {
	return n.isLocalAddr(a) || n.isDirectedBroadcast(a, dev)
}

// input4 takes an IPv4 packet (RFC 791, RFC 1122 3.2). The order of the checks follows what each needs: lengths before
// any field, the header checksum before any address (RFC 1122 3.2.1.2), the source before anything is sent in answer.
func (n *Node) input4(dev uint8, frame []byte, d *packet.Desc, g *Datagram) packet.Verdict {
	ip := wire.IPv4(frame[d.L3:])
	if !ip.Valid() {
		return packet.DropMalformed
	}
	if !d.Flags.Has(packet.FlagIPChecksumOK) {
		return packet.DropIPChecksum
	}
	*g = Datagram{
		Src: wire.AddrFrom4(ip.Src()), Dst: wire.AddrFrom4(ip.Dst()), Proto: ip.Proto(), TTL: ip.TTL(), TOS: ip.TOS(), Dev: dev,
		Packets: 1, Payload: ip.Payload(), Packet: ip[:ip.TotalLen()],
	}
	if n.martian(dev, g.Src) || g.Src == wire.Unspecified4 && g.Proto != wire.ProtoIGMP {
		return packet.DropMartian
	}
	if v := n.classify(dev, frame, g); v != packet.Undecided {
		return v
	}
	if ip.HeaderLen() > wire.IPv4Len {
		if v := options4(ip); v != packet.Undecided {
			return v
		}
	}
	if ip.Fragment() {
		return n.fragment4(ip, g)
	}
	return n.deliver(frame, g, checksumFound(d))
}

// checksumFound reports whether the header pass found the transport checksum right, or absent from UDP over IPv4 (RFC 768).
func checksumFound(d *packet.Desc) bool {
	return d.Flags&(packet.FlagL4ChecksumOK|packet.FlagL4NoChecksum) != 0
}

// classify sets g.Kind, and drops what is not for this host. It also drops a unicast packet in a broadcast or multicast
// frame (RFC 1122 3.3.6): else one forged frame makes every host of the link answer.
func (n *Node) classify(dev uint8, frame []byte, g *Datagram) packet.Verdict {
	g.Kind = n.Local(dev, g.Dst)
	switch {
	case g.Kind == NotLocal:
		return packet.DropNotOurs
	case g.Kind == Unicast && dev != LoopDev && wire.Ethernet(frame).Dst().Multicast():
		return packet.DropNotOurs
	}
	return packet.Undecided
}

// options4 checks the options of an IPv4 packet. Source routes are dropped (RFC 6274 3.13.2.3): they let a sender choose
// the way back, and so use the address of any host. Other options are for routers and measurements (RFC 1122 3.2.1.8) and
// are ignored.
func options4(ip wire.IPv4) packet.Verdict {
	it := ip.OptionIter()
	for it.Next() {
		if k := it.Kind(); k == wire.IPv4LooseRoute || k == wire.IPv4StrictRoute {
			return packet.DropDenied
		}
	}
	if it.Malformed() {
		return packet.DropMalformed
	}
	return packet.Undecided
}

// deliver passes a whole datagram on to the consumer of its protocol. checked means that its checksum is right, or absent
// from UDP. frame is nil for a reassembled IPv4 datagram. A protocol without a consumer is answered with protocol
// unreachable (RFC 1122 3.2.2.1), over IPv6 with a parameter problem (RFC 4443 3.4).
func (n *Node) deliver(frame []byte, g *Datagram, checked bool) packet.Verdict {
	switch {
	case g.Proto == wire.ProtoICMP && g.Dst.Is4():
		if !checked {
			return packet.DropL4Checksum
		}
		return n.inputICMP(g)
	case g.Proto == wire.ProtoICMPv6 && !g.Dst.Is4():
		if !checked {
			return packet.DropL4Checksum
		}
		return n.inputICMP6(frame, g)
	case g.Proto == wire.ProtoIGMP && g.Dst.Is4():
		if n.cfg.Follower {
			return packet.Handover
		}
		return n.inputIGMP(g)
	case g.Kind == Multicast && !n.Member(g.Dev, g.Dst, g.Src):
		// No socket wants the group from this source (RFC 3376 3.2). ICMP and IGMP, above, are exempt: their messages
		// to groups maintain neighbours and memberships.
		return packet.DropNotOurs
	case !n.serves(g.Proto):
		n.reject(g, ProtoUnreachable)
		return packet.DropUnsupported
	case !checked && (g.Proto == wire.ProtoTCP || g.Proto == wire.ProtoUDP):
		return packet.DropL4Checksum
	}
	return packet.Undecided
}
