package wire

import "net/netip"

// Lengths of neighbor discovery messages without options.
const (
	RouterSolicitLen   = 8
	RouterAdvertLen    = 16
	NeighborSolicitLen = 24
	NeighborAdvertLen  = 24
)

// NDHopLimit is the hop limit that every neighbor discovery message must have: no router has forwarded
// it (RFC 4861 7.1).
const NDHopLimit = 255

// NeighborSolicit is a view of a neighbor solicitation: who has Target?
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Type = 135   |   Code = 0    |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           Reserved                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                       Target Address (128 bits)               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Options ...
//	+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 4861 4.3.
type NeighborSolicit []byte

// Valid reports whether the message is one of this type and code and everything but the options is
// there. Hop limit, checksum, addresses and options are for the receiver to check (RFC 4861 7.1.1).
func (b NeighborSolicit) Valid() bool {
	return len(b) >= NeighborSolicitLen && b[0] == ICMPv6NeighborSolicit && b[1] == 0
}

// Target returns the address that is asked for.
func (b NeighborSolicit) Target() [16]byte { return [16]byte(b[8:24]) }

// TargetAddr returns the address that is asked for.
func (b NeighborSolicit) TargetAddr() netip.Addr { return netip.AddrFrom16(b.Target()) }

// SetTarget writes the address that is asked for.
func (b NeighborSolicit) SetTarget(a [16]byte) { copy(b[8:24], a[:]) }

// OptionIter returns a walk over the options.
func (b NeighborSolicit) OptionIter() NDOptionIter { return NDOptionsOf(b[NeighborSolicitLen:]) }

// SourceMAC returns the link-layer address in the source option. There is none where the sender looks
// for a duplicate of its own address (RFC 4861 4.3).
func (b NeighborSolicit) SourceMAC() (mac MAC, ok bool) { return linkAddr(b.OptionIter(), NDOptSource) }

// NeighborAdvert is a view of a neighbor advertisement: Target is at this link-layer address.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Type = 136   |   Code = 0    |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|R|S|O|                     Reserved                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                       Target Address (128 bits)               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Options ...
//	+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 4861 4.4.
type NeighborAdvert []byte

// Valid reports whether the message is one of this type and code and everything but the options is
// there.
func (b NeighborAdvert) Valid() bool {
	return len(b) >= NeighborAdvertLen && b[0] == ICMPv6NeighborAdvert && b[1] == 0
}

// Flags returns the flags.
func (b NeighborAdvert) Flags() NAFlags { return NAFlags(b[4]) & (NARouter | NASolicited | NAOverride) }

// Target returns the address that is advertised.
func (b NeighborAdvert) Target() [16]byte { return [16]byte(b[8:24]) }

// TargetAddr returns the address that is advertised.
func (b NeighborAdvert) TargetAddr() netip.Addr { return netip.AddrFrom16(b.Target()) }

// SetFlags writes the flags.
func (b NeighborAdvert) SetFlags(f NAFlags) { b[4] = byte(f) }

// SetTarget writes the address that is advertised.
func (b NeighborAdvert) SetTarget(a [16]byte) { copy(b[8:24], a[:]) }

// OptionIter returns a walk over the options.
func (b NeighborAdvert) OptionIter() NDOptionIter { return NDOptionsOf(b[NeighborAdvertLen:]) }

// TargetMAC returns the link-layer address in the target option.
func (b NeighborAdvert) TargetMAC() (mac MAC, ok bool) { return linkAddr(b.OptionIter(), NDOptTarget) }

// NAFlags are the flags of a neighbor advertisement (RFC 4861 4.4).
type NAFlags uint8

// Flags of a neighbor advertisement.
const (
	NARouter    NAFlags = 0x80 // the sender is a router
	NASolicited NAFlags = 0x40 // answers a solicitation
	NAOverride  NAFlags = 0x20 // replaces what the receiver knows
)

// RouterSolicit is a view of a router solicitation.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Type = 133   |   Code = 0    |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           Reserved                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Options ...
//	+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 4861 4.1.
type RouterSolicit []byte

// Valid reports whether the message is one of this type and code and everything but the options is
// there.
func (b RouterSolicit) Valid() bool {
	return len(b) >= RouterSolicitLen && b[0] == ICMPv6RouterSolicit && b[1] == 0
}

// OptionIter returns a walk over the options.
func (b RouterSolicit) OptionIter() NDOptionIter { return NDOptionsOf(b[RouterSolicitLen:]) }

// SourceMAC returns the link-layer address in the source option.
func (b RouterSolicit) SourceMAC() (mac MAC, ok bool) { return linkAddr(b.OptionIter(), NDOptSource) }

// RouterAdvert is a view of a router advertisement.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Type = 134   |   Code = 0    |          Checksum             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| Cur Hop Limit |M|O|H|Prf|Resvd|       Router Lifetime         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                         Reachable Time                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                          Retrans Timer                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Options ...
//	+-+-+-+-+-+-+-+-+-+-+-+-
//
// RFC 4861 4.2; preference RFC 4191 2.2.
type RouterAdvert []byte

// Valid reports whether the message is one of this type and code and everything but the options is
// there.
func (b RouterAdvert) Valid() bool {
	return len(b) >= RouterAdvertLen && b[0] == ICMPv6RouterAdvert && b[1] == 0
}

// HopLimit returns the hop limit that hosts should use; 0 leaves it to them.
func (b RouterAdvert) HopLimit() uint8 { return b[4] }

// Managed returns the M flag: addresses come by DHCPv6.
func (b RouterAdvert) Managed() bool { return b[5]&0x80 != 0 }

// OtherConfig returns the O flag: other configuration comes by DHCPv6.
func (b RouterAdvert) OtherConfig() bool { return b[5]&0x40 != 0 }

// Preference returns the router preference: 1 high, 0 medium, -1 low; the reserved value counts as
// medium (RFC 4191 2.2).
func (b RouterAdvert) Preference() int { return [4]int{0, 1, 0, -1}[b[5]>>3&3] }

// Lifetime returns the seconds for which the router serves as a default router; 0 is not at all.
func (b RouterAdvert) Lifetime() uint16 { return u16(b, 6) }

// ReachableTime returns milliseconds for which a neighbor counts as reachable after a confirmation; 0
// leaves it to the host.
func (b RouterAdvert) ReachableTime() uint32 { return u32(b, 8) }

// RetransTimer returns the milliseconds between solicitations; 0 leaves it to the host.
func (b RouterAdvert) RetransTimer() uint32 { return u32(b, 12) }

// OptionIter returns a walk over the options.
func (b RouterAdvert) OptionIter() NDOptionIter { return NDOptionsOf(b[RouterAdvertLen:]) }

// SourceMAC returns the link-layer address in the source option.
func (b RouterAdvert) SourceMAC() (mac MAC, ok bool) { return linkAddr(b.OptionIter(), NDOptSource) }
