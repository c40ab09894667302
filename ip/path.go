package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// LoopDev is the device of packets that this host sends to itself: what is sent there the caller passes
// back to Input, as received on LoopDev. Its frames have an Ethernet header of zero addresses.
const LoopDev uint8 = 254

// DefaultTTL is the TTL and hop limit of packets unless a router advertises another (RFC 1700, RFC 4861
// 6.3.2).
const DefaultTTL = 64

// Ref names a path so that a connection can keep it in eight bytes and find it again without a
// lookup. 0 is none. It outlives the path: Path then answers nil.
//
//	+----------------+------------------------------------------------+
//	| slot, 16 bits  | epoch in which it was found, 48 bits           |
//	+----------------+------------------------------------------------+
type Ref uint64

const (
	refShift = 48
	loopSlot = 0xfffe // of IPv6; that of IPv4 is the next
)

// Path is the way to a destination: what every packet to one next hop has in common. A path with a
// Ref stays where it is, and its link addresses follow the neighbour entry, until Node.Path answers
// nil for it; one without is good until the node's next method.
type Path struct {
	Ref      Ref
	Dev      uint8
	Resolved bool      // Header is right: frames may be sent at once; else Send queues them
	Kind     Kind      // Unicast, Broadcast, Multicast
	TTL      uint8     // of packets whose sender chose none
	MTU      int       // of the link, bytes of an IP packet; Node.MTU knows destinations
	NextHop  wire.Addr // neighbour, or the destination itself
	Header   [wire.EthernetLen]byte
}

// Route returns the path to dst for packets from src (zero: any address of this host) by way of dev (AnyDev: by the
// routes). An unresolved neighbour is not an error: its resolution starts with the first packet that is sent. Without a
// route the path is nil with DropNoRoute, and with DropNoNeighbor where the neighbour table has no room for now.
func (n *Node) Route(now clock.Time, dst, src wire.Addr, dev uint8) (*Path, packet.Verdict) {
	n.setNow(now)
	return n.route(dst, src, dev)
}

func (n *Node) route(dst, src wire.Addr, dev uint8) (*Path, packet.Verdict) {
	// A link-local destination is ambiguous without its link (RFC 4007 6); a link-local source names it.
	if dev == AnyDev && src.LinkLocal() && linkLocalScope(dst) {
		dev = n.devOf(src)
	}
	switch {
	case dev == LoopDev || n.isLocalAddr(dst):
		v := uint64(0)
		if dst.Is4() {
			v = 1
		}
		p := &n.loop[v]
		p.Ref = Ref((loopSlot+v)<<refShift | n.epoch)
		p.Header = LoopHeader(dst.Is4())
		return p, packet.Forward
	case src.Loopback() && !dst.Multicast(): // must not appear outside of this host (RFC 1122 3.2.1.3 (g), RFC 4291 2.5.3)
		return nil, packet.DropNoRoute
	case dst.Multicast() || dst == wire.Broadcast4 || n.isDirectedBroadcast(dst, dev):
		return n.multicastRoute(dst, src, dev)
	}
	r := n.selectRoute(dst, dev)
	if r == nil || r.Reject {
		return nil, packet.DropNoRoute
	}
	hop := r.Gateway
	if hop == (wire.Addr{}) {
		hop = dst
	}
	e := n.neighbor(hop, r.Dev)
	if e == nil {
		return nil, packet.DropNoNeighbor
	}
	e.path.Ref = Ref(uint64(n.neigh.indexOf(e))<<refShift | n.epoch)
	n.markUsed(e)
	return &e.path, packet.Forward
}

// LoopHeader returns the Ethernet header of packets to this host: the EtherType alone, as the header pass needs it.
func LoopHeader(is4 bool) (h [wire.EthernetLen]byte) {
	t := wire.EtherTypeIPv6
	if is4 {
		t = wire.EtherTypeIPv4
	}
	wire.Ethernet(h[:]).SetEtherType(t)
	return h
}

// devOf returns the device that address a of this host is assigned to, AnyDev where there is none.
func (n *Node) devOf(a wire.Addr) uint8 {
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.assigned() && x.addr == a {
			return x.dev
		}
	}
	return AnyDev
}

// isDirectedBroadcast reports whether dst is the broadcast address of a connected network (RFC 919 7, RFC 922 7).
func (n *Node) isDirectedBroadcast(dst wire.Addr, dev uint8) bool {
	e, ok := n.local.index[keyOf(dst, dev)]
	return ok && e.kind == Broadcast
}

// multicastRoute returns the path to a group or a broadcast address. Its link address follows from the IP address, without
// resolution: the low 23 bits of an IPv4 group (RFC 1112 6.4), the low 32 of an IPv6 one (RFC 2464 7). The TTL of groups
// is 1 unless the sender chooses another (RFC 1112 6.1, RFC 3493 5.2), or a program that does not would send into every
// network.
func (n *Node) multicastRoute(dst, src wire.Addr, dev uint8) (*Path, packet.Verdict) {
	p := &n.scratch
	*p = Path{Resolved: true, Kind: Broadcast, NextHop: dst, TTL: DefaultTTL}
	mac := wire.Broadcast
	switch {
	case dst.Multicast() && dst.Is4():
		p.Kind, p.TTL, mac = Multicast, 1, wire.MAC{0x01, 0x00, 0x5e, dst[13] & 0x7f, dst[14], dst[15]}
	case dst.Multicast():
		p.Kind, p.TTL, mac = Multicast, 1, wire.MulticastMAC6(dst)
	}
	if p.Dev = n.multicastDev(dst, src, dev); int(p.Dev) >= len(n.links) {
		return nil, packet.DropNoRoute
	}
	p.MTU = n.links[p.Dev].mtu(dst.Is4())
	n.links[p.Dev].header(p, mac, dst.Is4())
	return p, packet.Forward
}

// multicastDev returns the device of packets to a group or a broadcast address. The first that exists counts: the caller's,
// that of the source, that of the network of a directed broadcast, that of the route, device 0.
func (n *Node) multicastDev(dst, src wire.Addr, dev uint8) uint8 {
	if dev != AnyDev {
		return dev
	}
	if dev = n.devOf(src); dev != AnyDev {
		return dev
	}
	if e, ok := n.local.index[keyOf(dst, AnyDev)]; ok && e.kind == Broadcast {
		return e.dev
	}
	if r := n.selectRoute(dst, AnyDev); r != nil {
		return r.Dev
	}
	return 0
}

// Path returns the path of r while Route would still find it, and nil after: then the caller asks Route again. It counts
// as a use of the neighbour. A connection thereby pays a few comparisons a packet instead of a route lookup.
func (n *Node) Path(now clock.Time, r Ref) *Path {
	n.setNow(now)
	if r>>refShift >= loopSlot {
		if uint64(r)&(1<<refShift-1) < n.routesAt {
			return nil
		}
		return &n.loop[r>>refShift-loopSlot]
	}
	e := n.byRef(r)
	if e == nil {
		return nil
	}
	n.markUsed(e)
	return &e.path
}

// byRef returns the entry of r, nil where the slot has another neighbour since (born), or routes or addresses have changed
// (routesAt): both are later than the epoch in r.
func (n *Node) byRef(r Ref) *neighbor {
	slot, epoch := uint64(r)>>refShift, uint64(r)&(1<<refShift-1)
	if slot == 0 || slot >= uint64(len(n.neigh.slot)) {
		return nil
	}
	e := &n.neigh.slot[slot]
	if e.state == nudFree || epoch < e.born || epoch < n.routesAt {
		return nil
	}
	return e
}

// Resolve is Route for those who do not send by this node: it also starts the resolution of the next hop,
// from the source address that the node would choose, and marks it as used. Called again and again it keeps
// the entry verified, as packets would (RFC 4861 7.3.2).
func (n *Node) Resolve(now clock.Time, dst wire.Addr) (*Path, packet.Verdict) {
	p, why := n.Route(now, dst, wire.Addr{}, AnyDev)
	if p == nil || p.Resolved || p.Kind != Unicast {
		return p, why
	}
	if src, ok := n.source(dst, p.Dev); ok {
		if e := n.neigh.find(p.NextHop, p.Dev); e != nil {
			n.startResolution(e, src)
		}
	}
	return p, why
}
