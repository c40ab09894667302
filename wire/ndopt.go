package wire

// Neighbor discovery option types (RFC 4861 4.6, RFC 8106).
const (
	NDOptSource uint8 = 1 // link-layer address of the sender
	NDOptTarget uint8 = 2 // link-layer address of the target
	NDOptPrefix uint8 = 3
	NDOptMTU    uint8 = 5
	NDOptRDNSS  uint8 = 25
)

// NDOptionIter walks the options of a neighbor discovery message.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-
//	|     Type      |    Length     |    Data ...      Length counts 8 bytes, type and length too
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-
//
// The walk ends at the end of the message, or at an option of length 0 or beyond the end; Malformed
// is then true, and the whole message must be dropped (RFC 4861 4.6).
type NDOptionIter struct {
	rest []byte
	opt  []byte
	bad  bool
}

// NDOptionsOf returns a walk over the options b, which it borrows.
func NDOptionsOf(b []byte) NDOptionIter { return NDOptionIter{rest: b} }

// Next goes to the next option and reports whether there is one.
func (it *NDOptionIter) Next() bool {
	if len(it.rest) == 0 {
		return false
	}
	if len(it.rest) < 8 || it.rest[1] == 0 || int(it.rest[1])*8 > len(it.rest) {
		it.rest, it.bad = nil, true
		return false
	}
	n := int(it.rest[1]) * 8
	it.opt, it.rest = it.rest[:n], it.rest[n:]
	return true
}

// Type returns the type of the current option.
func (it *NDOptionIter) Type() uint8 { return it.opt[0] }

// Data borrows the bytes of the current option behind type and length: at least 6.
func (it *NDOptionIter) Data() []byte { return it.opt[2:] }

// Malformed reports whether the walk ended at an option that contradicts the bytes.
func (it *NDOptionIter) Malformed() bool { return it.bad }

// linkAddr returns the link-layer address in the first option of type typ.
func linkAddr(it NDOptionIter, typ uint8) (mac MAC, ok bool) {
	for it.Next() {
		if it.Type() == typ {
			return MAC(it.Data()[:6]), true
		}
	}
	return MAC{}, false
}

// NDPrefix holds the fields of a prefix information option (RFC 4861 4.6.2).
type NDPrefix struct {
	Bits               uint8 // length of the prefix, 0 to 128
	OnLink, Autonomous bool
	Valid, Preferred   uint32 // lifetimes in seconds; 0xffffffff is for ever
	Prefix             [16]byte
}

// ParseNDPrefix reads the Data of an option of type NDOptPrefix. It reports false where the length is not
// that of one or the prefix is longer than an address.
func ParseNDPrefix(data []byte) (p NDPrefix, ok bool) {
	if len(data) != 30 || data[0] > 128 {
		return p, false
	}
	return NDPrefix{
		Bits: data[0], OnLink: data[1]&0x80 != 0, Autonomous: data[1]&0x40 != 0,
		Valid: u32(data, 2), Preferred: u32(data, 6), Prefix: [16]byte(data[14:30]),
	}, true
}

// ParseNDMTU reads the Data of an option of type NDOptMTU: bytes (RFC 4861 4.6.4).
func ParseNDMTU(data []byte) (mtu uint32, ok bool) {
	if len(data) != 6 {
		return 0, false
	}
	return u32(data, 2), true
}

// AppendNDLinkAddr appends an option of type NDOptSource or NDOptTarget: 8 bytes (RFC 4861 4.6.1).
func AppendNDLinkAddr(b []byte, typ uint8, mac MAC) []byte {
	return append(append(b, typ, 1), mac[:]...)
}

// AppendRouterSolicit appends a router solicitation with the sender's link-layer address mac and without
// checksum: 16 bytes (RFC 4861 4.1).
func AppendRouterSolicit(b []byte, mac MAC) []byte {
	return AppendNDLinkAddr(AppendICMP(b, ICMPv6RouterSolicit, 0, 0), NDOptSource, mac)
}

// AppendNeighborSolicit appends a solicitation for target with the sender's link-layer address mac and
// without checksum: 32 bytes (RFC 4861 4.3).
func AppendNeighborSolicit(b []byte, target [16]byte, mac MAC) []byte {
	b = AppendICMP(b, ICMPv6NeighborSolicit, 0, 0)
	b = append(b, target[:]...)
	return AppendNDLinkAddr(b, NDOptSource, mac)
}

// AppendNeighborAdvert appends an advertisement of target at link-layer address mac, without checksum:
// 32 bytes (RFC 4861 4.4).
func AppendNeighborAdvert(b []byte, target [16]byte, mac MAC, flags NAFlags) []byte {
	b = AppendICMP(b, ICMPv6NeighborAdvert, 0, uint32(flags)<<24)
	b = append(b, target[:]...)
	return AppendNDLinkAddr(b, NDOptTarget, mac)
}

// SolicitedNode returns the multicast address at which a host with address a is solicited:
// ff02::1:ff00:0/104 with the last three bytes of a (RFC 4291 2.7.1).
func SolicitedNode(a [16]byte) [16]byte {
	return [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
}

// MulticastMAC6 returns the link-layer address of an IPv6 multicast address: 33:33 and its last four
// bytes (RFC 2464 7).
func MulticastMAC6(a [16]byte) MAC { return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]} }

// AllNodes is the multicast address of all nodes on the link (RFC 4291 2.7.1).
var AllNodes = [16]byte{0: 0xff, 1: 0x02, 15: 0x01}
