package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// quote is the start of a packet, as an ICMP error quotes it. It borrows the frame.
type quote struct {
	b            []byte // from the IP header on, as much as there is
	l4           int    // offset of the transport header, of which the first 8 bytes are there
	src, dst     addr
	sport, dport uint16
	proto        uint8
	is4          bool
}

// parseQuote reads a quoted packet: Forward, or why it says nothing. Routers quote at least 8 bytes behind
// the IP header (RFC 792), so the rest need not be there, and lengths are those of the whole packet.
func parseQuote(b []byte, is4 bool) (q quote, why packet.Verdict) {
	q = quote{b: b, is4: is4}
	why = packet.DropTruncated
	switch {
	case is4 && len(b) >= wire.IPv4Len:
		why = q.read4()
	case !is4 && len(b) >= wire.IPv6Len:
		why = q.read6()
	}
	if why != packet.Forward {
		return q, why
	}
	if q.proto != wire.ProtoTCP && q.proto != wire.ProtoUDP {
		return q, packet.DropUnsupported // also errors about errors (RFC 1122 3.2.2)
	}
	if len(b) < q.l4+8 {
		return q, packet.DropTruncated
	}
	ports := binary.BigEndian.Uint32(b[q.l4:])
	q.sport, q.dport = uint16(ports>>16), uint16(ports)
	return q, packet.Forward
}

func (q *quote) read4() packet.Verdict {
	ip := wire.IPv4(q.b)
	q.l4, q.proto = ip.HeaderLen(), ip.Proto()
	q.src, q.dst = addr4(ip[12:16]), addr4(ip[16:20])
	switch {
	case ip.Version() != 4 || q.l4 < wire.IPv4Len || int(ip.TotalLen()) < q.l4+8:
		return packet.DropMalformed
	case ip.FragmentOffset() != 0:
		return packet.DropFragment
	}
	return packet.Forward
}

func (q *quote) read6() packet.Verdict {
	ip := wire.IPv6(q.b)
	if ip.Version() != 6 {
		return packet.DropMalformed
	}
	q.src, q.dst = addr6(ip[8:24]), addr6(ip[24:40])
	proto, off, frag, ok := wire.Upper6(ip)
	switch {
	case !ok && wire.IPv6Len+int(ip.PayloadLen()) > len(q.b):
		return packet.DropTruncated // the chain of headers goes on beyond what is quoted
	case !ok || wire.IPv6Len+int(ip.PayloadLen()) < off+8:
		return packet.DropMalformed
	case frag.Offset != 0:
		return packet.DropFragment
	}
	q.l4, q.proto = off, proto
	return packet.Forward
}

// rewrite makes the quoted packet the one that its sender knows, and returns what that adds to a checksum
// over it. The checksums inside are updated as far as they are quoted.
func (q *quote) rewrite(r *rewrite) uint16 {
	covered := q.b[:min(len(q.b), q.l4+18)&^1] // 18: up to the checksum of TCP
	before := wire.Sum(covered, 0)
	if q.is4 {
		ip := wire.IPv4(q.b[:20])
		r.src.put(ip[12:16])
		r.dst.put(ip[16:20])
		ip.SetChecksum(wire.Apply(ip.Checksum(), r.l3))
	} else {
		r.src.put(q.b[8:24])
		r.dst.put(q.b[24:40])
	}
	l4 := q.b[q.l4:]
	binary.BigEndian.PutUint32(l4, uint32(r.sport)<<16|uint32(r.dport))
	switch {
	case q.proto == wire.ProtoUDP:
		wire.UDP(l4).Update(r.l4)
	case len(l4) >= 18:
		wire.TCP(l4).SetChecksum(wire.Apply(wire.TCP(l4).Checksum(), r.l4))
	}
	return wire.AddDiff(uint16(0xffff-before), uint16(wire.Sum(covered, 0)))
}
