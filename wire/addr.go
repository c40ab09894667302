package wire

import (
	"encoding/binary"
	"net/netip"
)

// Addr is an IPv4 or IPv6 address without a zone. IPv4 is kept as ::ffff:a.b.c.d (RFC 4291 2.5.5.2),
// so that addresses have one size, no pointers, and compare with ==.
type Addr [16]byte

// AddrFrom4 returns the address of IPv4 address a.
func AddrFrom4(a [4]byte) (x Addr) {
	// One store of the lower half: a comparison that loads eight bytes soon after would wait for two.
	binary.BigEndian.PutUint64(x[8:], 0xffff<<32|uint64(binary.BigEndian.Uint32(a[:])))
	return x
}

// AddrFrom returns a without its zone.
func AddrFrom(a netip.Addr) Addr { return Addr(a.As16()) }

// Is4 reports whether a is an IPv4 address.
func (a Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[:]) == 0 && binary.BigEndian.Uint32(a[8:]) == 0xffff
}

// As4 returns the IPv4 address; without meaning unless Is4.
func (a Addr) As4() [4]byte { return [4]byte(a[12:]) }

// Netip returns a as net/netip has it: IPv4 as IPv4.
func (a Addr) Netip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// String returns the address as people write it.
func (a Addr) String() string { return a.Netip().String() }

// Multicast reports whether a is a group: 224.0.0.0/4 or ff00::/8.
func (a Addr) Multicast() bool {
	if a.Is4() {
		return a[12]&0xf0 == 0xe0
	}
	return a[0] == 0xff
}

// LinkLocal reports whether a is of link-local scope: 169.254.0.0/16, fe80::/10.
func (a Addr) LinkLocal() bool {
	if a.Is4() {
		return a[12] == 169 && a[13] == 254
	}
	return a[0] == 0xfe && a[1]&0xc0 == 0x80
}

// Loopback reports whether a is of 127.0.0.0/8 or ::1: never on a wire (RFC 1122 3.2.1.3, RFC 4291 2.5.3).
func (a Addr) Loopback() bool {
	if a.Is4() {
		return a[12] == 127
	}
	return a == Addr{15: 1}
}

// Unspecified reports whether a is 0.0.0.0 or ::.
func (a Addr) Unspecified() bool {
	return a == Addr{} || a == Unspecified4
}

// Martian reports whether no packet from another host may have source a. For IPv4 that is "this network", loopback,
// multicast, class E and the limited broadcast (RFC 1122 3.2.1.3, RFC 1812 5.3.7, RFC 6890 2.2.2); for IPv6 multicast and
// all of ::/64: unspecified, loopback, IPv4-mapped and IPv4-compatible (RFC 4291 2.5.2 to 2.5.5, 2.7; RFC 4942 2.2).
//
// The unspecified address has uses that the caller knows: duplicate address detection (RFC 4862 5.4.2), DHCP, IGMP and
// MLD (RFC 3376 4.2.13, RFC 3810 5.2.13). Addresses of the caller itself and directed broadcasts are not known here.
func (a Addr) Martian() bool {
	if a.Is4() {
		return martian4(a[12])
	}
	return martian6(a[:])
}

// MartianSrc is Addr.Martian for the source, without making an Addr of it.
func (b IPv4) MartianSrc() bool { return martian4(b[12]) }

// MartianSrc is Addr.Martian for the source.
func (b IPv6) MartianSrc() bool { return martian6(b[8:24]) }

func martian4(first byte) bool { return first == 0 || first == 127 || first >= 224 }

func martian6(a []byte) bool { return a[0] == 0xff || binary.BigEndian.Uint64(a) == 0 }

// The unspecified and the broadcast addresses.
var (
	Unspecified4 = AddrFrom4([4]byte{})
	Broadcast4   = AddrFrom4([4]byte{255, 255, 255, 255})
)

// Tuple names a flow as this host sees it: the 5-tuple without the protocol, since a table
// of flows holds one protocol only. It has no pointers and serves as map key.
type Tuple struct {
	Local, Remote         Addr
	LocalPort, RemotePort uint16
}

// Reverse returns the tuple as the other end sees it.
func (t Tuple) Reverse() Tuple {
	return Tuple{t.Remote, t.Local, t.RemotePort, t.LocalPort}
}
