package wire

// GUELen is the length of a GUE header without optional fields.
const GUELen = 4

// GUE is a view of the payload of a UDP datagram to PortGUE. Variant 0 has a header; variant 1 has none:
// its two variant bits are the first of an IP version, 4 or 6, and an IP packet follows at once.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| 0 |C|   Hlen  |  Proto/ctype  |             Flags             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                                                               |
//	~                  Extension Fields (optional)                  ~
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// draft-ietf-intarea-gue-09 3.1 and 4.
type GUE []byte

// Valid reports whether the header with its optional fields is there, of variant 0, or whether an IP
// packet follows at once.
func (b GUE) Valid() bool {
	return len(b) >= GUELen && (b.Variant() == 0 && b.HeaderLen() <= len(b) || b.direct())
}

// direct reports whether the view begins with IP version 4 or 6 (draft-ietf-intarea-gue-09 4).
func (b GUE) direct() bool { return b[0]>>4 == 4 || b[0]>>4 == 6 }

// Variant returns 0 for a header, 1 for an IP packet that follows at once.
func (b GUE) Variant() uint8 { return b[0] >> 6 }

// Control returns the C flag of variant 0: Proto is then the type of a control message.
func (b GUE) Control() bool { return b.Variant() == 0 && b[0]&0x20 != 0 }

// HeaderLen returns the length of the header with its optional fields in bytes: 0 in variant 1.
func (b GUE) HeaderLen() int {
	if b.Variant() != 0 {
		return 0
	}
	return GUELen + int(b[0]&0x1f)<<2
}

// Proto returns the IP protocol number of the payload: ProtoIPIP or ProtoIPv6 in variant 1.
func (b GUE) Proto() uint8 {
	switch b[0] >> 4 {
	case 4:
		return ProtoIPIP
	case 6:
		return ProtoIPv6
	}
	return b[1]
}

// Flags returns the flags of variant 0, which select the optional fields.
func (b GUE) Flags() uint16 { return u16(b, 2) }

// Extensions borrows the optional fields; empty in variant 1.
func (b GUE) Extensions() []byte { return b[min(GUELen, b.HeaderLen()):b.HeaderLen()] }

// Payload borrows the bytes after the header.
func (b GUE) Payload() []byte { return b[b.HeaderLen():] }

// AppendGUE appends a variant 0 header without optional fields to b.
func AppendGUE(b []byte, proto uint8) []byte { return append(b, 0, proto, 0, 0) }
