package wire

// ICMPv6 types (RFC 4443, RFC 4861).
const (
	ICMPv6Unreachable     uint8 = 1
	ICMPv6TooBig          uint8 = 2
	ICMPv6TimeExceeded    uint8 = 3
	ICMPv6ParamProblem    uint8 = 4
	ICMPv6Echo            uint8 = 128
	ICMPv6EchoReply       uint8 = 129
	ICMPv6RouterSolicit   uint8 = 133
	ICMPv6RouterAdvert    uint8 = 134
	ICMPv6NeighborSolicit uint8 = 135
	ICMPv6NeighborAdvert  uint8 = 136
	ICMPv6Redirect        uint8 = 137
)

// Codes of ICMPv6Unreachable (RFC 4443 3.1).
const (
	ICMPv6NoRoute            uint8 = 0
	ICMPv6AdminProhibited    uint8 = 1
	ICMPv6AddressUnreachable uint8 = 3
	ICMPv6PortUnreachable    uint8 = 4
)

// ICMPv6 is a view of an ICMPv6 message.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Type      |     Code      |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|     Identifier and sequence (echo), MTU (too big), flags (ND) |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Data (echo) or the start of the packet that caused the error
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 4443 2.1. Neighbor discovery has views of its own: NeighborSolicit and its neighbours.
type ICMPv6 []byte

// Valid reports whether the header is there.
func (b ICMPv6) Valid() bool { return len(b) >= ICMPLen }

// Type returns the type of the message.
func (b ICMPv6) Type() uint8 { return b[0] }

// Code returns the code, which refines the type.
func (b ICMPv6) Code() uint8 { return b[1] }

// Checksum returns the checksum.
func (b ICMPv6) Checksum() uint16 { return u16(b, 2) }

// ID returns the identifier of an echo message.
func (b ICMPv6) ID() uint16 { return u16(b, 4) }

// Seq returns the sequence number of an echo message.
func (b ICMPv6) Seq() uint16 { return u16(b, 6) }

// MTU returns the MTU of the next hop in an ICMPv6TooBig message, in bytes (RFC 4443 3.2).
func (b ICMPv6) MTU() uint32 { return u32(b, 4) }

// Payload borrows the echo data, or the start of the packet that caused the error.
func (b ICMPv6) Payload() []byte { return b[ICMPLen:] }

// Error reports whether the message is an error: types below 128 are (RFC 4443 2.1).
func (b ICMPv6) Error() bool { return b[0] < 128 }

// SetType writes the type.
func (b ICMPv6) SetType(t uint8) { b[0] = t }

// SetCode writes the code.
func (b ICMPv6) SetCode(c uint8) { b[1] = c }

// SetChecksum writes the checksum.
func (b ICMPv6) SetChecksum(v uint16) { put16(b, 2, v) }

// SetID writes the identifier of an echo message.
func (b ICMPv6) SetID(id uint16) { put16(b, 4, id) }

// SetSeq writes the sequence number of an echo message.
func (b ICMPv6) SetSeq(n uint16) { put16(b, 6, n) }

// SetMTU writes the MTU of the next hop in bytes.
func (b ICMPv6) SetMTU(n uint32) { put32(b, 4, n) }

// ChecksumOK reports whether message and pseudo header add up to all ones (RFC 4443 2.3). The view
// must end where the IP payload ends.
func (b ICMPv6) ChecksumOK(pseudo uint32) bool { return Fold(Sum(b, pseudo)) == 0 }

// FillChecksum computes and writes the checksum; pseudo is the sum of the pseudo header. The view must
// end where the IP payload ends.
func (b ICMPv6) FillChecksum(pseudo uint32) {
	b.SetChecksum(0)
	b.SetChecksum(Fold(Sum(b, pseudo)))
}
