package segment

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Transport locates the TCP or UDP header of a packet. Offsets count from its first byte.
type Transport struct {
	Proto    uint8
	GSO      uint8 // kind of large packet that it would be: packet.GSOTCPv4 ...
	At       int   // of the header
	Checksum int   // offset of the checksum field in it
	Payload  int   // its end
	network  int
	length   int // of header and payload, as IP has it
}

// FindTransport finds the TCP or UDP header of a packet whose headers are in p. It reports false for fragments, which have no
// checksum of their own, and for other protocols.
func FindTransport(p []byte) (t Transport, ok bool) {
	etherType, l3, ok := wire.Network(p)
	if !ok {
		return t, false
	}
	t.network = l3
	switch ip := p[l3:]; etherType {
	case wire.EtherTypeIPv4:
		v4 := wire.IPv4(ip)
		if !v4.ValidHeader() || v4.Fragment() {
			return t, false
		}
		t.Proto, t.GSO, t.At, t.length = v4.Proto(), packet.GSOTCPv4, l3+v4.HeaderLen(), int(v4.TotalLen())-v4.HeaderLen()
	case wire.EtherTypeIPv6:
		proto, off, frag, ok := wire.Upper6(ip)
		if !ok || frag != (wire.Fragment6{}) {
			return t, false
		}
		t.Proto, t.GSO, t.At, t.length = proto, packet.GSOTCPv6, l3+off, int(wire.IPv6(ip).PayloadLen())-(off-wire.IPv6Len)
	default:
		return t, false
	}
	switch b := p[t.At:]; {
	case t.Proto == wire.ProtoTCP && wire.TCP(b).Valid():
		t.Checksum, t.Payload = 16, t.At+wire.TCP(b).DataOffset()
	case t.Proto == wire.ProtoUDP && len(b) >= wire.UDPLen:
		t.Checksum, t.Payload, t.GSO = 6, t.At+wire.UDPLen, packet.GSOUDP
	default:
		return t, false
	}
	return t, t.length >= t.Payload-t.At
}

// Seed writes the sum of the pseudo-header, not complemented, to the checksum field of p, as packet.Offload and CompleteChecksum
// expect it. What a device leaves there where it has verified the packet, or joined segments, is not specified.
func (t *Transport) Seed(p []byte) {
	var sum uint32
	if v4 := wire.IPv4(p[t.network:]); v4.Version() == 4 {
		sum = wire.PseudoHeader4(v4.Src(), v4.Dst(), t.Proto, uint32(t.length))
	} else {
		v6 := wire.IPv6(p[t.network:])
		sum = wire.PseudoHeader6(v6.Src(), v6.Dst(), t.Proto, uint32(t.length))
	}
	binary.BigEndian.PutUint16(p[t.At+t.Checksum:], ^wire.Fold(sum))
}

// CompleteChecksum fills in the checksum of the packet d, which has the sum of its pseudo-header in the field. The sum begins at
// from, and the field lies at bytes behind it. It reports false where the offsets lie outside of the packet's first frame.
func CompleteChecksum(a *packet.Arena, d []packet.Desc, from, at int) bool {
	first := a.Bytes(&d[0])
	if from < wire.EthernetLen || from+at+2 > len(first) {
		return false
	}
	sum, odd := uint32(0), false
	for i := range d {
		p := a.Bytes(&d[i])
		if i == 0 {
			p = p[from:]
		}
		one := wire.Sum(p, 0)
		if odd { // RFC 1071 2(B): a piece at an odd offset counts with its bytes swapped
			one = one>>8 | one&0xff<<8
		}
		sum = uint32(^wire.Fold(sum + one))
		odd = odd != (len(p)%2 != 0)
	}
	// A UDP checksum of 0 would say that there is none (RFC 768); to TCP both zeros are the same.
	binary.BigEndian.PutUint16(first[from+at:], wire.UDPChecksum(wire.Fold(sum)))
	return true
}
