package wire

// EthernetLen is the length of an Ethernet II header without tags.
const EthernetLen = 14

// MaxTags is the number of VLAN tags that Network looks behind: a service and a customer tag
// (802.1ad).
const MaxTags = 2

// MAC is a link-layer address (EUI-48).
type MAC [6]byte

// Broadcast is the link-layer address of everybody.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Multicast reports whether m is a group address; the broadcast address is one.
func (m MAC) Multicast() bool { return m[0]&1 != 0 }

// String returns m as six lower-case hexadecimal pairs with colons.
func (m MAC) String() string {
	const hex = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, v := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, hex[v>>4], hex[v&15])
	}
	return string(b)
}

// Ethernet is a view of an Ethernet II frame without preamble and frame check sequence.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Destination Address                        |
//	+                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               |                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                       Source Address                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|           EtherType           |            Payload ...
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// IEEE 802.3 3.1.1, RFC 894.
type Ethernet []byte

// Valid reports whether the header is there.
func (b Ethernet) Valid() bool { return len(b) >= EthernetLen }

// Dst returns the destination address.
func (b Ethernet) Dst() MAC { return MAC(b[0:6]) }

// Src returns the source address.
func (b Ethernet) Src() MAC { return MAC(b[6:12]) }

// EtherType returns the type of the payload, or of the VLAN tag that comes next. Values up to 1500
// are lengths of 802.3 LLC frames.
func (b Ethernet) EtherType() uint16 { return u16(b, 12) }

// Payload borrows the bytes after the header.
func (b Ethernet) Payload() []byte { return b[EthernetLen:] }

// SetDst writes the destination address.
func (b Ethernet) SetDst(a MAC) { copy(b[0:6], a[:]) }

// SetSrc writes the source address.
func (b Ethernet) SetSrc(a MAC) { copy(b[6:12], a[:]) }

// SetEtherType writes the type of the payload.
func (b Ethernet) SetEtherType(t uint16) { put16(b, 12, t) }

// AppendEthernet appends an Ethernet header to b.
func AppendEthernet(b []byte, dst, src MAC, etherType uint16) []byte {
	b = append(b, dst[:]...)
	b = append(b, src[:]...)
	return append(b, byte(etherType>>8), byte(etherType))
}

// Network finds the network header of an Ethernet frame behind at most MaxTags VLAN tags: its
// EtherType and its offset from the start of the frame. It reports false where the frame ends inside
// of the Ethernet header or a tag. A further tag is returned as what it is: etherType is then
// EtherTypeVLAN or EtherTypeQinQ.
func Network(b []byte) (etherType uint16, off int, ok bool) {
	if !Ethernet(b).Valid() {
		return 0, 0, false
	}
	etherType, off = Ethernet(b).EtherType(), EthernetLen
	for range MaxTags {
		if !IsTag(etherType) {
			break
		}
		v := VLAN(b[off:])
		if !v.Valid() {
			return 0, 0, false
		}
		etherType, off = v.EtherType(), off+VLANLen
	}
	return etherType, off, true
}
