package ip

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// How much of a packet an error quotes: as much as fits into what every host takes (RFC 1812 4.3.2.3, RFC
// 4443 2.4 c).
const (
	quote4 = 576 - wire.IPv4Len - wire.ICMPLen
	quote6 = minMTU6 - wire.IPv6Len - wire.ICMPLen
)

// Reject tells the sender of a packet that came in on port why it is not taken: PortUnreachable,
// ProtoUnreachable, HostUnreachable, NetUnreachable or Prohibited. pkt is the packet from its IP header
// on, or as much of its start as there is. Nothing is sent where an error must not be (RFC 1122 3.2.2,
// RFC 4443 2.4 e), or too many were.
func (n *Node) Reject(now clock.Time, port uint8, pkt []byte, k ErrorKind) {
	n.setNow(now)
	g := Datagram{Port: port, Packet: pkt}
	switch {
	case wire.IPv4(pkt).ValidHeader():
		g.Src, g.Dst = wire.AddrFrom4(wire.IPv4(pkt).Src()), wire.AddrFrom4(wire.IPv4(pkt).Dst())
	case wire.IPv6(pkt).ValidHeader():
		g.Src, g.Dst = wire.IPv6(pkt).Src(), wire.IPv6(pkt).Dst()
	default:
		return
	}
	g.Kind = n.Local(port, g.Dst)
	n.reject(&g, k)
}

func (n *Node) reject(g *Datagram, k ErrorKind) {
	if g.Dst.Is4() {
		code := [...]uint8{
			NetUnreachable: wire.ICMPNetUnreachable, HostUnreachable: wire.ICMPHostUnreachable,
			ProtoUnreachable: wire.ICMPProtoUnreachable, PortUnreachable: wire.ICMPPortUnreachable,
			TooBig: 0, Prohibited: wire.ICMPAdminProhibited,
		}[k]
		n.sendICMPError(g, wire.ICMPUnreachable, code, 0)
		return
	}
	if k == ProtoUnreachable {
		n.rejectProto(g)
		return
	}
	code := [...]uint8{
		NetUnreachable: wire.ICMPv6NoRoute, HostUnreachable: wire.ICMPv6AddressUnreachable, ProtoUnreachable: 0,
		PortUnreachable: wire.ICMPv6PortUnreachable, TooBig: 0, Prohibited: wire.ICMPv6AdminProhibited,
	}[k]
	n.sendICMPError(g, wire.ICMPv6Unreachable, code, 0)
}

// rejectProto says that nobody serves the protocol of g (RFC 1122 3.2.2.1, RFC 4443 3.4).
func (n *Node) rejectProto(g *Datagram) {
	if g.Dst.Is4() {
		n.sendICMPError(g, wire.ICMPUnreachable, wire.ICMPProtoUnreachable, 0)
		return
	}
	n.parameterProblem(g, 1, lastNextHeader(g.Packet))
}

// lastNextHeader returns the offset of the octet that names the upper layer of an IPv6 packet.
func lastNextHeader(b []byte) int {
	from := 6
	for it := wire.ExtHeaders(b); it.Next() && extended(it.Proto()); {
		from = it.Offset() - len(it.Header())
	}
	return from
}

// parameterProblem reports an IPv6 header that cannot be taken, by the offset of the octet (RFC 4443 3.4).
func (n *Node) parameterProblem(g *Datagram, code uint8, off int) {
	n.sendICMPError(g, wire.ICMPv6ParamProblem, code, uint32(off))
}

// sendICMPError sends an ICMP error about g, if it may be sent.
func (n *Node) sendICMPError(g *Datagram, typ, code uint8, rest uint32) {
	if !n.errorAllowed(g, typ, code) {
		return
	}
	if !n.errors.Take(n.now, 1) {
		n.stats.ErrorsLimited++
		return
	}
	src := g.Dst
	if g.Kind != Unicast {
		own, ok := n.source(g.Src, g.Port)
		if !ok {
			return
		}
		src = own
	}
	h := Header{Src: src, Dst: g.Src, Proto: wire.ProtoICMP}
	limit := quote4
	if !src.Is4() {
		h.Proto, limit = wire.ProtoICMPv6, quote6
	}
	quote := g.Packet[:min(len(g.Packet), limit)]
	m := append(n.head[:0], typ, code, 0, 0)
	m = binary.BigEndian.AppendUint32(m, rest)
	n.fillChecksum(m, &h, quote)
	n.parts = [2][]byte{m, quote}
	if p, _ := n.reversePath(g); p != nil && n.send(p, &h, n.parts[:]) == packet.Forward {
		n.stats.Errors++
	}
}

// fillChecksum fills the checksum of the message m with what follows it.
func (n *Node) fillChecksum(m wire.ICMP, h *Header, rest []byte) {
	acc := wire.Sum(m, 0)
	if h.Proto == wire.ProtoICMPv6 {
		acc = wire.Sum(m, wire.PseudoHeader6(h.Src, h.Dst, h.Proto, uint32(len(m)+len(rest))))
	}
	m.SetChecksum(wire.Fold(wire.Sum(rest, acc)))
}

// errorAllowed reports whether an error may be sent about g: not to nobody or many, not about what was for
// many, not about errors, and of fragments only about the first (RFC 1122 3.2.2, RFC 4443 2.4 e).
func (n *Node) errorAllowed(g *Datagram, typ, code uint8) bool {
	if g.Src.Unspecified() || g.Src.Multicast() || g.Src == wire.Broadcast4 || n.directed(g.Src, g.Port) {
		return false
	}
	if g.Dst.Is4() {
		ip := wire.IPv4(g.Packet)
		return g.Kind == Unicast && ip.FragmentOffset() == 0 && !(ip.Proto() == wire.ProtoICMP && notQuery4(g.Packet[ip.HeaderLen():]))
	}
	toMany := typ == wire.ICMPv6ParamProblem && code == 2 // RFC 4443 2.4 e.3
	if g.Kind != Unicast && !toMany {
		return false
	}
	proto, off, frag, ok := wire.Upper6(g.Packet)
	if !ok || proto != wire.ProtoICMPv6 || frag.Offset != 0 {
		return true
	}
	m := g.Packet[off:]
	return len(m) > 0 && m[0] >= 128 && m[0] != wire.ICMPv6Redirect
}

// notQuery4 reports whether the ICMP message m is none of those that may be answered by an error.
func notQuery4(m []byte) bool {
	if len(m) == 0 {
		return true
	}
	switch m[0] {
	case wire.ICMPEcho, wire.ICMPEchoReply, 13, 14, 15, 16, 17, 18: // timestamps, information, masks
		return false
	}
	return true
}
