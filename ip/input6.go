package ip

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// input6 takes an IPv6 packet (RFC 8200). What follows the payload length, such as the padding of short Ethernet frames,
// is cut off first, or it would count as payload.
func (n *Node) input6(dev uint8, frame []byte, d *packet.Desc, g *Datagram) packet.Verdict {
	ip := wire.IPv6(frame[d.L3:])
	if !ip.Valid() {
		return packet.DropMalformed
	}
	ip = ip[:wire.IPv6Len+int(ip.PayloadLen())]
	*g = Datagram{
		Src: wire.Addr(ip.Src()), Dst: wire.Addr(ip.Dst()), Proto: ip.NextHeader(), TTL: ip.HopLimit(), TOS: ip.TrafficClass(), Dev: dev,
		FlowLabel: ip.FlowLabel(), Packets: 1, Payload: ip.Payload(), Packet: ip,
	}
	// A mapped address on the wire would pass for an IPv4 peer (RFC 4942 2.2).
	if g.Src.Is4() || n.martian(dev, g.Src) {
		return packet.DropMartian
	}
	if g.Dst.Is4() {
		return packet.DropDenied
	}
	if v := n.classify(dev, frame, g); v != packet.Undecided {
		return v
	}
	at := wire.IPv6Len
	if extended(g.Proto) {
		w := walk6{pkt: ip, at: wire.IPv6Len, next: ip.NextHeader(), from: 6}
		if v := n.walk(&w, g); v != packet.Undecided {
			return v
		}
		g.Proto, g.Payload, at = w.next, w.pkt[w.at:], w.at
	}
	// What the header pass found holds only where it ended at the same transport header as this walk.
	return n.deliver6(frame, g, g.Packets == 1 && checksumFound(d) && int(d.L4) == int(d.L3)+at)
}

// deliver6 passes on what follows the extension headers. Only ICMPv6 may have the unspecified source, for duplicate address
// detection and router solicitations (RFC 4291 2.5.2, RFC 4861 4.1, 4.3).
func (n *Node) deliver6(frame []byte, g *Datagram, checked bool) packet.Verdict {
	if g.Proto == wire.ProtoNone {
		return packet.Deliver // RFC 8200 4.7
	}
	if g.Src.Unspecified() && g.Proto != wire.ProtoICMPv6 {
		return packet.DropMartian
	}
	if !checked {
		checked = checksum6(g)
	}
	return n.deliver(frame, g, checked)
}

// checksum6 verifies the transport checksum of g. It is needed where the header pass does not reach the transport header
// that the walk here found, as in atomic fragments, and for reassembled datagrams. A UDP checksum of zero is wrong over
// IPv6 (RFC 8200 8.1), so it is not an exception.
func checksum6(g *Datagram) bool {
	if len(g.Payload) < 8 {
		return false
	}
	b := g.Payload
	if g.Proto == wire.ProtoUDP {
		u := wire.UDP(b)
		if !u.Valid() {
			return false
		}
		b = b[:u.Len()]
	}
	return wire.Fold(wire.Sum(b, wire.PseudoHeader6(g.Src, g.Dst, g.Proto, uint32(len(b))))) == 0
}

// extended reports whether proto is an extension header that is walked over here (RFC 8200 4).
func extended(proto uint8) bool {
	switch proto {
	case wire.ProtoHopByHop, wire.ProtoRouting, wire.ProtoFragment, wire.ProtoDestOpts:
		return true
	}
	return false
}

// walk6 is a position in the extension headers of a packet. When a fragment completes a datagram, the walk goes on in
// that datagram. An unknown header is reported by the offset of the octet that names it (RFC 4443 3.4), so the walk keeps
// the offset of the next-header field that led to the current header.
type walk6 struct {
	pkt   []byte
	at    int   // offset of the current header
	next  uint8 // its protocol
	from  int   // offset of the octet that names it
	count int   // headers so far, at most wire.MaxExtHeaders, across reassembly: a bound on the work of one packet
}

// walk processes the extension headers in the order in which they appear (RFC 8200 4). It ends at the upper layer with
// Undecided, or earlier with the verdict on the packet. A fragment header has 8 bytes whatever its second octet: that
// is reserved, not a length (RFC 8200 4.5).
func (n *Node) walk(w *walk6, g *Datagram) packet.Verdict {
	for extended(w.next) {
		h := w.pkt[w.at:]
		if len(h) < 8 {
			return packet.DropMalformed
		}
		size := (int(h[1]) + 1) * 8
		if w.next == wire.ProtoFragment {
			size = wire.FragmentHeaderLen
		}
		if w.count++; size > len(h) || w.count > wire.MaxExtHeaders {
			return packet.DropMalformed
		}
		whole := w.next == wire.ProtoFragment && !isAtomic(h)
		if v := n.handleExtension(w, g, h[:size]); v != packet.Undecided {
			return v
		}
		if !whole {
			w.from, w.next, w.at = w.at, h[0], w.at+size
		}
	}
	return packet.Undecided
}

// handleExtension processes the header h of w.
func (n *Node) handleExtension(w *walk6, g *Datagram, h []byte) packet.Verdict {
	switch w.next {
	case wire.ProtoHopByHop:
		if w.at != wire.IPv6Len { // RFC 8200 4.1: nowhere else, and 4: as an unknown header
			n.parameterProblem(g, icmp6UnknownHeader, w.from)
			return packet.DropMalformed
		}
		return n.options6(w, g, h)
	case wire.ProtoDestOpts:
		return n.options6(w, g, h)
	case wire.ProtoRouting:
		if wire.Routing6(h).SegmentsLeft() == 0 {
			return packet.Undecided
		}
		n.parameterProblem(g, icmp6BadField, w.at+2) // RFC 8200 4.4; type 0 is forbidden (RFC 5095)
		return packet.DropUnsupported
	}
	if isAtomic(h) {
		return packet.Undecided // RFC 6946: a packet by itself
	}
	return n.fragment6(w, g, h)
}

// isAtomic reports whether a fragment header has offset 0 and no more to follow.
func isAtomic(h []byte) bool { return h[2] == 0 && h[3]&0xf9 == 0 }

// options6 checks the options of a hop-by-hop or destination options header. The top two bits of an unknown option's type
// say what to do (RFC 8200 4.2):
//
//	00  skip it
//	01  drop the packet
//	10  drop it, and send a parameter problem
//	11  drop it, and send a parameter problem unless the destination is a group
func (n *Node) options6(w *walk6, g *Datagram, h []byte) packet.Verdict {
	for i := 2; i < len(h); {
		t := h[i]
		if t == wire.Option6Pad1 {
			i++
			continue
		}
		if i+2 > len(h) || i+2+int(h[i+1]) > len(h) {
			return packet.DropMalformed
		}
		if t != wire.Option6PadN && t != wire.Option6RouterAlert && t>>6 != 0 {
			n.unknownOption(g, t, w.at+i)
			return packet.DropUnsupported
		}
		i += 2 + int(h[i+1])
	}
	return packet.Undecided
}

// unknownOption reports an option of type t at offset off, as its top two bits ask.
func (n *Node) unknownOption(g *Datagram, t uint8, off int) {
	if t>>6 == 2 || t>>6 == 3 && !g.Dst.Multicast() {
		n.parameterProblem(g, icmp6UnknownOption, off)
	}
}
