package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Times of neighbour unreachability detection (RFC 4861 10), kept for ARP as well.
const (
	reachableTime  = 30 * time.Second       // REACHABLE_TIME, before it is made random
	delayFirst     = 5 * time.Second        // DELAY_FIRST_PROBE_TIME
	retransTimer   = time.Second            // RETRANS_TIMER
	maxProbes      = 3                      // MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT
	failedTime     = time.Second            // RFC 1122 2.3.2.1: at most one request a second for an address without an answer
	lockTime       = time.Second            // how long a new link address stays whatever others claim: bounds the probes of a flood
	verifyInterval = 200 * time.Millisecond // between probes of a claim: shorter, since traffic may go to the wrong host
)

// nudState is the state of a neighbour (RFC 4861 7.3.2). ARP entries go through the same states: RFC 826 has none, and
// RFC 1122 2.3.2.1 only asks that entries expire.
//
//	new --packet--> incomplete --answer--> reachable --30 s--> stale --packet--> delay --5 s--> probe
//	                    |   ^                  ^                                   |              |
//	             3 probes   packet, 1 s later  +------- answer, or Confirm --------+--------------+
//	                    v   |                                            3 probes without answer: incomplete
//	                    failed
type nudState uint8

const (
	nudFree       nudState = iota
	nudNew                 // no request sent yet
	nudIncomplete          // request sent; packets wait for the answer
	nudFailed              // did not answer; packets are dropped for failedTime
	nudReachable           // confirmed within the reachable time
	nudStale               // link address known, not confirmed lately
	nudDelay               // used while stale: a transport may confirm it without a probe (RFC 4861 7.3.1)
	nudProbe               // unicast requests to the known link address
	nudPermanent           // set by the caller, never verified
)

var nudNames = [...]string{"free", "new", "incomplete", "failed", "reachable", "stale", "delay", "probe", "permanent"}

func (s nudState) String() string { return nudNames[s] }

// hasLinkAddr reports whether the link address may be used.
func (s nudState) hasLinkAddr() bool { return s >= nudReachable }

// unanswered reports whether the entry is in the list of those that do not answer.
func (s nudState) unanswered() bool { return s == nudNew || s == nudIncomplete || s == nudFailed }

// neighborKey has the device, because two links may have neighbours with the same link-local address.
type neighborKey struct {
	addr wire.Addr
	dev  uint8
}

// neighbor is an entry of the neighbour cache. It holds the path that packets by way of it take, so that a Ref leads
// to the Ethernet header, MTU and TTL without a further lookup.
type neighbor struct {
	key      neighborKey
	path     Path // given out by Route; the slab does not move
	state    nudState
	router   bool // RFC 4861 5.1: IsRouter
	recent   bool // used since the clock hand passed
	verify   bool // nudProbe because another link address was claimed
	probes   uint8
	born     uint64 // epoch in which the slot got its address
	since    clock.Time
	locked   clock.Time // until then a claim of another link address is ignored
	queue    packetQueue
	src      wire.Addr // source of requests: that of the packet that waits (RFC 4861 7.2.2)
	previous uint16    // in the list of unanswered entries, by index; 0 is its head
	next     uint16
}

// neighbors is the neighbour cache of all devices: a fixed slab. Unanswered entries are in a list, oldest first, and may
// fill half of the slab. The others are evicted by a clock hand (second chance). So a scan of unused addresses, from a
// remote host or a local program, displaces its own entries and not the neighbours in use (RFC 6583).
type neighbors struct {
	slot          []neighbor // slot 0 is the head of the list
	index         map[neighborKey]uint16
	free          []uint16
	hand          int // of the clock: the slot that sweep looked at last
	unansweredLen int // length of the list
	queued        int // bytes of packets that wait
	resolutions   RateLimiter
}

func newNeighbors(max int, now clock.Time) neighbors {
	max = min(max, maxNeighbors)
	t := neighbors{
		slot: make([]neighbor, max+1), index: make(map[neighborKey]uint16, max), free: make([]uint16, 0, max),
		resolutions: NewRateLimiter(resolutionRate, resolutionBurst, now),
	}
	for i := max; i > 0; i-- {
		t.free = append(t.free, uint16(i))
	}
	return t
}

// Limits of the neighbour cache.
const (
	maxNeighbors    = 1 << 15
	resolutionRate  = 1000 // new resolutions a second (RFC 6583 7.1)
	resolutionBurst = 256
)

// find returns the entry of an address.
func (t *neighbors) find(a wire.Addr, dev uint8) *neighbor {
	if i, ok := t.index[neighborKey{a, dev}]; ok {
		return &t.slot[i]
	}
	return nil
}

// unreachable reports whether a is known not to answer.
func (t *neighbors) unreachable(a wire.Addr, dev uint8) bool {
	e := t.find(a, dev)
	return e != nil && e.state == nudFailed
}

// indexOf returns the slot of e.
func (t *neighbors) indexOf(e *neighbor) uint16 { return t.index[e.key] }

// neighbor returns the entry of next hop a, a new one where there is none. It is nil where no entry can be evicted, or
// where too many were made in the last second. A new entry takes a new epoch, so that a Ref to the slot's earlier neighbour
// does not lead here.
func (n *Node) neighbor(a wire.Addr, dev uint8) *neighbor {
	t := &n.neigh
	if e := t.find(a, dev); e != nil {
		return e
	}
	if !t.resolutions.Take(n.now, 1) {
		return nil
	}
	i := n.freeNeighbor()
	if i == 0 {
		return nil
	}
	n.epoch++
	e := &t.slot[i]
	*e = neighbor{key: neighborKey{a, dev}, born: n.epoch, since: n.now}
	t.index[e.key] = i
	e.path = Path{Dev: dev, Kind: Unicast, MTU: n.links[dev].mtu(a.Is4()), NextHop: a, TTL: n.hopLimit(a, dev)}
	n.links[dev].header(&e.path, wire.MAC{}, a.Is4())
	t.pushUnanswered(i, nudNew)
	return e
}

// hopLimit returns the TTL of packets by way of a. Routers set that of IPv6 (RFC 4861 6.3.4); IPv4 has no such message.
func (n *Node) hopLimit(a wire.Addr, dev uint8) uint8 {
	if a.Is4() {
		return DefaultTTL
	}
	return n.links[dev].hopLimit
}

// freeNeighbor returns a free slot, for which another entry may be evicted; 0 where all are permanent. When unanswered
// entries fill their half, the oldest of them goes first, even while slots are free.
func (n *Node) freeNeighbor() uint16 {
	t := &n.neigh
	if t.unansweredLen >= (len(t.slot)-1)/2 && t.unansweredLen > 0 {
		n.dropNeighbor(t.slot[0].next)
	}
	if len(t.free) == 0 && !n.sweep() {
		return 0
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return i
}

// sweep moves the clock hand to an entry that was not used since the hand passed last, and drops that. Two rounds suffice:
// the first clears every mark.
func (n *Node) sweep() bool {
	t := &n.neigh
	for range 2 * len(t.slot) {
		t.hand = t.hand%(len(t.slot)-1) + 1
		e := &t.slot[t.hand]
		switch {
		case e.state == nudFree || e.state == nudPermanent:
		case e.recent:
			e.recent = false
		default:
			n.dropNeighbor(uint16(t.hand))
			return true
		}
	}
	return false
}

// dropNeighbor frees the entry in slot i. Packets that wait for it are dropped, and counted. Refs to it end, because the
// slot is free or has a later epoch.
func (n *Node) dropNeighbor(i uint16) {
	t := &n.neigh
	e := &t.slot[i]
	n.dropQueued(e)
	t.removeUnanswered(i)
	n.wheel.Stop(uint32(i))
	delete(t.index, e.key)
	*e = neighbor{}
	t.free = append(t.free, i)
}

// pushUnanswered puts slot i at the end of the list of unanswered entries, in state s. One that is there stays in its place,
// or repeated requests would keep an address without an answer young.
func (t *neighbors) pushUnanswered(i uint16, s nudState) {
	e, head := &t.slot[i], &t.slot[0]
	was := e.state
	if e.state = s; was.unanswered() {
		return
	}
	e.previous, e.next = head.previous, 0
	t.slot[head.previous].next = i
	head.previous = i
	t.unansweredLen++
}

// removeUnanswered takes slot i out of the list, if it is there.
func (t *neighbors) removeUnanswered(i uint16) {
	e := &t.slot[i]
	if !e.state.unanswered() {
		return
	}
	t.slot[e.previous].next = e.next
	t.slot[e.next].previous = e.previous
	t.unansweredLen--
}

// setState moves e to a state in which its link address may be used, and sets the timer of that state. Stale entries have
// none: they are verified at the next use (RFC 4861 7.3.3), so an unused one costs nothing.
func (n *Node) setState(e *neighbor, s nudState) {
	i := n.neigh.indexOf(e)
	n.neigh.removeUnanswered(i)
	e.state, e.since, e.probes, e.verify = s, n.now, 0, false
	e.path.Resolved = true
	switch s {
	case nudReachable:
		n.wheel.Arm(uint32(i), n.now.Add(n.links[e.key.dev].reachable))
	case nudDelay:
		n.wheel.Arm(uint32(i), n.now.Add(delayFirst))
	default:
		n.wheel.Stop(uint32(i))
	}
}

// setLinkAddr stores the link address of e, in state s, and sends what waited for it (RFC 4861 7.2.5). Followers learn of
// it, also of a confirmed address: it renews their entries, which send no requests of their own. A permanent entry changes
// only by AddNeighbor.
func (n *Node) setLinkAddr(e *neighbor, mac wire.MAC, s nudState) {
	if e.state == nudPermanent && s != nudPermanent {
		return
	}
	news := !e.state.hasLinkAddr() || e.mac() != mac
	if news {
		e.locked = n.now.Add(lockTime)
		n.links[e.key.dev].header(&e.path, mac, e.key.addr.Is4())
	}
	n.setState(e, s)
	n.sendQueued(e)
	if !n.cfg.Follower && (news || s == nudReachable) {
		n.notifyChange(&Change{Kind: NeighborUp, Dev: e.key.dev, Addr: e.key.addr, MAC: mac})
	}
}

// startResolution begins to resolve e for a packet from src. It reports whether packets may wait for it. A failed entry is
// tried again after failedTime, and each try takes a token, so that a scan sends at most resolutionRate requests a second.
func (n *Node) startResolution(e *neighbor, src wire.Addr) bool {
	if e.state == nudIncomplete {
		return true
	}
	if e.state != nudNew && (n.now.Sub(e.since) < failedTime || !n.neigh.resolutions.Take(n.now, 1)) {
		return false
	}
	i := n.neigh.indexOf(e)
	n.neigh.pushUnanswered(i, nudIncomplete)
	e.since, e.probes, e.src = n.now, 0, src
	e.path.Resolved = false
	n.probe(e)
	return true
}

// markUsed is called for each packet that uses e: it marks e for the clock hand, and begins to verify a stale entry (RFC
// 4861 7.3.3). The packet itself is sent at once to the old link address.
func (n *Node) markUsed(e *neighbor) {
	e.recent = true
	if e.state == nudStale {
		n.setState(e, nudDelay)
	}
}

// neighborTimer runs when the timer of slot i has expired (RFC 4861 7.3.3).
func (n *Node) neighborTimer(i uint16) {
	e := &n.neigh.slot[i]
	switch e.state {
	case nudReachable:
		n.setState(e, nudStale)
	case nudDelay:
		n.setState(e, nudProbe)
		n.probe(e)
	case nudProbe:
		if e.probes < maxProbes {
			n.probe(e)
			return
		}
		// RFC 4861 7.3.3 deletes the entry. Multicast requests find a neighbour that has a new link address before
		// its packets are dropped (RFC 7048 3).
		n.neigh.pushUnanswered(i, nudIncomplete)
		e.since, e.probes = n.now, 0
		e.path.Resolved = false
		n.probe(e)
	case nudIncomplete:
		if e.probes < maxProbes {
			n.probe(e)
			return
		}
		n.neighborFailed(e)
	}
}

// neighborFailed ends the resolution of e. Packets that wait for it are dropped, and their senders get HostUnreachable
// (RFC 4861 7.2.2). Cached paths end: another router may serve the destination (RFC 4861 6.3.6).
func (n *Node) neighborFailed(e *neighbor) {
	e.state, e.since = nudFailed, n.now
	n.epoch++
	e.born = n.epoch
	n.rejectQueued(e)
	if !n.cfg.Follower {
		n.notifyChange(&Change{Kind: NeighborDown, Dev: e.key.dev, Addr: e.key.addr})
	}
}

// probe sends one request for the link address of e and sets the timer of the next (RFC 4861 7.2.2: RetransTimer between
// two). A follower passes the request to the leader.
func (n *Node) probe(e *neighbor) {
	wait := n.links[e.key.dev].retrans
	if e.verify {
		wait = verifyInterval
	}
	e.probes++
	n.wheel.Arm(uint32(n.neigh.indexOf(e)), n.now.Add(wait))
	switch {
	case n.cfg.Follower:
		n.notifyChange(&Change{Kind: NeighborRequest, Dev: e.key.dev, Addr: e.key.addr})
	case e.key.addr.Is4():
		n.requestARP(e)
	default:
		n.solicit(e)
	}
}

// verifyLinkAddr handles an unsolicited message that names another link address for e than the known one. RFC 4861 7.2.5
// and RFC 826 would store it, which lets any host on the link take over an address by one forged packet. Here e is probed
// at the known address first, by unicast. Only without an answer does a multicast request go out, and the first solicited
// answer to that counts. A neighbour that really has a new link address is found maxProbes x verifyInterval later.
func (n *Node) verifyLinkAddr(e *neighbor) packet.Verdict {
	n.stats.Conflicts++
	if n.now < e.locked || e.state == nudPermanent || e.verify {
		return packet.DropNeighbor
	}
	e.locked = n.now.Add(lockTime)
	n.setState(e, nudProbe)
	e.verify = true
	n.probe(e)
	return packet.Deliver
}

// Confirm reports that the next hop of r is reachable, because a connection made progress (RFC 4861 7.3.1). It saves the
// probes of every neighbour with traffic. The timer is rearmed at most once a second, which keeps Confirm cheap enough for
// each acknowledgement.
func (n *Node) Confirm(now clock.Time, r Ref) {
	n.setNow(now)
	if e := n.byRef(r); e != nil && e.state.hasLinkAddr() && e.state != nudPermanent {
		if e.state != nudReachable || now.Sub(e.since) > time.Second {
			n.setState(e, nudReachable)
		}
	}
}

// AddNeighbor adds an entry that stays and is not verified, or makes an existing one permanent.
func (n *Node) AddNeighbor(now clock.Time, dev uint8, a wire.Addr, mac wire.MAC) error {
	n.setNow(now)
	if int(dev) >= len(n.links) {
		return ErrDevice
	}
	e := n.neighbor(a, dev)
	if e == nil {
		return ErrFull
	}
	n.setLinkAddr(e, mac, nudPermanent)
	return nil
}

// DelNeighbor removes an entry, whatever its origin.
func (n *Node) DelNeighbor(now clock.Time, dev uint8, a wire.Addr) error {
	n.setNow(now)
	e := n.neigh.find(a, dev)
	if e == nil {
		return ErrMissing
	}
	n.dropNeighbor(n.neigh.indexOf(e))
	return nil
}

// NeighborInfo is an entry of the neighbour table.
type NeighborInfo struct {
	Dev    uint8
	Addr   wire.Addr
	MAC    wire.MAC // without meaning while incomplete or failed
	State  string   // new, incomplete, failed, reachable, stale, delay, probe, permanent
	Since  clock.Time
	Router bool
	Queued int // packets that wait
}

// Neighbors returns the neighbour table.
func (n *Node) Neighbors() []NeighborInfo {
	var list []NeighborInfo
	for i := range n.neigh.slot {
		if e := &n.neigh.slot[i]; e.state != nudFree {
			list = append(list, NeighborInfo{
				e.key.dev, e.key.addr, wire.Ethernet(e.path.Header[:]).Dst(), e.state.String(), e.since, e.router, e.queue.n,
			})
		}
	}
	return list
}
