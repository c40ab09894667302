package ip

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inputICMP takes an ICMP message with a right checksum (RFC 792, RFC 1122 3.2.2). Redirects are counted and ignored: any
// host on the link can forge one, and a route learned from it would send this host's traffic to the forger. Source quench
// (RFC 6633), timestamps and address masks are obsolete or reveal state, and are dropped.
func (n *Node) inputICMP(g *Datagram) packet.Verdict {
	m := wire.ICMP(g.Payload)
	if !m.Valid() {
		return packet.DropMalformed
	}
	switch m.Type() {
	case wire.ICMPEcho:
		return n.replyEcho(g, wire.ICMPEchoReply)
	case wire.ICMPEchoReply:
		return n.deliverEchoReply(g)
	case wire.ICMPUnreachable, wire.ICMPTimeExceeded, wire.ICMPParamProblem:
		return n.handleError4(g, m)
	case wire.ICMPRedirect:
		n.stats.Redirects++
	}
	return packet.DropICMP
}

// inputICMP6 takes an ICMPv6 message with a right checksum (RFC 4443). Unknown informational messages are dropped without an
// error (RFC 4443 2.4 (b)).
func (n *Node) inputICMP6(frame []byte, g *Datagram) packet.Verdict {
	m := wire.ICMPv6(g.Payload)
	if !m.Valid() {
		return packet.DropMalformed
	}
	switch t := m.Type(); {
	case m.Error():
		return n.handleError6(g, m)
	case t == wire.ICMPv6Echo:
		return n.replyEcho(g, wire.ICMPv6EchoReply)
	case t == wire.ICMPv6EchoReply:
		return n.deliverEchoReply(g)
	case t >= wire.ICMPv6RouterSolicit && t <= wire.ICMPv6Redirect:
		return n.handleDiscovery(frame, g, m)
	case t == mldQuery || t == mldReport1 || t == mldDone1 || t == mldReport2:
		if n.cfg.Follower {
			return packet.Handover
		}
		return n.inputMLD(g, m)
	}
	return packet.DropICMP
}

// handleDiscovery passes on a neighbour discovery message, unless it has extension headers or was reassembled (RFC 6980 5):
// switches that filter forged advertisements look at unfragmented messages only.
func (n *Node) handleDiscovery(frame []byte, g *Datagram, m wire.ICMPv6) packet.Verdict {
	if len(g.Packet) != wire.IPv6Len+len(m) || g.Packets != 1 {
		return packet.DropNeighbor
	}
	if n.cfg.Follower {
		return packet.Handover
	}
	return n.inputND(g.Dev, frame, wire.IPv6(g.Packet), m)
}

// deliverEchoReply returns an echo reply as a datagram, if the caller serves the protocol (Serve).
func (n *Node) deliverEchoReply(g *Datagram) packet.Verdict {
	if !n.serves(g.Proto) {
		return packet.DropICMP
	}
	return packet.Undecided
}

// replyEcho answers an echo request by the same message with type reply (RFC 1122 3.2.2.6, RFC 4443 4.2). One to a group
// or a broadcast address is not answered, or one forged request has all hosts of a network answer its victim (smurf; RFC
// 1122 3.2.2.6 permits to discard it). The checksum is updated for the type alone (RFC 1624): exchanging the addresses
// does not change the sum of an IPv6 pseudo-header.
func (n *Node) replyEcho(g *Datagram, reply uint8) packet.Verdict {
	if g.Kind != Unicast || g.Src.Unspecified() {
		return packet.DropICMP
	}
	m := wire.ICMP(append(n.head[:0], g.Payload[:wire.ICMPLen]...))
	was := uint16(m.Type())<<8 | uint16(m.Code())
	m.SetType(reply)
	m.SetChecksum(wire.Update16(m.Checksum(), was, uint16(reply)<<8|uint16(m.Code())))
	h := Header{Src: g.Dst, Dst: g.Src, Proto: g.Proto, TOS: g.TOS &^ 3}
	n.parts = [2][]byte{n.head[:wire.ICMPLen], g.Payload[wire.ICMPLen:]}
	return n.sendReply(g, &h)
}

// sendReply sends n.parts to the source of g. Echo replies are not limited in rate: each costs its sender a request of the
// same size.
func (n *Node) sendReply(g *Datagram, h *Header) packet.Verdict {
	p, v := n.reversePath(g)
	if p == nil {
		return v
	}
	if v := n.send(p, h, n.parts[:]); v != packet.Forward {
		return v
	}
	n.stats.Echoes++
	return packet.Deliver
}

// reversePath returns the path to the source of g, by the routes and not back by the device of g (RFC 1122 3.3.4.2). A
// link-local source is on the link that g came from.
func (n *Node) reversePath(g *Datagram) (*Path, packet.Verdict) {
	dev := AnyDev
	if g.Dev == LoopDev || g.Src.LinkLocal() {
		dev = g.Dev
	}
	return n.route(g.Src, g.Dst, dev)
}
