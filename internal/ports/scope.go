// Package ports has what TCP and UDP share about local ports: the addresses that a socket is bound to
// (Scope, ByScope), which sockets may be together (Taken, Sharers), sets of ports (Set), and the search for a local port of a
// connection where few are free (Searches). It is pure, as its users are.
package ports

import "github.com/millrace/millrace/wire"

// Scope is the set of local addresses that a socket is bound to. The zero Addr is every address of both
// versions of IP, or of IPv6 alone with V6Only (RFC 3493 5.3); wire.Unspecified4 is every address of IPv4.
type Scope struct {
	Addr   wire.Addr
	V6Only bool // only with the zero Addr
}

// NewScope returns the scope of a socket bound to addr. v6Only has no effect on another address than ::.
func NewScope(addr wire.Addr, v6Only bool) Scope {
	return Scope{addr, v6Only && addr == wire.Addr{}}
}

// Covers reports whether packets to a, which is not unspecified, are within the scope.
func (s Scope) Covers(a wire.Addr) bool {
	switch {
	case s.Addr == wire.Unspecified4:
		return a.Is4()
	case s.Addr == wire.Addr{}:
		return !s.V6Only || !a.Is4()
	}
	return s.Addr == a
}

// Overlaps reports whether some address is within both scopes. Two sockets whose scopes overlap may have
// one port only if both agree to share it: otherwise the later one would take packets from the earlier one
// without notice. These are the rules of bind(2) on Linux.
func (s Scope) Overlaps(o Scope) bool {
	switch {
	case s.Addr.Unspecified() && o.Addr.Unspecified():
		return !(s.Addr == wire.Unspecified4 && o.V6Only || o.Addr == wire.Unspecified4 && s.V6Only)
	case o.Addr.Unspecified():
		return o.Covers(s.Addr)
	}
	return s.Covers(o.Addr)
}

// Rank orders scopes: the lower is more specific, and packets go to the most specific scope that covers
// their destination.
func (s Scope) Rank() int {
	switch {
	case !s.Addr.Unspecified():
		return 0
	case s.Addr == wire.Unspecified4 || s.V6Only:
		return 1
	}
	return 2
}
