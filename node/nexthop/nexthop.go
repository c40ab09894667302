// Package nexthop finds the next hop to an address and follows its changes: the device
// to send on, the link address and the VLAN tag. Kernel takes them from the kernel's
// routes and neighbour table by netlink. Static is a fixed table for tests and closed
// networks.
//
// Nothing here is on a packet's path. A consumer collects the reported hops in an
// immutable snapshot that its data path reads.
package nexthop

import "net/netip"

// Hop is the next hop to an address.
type Hop struct {
	MAC   [6]byte
	VLAN  uint16 // 802.1Q VLAN identifier to tag with; 0 is none
	Dev   uint8  // index of the device in the list that the resolver was opened with
	State State
}

// State is the known part of a Hop.
type State uint8

// The states of a hop.
const (
	Unresolved State = iota // there is a route; the next hop's link address is not known (yet)
	Ready                   // all fields are valid
	NoRoute                 // no route, or one by a device that is not in the list
)

// String returns the state's name in logs and in the status.
func (s State) String() string {
	return [...]string{"unresolved", "ready", "no route"}[s]
}

// Resolver finds next hops and follows their changes.
type Resolver interface {
	// Watch replaces the set of addresses to resolve. The resolver calls changed with
	// the hop of each address as soon as it is known, those that an earlier set had too,
	// and whenever it changes. Calls
	// come from any goroutine, one at a time; changed must not call the resolver.
	Watch(addrs []netip.Addr, changed func(netip.Addr, Hop))

	// Find resolves addresses once: found is called with the hop of each when it is known to be ready or
	// without a route. Addresses that do not answer within a few seconds are forgotten. Calls come as those of
	// changed, under the same rule.
	Find(addrs []netip.Addr, found func(netip.Addr, Hop))

	// Close ends the calls of changed and found.
	Close() error
}

// Static is a fixed table. Addresses that it lacks have no route.
type Static map[netip.Addr]Hop

// Watch reports the hop of each address once.
func (r Static) Watch(addrs []netip.Addr, changed func(netip.Addr, Hop)) {
	for _, a := range addrs {
		hop, ok := r[a]
		if !ok {
			hop.State = NoRoute
		}
		changed(a, hop)
	}
}

// Find reports the hop of each address.
func (r Static) Find(addrs []netip.Addr, found func(netip.Addr, Hop)) { r.Watch(addrs, found) }

// Close does nothing.
func (r Static) Close() error { return nil }
