package wire

import "net/netip"

// IPv6Len is the length of the IPv6 header without extension headers.
const IPv6Len = 40

// IPv6 is a view of an IPv6 packet.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|Version| Traffic Class |               Flow Label              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|         Payload Length        |  Next Header  |   Hop Limit   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                                                               |
//	+                        Source Address                         +
//	|                        (128 bits)                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                                                               |
//	+                      Destination Address                      +
//	|                        (128 bits)                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 8200 3.
type IPv6 []byte

// ValidHeader reports whether the header is there. The payload may be cut off: everything but
// Payload is safe.
func (b IPv6) ValidHeader() bool { return len(b) >= IPv6Len && b[0]>>4 == 6 }

// Valid reports whether the whole packet is there. Bytes after it (Ethernet padding) may follow.
func (b IPv6) Valid() bool { return b.ValidHeader() && IPv6Len+int(b.PayloadLen()) <= len(b) }

// Version returns the version field: 6.
func (b IPv6) Version() int { return int(b[0] >> 4) }

// TrafficClass returns the traffic class octet: DSCP and ECN.
func (b IPv6) TrafficClass() uint8 { return uint8(u16(b, 0) >> 4) }

// DSCP returns the differentiated services code point.
func (b IPv6) DSCP() uint8 { return b.TrafficClass() >> 2 }

// ECN returns the congestion notification field.
func (b IPv6) ECN() ECN { return ECN(b[1] >> 4 & 3) }

// FlowLabel returns the 20 bits of the flow label (RFC 6437).
func (b IPv6) FlowLabel() uint32 { return u32(b, 0) & 0xfffff }

// PayloadLen returns the length of everything after this header, extension headers included, in
// bytes. It is 0 in a jumbogram (RFC 2675), which is not supported.
func (b IPv6) PayloadLen() uint16 { return u16(b, 4) }

// NextHeader returns the protocol of what follows: an extension header or the upper layer. Upper6
// finds the latter.
func (b IPv6) NextHeader() uint8 { return b[6] }

// HopLimit returns the hop limit.
func (b IPv6) HopLimit() uint8 { return b[7] }

// Src returns the source address.
func (b IPv6) Src() [16]byte { return [16]byte(b[8:24]) }

// Dst returns the destination address.
func (b IPv6) Dst() [16]byte { return [16]byte(b[24:40]) }

// SrcAddr returns the source address.
func (b IPv6) SrcAddr() netip.Addr { return netip.AddrFrom16(b.Src()) }

// DstAddr returns the destination address.
func (b IPv6) DstAddr() netip.Addr { return netip.AddrFrom16(b.Dst()) }

// Payload borrows the extension headers and what follows them, without Ethernet padding.
func (b IPv6) Payload() []byte { return b[IPv6Len : IPv6Len+int(b.PayloadLen())] }

// SetVersion writes version 6 and clears traffic class and flow label.
func (b IPv6) SetVersion() { put32(b, 0, 6<<28) }

// SetTrafficClass writes the traffic class octet.
func (b IPv6) SetTrafficClass(v uint8) { put16(b, 0, u16(b, 0)&0xf00f|uint16(v)<<4) }

// SetECN writes the congestion notification field and keeps DSCP.
func (b IPv6) SetECN(e ECN) { b[1] = b[1]&^0x30 | byte(e&3)<<4 }

// MarkCE sets Congestion Experienced if the sender's transport is capable of it, and reports whether it did.
func (b IPv6) MarkCE() bool {
	if !b.ECN().capable() {
		return false
	}
	b.SetECN(CE)
	return true
}

// SetFlowLabel writes the low 20 bits of v as flow label.
func (b IPv6) SetFlowLabel(v uint32) { put32(b, 0, u32(b, 0)&^0xfffff|v&0xfffff) }

// SetPayloadLen writes the length of everything after this header in bytes.
func (b IPv6) SetPayloadLen(n uint16) { put16(b, 4, n) }

// SetNextHeader writes the protocol of what follows.
func (b IPv6) SetNextHeader(proto uint8) { b[6] = proto }

// SetHopLimit writes the hop limit.
func (b IPv6) SetHopLimit(n uint8) { b[7] = n }

// SetSrc writes the source address.
func (b IPv6) SetSrc(a [16]byte) { copy(b[8:24], a[:]) }

// SetDst writes the destination address.
func (b IPv6) SetDst(a [16]byte) { copy(b[24:40], a[:]) }

// IPv6Header holds the fields of a new header.
type IPv6Header struct {
	Src, Dst     [16]byte
	NextHeader   uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	PayloadLen   int    // bytes that will follow, at most 65535
}

// AppendIPv6 appends a header to b.
func AppendIPv6(b []byte, h *IPv6Header) []byte {
	n := len(b)
	b = append(b, zeros[:IPv6Len]...)
	ip := IPv6(b[n:])
	ip.SetVersion()
	ip.SetTrafficClass(h.TrafficClass)
	ip.SetFlowLabel(h.FlowLabel)
	ip.SetPayloadLen(uint16(h.PayloadLen))
	ip.SetNextHeader(h.NextHeader)
	ip.SetHopLimit(h.HopLimit)
	ip.SetSrc(h.Src)
	ip.SetDst(h.Dst)
	return b
}

// Pseudo returns the sum of the pseudo header of the upper-layer packet in a packet without extension
// headers: addresses, next header and the length of the payload. With extension headers
// PseudoHeader6 takes what Upper6 finds.
func (b IPv6) Pseudo() uint32 {
	return PseudoHeader6(b.Src(), b.Dst(), b.NextHeader(), uint32(b.PayloadLen()))
}
