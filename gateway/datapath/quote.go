package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/ip"
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

// parseQuote reads a quoted packet of TCP or UDP: Forward, or why it names no connection. Its version is that of the
// error itself.
func parseQuote(b []byte, is4 bool) (q quote, why packet.Verdict) {
	if len(b) > 0 && (wire.Version(b) == 4) != is4 {
		return q, packet.DropMalformed
	}
	r, why := ip.ReadQuote(b)
	switch {
	case r.L4 == 0:
		return q, why
	case r.Proto != wire.ProtoTCP && r.Proto != wire.ProtoUDP:
		return q, packet.DropUnsupported // also errors about errors (RFC 1122 3.2.2)
	}
	return quote{
		b: b, l4: r.L4, src: addr6(r.Flow.Local[:]), dst: addr6(r.Flow.Remote[:]),
		sport: r.Flow.LocalPort, dport: r.Flow.RemotePort, proto: r.Proto, is4: is4,
	}, why
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
