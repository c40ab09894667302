package wire

// GRELen is the length of a GRE header without optional fields.
const GRELen = 4

// Flag bits of a GRE header (RFC 2784 2.1, RFC 2890 2).
const (
	GREChecksum uint16 = 0x8000
	GREKey      uint16 = 0x2000
	GRESequence uint16 = 0x1000
)

// GRE is a view of a GRE packet, version 0.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|C| |K|S| Reserved0       | Ver |         Protocol Type         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|      Checksum (optional)      |       Reserved1 (Optional)    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                         Key (optional)                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                 Sequence Number (Optional)                    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 2784 2.1, RFC 2890 2.
type GRE []byte

// greReserved are the bits that make a receiver drop the packet: routing and its company of RFC 1701
// (RFC 2784 2.3; bits 2 and 3 have become key and sequence) and a version other than 0 (RFC 2784 2.3.1).
const greReserved uint16 = 0x4000 | 0x0c00 | 7

// Valid reports whether the header with the fields that its flags announce is there, of version 0 and
// without the bits that make a receiver drop it (RFC 2784 2.3).
func (b GRE) Valid() bool {
	return len(b) >= GRELen && u16(b, 0)&greReserved == 0 && len(b) >= b.HeaderLen()
}

// Flags returns the first 16 bits: GREChecksum, GREKey, GRESequence, reserved bits and version.
func (b GRE) Flags() uint16 { return u16(b, 0) }

// EtherType returns the type of the payload.
func (b GRE) EtherType() uint16 { return u16(b, 2) }

// HasChecksum reports whether there is a checksum.
func (b GRE) HasChecksum() bool { return b[0]&0x80 != 0 }

// HasKey reports whether there is a key.
func (b GRE) HasKey() bool { return b[0]&0x20 != 0 }

// HasSequence reports whether there is a sequence number.
func (b GRE) HasSequence() bool { return b[0]&0x10 != 0 }

// HeaderLen returns the length of the header with its optional fields in bytes.
func (b GRE) HeaderLen() int { return GRELen + int(b[0]>>7<<2) + int(b[0]>>5&1<<2) + int(b[0]>>4&1<<2) }

// keyAt returns the offset of the key: behind the checksum, where there is one.
func (b GRE) keyAt() int { return GRELen + int(b[0]>>7<<2) }

// seqAt returns the offset of the sequence number: behind checksum and key.
func (b GRE) seqAt() int { return b.keyAt() + int(b[0]>>5&1<<2) }

// Checksum returns the checksum over header and payload; 0 where there is none.
func (b GRE) Checksum() uint16 {
	if !b.HasChecksum() {
		return 0
	}
	return u16(b, 4)
}

// Key returns the key that names the tunnel; 0 where there is none.
func (b GRE) Key() uint32 {
	if !b.HasKey() {
		return 0
	}
	return u32(b, b.keyAt())
}

// Sequence returns the sequence number; 0 where there is none.
func (b GRE) Sequence() uint32 {
	if !b.HasSequence() {
		return 0
	}
	return u32(b, b.seqAt())
}

// Payload borrows the bytes after the header.
func (b GRE) Payload() []byte { return b[b.HeaderLen():] }

// ChecksumOK reports whether header and payload add up to all ones, or there is no checksum. The view
// must end where the IP payload ends.
func (b GRE) ChecksumOK() bool { return !b.HasChecksum() || Fold(Sum(b, 0)) == 0 }

// FillChecksum computes and writes the checksum, if the header has room for one. The view must end where
// the IP payload ends.
func (b GRE) FillChecksum() {
	if b.HasChecksum() {
		put16(b, 4, 0)
		put16(b, 4, Fold(Sum(b, 0)))
	}
}

// SetEtherType writes the type of the payload.
func (b GRE) SetEtherType(t uint16) { put16(b, 2, t) }

// SetKey writes the key of a header that has one.
func (b GRE) SetKey(k uint32) { put32(b, b.keyAt(), k) }

// SetSequence writes the sequence number of a header that has one.
func (b GRE) SetSequence(n uint32) { put32(b, b.seqAt(), n) }

// AppendGRE appends a header with the optional fields that flags name, all of them 0, to b.
func AppendGRE(b []byte, flags, etherType uint16) []byte {
	n := len(b)
	b = appendU16(appendU16(b, flags), etherType)
	return append(b, zeros[:GRE(b[n:]).HeaderLen()-GRELen]...)
}
