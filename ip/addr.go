// Package ip is the network layer of a host: addresses, routes, neighbours, fragments, ICMP, groups.
//
// A host (stack/host) passes it each received packet that is not for TCP or UDP straight away, asks it
// for the way to a destination, and polls it for its timers. It knows nothing of sockets, and nothing
// of loops: each loop has a Node of its own.
//
// The package is pure: packets and times come in as arguments.
package ip

import "net/netip"

// Addr is an IPv4 or IPv6 address without a zone. IPv4 is kept as ::ffff:a.b.c.d (RFC 4291 2.5.5.2),
// so that addresses have one size, no pointers, and compare with ==.
type Addr [16]byte

var v4Prefix = [12]byte{10: 0xff, 11: 0xff}

// From4 returns the address of IPv4 address a.
func From4(a [4]byte) (x Addr) {
	copy(x[:], v4Prefix[:])
	copy(x[12:], a[:])
	return x
}

// From returns a without its zone.
func From(a netip.Addr) Addr { return Addr(a.As16()) }

// Is4 reports whether a is an IPv4 address.
func (a Addr) Is4() bool { return [12]byte(a[:12]) == v4Prefix }

// As4 returns the IPv4 address; without meaning unless Is4.
func (a Addr) As4() [4]byte { return [4]byte(a[12:]) }

// Netip returns a as net/netip has it: IPv4 as IPv4.
func (a Addr) Netip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// String returns the address as people write it.
func (a Addr) String() string { return a.Netip().String() }

// Tuple names a flow as this host sees it. It has no pointers and serves as map key.
type Tuple struct {
	Local, Remote         Addr
	LocalPort, RemotePort uint16
}

// Reverse returns the tuple as the other end sees it.
func (t Tuple) Reverse() Tuple {
	return Tuple{t.Remote, t.Local, t.RemotePort, t.LocalPort}
}
