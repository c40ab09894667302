package wire

// VLANLen is the length of a VLAN tag.
const VLANLen = 4

// VLAN is a view of what follows an EtherType of EtherTypeVLAN (802.1Q) or EtherTypeQinQ (802.1ad):
// the tag control information and the next EtherType.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| PCP |D|        VLAN ID        |           EtherType           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// IEEE 802.1Q 9.6.
type VLAN []byte

// IsTag reports whether a VLAN tag follows an EtherType.
func IsTag(etherType uint16) bool { return etherType == EtherTypeVLAN || etherType == EtherTypeQinQ }

// Valid reports whether the tag is there.
func (b VLAN) Valid() bool { return len(b) >= VLANLen }

// TCI returns the whole tag control information.
func (b VLAN) TCI() uint16 { return u16(b, 0) }

// Priority returns the priority code point, 0 to 7.
func (b VLAN) Priority() uint8 { return b[0] >> 5 }

// DropEligible returns the drop eligible indicator.
func (b VLAN) DropEligible() bool { return b[0]&0x10 != 0 }

// ID returns the VLAN identifier, 0 to 4095; 0 is a priority tag without VLAN.
func (b VLAN) ID() uint16 { return u16(b, 0) & 0xfff }

// EtherType returns the type of what follows the tag.
func (b VLAN) EtherType() uint16 { return u16(b, 2) }

// Payload borrows the bytes after the tag.
func (b VLAN) Payload() []byte { return b[VLANLen:] }

// SetTCI writes the whole tag control information.
func (b VLAN) SetTCI(v uint16) { put16(b, 0, v) }

// SetID writes the VLAN identifier and keeps priority and drop eligibility.
func (b VLAN) SetID(id uint16) { put16(b, 0, b.TCI()&^0xfff|id&0xfff) }

// SetPriority writes the priority code point and keeps the rest.
func (b VLAN) SetPriority(p uint8) { b[0] = b[0]&0x1f | p<<5 }

// SetDropEligible writes the drop eligible indicator and keeps the rest.
func (b VLAN) SetDropEligible(on bool) { b[0] = b[0]&^0x10 | bit(on)<<4 }

// SetEtherType writes the type of what follows the tag.
func (b VLAN) SetEtherType(t uint16) { put16(b, 2, t) }

// AppendVLAN appends a tag to b, which ends with an EtherType of EtherTypeVLAN or EtherTypeQinQ.
func AppendVLAN(b []byte, tci, etherType uint16) []byte {
	return append(b, byte(tci>>8), byte(tci), byte(etherType>>8), byte(etherType))
}

// PushTag puts a tag into the frame b[VLANLen:] by moving its addresses into the VLANLen bytes of
// headroom in front; the tagged frame is all of b. The frame must be Valid as Ethernet.
func PushTag(b []byte, tpid, tci uint16) {
	copy(b[0:12], b[VLANLen:])
	put16(b, 12, tpid)
	put16(b, 14, tci)
}

// PopTag takes the outer tag off the tagged frame b by moving its addresses forward and borrows the
// frame without it, which starts VLANLen bytes later.
func PopTag(b []byte) []byte {
	copy(b[VLANLen:VLANLen+12], b[0:12])
	return b[VLANLen:]
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}
