package datapath

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// icmp decides an ICMP message over IPv4, or an ICMPv6 message over IPv6: echo requests and neighbour
// solicitations are answered, errors go where the packet that they quote came from.
func (h *Handler) icmp(d *packet.Desc, p []byte) packet.Verdict {
	is4, kind := d.Flags.Has(packet.FlagIPv4), p[d.L4]
	if !is4 && kind == wire.ICMPv6NeighborSolicit {
		return h.nd(d, p)
	}
	switch {
	case wire.Ethernet(p).Dst() != h.snap.Devices[d.Port].MAC:
		return packet.DropUnsupported
	case d.Payload == 0:
		return packet.DropTruncated
	case !d.Flags.Has(packet.FlagL4ChecksumOK): // nothing in it can be believed
		return packet.DropL4Checksum
	case is4 && kind == wire.ICMPEcho, !is4 && kind == wire.ICMPv6Echo:
		return h.echo(d, p)
	case carriesQuote(kind, is4):
		return h.icmpError(d, p)
	}
	return packet.DropUnsupported
}

// carriesQuote reports whether a message of the type is an error that is passed on: it quotes the packet that
// caused it. Redirects are for hosts on the link, and source quench is of no use (RFC 6633).
func carriesQuote(kind uint8, is4 bool) bool {
	if is4 {
		return kind == wire.ICMPUnreachable || kind == wire.ICMPTimeExceeded || kind == wire.ICMPParamProblem
	}
	return kind >= wire.ICMPv6Unreachable && kind <= wire.ICMPv6ParamProblem
}

// echo answers an echo request to one of the gateway's addresses in the frame that asked (RFC 1122
// 3.2.2.6, RFC 4443 4.2). IPv4 options are not echoed, but blanked.
func (h *Handler) echo(d *packet.Desc, p []byte) packet.Verdict {
	var v view
	v.readIP(d, p)
	switch {
	case !h.snap.local(v.dst):
		return packet.DropNoService
	case v.src.martian() || !v.is4 && d.Flags.Has(packet.FlagOptions):
		return packet.DropUnsupported
	case !h.mayAnswer(answerEcho, v.src):
		return packet.DropRateLimit
	}
	to := wire.Ethernet(p).Src()
	ip, icmp := p[d.L3:], wire.ICMP(p[d.L4:])
	kind := icmp.Type()
	if v.is4 {
		icmp.SetType(wire.ICMPEchoReply)
		v.src.put(ip[16:20])
		v.dst.put(ip[12:16])
		ip[8] = ownTTL
		clear(wire.IPv4(ip).Options())
		wire.IPv4(ip).FillChecksum()
	} else {
		icmp.SetType(wire.ICMPv6EchoReply)
		v.src.put(ip[24:40])
		v.dst.put(ip[8:24])
		ip[7] = ownTTL
	}
	// Addresses that change places leave the sum of the pseudo header as it is.
	icmp.SetChecksum(wire.Update16(icmp.Checksum(), uint16(kind)<<8, uint16(icmp.Type())<<8))
	wire.Ethernet(p).SetDst(to)
	wire.Ethernet(p).SetSrc(h.snap.Devices[d.Port].MAC)
	return packet.Forward
}
