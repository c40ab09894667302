package ip

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// ICMP errors as a host and a gateway share them: their contents, the packets that may be answered by one, how much they
// quote, and how a quoted packet is read. Node adds routes and limits; the gateway writes the message into the frame of
// the packet itself.

// ICMPMessage is the header of an ICMP or ICMPv6 error without its checksum.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Type      |     Code      |           Checksum            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|       Rest: unused, the MTU of TooBig, or a pointer           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 792, RFC 1191 4, RFC 4443 3.
type ICMPMessage struct {
	Type, Code uint8
	Rest       uint32
}

// Message returns the ICMP or ICMPv6 message of kind k. The caller adds the MTU of TooBig and the pointers of
// ParameterProblem and of ProtoUnreachable over IPv6, which is a parameter problem there (RFC 4443 3.4).
func (k ErrorKind) Message(is4 bool) ICMPMessage {
	if is4 {
		return messages4[k]
	}
	return messages6[k]
}

var messages4 = [...]ICMPMessage{
	NetUnreachable:   {Type: wire.ICMPUnreachable, Code: wire.ICMPNetUnreachable},
	HostUnreachable:  {Type: wire.ICMPUnreachable, Code: wire.ICMPHostUnreachable},
	ProtoUnreachable: {Type: wire.ICMPUnreachable, Code: wire.ICMPProtoUnreachable},
	PortUnreachable:  {Type: wire.ICMPUnreachable, Code: wire.ICMPPortUnreachable},
	TooBig:           {Type: wire.ICMPUnreachable, Code: wire.ICMPFragmentationNeeded},
	Prohibited:       {Type: wire.ICMPUnreachable, Code: wire.ICMPAdminProhibited},
	TimeExceeded:     {Type: wire.ICMPTimeExceeded},
	ParameterProblem: {Type: wire.ICMPParamProblem},
}

var messages6 = [...]ICMPMessage{
	NetUnreachable:   {Type: wire.ICMPv6Unreachable, Code: wire.ICMPv6NoRoute},
	HostUnreachable:  {Type: wire.ICMPv6Unreachable, Code: wire.ICMPv6AddressUnreachable},
	ProtoUnreachable: {Type: wire.ICMPv6ParamProblem, Code: icmp6UnknownHeader},
	PortUnreachable:  {Type: wire.ICMPv6Unreachable, Code: wire.ICMPv6PortUnreachable},
	TooBig:           {Type: wire.ICMPv6TooBig},
	Prohibited:       {Type: wire.ICMPv6Unreachable, Code: wire.ICMPv6AdminProhibited},
	TimeExceeded:     {Type: wire.ICMPv6TimeExceeded},
	ParameterProblem: {Type: wire.ICMPv6ParamProblem},
}

// Codes of ICMPv6 parameter problems (RFC 4443 3.4, RFC 7112 5).
const (
	icmp6BadField      = 0
	icmp6UnknownHeader = 1
	icmp6UnknownOption = 2
	icmp6ShortFragment = 3
)

// Append appends the 8 bytes of the message to b, with the checksum over them and the quote that will follow, for a
// packet from src to dst. It borrows quote.
func (m ICMPMessage) Append(b []byte, src, dst wire.Addr, quote []byte) []byte {
	at := len(b)
	b = wire.AppendICMP(b, m.Type, m.Code, m.Rest)
	var acc uint32
	if !src.Is4() { // ICMP over IPv4 has no pseudo header
		acc = wire.PseudoHeader6(src, dst, wire.ProtoICMPv6, uint32(wire.ICMPLen+len(quote)))
	}
	wire.ICMP(b[at:]).SetChecksum(wire.Fold(wire.Sum(quote, wire.Sum(b[at:], acc))))
	return b
}

// MaxQuote returns how many bytes of a packet an error quotes: as much as fits into what every host takes without
// fragments, 576 bytes of IPv4 (RFC 1812 4.3.2.3) and 1280 of IPv6 (RFC 4443 2.4 (c)).
func MaxQuote(is4 bool) int {
	if is4 {
		return 576 - wire.IPv4Len - wire.ICMPLen
	}
	return MinMTU6 - wire.IPv6Len - wire.ICMPLen
}

// ErrorAllowed reports whether a packet may be answered by an ICMP error, as far as its headers behind the addresses
// say: it is no ICMP error itself, since two hosts would send them to and fro for ever, and over IPv4 no fragment but
// the first, since one datagram would be answered many times. (Over IPv6 a malformed later fragment is reported, RFC
// 8200 4.5.) The caller checks the addresses: the source is one host's and not wire.Addr.Martian, and the packet was
// not for many. pkt begins with a valid IP header.
//
// RFC 1122 3.2.2, RFC 1812 4.3.2.7, RFC 4443 2.4 (e).
func ErrorAllowed(pkt []byte) bool {
	if wire.Version(pkt) == 4 {
		ip := wire.IPv4(pkt)
		return ip.FragmentOffset() == 0 && (ip.Proto() != wire.ProtoICMP || isQuery4(pkt[min(ip.HeaderLen(), len(pkt)):]))
	}
	proto, off, frag, ok := wire.Upper6(pkt)
	return !ok || proto != wire.ProtoICMPv6 || frag.Offset != 0 || isInformational6(pkt[off:])
}

// isQuery4 reports whether the ICMP message m is a query or its answer. Unknown types count as errors.
func isQuery4(m []byte) bool {
	if len(m) == 0 {
		return false
	}
	switch m[0] {
	case wire.ICMPEcho, wire.ICMPEchoReply, 13, 14, 15, 16, 17, 18: // timestamps, information, address masks
		return true
	}
	return false
}

// isInformational6 reports whether the ICMPv6 message m may be answered by an error: types from 128 on but redirects
// (RFC 4443 2.1, 2.4 (e.2)).
func isInformational6(m []byte) bool {
	return len(m) > 0 && m[0] >= 128 && m[0] != wire.ICMPv6Redirect
}

// Quote is the packet that an ICMP error quotes the start of.
type Quote struct {
	Flow  wire.Tuple // Local is its source; ports of TCP and UDP, the identifier of an echo request as LocalPort
	Proto uint8
	L4    int // offset of the transport header
	Size  int // bytes of the whole packet, from its IP header on
}

// ReadQuote reads a quoted packet. Routers quote at least 8 bytes behind the IP header (RFC 792), so the rest need not
// be there, and lengths are those of the whole packet. The verdict is Forward, or the reason why the quote names no flow:
// DropMalformed, DropFragment (it has no ports), DropTruncated. Proto and L4 are right where L4 is not 0.
func ReadQuote(b []byte) (q Quote, why packet.Verdict) {
	switch {
	case len(b) == 0:
		return q, packet.DropTruncated
	case wire.Version(b) == 4:
		why = q.read4(b)
	case wire.Version(b) == 6:
		why = q.read6(b)
	default:
		return q, packet.DropMalformed
	}
	if why != packet.Forward {
		return q, why
	}
	if len(b) < q.L4+8 {
		return q, packet.DropTruncated
	}
	q.readPorts(b[q.L4:])
	return q, packet.Forward
}

func (q *Quote) read4(b wire.IPv4) packet.Verdict {
	if len(b) < wire.IPv4Len {
		return packet.DropTruncated
	}
	n := b.HeaderLen()
	switch q.Size = int(b.TotalLen()); {
	case n < wire.IPv4Len || q.Size < n+8:
		return packet.DropMalformed
	case b.FragmentOffset() != 0:
		return packet.DropFragment
	}
	q.Flow.Local, q.Flow.Remote = wire.AddrFrom4(b.Src()), wire.AddrFrom4(b.Dst())
	q.L4, q.Proto = n, b.Proto()
	return packet.Forward
}

func (q *Quote) read6(b wire.IPv6) packet.Verdict {
	if len(b) < wire.IPv6Len {
		return packet.DropTruncated
	}
	q.Size = wire.IPv6Len + int(b.PayloadLen())
	proto, off, frag, ok := wire.Upper6(b)
	switch {
	case !ok && q.Size > len(b):
		return packet.DropTruncated // the chain of headers goes on beyond what is quoted
	case !ok || q.Size < off+8:
		return packet.DropMalformed
	case frag.Offset != 0:
		return packet.DropFragment
	}
	q.Flow.Local, q.Flow.Remote = b.Src(), b.Dst()
	q.L4, q.Proto = off, proto
	return packet.Forward
}

// readPorts reads the ports from the first 8 bytes of the transport header.
func (q *Quote) readPorts(b []byte) {
	switch {
	case q.Proto == wire.ProtoTCP || q.Proto == wire.ProtoUDP:
		q.Flow.LocalPort, q.Flow.RemotePort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case q.Proto == wire.ProtoICMP && b[0] == wire.ICMPEcho, q.Proto == wire.ProtoICMPv6 && b[0] == wire.ICMPv6Echo:
		q.Flow.LocalPort = binary.BigEndian.Uint16(b[4:])
	}
}
