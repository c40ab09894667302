package wire

// UDPLen is the length of a UDP header.
const UDPLen = 8

// UDP is a view of a UDP datagram.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          Source Port          |       Destination Port        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|            Length             |           Checksum            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 768.
type UDP []byte

// ValidHeader reports whether the header is there and its length covers it. The payload may be cut
// off: everything but Payload and the checksum functions is safe.
func (b UDP) ValidHeader() bool { return len(b) >= UDPLen && b.Len() >= UDPLen }

// Valid reports whether the whole datagram is there.
func (b UDP) Valid() bool { return b.ValidHeader() && int(b.Len()) <= len(b) }

// SrcPort returns the source port.
func (b UDP) SrcPort() uint16 { return u16(b, 0) }

// DstPort returns the destination port.
func (b UDP) DstPort() uint16 { return u16(b, 2) }

// Len returns the length of header and payload in bytes.
func (b UDP) Len() uint16 { return u16(b, 4) }

// Checksum returns the checksum; 0 means that the sender made none.
func (b UDP) Checksum() uint16 { return u16(b, 6) }

// Payload borrows the bytes after the header up to the datagram's length.
func (b UDP) Payload() []byte { return b[UDPLen:b.Len()] }

// SetSrcPort writes the source port.
func (b UDP) SetSrcPort(p uint16) { put16(b, 0, p) }

// SetDstPort writes the destination port.
func (b UDP) SetDstPort(p uint16) { put16(b, 2, p) }

// SetLen writes the length of header and payload in bytes.
func (b UDP) SetLen(n uint16) { put16(b, 4, n) }

// SetChecksum writes the checksum as it is. UDPChecksum turns a computed one into what is sent.
func (b UDP) SetChecksum(v uint16) { put16(b, 6, v) }

// ChecksumOK reports whether datagram and pseudo header add up to all ones. A datagram without
// checksum is not OK: whether it may have none depends on the IP version (RFC 8200 8.1).
func (b UDP) ChecksumOK(pseudo uint32) bool {
	return b.Checksum() != 0 && Fold(Sum(b[:b.Len()], pseudo)) == 0
}

// FillChecksum computes and writes the checksum; pseudo is the sum of the pseudo header.
func (b UDP) FillChecksum(pseudo uint32) {
	b.SetChecksum(0)
	b.SetChecksum(UDPChecksum(Fold(Sum(b[:b.Len()], pseudo))))
}

// UDPChecksum returns the checksum to send for one that was computed: 0 is sent as 0xffff, its other
// form in ones' complement, because 0 on the wire means that there is none (RFC 768; RFC 8200 8.1
// forbids 0 over IPv6).
func UDPChecksum(computed uint16) uint16 {
	if computed == 0 {
		return 0xffff
	}
	return computed
}

// AppendUDP appends a header for payloadLen bytes of payload, without checksum, to b.
func AppendUDP(b []byte, src, dst uint16, payloadLen int) []byte {
	n := UDPLen + payloadLen
	return append(b, byte(src>>8), byte(src), byte(dst>>8), byte(dst), byte(n>>8), byte(n), 0, 0)
}
