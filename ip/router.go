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

// Limits of what router advertisements may change. Any host on the link can send one, so that none of them may exhaust
// memory, cut this host off or make it flood the link (RFC 6104).
const (
	maxLearned    = 64                     // routes from advertisements, all devices together
	maxLearnedDev = 16                     // of one device: routers and prefixes
	maxServers    = 8                      // RFC 8106 5.3.1 has 3
	advertRate    = 10                     // advertisements a second
	advertBurst   = 32                     //
	minHopLimit   = 32                     // smaller ones would cut this host off from most of the Internet
	minRetrans    = 100 * time.Millisecond // faster probes would load the link
	maxRetrans    = 10 * time.Second       // slower ones would delay every resolution and failover
	minReachable  = time.Second            // a shorter one would have every neighbour probed all the time
	maxReachable  = time.Hour              // RFC 4861 6.2.1: AdvReachableTime
	routerMetric  = 1024                   // of a default router of medium preference
)

// Times of router solicitation (RFC 4861 10, RFC 7559 2).
const (
	solicitDelay = time.Second     // MAX_RTR_SOLICITATION_DELAY
	solicitFirst = 4 * time.Second // IRT
	solicitMax   = time.Hour       // MRT
)

// learnedRoute is a route that a router advertised, with the end of its lifetime. Slot i has timer i of the routes.
type learnedRoute struct {
	used  bool
	route Route
	until clock.Time
}

// routers is the state learned from router advertisements, beside the parameters in link.
type routers struct {
	route   [maxLearned]learnedRoute
	adverts RateLimiter
}

// inputRA takes a router advertisement (RFC 4861 6.1.2 and 6.3.4). Its source must be a link-local address, by which hosts
// identify a router whatever its prefixes are. Followers do not get here: they learn the results by Apply.
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
	// An advertisement answers the solicitations, also one that was not sent for them (RFC 4861 6.3.7).
	n.wheel.Stop(n.base.solicits + uint32(dev))
	n.setDefaultRouter(dev, router, ra)
	n.setRouterParameters(dev, ra)
	// The source link-layer address is not stored for a router that has no entry: its first packet resolves it.
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

// setDefaultRouter adds, prolongs or removes the default route by router (RFC 4861 6.3.4): a lifetime of 0 means that it is
// no default router. The preference of RFC 4191 2.2 becomes the metric.
func (n *Node) setDefaultRouter(dev uint8, router wire.Addr, ra wire.RouterAdvert) {
	r := Route{
		Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Gateway: router, Dev: dev, Origin: RouterAdvert,
		Metric: uint32(routerMetric - ra.Preference()),
	}
	n.addLearnedRoute(r, n.deadline(uint32(ra.Lifetime())))
}

// setRouterParameters sets the parameters of the link from an advertisement, within bounds; 0 leaves one as it is (RFC 4861
// 4.2, 6.3.4). The reachable time is drawn anew only when its base changes.
func (n *Node) setRouterParameters(dev uint8, ra wire.RouterAdvert) {
	l := &n.links[dev]
	if h := ra.HopLimit(); h >= minHopLimit && h != l.hopLimit {
		l.hopLimit = h
		n.notifyChange(&Change{Kind: LinkHops6, Dev: dev, HopLimit: h})
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

// updatePaths copies MTU and hop limit of the links to the paths of their neighbours, which connections hold by Ref. Routers
// set the hop limit of IPv6 alone.
func (n *Node) updatePaths() {
	for i := range n.neigh.slot {
		e := &n.neigh.slot[i]
		if e.state == nudFree {
			continue
		}
		l := &n.links[e.key.dev]
		if e.path.MTU = l.mtu(e.key.addr.Is4()); !e.key.addr.Is4() {
			e.path.TTL = l.hopLimit
		}
	}
}

// routerOption processes an option of a router advertisement; unknown ones are ignored (RFC 4861 4.6). An MTU counts from
// 1280 up to the link's (RFC 4861 6.3.4, RFC 8200 5): a smaller one would be an attack, a larger one would lose packets.
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
		// A link-local prefix is on-link without an advertisement (RFC 4861 6.3.4, RFC 4862 5.5.3 (b)).
		if p, ok := wire.ParseNDPrefix(data); ok && !wire.Addr(p.Prefix).LinkLocal() && !wire.Addr(p.Prefix).Multicast() && !wire.Addr(p.Prefix).Is4() {
			n.handlePrefix(dev, &p)
		}
	case wire.NDOptRDNSS:
		n.handleRDNSS(dev, data)
	}
}

// handlePrefix processes a prefix option. The L flag makes it on-link (RFC 4861 6.3.4), the A flag forms an address in it
// (RFC 4862 5.5.3), independently of each other. A prefix of another length than 64 bits has no room for the interface
// identifier and forms no address (5.5.3 (d)), nor does one with a preferred lifetime beyond the valid one (5.5.3 (c)).
func (n *Node) handlePrefix(dev uint8, p *wire.NDPrefix) {
	prefix := netip.PrefixFrom(netip.AddrFrom16(p.Prefix), int(p.Bits)).Masked()
	if p.OnLink && p.Bits > 0 {
		n.addLearnedRoute(Route{Prefix: prefix, Dev: dev, Origin: RouterAdvert, Metric: routerMetric}, n.deadline(p.Valid))
	}
	if p.Autonomous && p.Preferred <= p.Valid && p.Bits == 64 {
		n.autoconfigure(dev, prefix, p)
	}
}

// addLearnedRoute adds route r until a time, prolongs it, or removes it where the time is now (a lifetime of 0). Beyond the
// limits new routes are ignored and known ones stay: a flood of forged ones does not displace the real router.
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

// updateLearnedRoute sets lifetime and metric of the route in slot i. Only a new metric changes the table, which would end
// all cached paths with each advertisement otherwise.
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

// handleRDNSS processes a list of DNS servers (RFC 8106 5.1). The node uses none: it reports them to the user when the list
// changes or half of its lifetime is over, not with each advertisement.
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
		return
	}
	l.servers, l.serversUntil = list, until
	n.notifyChange(&Change{Kind: DNSServers, Dev: dev, Servers: list, Until: until})
}

// startSolicit begins to solicit routers on a device, after a random delay (RFC 4861 6.3.7).
func (n *Node) startSolicit(dev uint8) {
	n.links[dev].solicitWait = 0
	n.wheel.Arm(n.base.solicits+uint32(dev), n.now.Add(n.rand.Between(0, solicitDelay)))
}

// sendRouterSolicit sends a router solicitation and sets the time of the next. RFC 4861 6.3.7 stops after three; RFC 7559 2
// goes on with doubled intervals up to an hour, so that a host finds a router that starts later.
func (n *Node) sendRouterSolicit(dev uint8) {
	l := &n.links[dev]
	src := n.linkLocal(dev)
	var b [wire.RouterSolicitLen + 8]byte
	m := wire.AppendRouterSolicit(b[:0], l.MAC)
	if src == (wire.Addr{}) {
		m = m[:wire.RouterSolicitLen] // no link-layer address option with the unspecified source (RFC 4861 4.1)
	}
	n.sendICMP6(dev, wire.MulticastMAC6(allRouters), src, allRouters, wire.NDHopLimit, m)
	l.solicitWait = min(max(2*l.solicitWait, solicitFirst), solicitMax)
	n.wheel.Arm(n.base.solicits+uint32(dev), n.now.Add(n.rand.Between(l.solicitWait*9/10, l.solicitWait*11/10)))
}
