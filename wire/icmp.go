package wire

// ICMPLen is the length of the header that all ICMP and ICMPv6 messages begin with here: type, code,
// checksum and four bytes whose meaning depends on the type.
const ICMPLen = 8

// ICMP types (RFC 792).
const (
	ICMPEchoReply    uint8 = 0
	ICMPUnreachable  uint8 = 3
	ICMPRedirect     uint8 = 5
	ICMPEcho         uint8 = 8
	ICMPTimeExceeded uint8 = 11
	ICMPParamProblem uint8 = 12
)

// Codes of ICMPUnreachable (RFC 792, RFC 1812 5.2.7.1).
const (
	ICMPNetUnreachable      uint8 = 0
	ICMPHostUnreachable     uint8 = 1
	ICMPProtoUnreachable    uint8 = 2
	ICMPPortUnreachable     uint8 = 3
	ICMPFragmentationNeeded uint8 = 4 // RFC 1191 4: with the MTU of the next hop
	ICMPAdminProhibited     uint8 = 13
)

// ICMP is a view of an ICMP message.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Type      |     Code      |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Identifier (echo) or unused  | Sequence (echo) or MTU (3/4)  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Data (echo) or the start of the packet that caused the error
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 792; MTU RFC 1191 4.
type ICMP []byte

// Valid reports whether the header is there.
func (b ICMP) Valid() bool { return len(b) >= ICMPLen }

// Type returns the type of the message.
func (b ICMP) Type() uint8 { return b[0] }

// Code returns the code, which refines the type.
func (b ICMP) Code() uint8 { return b[1] }

// Checksum returns the checksum.
func (b ICMP) Checksum() uint16 { return u16(b, 2) }

// ID returns the identifier of an echo message.
func (b ICMP) ID() uint16 { return u16(b, 4) }

// Seq returns the sequence number of an echo message.
func (b ICMP) Seq() uint16 { return u16(b, 6) }

// MTU returns the MTU of the next hop in an ICMPFragmentationNeeded message, in bytes; 0 from routers
// older than RFC 1191.
func (b ICMP) MTU() uint16 { return u16(b, 6) }

// Payload borrows the echo data, or the start of the packet that caused the error.
func (b ICMP) Payload() []byte { return b[ICMPLen:] }

// Error reports whether the message is an error, which quotes the packet that caused it and to which
// no error may be sent (RFC 1122 3.2.2).
func (b ICMP) Error() bool {
	switch b.Type() {
	case ICMPUnreachable, ICMPRedirect, ICMPTimeExceeded, ICMPParamProblem, icmpSourceQuench:
		return true
	}
	return false
}

const icmpSourceQuench uint8 = 4 // deprecated by RFC 6633, still an error

// SetType writes the type.
func (b ICMP) SetType(t uint8) { b[0] = t }

// SetCode writes the code.
func (b ICMP) SetCode(c uint8) { b[1] = c }

// SetChecksum writes the checksum.
func (b ICMP) SetChecksum(v uint16) { put16(b, 2, v) }

// SetID writes the identifier of an echo message.
func (b ICMP) SetID(id uint16) { put16(b, 4, id) }

// SetSeq writes the sequence number of an echo message.
func (b ICMP) SetSeq(n uint16) { put16(b, 6, n) }

// SetMTU writes the MTU of the next hop in bytes.
func (b ICMP) SetMTU(n uint16) { put16(b, 6, n) }

// ChecksumOK reports whether the message adds up to all ones. The view must end where the IP payload
// ends.
func (b ICMP) ChecksumOK() bool { return Fold(Sum(b, 0)) == 0 }

// FillChecksum computes and writes the checksum. The view must end where the IP payload ends.
func (b ICMP) FillChecksum() {
	b.SetChecksum(0)
	b.SetChecksum(Fold(Sum(b, 0)))
}

// AppendICMP appends the header of an ICMP or ICMPv6 message without checksum to b; rest is what the four
// bytes after the checksum hold: identifier<<16 | sequence of an echo, the MTU of ICMPFragmentationNeeded
// and ICMPv6TooBig.
func AppendICMP(b []byte, typ, code uint8, rest uint32) []byte {
	return append(b, typ, code, 0, 0, byte(rest>>24), byte(rest>>16), byte(rest>>8), byte(rest))
}
