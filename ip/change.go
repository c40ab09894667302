package ip

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// ChangeKind is what a Change is about.
type ChangeKind uint8

// Kinds of changes. The wishes go from followers to the leader, the others from whom they happened at to
// all others.
const (
	NeighborUp    ChangeKind = iota // Addr on Port is at MAC
	NeighborDown                    // Addr on Port does not answer, or is gone
	NeighborWish                    // a follower needs Addr on Port resolved or verified
	NeighborAlive                   // a follower's connection heard from Addr on Port
	AddrUp                          // Prefix on Port is ours, checked for duplicates
	AddrDown
	AddrDuplicate // another host has Prefix.Addr: it is not used; for the caller
	RouteUp
	RouteDown
	PathMTU // packets to Addr have at most MTU bytes
	GroupsChanged
	DNSServers // RFC 8106: Servers for Lifetime; for the caller
)

// Change is a change of what the nodes of one host have in common.
type Change struct {
	Kind      ChangeKind
	Port      uint8
	Addr      Addr
	MAC       wire.MAC
	Prefix    netip.Prefix
	Origin    Origin
	Route     Route
	MTU       int
	Until     clock.Time // end of the validity of an address, a route or servers; Never
	Preferred clock.Time // of an address
	Servers   []Addr
}

// Apply takes a change that happened at another node of the same host.
func (n *Node) Apply(now clock.Time, c *Change) { n.apply(now, c) }
