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
	NeighborUp      ChangeKind = iota // Addr on Port is at MAC
	NeighborDown                      // Addr on Port does not answer
	NeighborRequest                   // a follower needs Addr on Port resolved or verified
	AddrUp                            // Prefix on Port is ours, and checked for duplicates
	AddrDown                          //
	AddrDuplicate                     // another host has Prefix.Addr(): it is not used; for the user
	RouteUp
	RouteDown
	PathMTU     // packets to Addr have at most MTU bytes
	LinkMTU6    // packets of IPv6 on Port have at most MTU bytes
	GroupFilter // node From wants group Addr on Port, by Include and Servers
	DNSServers  // Servers may be asked until Until (RFC 8106); for the user
)

// Change is a change of what the nodes of one host have in common.
type Change struct {
	Kind      ChangeKind
	Dev       uint8
	Addr      wire.Addr
	MAC       wire.MAC
	Prefix    netip.Prefix
	Origin    Origin
	Route     Route
	MTU       int
	Until     clock.Time  // end of the validity of an address or of servers; Never
	Preferred clock.Time  // end of an address's preference
	Servers   []wire.Addr // DNS servers, or sources of a group
	Include   bool
	From      uint32
}

// Apply takes a change that happened at another node of the same host.
func (n *Node) Apply(now clock.Time, c *Change) {
	n.setNow(now)
	n.applying = c.Kind != NeighborRequest
	defer func() { n.applying = false }()
	switch c.Kind {
	case NeighborUp:
		if e := n.neigh.find(c.Addr, c.Dev); e != nil {
			n.setLinkAddr(e, c.MAC, nudReachable)
		}
	case NeighborDown:
		if e := n.neigh.find(c.Addr, c.Dev); e != nil && e.state == nudIncomplete {
			n.neighborFailed(e)
		}
	case NeighborRequest:
		n.resolveForFollower(c)
	case AddrUp:
		// An address that is known already has new times.
		if n.addAddr(address{prefix: c.Prefix, dev: c.Dev, origin: c.Origin, valid: c.Until, preferred: c.Preferred}, true) == ErrExists {
			n.setLifetime(n.local.find(c.Dev, c.Addr), c.Until, c.Preferred)
		}
	case AddrDown:
		if x := n.local.find(c.Dev, c.Addr); x != nil {
			n.removeAddr(x, n.slotOf(x))
		}
	case RouteUp:
		n.addRoute(c.Route)
	case RouteDown:
		n.delRoute(c.Route)
	case LinkMTU6:
		n.links[c.Dev].mtu6 = c.MTU
		n.updatePaths()
	case GroupFilter:
		_ = n.listen(remoteSocket|c.From, c.Dev, c.Addr, c.Include, c.Servers) // as at the other node
	case PathMTU:
		n.storePMTU(c.Addr, c.MTU, now.Add(pmtuAge))
	}
}

// setLifetime gives x new times.
func (n *Node) setLifetime(x *address, valid, preferred clock.Time) {
	x.valid, x.preferred = valid, preferred
	if x.assigned() {
		n.maintainAddr(x, n.slotOf(x))
	}
}

// resolveForFollower resolves or verifies a neighbour for a follower, and tells all of it.
func (n *Node) resolveForFollower(c *Change) {
	if int(c.Dev) >= len(n.links) || n.cfg.Follower {
		return
	}
	e := n.neighbor(c.Addr, c.Dev)
	switch {
	case e == nil:
	case e.state == nudReachable || e.state == nudPermanent:
		n.notifyChange(&Change{Kind: NeighborUp, Dev: c.Dev, Addr: c.Addr, MAC: e.mac()})
	case e.state.hasLinkAddr():
		if e.state != nudProbe {
			n.setState(e, nudProbe)
			n.probe(e)
		}
	default:
		n.startResolution(e, wire.Addr{})
	}
}
