package ip

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// The nodes of one host have the same links and addresses, one node for each loop, and share no memory. Only the leader
// answers ARP, neighbour discovery and membership queries: a link must see one host, not one for each loop. So each
// node reports what it learns as a Change, and the caller carries it to the other nodes, which apply it on their own
// goroutine. A Change states the new value, not a difference, so that applying one twice does no harm.

// ChangeKind is the kind of a Change.
type ChangeKind uint8

// Kinds of changes. NeighborRequest goes from a follower to the leader, the others from the node where they happened to
// all other nodes.
const (
	NeighborUp      ChangeKind = iota // Addr on Dev is at MAC
	NeighborDown                      // Addr on Dev does not answer
	NeighborRequest                   // a follower needs Addr on Dev resolved or verified
	AddrUp                            // Prefix on Dev is assigned, after duplicate address detection
	AddrDown                          // Prefix on Dev is removed
	AddrDuplicate                     // another host has Prefix.Addr(): it is not used; for the user
	RouteUp
	RouteDown
	PathMTU     // packets to Addr have at most MTU bytes
	LinkMTU6    // packets of IPv6 on Dev have at most MTU bytes
	LinkHops6   // packets of IPv6 on Dev whose sender chose none have HopLimit
	GroupFilter // the filter of node From for group Addr on Dev: Include, with the sources in Servers
	DNSServers  // Servers are valid until Until (RFC 8106); for the user
)

// Change is a change of the state that the nodes of one host have in common. Which fields are set depends on Kind.
type Change struct {
	Kind      ChangeKind
	Dev       uint8
	Addr      wire.Addr
	MAC       wire.MAC
	Prefix    netip.Prefix
	Origin    Origin
	Route     Route
	MTU       int
	HopLimit  uint8
	Until     clock.Time  // end of the validity of an address or of servers; Never
	Preferred clock.Time  // end of an address's preference
	Servers   []wire.Addr // DNS servers, or sources of a group
	Include   bool
	From      uint32
}

// Apply takes a change that happened at another node of the same host.
func (n *Node) Apply(now clock.Time, c *Change) {
	n.setNow(now)
	// What is applied here is not reported again, or two nodes would exchange one change for ever. The effects of a
	// request are news to all, the node that made it included.
	n.applying = c.Kind != NeighborRequest
	defer func() { n.applying = false }()
	switch c.Kind {
	case NeighborUp:
		// Only entries that this node uses are updated. Storing all neighbours of the leader in every node would
		// let one loop's traffic evict the neighbours of another.
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
		// An address that exists has new lifetimes (RFC 4862 5.5.3 (e)).
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
	case LinkHops6:
		n.links[c.Dev].hopLimit = c.HopLimit
		n.updatePaths()
	case GroupFilter:
		// The sockets of another node count as one socket here. The error is dropped, because the caller of Listen at
		// the other node got its result from that node's own table.
		_ = n.listen(remoteSocket|c.From, c.Dev, c.Addr, c.Include, c.Servers)
	case PathMTU:
		n.storePMTU(c.Addr, c.MTU, now.Add(pmtuAge))
	}
}

// setLifetime sets the valid and preferred lifetimes of x.
func (n *Node) setLifetime(x *address, valid, preferred clock.Time) {
	x.valid, x.preferred = valid, preferred
	if x.assigned() {
		n.maintainAddr(x, n.slotOf(x))
	}
}

// changeLifetime is setLifetime, and reports the change.
func (n *Node) changeLifetime(x *address, valid, preferred clock.Time) {
	n.setLifetime(x, valid, preferred)
	if x.assigned() {
		n.notifyChange(&Change{
			Kind: AddrUp, Dev: x.dev, Addr: x.addr, Prefix: x.prefix, Origin: x.origin, Until: x.valid, Preferred: x.preferred,
		})
	}
}

// resolveForFollower resolves or verifies a neighbour for a follower, which may not send ARP or neighbour discovery
// itself. The result is reported to all followers as NeighborUp or NeighborDown.
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
