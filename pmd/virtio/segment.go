package virtio

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// maxHeaders is the room in bytes for the headers of a segment: Ethernet, two VLAN tags, IPv4 with options or IPv6 with extension
// headers, TCP with options. A large packet with more is invalid.
const maxHeaders = 256

// segmenter cuts a large packet into segments, as the device would have that one end has left it to and the other end does
// not have (TSO, USO).
type segmenter struct {
	data    []byte           // the packet; nil while there is none
	head    [maxHeaders]byte // headers of the current segment
	l3, l4  int              // offsets of the IP and the transport header
	payload int
	mss     int
	proto   uint8
	at      int // offset of the current segment's payload in the packet's
}

func (s *segmenter) active() bool { return s.data != nil }
func (s *segmenter) stop()        { s.data = nil }

// start prepares to cut a packet, which it borrows, and reports false when its headers contradict h: they are parsed again, because
// the lengths in h are the sender's word.
func (s *segmenter) start(data []byte, h *header) bool {
	*s = segmenter{mss: int(h.segmentSize)}
	etherType, l3, ok := wire.Network(data)
	if !ok || s.mss == 0 || h.flags&packet.OffloadNeedsChecksum == 0 {
		return false
	}
	s.l3 = l3
	switch ip := data[l3:]; etherType {
	case wire.EtherTypeIPv4:
		if !wire.IPv4(ip).ValidHeader() {
			return false
		}
		s.l4, s.proto = l3+wire.IPv4(ip).HeaderLen(), wire.IPv4(ip).Proto()
	case wire.EtherTypeIPv6:
		proto, off, _, ok := wire.Upper6(ip)
		if !ok {
			return false
		}
		s.l4, s.proto = l3+off, proto
	default:
		return false
	}
	length := s.transportLen(h.gso&^packet.GSOECN, etherType, data[s.l4:])
	s.payload = s.l4 + length
	if length == 0 || s.payload >= len(data) || s.payload > maxHeaders {
		return false
	}
	s.data = data
	return true
}

// transportLen returns the length of the transport header, 0 where it does not fit the kind of large packet.
func (s *segmenter) transportLen(gso uint8, etherType uint16, b []byte) int {
	tcp := gso == packet.GSOTCPv4 && etherType == wire.EtherTypeIPv4 || gso == packet.GSOTCPv6 && etherType == wire.EtherTypeIPv6
	switch {
	case gso == packet.GSOUDP && s.proto == wire.ProtoUDP && len(b) >= wire.UDPLen:
		return wire.UDPLen
	case tcp && s.proto == wire.ProtoTCP && wire.TCP(b).Valid():
		return wire.TCP(b).DataOffset()
	}
	return 0
}

// segments returns how many there are.
func (s *segmenter) segments() int { return packet.Segments(len(s.data)-s.payload, s.mss) }

// build makes the current segment, and returns its headers and its payload, both borrowed until the next call.
func (s *segmenter) build() (head, payload []byte) {
	rest := s.data[s.payload+s.at:]
	payload = rest[:min(len(rest), s.mss)]
	head = s.head[:s.payload]
	copy(head, s.data)
	transport := head[s.l4:]
	pseudo, at := s.network(head[s.l3:], len(payload)), 6
	if s.proto == wire.ProtoTCP {
		s.tcp(wire.TCP(transport), len(payload) == len(rest))
		at = 16
	} else {
		wire.UDP(transport).SetLen(uint16(wire.UDPLen + len(payload)))
	}
	binary.BigEndian.PutUint16(transport[at:], 0)
	// The length of a transport header is even, so its sum and that of the payload add up.
	sum := wire.Sum(payload, wire.Sum(transport, pseudo))
	binary.BigEndian.PutUint16(transport[at:], wire.UDPChecksum(wire.Fold(sum)))
	return head, payload
}

// network sets what differs between the IP headers of segments, and returns the sum of the pseudo-header. Identifications count up, so that
// fragments of different segments are never reassembled into one (RFC 6864).
func (s *segmenter) network(ip []byte, payload int) uint32 {
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

// tcp sets what differs between TCP headers: FIN and PSH belong to the last byte, CWR to the first segment (RFC 3168 6.1.2).
func (s *segmenter) tcp(h wire.TCP, last bool) {
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

// next goes to the next segment; after the last one the segmenter has none.
func (s *segmenter) next() {
	if s.at += s.mss; s.payload+s.at >= len(s.data) {
		s.stop()
	}
}

// completeChecksum fills in the checksum of a packet that has only the sum of its pseudo-header in the field, and reports false when
// the offsets of h lie outside of its first piece.
func completeChecksum(a *packet.Arena, d []packet.Desc, h *header) bool {
	first := a.Bytes(&d[0])
	from, at := int(h.checksumFrom), int(h.checksumFrom)+int(h.checksumAt)
	if from < wire.EthernetLen || at+2 > len(first) {
		return false
	}
	sum, odd := uint32(0), false
	for i := range d {
		p := a.Bytes(&d[i])
		if i == 0 {
			p = p[from:]
		}
		one := wire.Sum(p, 0)
		if odd { // bytes of the other places of their words (RFC 1071 2)
			one = one>>8 | one&0xff<<8
		}
		sum = uint32(^wire.Fold(sum + one))
		odd = odd != (len(p)%2 != 0)
	}
	// A UDP checksum of 0 would say that there is none (RFC 768); to TCP both zeros are the same.
	binary.BigEndian.PutUint16(first[at:], wire.UDPChecksum(wire.Fold(sum)))
	return true
}
