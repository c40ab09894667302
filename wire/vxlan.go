package wire

// VXLANLen is the length of a VXLAN header.
const VXLANLen = 8

// VXLAN is a view of the payload of a UDP datagram to PortVXLAN.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|R|R|R|R|I|R|R|R|            Reserved                           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                VXLAN Network Identifier (VNI) |   Reserved    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 7348 5.
type VXLAN []byte

// Valid reports whether the header is there and its I flag marks the VNI as valid; reserved bits are
// ignored (RFC 7348 5).
func (b VXLAN) Valid() bool { return len(b) >= VXLANLen && b[0]&8 != 0 }

// Flags returns the flag octet.
func (b VXLAN) Flags() uint8 { return b[0] }

// VNI returns the 24 bits of the network identifier.
func (b VXLAN) VNI() uint32 { return u24(b, 4) }

// Payload borrows the Ethernet frame after the header.
func (b VXLAN) Payload() []byte { return b[VXLANLen:] }

// SetVNI writes the low 24 bits of v as network identifier.
func (b VXLAN) SetVNI(v uint32) { put24(b, 4, v) }

// AppendVXLAN appends a header to b.
func AppendVXLAN(b []byte, vni uint32) []byte {
	return append(b, 8, 0, 0, 0, byte(vni>>16), byte(vni>>8), byte(vni), 0)
}
