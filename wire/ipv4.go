package wire

import "net/netip"

// IPv4Len is the length of an IPv4 header without options, IPv4MaxLen with as many as fit.
const (
	IPv4Len    = 20
	IPv4MaxLen = 60
)

// IPv4 is a view of an IPv4 packet.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|Version|  IHL  |   DSCP    |ECN|         Total Length          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|         Identification        |0|D|M|     Fragment Offset     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Time to Live |    Protocol   |        Header Checksum        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        Source Address                         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                      Destination Address                      |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Options                    |    Padding    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 791 3.1; DSCP and ECN RFC 2474 3, RFC 3168 5.
type IPv4 []byte

// ValidHeader reports whether the header and its options are there and the lengths agree. The
// payload may be cut off: everything but Payload is safe.
func (b IPv4) ValidHeader() bool {
	return len(b) >= IPv4Len && b[0]-0x45 <= 10 &&
		b.HeaderLen() <= len(b) && b.HeaderLen() <= int(b.TotalLen())
}

// Valid reports whether the whole packet is there. Bytes after it (Ethernet padding) may follow. The first
// octet of version 4 with an IHL of at least 5 is 0x45 to 0x4f.
func (b IPv4) Valid() bool {
	return len(b) >= IPv4Len && b[0]-0x45 <= 10 &&
		b.HeaderLen() <= int(b.TotalLen()) && int(b.TotalLen()) <= len(b)
}

// Version returns the version field: 4.
func (b IPv4) Version() int { return int(b[0] >> 4) }

// HeaderLen returns the length of the header with options in bytes.
func (b IPv4) HeaderLen() int { return int(b[0]&0xf) << 2 }

// TOS returns the type of service octet: DSCP and ECN.
func (b IPv4) TOS() uint8 { return b[1] }

// DSCP returns the differentiated services code point.
func (b IPv4) DSCP() uint8 { return b[1] >> 2 }

// ECN returns the congestion notification field.
func (b IPv4) ECN() ECN { return ECN(b[1] & 3) }

// TotalLen returns the length of header and payload in bytes.
func (b IPv4) TotalLen() uint16 { return u16(b, 2) }

// ID returns the identification shared by the fragments of a packet.
func (b IPv4) ID() uint16 { return u16(b, 4) }

// DontFragment returns the DF flag.
func (b IPv4) DontFragment() bool { return b[6]&0x40 != 0 }

// MoreFragments returns the MF flag.
func (b IPv4) MoreFragments() bool { return b[6]&0x20 != 0 }

// FragmentOffset returns where the payload belongs in the whole packet's payload, in bytes.
func (b IPv4) FragmentOffset() int { return int(u16(b, 6)&0x1fff) << 3 }

// Fragment reports whether the packet is a fragment, the first one included.
func (b IPv4) Fragment() bool { return u16(b, 6)&0x3fff != 0 }

// TTL returns the time to live.
func (b IPv4) TTL() uint8 { return b[8] }

// Proto returns the protocol number of the payload.
func (b IPv4) Proto() uint8 { return b[9] }

// Checksum returns the header checksum.
func (b IPv4) Checksum() uint16 { return u16(b, 10) }

// Src returns the source address.
func (b IPv4) Src() [4]byte { return [4]byte(b[12:16]) }

// Dst returns the destination address.
func (b IPv4) Dst() [4]byte { return [4]byte(b[16:20]) }

// SrcAddr returns the source address.
func (b IPv4) SrcAddr() netip.Addr { return netip.AddrFrom4(b.Src()) }

// DstAddr returns the destination address.
func (b IPv4) DstAddr() netip.Addr { return netip.AddrFrom4(b.Dst()) }

// Options borrows the options with their padding; empty where there are none.
func (b IPv4) Options() []byte { return b[IPv4Len:b.HeaderLen()] }

// Payload borrows the bytes from the end of the header to the end of the packet, without Ethernet
// padding.
func (b IPv4) Payload() []byte { return b[b.HeaderLen():b.TotalLen()] }

// SetHeaderLen writes version 4 and the length of the header in bytes, a multiple of 4.
func (b IPv4) SetHeaderLen(n int) { b[0] = 4<<4 | byte(n>>2) }

// SetTOS writes the type of service octet.
func (b IPv4) SetTOS(v uint8) { b[1] = v }

// SetDSCP writes the differentiated services code point and keeps ECN.
func (b IPv4) SetDSCP(v uint8) { b[1] = v<<2 | b[1]&3 }

// SetECN writes the congestion notification field and keeps DSCP.
func (b IPv4) SetECN(e ECN) { b[1] = b[1]&^3 | byte(e&3) }

// MarkCE sets Congestion Experienced and mends the checksum, if the sender's transport is capable of it
// (RFC 3168 5, 23.1), and reports whether it did: a packet with Not-ECT, or CE already, is left as it is.
func (b IPv4) MarkCE() bool {
	if !b.ECN().capable() {
		return false
	}
	before := u16(b, 0)
	b.SetECN(CE)
	b.SetChecksum(Update16(b.Checksum(), before, u16(b, 0)))
	return true
}

// SetTotalLen writes the length of header and payload in bytes.
func (b IPv4) SetTotalLen(n uint16) { put16(b, 2, n) }

// SetID writes the identification.
func (b IPv4) SetID(id uint16) { put16(b, 4, id) }

// SetDontFragment writes the DF flag.
func (b IPv4) SetDontFragment(on bool) { b[6] = b[6]&^0x40 | bit(on)<<6 }

// SetMoreFragments writes the MF flag.
func (b IPv4) SetMoreFragments(on bool) { b[6] = b[6]&^0x20 | bit(on)<<5 }

// SetFragmentOffset writes the fragment offset from bytes, a multiple of 8, and keeps the flags.
func (b IPv4) SetFragmentOffset(n int) { put16(b, 6, u16(b, 6)&0xe000|uint16(n>>3)&0x1fff) }

// SetTTL writes the time to live. The caller updates the checksum.
func (b IPv4) SetTTL(ttl uint8) { b[8] = ttl }

// SetProto writes the protocol number of the payload.
func (b IPv4) SetProto(proto uint8) { b[9] = proto }

// SetChecksum writes the header checksum.
func (b IPv4) SetChecksum(v uint16) { put16(b, 10, v) }

// SetSrc writes the source address.
func (b IPv4) SetSrc(a [4]byte) { copy(b[12:16], a[:]) }

// SetDst writes the destination address.
func (b IPv4) SetDst(a [4]byte) { copy(b[16:20], a[:]) }

// ChecksumOK reports whether the header checksum is right: header and checksum add up to all ones
// (RFC 1071 1).
func (b IPv4) ChecksumOK() bool { return Fold(b.sumHeader()) == 0 }

// FillChecksum computes and writes the header checksum.
func (b IPv4) FillChecksum() {
	b.SetChecksum(0)
	b.SetChecksum(Fold(b.sumHeader()))
}

// sumHeader returns the running sum of the header. Nearly every header has no options, and its length is
// then known.
func (b IPv4) sumHeader() uint32 {
	if b.HeaderLen() == IPv4Len {
		return sum20((*[IPv4Len]byte)(b))
	}
	return sumGeneric(b[:b.HeaderLen()], 0)
}

// DecrementTTL takes one from the time to live and updates the checksum with it (RFC 1624 3): whatever
// the protocol beside it, the word m shrinks by 0x0100, so ~m + m' is 0xfeff. The caller has seen that the
// time to live is not 0.
func (b IPv4) DecrementTTL() {
	b[8]--
	b.SetChecksum(Apply(b.Checksum(), 0xfeff))
}

// Pseudo returns the sum of the pseudo header of the transport segment in this packet: addresses,
// protocol and the length of the payload. A UDP datagram that is shorter than the payload counts its own
// length instead (RFC 768).
func (b IPv4) Pseudo() uint32 {
	return PseudoHeader4(b.Src(), b.Dst(), b.Proto(), uint32(b.TotalLen())-uint32(b.HeaderLen()))
}

// IPv4Header holds the fields of a new header without options.
type IPv4Header struct {
	Src, Dst     [4]byte
	Proto        uint8
	TTL          uint8
	TOS          uint8
	DontFragment bool
	ID           uint16
	PayloadLen   int // bytes that will follow, at most 65515
}

// AppendIPv4 appends a header without options and with its checksum to b.
func AppendIPv4(b []byte, h *IPv4Header) []byte {
	n := len(b)
	b = append(b, zeros[:IPv4Len]...)
	ip := IPv4(b[n:])
	ip.SetHeaderLen(IPv4Len)
	ip.SetTOS(h.TOS)
	ip.SetTotalLen(uint16(IPv4Len + h.PayloadLen))
	ip.SetID(h.ID)
	ip.SetDontFragment(h.DontFragment)
	ip.SetTTL(h.TTL)
	ip.SetProto(h.Proto)
	ip.SetSrc(h.Src)
	ip.SetDst(h.Dst)
	ip.FillChecksum()
	return b
}

var zeros [64]byte

// ECN is the explicit congestion notification field of an IP header (RFC 3168 5).
type ECN uint8

// Code points of ECN.
const (
	NotECT ECN = 0 // the transport does not take part
	ECT1   ECN = 1 // L4S, RFC 9331
	ECT0   ECN = 2
	CE     ECN = 3 // congestion experienced
)

// capable reports whether a router may replace e by CE.
func (e ECN) capable() bool { return e == ECT0 || e == ECT1 }

// String returns the name of the code point in RFC 3168.
func (e ECN) String() string { return [4]string{"Not-ECT", "ECT(1)", "ECT(0)", "CE"}[e&3] }
