package afpacket

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Packets beyond 64 KiB (BIG TCP): Linux builds them where gso_max_size or gso_ipv4_max_size of the sending interface, or
// gro_max_size of the receiving one, exceeds 65536. No IP header can express their length, and neither can a
// descriptor, so they never pass whole: they are received into the scratch buffer and passed in pieces of at most
// 64 KiB, each a large packet itself, or in segments.

// mostPacket is the longest packet that Linux builds, bytes: GSO_MAX_SIZE, 8 times 65535, with its link header.
const mostPacket = 8*0xffff + wire.EthernetLen

// mostPiece is the longest piece of such a packet, Ethernet header and tags included: what a descriptor and an IP header of
// either version can express.
const mostPiece = 0xffff

// passage selects how the packet at the head of the ring is passed on.
type passage uint8

const (
	passAlone    passage = iota // one complete packet
	passWhole                   // a large one, in one piece: the sending device cuts it
	passPieces                  // one beyond 64 KiB, in several large ones
	passSegments                // a large one, cut here into segments
)

// passage decides how the packet is passed on. large reports whether large packets may pass.
func (p *received) passage(large bool) passage {
	switch {
	case p.gso == packet.GSONone || len(p.data) < wire.EthernetLen:
		return passAlone
	case !large || !p.expressible():
		return passSegments
	case p.size > mostPiece:
		return passPieces
	case p.queued || len(p.data) == p.size:
		return passWhole
	}
	return passSegments
}

// removeJumbo removes the jumbo payload option that Linux puts in front of an IPv6 packet beyond 64 KiB: its pieces are
// shorter, and the option must not be used there (RFC 2675 3). The headers before it move to its place.
//
//	Ethernet | IPv6, next header 0, payload length 0 | next, 0, 0xc2, 4, length (4) | TCP
func (p *received) removeJumbo() {
	etherType, l3, ok := wire.Network(p.data)
	at := l3 + wire.IPv6Len
	if !ok || etherType != wire.EtherTypeIPv6 || len(p.data) < at+jumboLen {
		return
	}
	ip, opt := wire.IPv6(p.data[l3:]), p.data[at:at+jumboLen]
	if ip.NextHeader() != wire.ProtoHopByHop || ip.PayloadLen() != 0 || opt[1] != 0 || opt[2] != jumboOption || opt[3] != 4 {
		return
	}
	ip.SetNextHeader(opt[0])
	copy(p.data[jumboLen:], p.data[:at])
	p.data = p.data[jumboLen:]
	p.size -= jumboLen
	p.csumStart -= jumboLen
	p.headers -= jumboLen
}

// A hop-by-hop header with the jumbo payload option alone (RFC 2675 2).
const (
	jumboLen    = 8
	jumboOption = 0xc2
)
