package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Reject tells the sender of a packet that came in on dev why it is not taken: PortUnreachable,
// ProtoUnreachable, HostUnreachable, NetUnreachable or Prohibited. pkt is the packet from its IP header
// on, or as much of its start as there is. Nothing is sent where an error must not be (RFC 1122 3.2.2,
// RFC 4443 2.4 e), or too many were.
func (n *Node) Reject(now clock.Time, dev uint8, pkt []byte, k ErrorKind) {
	n.setNow(now)
	g := Datagram{Dev: dev, Packet: pkt}
	switch {
	case wire.IPv4(pkt).ValidHeader():
		g.Src, g.Dst = wire.AddrFrom4(wire.IPv4(pkt).Src()), wire.AddrFrom4(wire.IPv4(pkt).Dst())
	case wire.IPv6(pkt).ValidHeader():
		g.Src, g.Dst = wire.IPv6(pkt).Src(), wire.IPv6(pkt).Dst()
	default:
		return
	}
	g.Kind = n.Local(dev, g.Dst)
	n.reject(&g, k)
}

// reject sends the error k about g. Over IPv6 an unknown protocol is a parameter problem, which points at the octet that
// names it (RFC 1122 3.2.2.1, RFC 4443 3.4).
func (n *Node) reject(g *Datagram, k ErrorKind) {
	m := k.Message(g.Dst.Is4())
	if k == ProtoUnreachable && !g.Dst.Is4() {
		m.Rest = uint32(lastNextHeader(g.Packet))
	}
	n.sendICMPError(g, m)
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
	n.sendICMPError(g, ICMPMessage{wire.ICMPv6ParamProblem, code, uint32(off)})
}

// sendICMPError sends the error m about g, if it may be sent. Its source is the address that the packet was for, so
// that the sender recognizes whom it is from (RFC 1122 3.2.2, RFC 4443 2.2); of packets to groups one of ours.
func (n *Node) sendICMPError(g *Datagram, m ICMPMessage) {
	if !n.errorAllowed(g, m) {
		return
	}
	if !n.errors.Take(n.now, 1) {
		n.stats.ErrorsLimited++
		return
	}
	src := g.Dst
	if g.Kind != Unicast {
		own, ok := n.source(g.Src, g.Dev)
		if !ok {
			return
		}
		src = own
	}
	h := Header{Src: src, Dst: g.Src, Proto: wire.ProtoICMP}
	if !src.Is4() {
		h.Proto = wire.ProtoICMPv6
	}
	quote := g.Packet[:min(len(g.Packet), MaxQuote(src.Is4()))]
	n.parts = [2][]byte{m.Append(n.head[:0], src, g.Src, quote), quote}
	if p, _ := n.reversePath(g); p != nil && n.send(p, &h, n.parts[:]) == packet.Forward {
		n.stats.Errors++
	}
}

// errorAllowed reports whether m may be sent about g: ErrorAllowed, and what only this host knows: directed broadcasts
// as source, and what was for many, of which IPv6 has unknown options reported nevertheless (RFC 4443 2.4 (e.3)). This
// host may send errors to its own loopback address.
func (n *Node) errorAllowed(g *Datagram, m ICMPMessage) bool {
	if g.Src.Multicast() || g.Src == wire.Broadcast4 || g.Src.Unspecified() || n.isDirectedBroadcast(g.Src, g.Dev) {
		return false
	}
	toMany := m.Type == wire.ICMPv6ParamProblem && m.Code == icmp6UnknownOption && !g.Dst.Is4()
	return (g.Kind == Unicast || toMany) && ErrorAllowed(g.Packet)
}
