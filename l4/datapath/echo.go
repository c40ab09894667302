package datapath

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// echo answers an echo request to one of the gateway's addresses in the frame that asked (RFC 1122
// 3.2.2.6, RFC 4443 4.2). IPv4 options are not echoed, but blanked, and IPv6 extension headers are removed.
func (h responder) echo(d *packet.Desc, p []byte) packet.Verdict {
	var v view
	v.readIP(d, p)
	if verdict := h.mayEcho(&v); verdict != packet.Forward {
		return verdict
	}
	if !v.is4 {
		v.p = removeExtensions(d, p, int(d.L4), d.Proto)
	}
	h.writeEcho(&v)
	return packet.Forward
}

// echoFragment answers a fragment of an echo request to one of the gateway's addresses by a fragment of the reply. Nothing is
// reassembled: data, offset and length stay, and the checksum of the message changes by its type alone, so that of a request
// that is wrong stays wrong for the receiver to see. Each fragment costs the budget of a reply, so whoever forges the
// source has no more packets sent than with whole requests.
func (h responder) echoFragment(v *view) packet.Verdict {
	if verdict := h.mayEcho(v); verdict != packet.Forward {
		return verdict
	}
	v.renumber()
	if v.is4 {
		wire.IPv4(v.p[v.d.L3:]).SetDontFragment(false) // on the way back a link may be narrower
	} else {
		v.p = removeExtensions(v.d, v.p, int(v.idAt)-4, wire.ProtoFragment)
	}
	h.writeEcho(v)
	return packet.Forward
}

// mayEcho returns Forward if a packet may be answered by an echo reply, which is counted then.
func (h responder) mayEcho(v *view) packet.Verdict {
	switch {
	case !h.snap.local(v.dst):
		return packet.DropNoService
	case h.snap.martian(v.src): // a reply to a directed broadcast would reach all of its network
		return packet.DropMartian
	case !h.mayAnswer(answerEcho, v.src):
		return packet.DropRateLimit
	}
	return packet.Forward
}

// writeEcho makes an echo request, or a fragment of one, its reply: back to the link address that it came from.
func (h responder) writeEcho(v *view) {
	eth, ip := wire.Ethernet(v.p), v.p[v.d.L3:]
	reply := wire.ICMPv6EchoReply
	if v.is4 {
		reply = wire.ICMPEchoReply
		v.src.put(ip[16:20])
		v.dst.put(ip[12:16])
		ip[8] = ownTTL
		clear(wire.IPv4(ip).Options())
		wire.IPv4(ip).FillChecksum()
	} else {
		v.src.put(ip[24:40])
		v.dst.put(ip[8:24])
		ip[7] = ownTTL
	}
	if v.part != later {
		// Addresses that change places leave the sum of the pseudo header as it is.
		icmp := wire.ICMP(v.p[v.d.L4:])
		kind := icmp.Type()
		icmp.SetType(reply)
		icmp.SetChecksum(wire.Update16(icmp.Checksum(), uint16(kind)<<8, uint16(reply)<<8))
	}
	eth.SetDst(eth.Src())
	eth.SetSrc(h.snap.Devices[v.d.Port].MAC)
}

// removeExtensions removes what lies between the IPv6 header and the header of protocol next at offset to, and returns the
// packet: its link header and IPv6 header move up to that header. The sum of the pseudo header does not cover extension
// headers (RFC 8200 8.1), so the transport checksum stays right.
func removeExtensions(d *packet.Desc, p []byte, to int, next uint8) []byte {
	head := int(d.L3) + wire.IPv6Len
	n := to - head
	if n == 0 {
		return p
	}
	ip := wire.IPv6(p[d.L3:])
	ip.SetPayloadLen(ip.PayloadLen() - uint16(n))
	ip[6] = next
	copy(p[n:], p[:head])
	l3 := d.L3
	moveStart(d, n)
	d.L3 = l3
	d.Flags &^= packet.FlagOptions
	return p[n:]
}

// isEcho reports whether a first fragment begins an echo request that can be answered in fragments. Extension headers
// behind the fragment header would have to leave the datagram, and so move its data.
func isEcho(d *packet.Desc, p []byte, f *fragmentHeader) bool {
	if d.L4 == 0 || d.Payload == 0 {
		return false
	}
	if d.Flags.Has(packet.FlagIPv4) {
		return d.Proto == wire.ProtoICMP && p[d.L4] == wire.ICMPEcho
	}
	return d.L4 == f.idAt+4 && d.Proto == wire.ProtoICMPv6 && p[d.L4] == wire.ICMPv6Echo
}
