package ip

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Limits of what routers may tell: whoever is on the link may claim to be one.
const (
	maxLearned    = 64 // routes from advertisements, all devices together
	maxLearnedDev = 16 // of one device: routers and prefixes
	maxServers    = 8  // RFC 8106 5.3.1 has 3
	advertRate    = 10 // advertisements a second
	advertBurst   = 32 //
	minHopLimit   = 32 // smaller ones would cut this host off
	minRetrans    = 100 * time.Millisecond
	maxRetrans    = 10 * time.Second
	minReachable  = time.Second
	maxReachable  = time.Hour // RFC 4861 6.2.1: AdvReachableTime
	routerMetric  = 1024      // of a default router of medium preference
)

// Times of router solicitation (RFC 4861 10, RFC 7559 2).
const (
	solicitDelay = time.Second     // MAX_RTR_SOLICITATION_DELAY
	solicitFirst = 4 * time.Second // IRT
	solicitMax   = time.Hour       // MRT
)

// learnedRoute is a route that a router advertised.
type learnedRoute struct {
	used  bool
	route Route
	until clock.Time
}

// routers is what routers told.
type routers struct {
	route   [maxLearned]learnedRoute
	adverts RateLimiter
}

// inputRA takes a router advertisement (RFC 4861 6.1.2 and 6.3.4).
func (n *Node) inputRA(dev uint8, ip wire.IPv6, ra wire.RouterAdvert) packet.Verdict {
	router := wire.Addr(ip.Src())
	l := &n.links[dev]
	switch {
	case !ra.Valid() || !router.LinkLocal() || !validOptions(ra.OptionIter()):
		return packet.DropNeighbor
	case !l.Accept:
		return packet.DropICMP
	case !n.routers.adverts.Take(n.now, 1):
		return packet.DropRateLimit
	}
	n.wheel.Stop(n.base.solicits + uint32(dev)) // RFC 4861 6.3.7: answered
	n.setDefaultRouter(dev, router, ra)
	n.setRouterParameters(l, ra)
	if e := n.neigh.find(router, dev); e != nil {
		e.router = ra.Lifetime() > 0 || e.router
		if mac, ok := ra.SourceMAC(); ok && e.state.hasLinkAddr() && e.mac() != mac {
			n.verifyLinkAddr(e)
		}
	}
	for it := ra.OptionIter(); it.Next(); {
		n.routerOption(dev, it.Type(), it.Data())
	}
	return packet.Deliver
}

// setDefaultRouter adds or removes the default route by router (RFC 4861 6.3.4, RFC 4191 3.2).
func (n *Node) setDefaultRouter(dev uint8, router wire.Addr, ra wire.RouterAdvert) {
	r := Route{
		Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Gateway: router, Dev: dev, Origin: RouterAdvert,
		Metric: uint32(routerMetric - ra.Preference()),
	}
	n.addLearnedRoute(r, n.deadline(uint32(ra.Lifetime())))
}

// setRouterParameters takes what a router says of the link, within bounds.
func (n *Node) setRouterParameters(l *link, ra wire.RouterAdvert) {
	if h := ra.HopLimit(); h >= minHopLimit {
		l.hopLimit = h
	}
	if ms := ra.ReachableTime(); ms != 0 {
		base := min(max(time.Duration(ms)*time.Millisecond, minReachable), maxReachable)
		if base != l.base {
			l.base, l.reachable = base, n.rand.Between(base/2, base*3/2)
		}
	}
	if ms := ra.RetransTimer(); ms != 0 {
		l.retrans = min(max(time.Duration(ms)*time.Millisecond, minRetrans), maxRetrans)
	}
	n.updatePaths()
}

// updatePaths gives the paths of neighbours what their links say now.
func (n *Node) updatePaths() {
	for i := range n.neigh.slot {
		if e := &n.neigh.slot[i]; e.state != nudFree && !e.key.addr.Is4() {
			l := &n.links[e.key.dev]
			e.path.TTL, e.path.MTU = l.hopLimit, l.mtu6
		}
	}
}

// routerOption takes an option of a router advertisement.
func (n *Node) routerOption(dev uint8, typ uint8, data []byte) {
	switch typ {
	case wire.NDOptMTU:
		mtu, ok := wire.ParseNDMTU(data)
		if l := &n.links[dev]; ok && mtu >= MinMTU6 && int(mtu) <= l.MTU && int(mtu) != l.mtu6 {
			l.mtu6 = int(mtu)
			n.updatePaths()
			n.notifyChange(&Change{Kind: LinkMTU6, Dev: dev, MTU: l.mtu6})
		}
	case wire.NDOptPrefix:
		if p, ok := wire.ParseNDPrefix(data); ok && !wire.Addr(p.Prefix).LinkLocal() && !wire.Addr(p.Prefix).Multicast() && !wire.Addr(p.Prefix).Is4() {
			n.handlePrefix(dev, &p)
		}
	case wire.NDOptRDNSS:
		n.handleRDNSS(dev, data)
	}
}

// handlePrefix takes a prefix (RFC 4861 6.3.4, RFC 4862 5.5.3).
func (n *Node) handlePrefix(dev uint8, p *wire.NDPrefix) {
	prefix := netip.PrefixFrom(netip.AddrFrom16(p.Prefix), int(p.Bits)).Masked()
	if p.OnLink && p.Bits > 0 {
		n.addLearnedRoute(Route{Prefix: prefix, Dev: dev, Origin: RouterAdvert, Metric: routerMetric}, n.deadline(p.Valid))
	}
	if p.Autonomous && p.Preferred <= p.Valid && p.Bits == 64 {
		n.autoconfigure(dev, prefix, p)
	}
}

// addLearnedRoute adds route r until a time, prolongs it, or removes it where the time is now.
func (n *Node) addLearnedRoute(r Route, until clock.Time) {
	free, mine := -1, 0
	for i := range n.routers.route {
		x := &n.routers.route[i]
		switch {
		case !x.used:
			free = i
		case x.route.Prefix == r.Prefix && x.route.Gateway == r.Gateway && x.route.Dev == r.Dev:
			n.updateLearnedRoute(i, r, until)
			return
		case x.route.Dev == r.Dev:
			mine++
		}
	}
	if until <= n.now || free < 0 || mine >= maxLearnedDev || !n.addRoute(r) {
		return
	}
	n.routers.route[free] = learnedRoute{true, r, until}
	n.armRoute(free)
}

// updateLearnedRoute changes the route in slot i.
func (n *Node) updateLearnedRoute(i int, r Route, until clock.Time) {
	x := &n.routers.route[i]
	if until <= n.now {
		n.expireRoute(i)
		return
	}
	if x.until = until; x.route.Metric != r.Metric {
		n.delRoute(x.route)
		n.addRoute(r)
		x.route = r
	}
	n.armRoute(i)
}

func (n *Node) armRoute(i int) {
	if id := n.base.routes + uint32(i); n.routers.route[i].until == clock.Never {
		n.wheel.Stop(id)
	} else {
		n.wheel.Arm(id, n.routers.route[i].until)
	}
}

// expireRoute removes the route in slot i, whose lifetime is over (RFC 4861 6.3.5).
func (n *Node) expireRoute(i int) {
	n.wheel.Stop(n.base.routes + uint32(i))
	n.delRoute(n.routers.route[i].route)
	n.routers.route[i] = learnedRoute{}
}

// handleRDNSS takes a list of DNS servers (RFC 8106 5.1).
func (n *Node) handleRDNSS(dev uint8, data []byte) {
	if len(data) < 6+16 {
		return
	}
	var list []wire.Addr
	for b := data[6:]; len(b) >= 16 && len(list) < maxServers; b = b[16:] {
		list = append(list, wire.Addr(b[:16]))
	}
	until := n.deadline(binary.BigEndian.Uint32(data[2:]))
	l := &n.links[dev]
	if slices.Equal(list, l.servers) && l.serversUntil.Sub(n.now) > until.Sub(n.now)/2 && until > n.now {
		return // nothing new
	}
	l.servers, l.serversUntil = list, until
	n.notifyChange(&Change{Kind: DNSServers, Dev: dev, Servers: list, Until: until})
}

// startSolicit begins to look for routers on a device (RFC 4861 6.3.7).
func (n *Node) startSolicit(dev uint8) {
	n.links[dev].solicitWait = 0
	n.wheel.Arm(n.base.solicits+uint32(dev), n.now.Add(n.rand.Between(0, solicitDelay)))
}

// sendRouterSolicit asks for routers, and will again, ever less often (RFC 7559 2).
func (n *Node) sendRouterSolicit(dev uint8) {
	l := &n.links[dev]
	src := n.linkLocal(dev)
	var b [wire.RouterSolicitLen + 8]byte
	m := wire.AppendRouterSolicit(b[:0], l.MAC)
	if src == (wire.Addr{}) {
		m = m[:wire.RouterSolicitLen] // RFC 4861 4.1: no link address without an address
	}
	n.sendICMP6(dev, wire.MulticastMAC6(allRouters), src, allRouters, wire.NDHopLimit, m)
	l.solicitWait = min(max(2*l.solicitWait, solicitFirst), solicitMax)
	n.wheel.Arm(n.base.solicits+uint32(dev), n.now.Add(n.rand.Between(l.solicitWait*9/10, l.solicitWait*11/10)))
}
