package ip

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Errors of changes to a node.
var (
	ErrDevice  = errors.New("no such device")
	ErrAddress = errors.New("address cannot be used")
	ErrExists  = errors.New("exists already")
	ErrMissing = errors.New("does not exist")
	ErrFull    = errors.New("table is full")
)

// Origin is where an address or a route comes from. It decides who removes it: an on-link route goes with its addresses, a
// learned one with its lifetime, a static one by its caller alone.
type Origin uint8

// Origins.
const (
	Static       Origin = iota // given by the caller
	Connected                  // follows from an address: the on-link route
	RouterAdvert               // RFC 4861 6.3.4
	DHCP                       // RFC 2131
	Automatic                  // made by the node: link-local
)

// String returns the name of the origin.
func (o Origin) String() string {
	return [...]string{"static", "connected", "ra", "dhcp", "automatic"}[o]
}

// Route is one route.
type Route struct {
	Prefix  netip.Prefix
	Gateway wire.Addr // zero: on link
	Dev     uint8
	Origin  Origin
	Metric  uint32    // of routes with the same prefix the smallest is used
	Source  wire.Addr // preferred; zero: chosen (RFC 6724)
	Reject  bool      // packets are dropped (DropNoRoute), and no shorter prefix is tried
}

// same reports whether two routes cannot be in a table together.
func (r *Route) same(o *Route) bool {
	return r.Prefix.Masked() == o.Prefix.Masked() && r.Gateway == o.Gateway && r.Dev == o.Dev && r.Metric == o.Metric
}

// AddRoute adds a route. It fails with ErrExists where one with the same prefix, gateway, device and metric is there.
func (n *Node) AddRoute(now clock.Time, r Route) error {
	n.setNow(now)
	if int(r.Dev) >= len(n.links) || !r.Prefix.IsValid() {
		return ErrDevice
	}
	if !n.addRoute(r) {
		return ErrExists
	}
	return nil
}

// DelRoute removes the route with the same prefix, gateway, device and metric.
func (n *Node) DelRoute(now clock.Time, r Route) error {
	n.setNow(now)
	if !n.delRoute(r) {
		return ErrMissing
	}
	return nil
}

// SetTable replaces all routes, on-link ones too, by a table that may be shared with other nodes: it is never written.
// No change is reported: the caller sets the same table at the other nodes.
func (n *Node) SetTable(now clock.Time, t *Table) {
	n.setNow(now)
	n.setTable(t)
}

// Routes returns the routes, which are not to be changed, sorted by prefix and metric.
func (n *Node) Routes() []Route { return n.table.routes }

// setTable ends every cached path: a Ref from an earlier epoch may lead to a router that the new table does not choose.
func (n *Node) setTable(t *Table) {
	n.table = t
	n.epoch++
	n.routesAt = n.epoch
}

func (n *Node) addRoute(r Route) bool {
	r.Prefix = r.Prefix.Masked()
	if slices.ContainsFunc(n.table.routes, func(o Route) bool { return o.same(&r) }) {
		return false
	}
	n.setTable(NewTable(append(slices.Clip(n.table.routes), r)))
	n.notifyChange(&Change{Kind: RouteUp, Dev: r.Dev, Route: r})
	return true
}

func (n *Node) delRoute(r Route) bool {
	i := slices.IndexFunc(n.table.routes, func(o Route) bool { return o.same(&r) })
	if i < 0 {
		return false
	}
	n.setTable(NewTable(slices.Delete(slices.Clone(n.table.routes), i, i+1)))
	n.notifyChange(&Change{Kind: RouteDown, Dev: r.Dev, Route: r})
	return true
}

// selectRoute returns the route that packets to dst take: of those with the longest prefix the one with the smallest metric
// whose gateway is not known to be unreachable (RFC 4861 6.3.6, RFC 1122 3.3.1.5: dead gateway detection). Where all are,
// it is the best of them, so that packets still probe whether it is back.
func (n *Node) selectRoute(dst wire.Addr, dev uint8) *Route {
	var best *Route
	routes := n.table.Lookup(dst, dev)
	for i := range routes {
		r := &routes[i]
		if dev != AnyDev && r.Dev != dev {
			continue
		}
		if r.Gateway == (wire.Addr{}) || !n.neigh.unreachable(r.Gateway, r.Dev) {
			return r
		}
		if best == nil {
			best = r
		}
	}
	return best
}

// Table returns the routes as they are looked up; others may share it.
func (n *Node) Table() *Table { return n.table }
