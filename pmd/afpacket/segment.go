package afpacket

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fillChecksum completes the checksum of a packet that has only the sum of its pseudo-header in the field
// (CHECKSUM_PARTIAL). It reports false when the offsets lie outside of the packet.
func (p *received) fillChecksum() bool {
	at := p.csumStart + p.csumOffset
	if p.csumStart > len(p.data) || at+2 > len(p.data) {
		return false
	}
	sum := wire.Fold(wire.Sum(p.data[p.csumStart:], 0))
	// A UDP checksum of 0 would say that there is none (RFC 768); to TCP both zeros are the same.
	binary.BigEndian.PutUint16(p.data[at:], wire.UDPChecksum(sum))
	return true
}

// maxHeaders is the room in bytes for the headers of a segment: Ethernet (14), two VLAN tags (8), IPv4 with options (60) or
// IPv6 (40) with extension headers, TCP with options (60). A packet with more is counted as invalid.
const maxHeaders = 256

// segments cuts a large packet into segments of mss bytes, as the device would have that it was meant for
// (TSO, USO). GRO merged such packets under the same rules, so cutting restores them. Of a packet beyond 64 KiB that
// passes in pieces, each segment is a piece: several times mss bytes, which the sending device cuts.
type segments struct {
	head    [maxHeaders]byte // headers of the current segment
	l3, l4  int              // offsets of the IP and the transport header
	payload int              // offset of the payload
	mss     int
	size    int // bytes of payload of each segment but the last: mss, or of each piece
	proto   uint8
	at      int // offset of the current segment's payload in the packet's
}

// start prepares to cut p into segments, or into pieces, and reports false when its headers contradict the findings of
// the kernel. The headers are parsed again, because the length in the virtio_net_hdr is a hint only.
func (s *segments) start(p *received, pieces bool) bool {
	*s = segments{mss: p.mss, size: p.mss}
	etherType, l3, ok := wire.Network(p.data)
	if !ok || p.mss == 0 {
		return false
	}
	switch ip := p.data[l3:]; etherType {
	case wire.EtherTypeIPv4:
		if !largeHeader4(ip) {
			return false
		}
		s.l3, s.l4, s.proto = l3, l3+wire.IPv4(ip).HeaderLen(), wire.IPv4(ip).Proto()
	case wire.EtherTypeIPv6:
		proto, off, _, ok := wire.Upper6(ip)
		if !ok {
			return false
		}
		s.l3, s.l4, s.proto = l3, l3+off, proto
	default:
		return false
	}
	s.payload = s.l4 + transportLen(p.gso, s.proto, p.data[s.l4:])
	if pieces {
		s.size = pieceSize(s.payload, p.mss)
	}
	return s.payload > s.l4 && s.payload < len(p.data) && s.payload <= maxHeaders
}

// largeHeader4 reports whether the IPv4 header of a large packet is usable. Beyond 64 KiB its total length is 0.
func largeHeader4(b []byte) bool {
	ip := wire.IPv4(b)
	return ip.ValidHeader() || len(b) >= wire.IPv4Len && b[0]-0x45 <= 10 && ip.HeaderLen() <= len(b) && ip.TotalLen() == 0
}

// transportLen returns the length of the transport header, 0 where it does not fit the kind of
// large packet.
func transportLen(gso, proto uint8, b []byte) int {
	switch {
	case gso == packet.GSOUDP && proto == wire.ProtoUDP && len(b) >= wire.UDPLen:
		return wire.UDPLen
	case (gso == packet.GSOTCPv4 || gso == packet.GSOTCPv6) && proto == wire.ProtoTCP && wire.TCP(b).Valid():
		return wire.TCP(b).DataOffset()
	}
	return 0
}

// build makes the headers of the current segment and returns them and its payload, both borrowed
// until the next call.
func (s *segments) build(p *received) (head, payload []byte) {
	rest := p.data[s.payload+s.at:]
	payload = rest[:min(len(rest), s.size)]
	head = s.head[:s.payload]
	copy(head, p.data)
	last := len(payload) == len(rest)
	pseudo := s.network(head[s.l3:], len(payload))
	if s.proto == wire.ProtoTCP {
		s.tcp(wire.TCP(head[s.l4:]), last)
	} else {
		wire.UDP(head[s.l4:]).SetLen(uint16(wire.UDPLen + len(payload)))
	}
	s.checksum(head[s.l4:], payload, pseudo)
	return head, payload
}

// network sets what differs between the IP headers of the segments, and returns the sum of the
// pseudo-header. IPv4 identifications count up, as Linux does it, so that fragments of different segments
// are never reassembled into one (RFC 6864). IPv6 has none outside of a fragment header, which a large packet never has.
func (s *segments) network(ip []byte, payload int) uint32 {
	transport := s.payload - s.l4 + payload
	if v4 := wire.IPv4(ip); v4.Version() == 4 {
		v4.SetTotalLen(uint16(s.l4 - s.l3 + transport))
		v4.SetID(v4.ID() + uint16(s.at/s.mss))
		v4.FillChecksum()
		return wire.PseudoHeader4(v4.Src(), v4.Dst(), s.proto, uint32(transport))
	}
	v6 := wire.IPv6(ip)
	v6.SetPayloadLen(uint16(s.l4 - s.l3 - wire.IPv6Len + transport))
	return wire.PseudoHeader6(v6.Src(), v6.Dst(), s.proto, uint32(transport))
}

// tcp sets what differs between the TCP headers: FIN and PSH belong to the last byte, CWR to the
// first packet after a reduction (RFC 3168 6.1.2).
func (s *segments) tcp(h wire.TCP, last bool) {
	h.SetSeq(h.Seq() + uint32(s.at))
	f := h.Flags()
	if !last {
		f &^= wire.FlagFIN | wire.FlagPSH
	}
	if s.at > 0 {
		f &^= wire.FlagCWR
	}
	h.SetFlags(f)
}

// checksum fills in the transport checksum of a segment, as RFC 9293 3.1 and RFC 768 define it: it is at byte 16 of a TCP
// header and at byte 6 of a UDP header. Header and payload are summed apart, which the header's even length permits.
func (s *segments) checksum(transport, payload []byte, pseudo uint32) {
	at := 6
	if s.proto == wire.ProtoTCP {
		at = 16
	}
	if len(payload) > s.mss {
		leaveChecksum(transport, at, pseudo)
		return
	}
	binary.BigEndian.PutUint16(transport[at:], 0)
	sum := wire.Sum(payload, wire.Sum(transport, pseudo))
	binary.BigEndian.PutUint16(transport[at:], wire.UDPChecksum(wire.Fold(sum)))
}

// next goes to the next segment and reports false after the last. All have size bytes of payload but the last.
func (s *segments) next(p *received) bool {
	s.at += s.size
	return s.payload+s.at < len(p.data)
}

// expressible reports whether segmentation of a packet can be left to the device that sends it: its checksum is not
// complete, and lies within the bytes of headers that the kernel accepts.
func (p *received) expressible() bool {
	return p.partial && p.mss > 0 && p.csumStart >= wire.EthernetLen &&
		p.csumStart+p.csumOffset+2 <= len(p.data) && p.csumStart+p.csumOffset+2 <= maxHeaders
}
