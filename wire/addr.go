package wire

import "net/netip"

// Addr is an IPv4 or IPv6 address without a zone. IPv4 is kept as ::ffff:a.b.c.d (RFC 4291 2.5.5.2),
// so that addresses have one size, no pointers, and compare with ==.
type Addr [16]byte

var v4Prefix = [12]byte{10: 0xff, 11: 0xff}

// AddrFrom4 returns the address of IPv4 address a.
func AddrFrom4(a [4]byte) (x Addr) {
	copy(x[:], v4Prefix[:])
	copy(x[12:], a[:])
	return x
}

// AddrFrom returns a without its zone.
func AddrFrom(a netip.Addr) Addr { return Addr(a.As16()) }

// Is4 reports whether a is an IPv4 address.
func (a Addr) Is4() bool { return [12]byte(a[:12]) == v4Prefix }

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

// The addresses that mean nobody in particular, and everybody.
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
