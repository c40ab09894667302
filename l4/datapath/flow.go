package datapath

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inbound decides a packet from a client to a service address: it belongs to a connection, or
// opens one. The rate limit comes first, so that a flood costs no more than a lookup of its meter. The
// source lists are looked up when a connection opens, and again only when they have changed since (mark).
func (h tracker) inbound(v *view, front uint32) packet.Verdict {
	if h.snap.Limits.on && h.offered != toLast {
		if service := h.snap.serviceOf(front); !h.limiter().withinPackets(v.src, service) {
			if h.snap.martian(v.src) { // whoever forges it must not have an own address blocked
				return h.dropOf(service, packet.DropMartian)
			}
			h.limiter().reportLimited(v.src)
			return h.dropOf(service, packet.DropRateLimit)
		}
	}
	key := clientKey{v.src, front, v.sport}
	n, hash := h.lookups().byClient(&key)
	if n >= 0 && h.table.conns[n].entered() {
		h.kernelSide().cameToLoop(n, v, sideClient)
	}
	if n >= 0 && (h.superseded(n, v) || h.selector().namesOtherBackend(&h.table.conns[n], v)) {
		h.evictor().forget(n)
		n = -1
	}
	if n < 0 {
		return h.openConn(v, front, hash)
	}
	c := &h.table.conns[n]
	if c.lists != h.snap.Sources.Mark {
		service := h.snap.Backends[c.backend].Service
		if why := h.deniedSource(v.src, service); why != packet.Forward {
			h.evictor().forget(n)
			return h.drop(service, why)
		}
		c.lists = h.snap.Sources.Mark
	}
	backend := c.backend
	if !h.snap.Backends[backend].Usable {
		return h.responder().noBackend(v, h.snap.Backends[backend].Service)
	}
	verdict := h.forward(n, v)
	if h.kernel.on() {
		h.kernelSide().loopForwarded(n, sideClient, c.dev, verdict)
	}
	h.endIfReset(n, v)
	return verdict
}

// deniedSource returns why no connection of a source may go on, Forward if it may.
func (h tracker) deniedSource(src addr, service uint32) packet.Verdict {
	switch {
	case h.snap.martian(src):
		return packet.DropMartian
	case h.snap.Sources.denies(src, service):
		return packet.DropDenied
	}
	return packet.Forward
}

// superseded reports whether a packet from the client ends its connection and opens another:
//
//   - the connection expired, though the sweep has not removed it yet
//   - a SYN with the ports of a closed connection: the client reuses them (RFC 9293 3.10.7.4, TIME-WAIT)
//   - the backend is not usable, and the packet can go to another one: a SYN, or any datagram
//   - a SYN that is sent again because an ejected backend did not answer the first
func (h tracker) superseded(n int, v *view) bool {
	c := &h.table.conns[n]
	if c.expired(h.now) {
		return true
	}
	syn := v.flags&openingFlags == wire.FlagSYN
	if syn && c.closed() {
		return true
	}
	b := h.snap.Backends[c.backend]
	return (syn || c.state == stateUDP) && !b.Usable || syn && c.state == stateSynSent && b.Ejected
}

// forward sends a packet of a client on to the backend of connection n.
func (h tracker) forward(n int, v *view) packet.Verdict {
	c := &h.table.conns[n]
	tracked := h.updateFromClient(n, v)
	if verdict, passes := h.inspectPacket(n, v, sideClient, tracked); !passes {
		return verdict
	}
	b := h.snap.Backends[c.backend]
	to, port := h.snap.endpoint(c.endpoint)
	if v.flags.Has(wire.FlagSYN) {
		h.translator().clamp(v, h.snap.Services[b.Service].MSS, h.tunneler().roomTo(to, b.Mode))
	}
	verdict := packet.Forward
	if c.direct() {
		verdict = h.tunneler().forwardDirect(c, v, to)
	} else {
		verdict = h.translator().translate(c, v, to, port)
	}
	if verdict != packet.Forward {
		return h.responder().dropOrReport(v, b.Service, verdict)
	}
	t := h.tally(c.backend)
	t[ToPackets]++
	t[ToBytes] += h.chainBytes(v)
	return packet.Forward
}

// chainBytes returns the bytes of the packet that is decided on: a large one (GSO, GRO) has up to 33 frames, or external payload.
func (h tracker) chainBytes(v *view) uint32 {
	n := uint32(v.d.Len) + v.cut
	if v.d.Flags.Has(packet.FlagOffload) {
		n += uint32(h.arena.Placed(v.d))
	}
	for i := 0; h.chain[i].Flags.Has(packet.FlagMore) && i+1 < len(h.chain); i++ {
		n += uint32(h.chain[i+1].Len)
	}
	return n
}

// updateFromClient updates connection n by a packet of its client, before the packet is rewritten. The link
// address, VLAN and device of the newest packet are where replies go. A direct connection never shows the
// backend's packets, so the client confirms it: by an ACK after its SYN, by going on (see verify), or by another datagram at
// least a tick later, which a client that gets no answers hardly sends.
func (h tracker) updateFromClient(n int, v *view) (tracked bool) {
	if v.part == later {
		return false // without ports and flags: easily forged, so it refreshes nothing
	}
	c := &h.table.conns[n]
	if c.state == stateUDP {
		if c.origin == originPeer && !h.syncSide().believes(c, v) {
			c.deadline = h.now + h.snap.timeout(c)
			return true
		}
	} else if !h.follow(n, v, sideClient) {
		return false
	}
	c.mac, c.dev, c.vlan = wire.Ethernet(v.p).Src(), v.d.Port, v.vlan()
	was, before := c.deadline, c.state
	if c.state != stateUDP {
		c.fromClient(v.flags, h.table.sequences[n].allAcknowledged())
	}
	h.moved(n, before)
	if c.state.ending() && c.pair != 0 {
		h.evictor().trackEnd(n, v, before, true)
	}
	if !c.halfOpen() {
		return true
	}
	again := c.direct() && c.deadline != was
	if c.state.confirmed() || c.state == stateUDP && (again || c.origin == originBackend) {
		h.evictor().confirm(n)
	}
	return true
}

// updateFromBackend updates connection n by a packet of its backend. The first one is counted as an answer
// or a refusal: the outlier detector evaluates these counts.
func (h tracker) updateFromBackend(n int, v *view) (tracked bool) {
	if v.part == later {
		return false
	}
	c := &h.table.conns[n]
	if c.state != stateUDP && !h.follow(n, v, sideBackend) {
		return false
	}
	if c.flags&connAnswered == 0 {
		c.flags |= connAnswered
		what := Answered
		if c.state == stateSynSent && v.flags.Has(wire.FlagRST) {
			what = Refused
		}
		h.tally(c.backend)[what]++
	}
	before := c.state
	if c.state != stateUDP {
		c.fromBackend(v.flags, h.table.sequences[n].allAcknowledged())
	}
	h.moved(n, before)
	if c.state.ending() && c.pair != 0 {
		h.evictor().trackEnd(n, v, before, false)
	}
	if c.halfOpen() && (c.state == stateUDP && c.origin != originBackend || c.state.confirmed()) {
		h.evictor().confirm(n)
	}
	return true
}

// moved gives a connection the timeout of its state, and counts it where it begins to close.
func (h tracker) moved(n int, before state) {
	c := &h.table.conns[n]
	c.deadline = h.now + h.snap.timeout(c)
	if c.state != before && c.state.ending() && !c.halfOpen() && h.sync.changes != nil {
		h.syncSide().syncChange(n)
	}
	if c.state.ending() && !before.ending() {
		h.closing++
		h.tally(c.backend)[Closing]++
	}
}

// endIfReset forgets connection n if packet v, which has been forwarded, has reset it while it was half-open: a
// backend that refuses connections, or a client that does not know of one, leaves nothing that a port or a place
// among the half-open ones should be held for.
func (h tracker) endIfReset(n int, v *view) {
	if !v.flags.Has(wire.FlagRST) {
		return
	}
	if c := &h.table.conns[n]; c.state == stateReset && c.halfOpen() {
		h.evictor().forget(n)
	}
}

// checkHop returns Forward if a packet can leave by hop, and the reason if not. It is called before anything is
// changed: a packet that is too big is quoted in an ICMP error as it came. With Forward, v.mtu is set if the packet has to
// leave in fragments (fragmenter.leave).
func (h tracker) checkHop(v *view, hop *Hop) packet.Verdict {
	if verdict := hop.usable(); verdict != packet.Forward {
		return verdict
	}
	if mtu := h.snap.Devices[hop.Dev].MTU; mtu != 0 && h.translator().needs(v) > mtu {
		v.mtu = mtu
		if !h.fragmenter().fragmentable(v) {
			return packet.DropTooBig
		}
	}
	return packet.Forward
}

// usable returns Forward, or why no packet can leave by the hop.
func (hop *Hop) usable() packet.Verdict {
	switch hop.State {
	case HopNoRoute:
		return packet.DropNoRoute
	case HopUnresolved:
		return packet.DropNoNeighbor
	}
	return packet.Forward
}

// outbound decides a packet that is not for a service address: a reply of a backend to an SNAT
// address or to a client itself, or a packet that the gateway does not serve. The two drops without a
// connection differ: no_service is for packets that steering should not have brought here, no_flow for
// those whose connection is gone.
func (h tracker) outbound(v *view) packet.Verdict {
	from, snat, ok := h.lookups().endpoint(v)
	toUs := snat != 0
	switch {
	case !ok && !toUs:
		return h.responder().closedPort(v, packet.DropNoService)
	case !ok:
		return h.responder().closedPort(v, packet.DropNoFlow)
	}
	if to := h.outboundLoop(v, toUs); to != h.loop {
		return h.handOver(v.d, to)
	}
	key := replyKey(v, from, snat)
	n := h.lookups().byBackend(&key)
	if n >= 0 && h.table.conns[n].entered() {
		h.kernelSide().cameToLoop(n, v, sideBackend)
	}
	if n >= 0 && h.table.conns[n].expired(h.now) {
		h.evictor().forget(n)
		n = -1
	}
	if n < 0 {
		return h.unknownReply(v, from, toUs)
	}
	dev := v.d.Port
	verdict := h.toClient(n, v)
	if h.kernel.on() {
		h.kernelSide().loopForwarded(n, sideBackend, dev, verdict)
	}
	h.endIfReset(n, v)
	return verdict
}

// unknownReply decides a packet of an endpoint that belongs to no connection.
func (h tracker) unknownReply(v *view, from uint32, toUs bool) packet.Verdict {
	if h.snap.martian(v.src) {
		return packet.DropMartian
	}
	if h.offered == toFirst {
		return packet.DropNoFlow
	}
	if at := h.snap.pickUpOf(from); !toUs && at.Known {
		return h.syncSide().pickUp(v, from, &at)
	}
	if h.snap.resetsUnknown(from) && h.responder().resetUnknown(v) {
		return packet.Forward
	}
	return packet.DropNoFlow
}

// replyKey returns the key of a reply from an endpoint, to an SNAT address or, with 0, to the client itself.
func replyKey(v *view, from uint32, snat uint16) backendKey {
	key := backendKey{endpoint: from, port: v.dport, snat: snat}
	if snat == 0 {
		key.client = v.dst
	}
	return key
}

// toClient sends a reply of a backend to the client: to the link address and by the device that the
// client's packets came from, whatever the routes say. That saves a neighbour table of clients, and the
// reply passes the router that the client's packets pass.
func (h tracker) toClient(n int, v *view) packet.Verdict {
	c := &h.table.conns[n]
	if c.provisional() {
		h.syncSide().doubtClient(n, v)
	}
	hop := h.syncSide().clientHop(c)
	front, port := h.snap.vip(c.vip)
	service := h.snap.Backends[c.backend].Service
	if verdict := h.checkHop(v, &hop); verdict != packet.Forward {
		if c.snat == 0 {
			v.localAddr = front.addr // the packet is addressed to the client
		}
		return h.responder().dropOrReport(v, service, verdict)
	}
	tracked := h.updateFromBackend(n, v)
	if v.flags.Has(wire.FlagSYN) {
		h.translator().clamp(v, h.snap.Services[service].MSS, h.snap.Devices[hop.Dev].MTU)
	}
	v.apply(&rewrite{
		src: front.addr, dst: c.client, sport: port, dport: c.clientPort, l3: ^c.l3Delta, l4: ^c.l4Delta,
	})
	if verdict, passes := h.inspectPacket(n, v, sideBackend, tracked); !passes {
		return verdict
	}
	if verdict := h.translator().leave(v, &hop); verdict != packet.Forward {
		return h.drop(service, verdict)
	}
	t := h.tally(c.backend)
	t[FromPackets]++
	t[FromBytes] += h.chainBytes(v)
	return packet.Forward
}

// openConn opens a connection with the packet of a client, and forwards it. The hash is that of its client's side. Nothing is entered in the table
// unless the packet can leave: a drop costs no entry, so a flood to a service without a route fills nothing.
func (h tracker) openConn(v *view, number, hash uint32) packet.Verdict {
	service := h.snap.serviceOf(number)
	if h.snap.martian(v.src) { // before anything is answered
		return h.dropOf(service, packet.DropMartian)
	}
	if service < 0 {
		return h.responder().closedPort(v, packet.DropNoService)
	}
	id := uint32(service)
	if v.part == later {
		return h.drop(id, packet.DropFragment) // its first opened a connection that is gone
	}
	s := h.snap.Services[id]
	midflow, verdict := h.mayOpen(v, id)
	switch verdict {
	case packet.Forward:
	case packet.DropNoFlow:
		return h.responder().noFlow(v, id)
	default:
		return h.drop(id, verdict)
	}
	chosen, verdict := h.selector().pick(v, s, midflow)
	switch verdict {
	case packet.DropNoBackend:
		return h.responder().noBackend(v, id)
	case packet.DropBackendFull:
		return h.selector().backendFull(v, id)
	}
	c := h.newConn(v, number, chosen)
	switch {
	case v.d.Proto == wire.ProtoUDP:
		c.state = stateUDP
	case midflow:
		c.state = stateMidFlow
	}
	if verdict := h.complete(&c, s, v); verdict != packet.Forward {
		return h.responder().dropOrReport(v, id, verdict)
	}
	n := h.evictor().enter(&c, hash)
	h.opens = true
	verdict = h.forward(n, v)
	h.opens = false
	h.endIfReset(n, v)
	return verdict
}

// newConn returns a connection from the packet of a client to a backend.
func (h tracker) newConn(v *view, front, backend uint32) Conn {
	return Conn{
		client: v.src, clientPort: v.sport, vip: front, backend: backend, lists: h.snap.Sources.Mark,
		endpoint: h.snap.endpointOf(backend, front), state: stateSynSent,
		mac: wire.Ethernet(v.p).Src(), dev: v.d.Port, vlan: v.vlan(),
	}
}

// complete sets what the mode of c needs on the path to the backend: the source that the backend sees, and
// the differences of the checksums.
func (h tracker) complete(c *Conn, s *Service, v *view) packet.Verdict {
	to, _ := h.snap.endpoint(c.endpoint)
	if verdict := h.tunneler().checkDirect(v, to, h.snap.Backends[c.backend].Mode); verdict != packet.Forward {
		return verdict
	}
	if s.Mode.Direct() {
		c.flags |= connDirect
		return packet.Forward
	}
	if !h.translator().source(c, s, v) {
		return packet.DropPortsFull
	}
	c.setDeltas(h.snap)
	return packet.Forward
}

// openingFlags are the flags of which a segment that opens a connection has SYN alone.
const openingFlags = wire.FlagSYN | wire.FlagACK | wire.FlagFIN | wire.FlagRST

// mayOpen reports whether a packet may open a connection, and whether as one picked up mid-flow: a TCP
// packet without SYN, of a service whose backends see the client's own address and port. Such a connection
// began at another gateway, or before a restart, and any gateway picks the same backend for it. With SNAT
// the source port that the backend saw is not known, so the packet is dropped.
func (h tracker) mayOpen(v *view, service uint32) (midflow bool, verdict packet.Verdict) {
	if v.d.Proto == wire.ProtoTCP && v.flags&openingFlags != wire.FlagSYN {
		if h.offered == toFirst || !h.snap.Services[service].PickUp || v.flags.Has(wire.FlagSYN) || v.flags&(wire.FlagACK|wire.FlagRST) == 0 {
			return false, packet.DropNoFlow
		}
		midflow = true
	}
	switch {
	case v.sport == 0:
		return false, packet.DropUnsupported
	case h.snap.Sources.Mark != 0 && h.snap.Sources.denies(v.src, service):
		return false, packet.DropDenied
	case h.snap.Limits.on && !h.limiter().withinConnections(v.src, service):
		h.limiter().reportLimited(v.src)
		return false, packet.DropRateLimit
	}
	return midflow, packet.Forward
}

// dropTo is drop for a packet that was not looked up. It finds the service only to count the drop for it.
func (h tracker) dropTo(v *view, why packet.Verdict) packet.Verdict {
	front, ok := h.snap.findVIP(v.dst, v.dport, v.d.Proto)
	if !ok {
		return why
	}
	return h.dropOf(h.snap.serviceOf(front), why)
}

// dropOf is drop for a service that may be gone: -1.
func (h tracker) dropOf(service int32, v packet.Verdict) packet.Verdict {
	if service < 0 {
		return v
	}
	return h.drop(uint32(service), v)
}

// drop counts a drop for a service and returns the reason. Handle counts the verdict for the loop, so each
// drop is in both counters, and a packet without a service in the loop's only.
func (h tracker) drop(service uint32, v packet.Verdict) packet.Verdict {
	if v == packet.DropNoFlow && h.offered == toFirst {
		return v // not dropped yet
	}
	h.snap.Services[service].drops[h.loop].Add(int(v), 1)
	return v
}
