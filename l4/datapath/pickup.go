package datapath

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// A connection with the client's own address needs nothing of the gateway that it began at: a packet of either side
// says all that is in it, if the configuration has one service address for the backend's. So a gateway that takes
// over from another, or that was restarted, picks it up from whichever side sends first:
//
//   - the client's packet names the service, and the hash its backend (mayOpen)
//   - the backend's packet names the client, and the endpoint its service address (pickUp)
//
// A backend that serves several addresses from one endpoint says nothing of which the client knows; its
// connections wait for the client.

// PickUp names the service of an endpoint's packets where no connection is known.
type PickUp struct {
	VIP     uint32
	Backend uint32
	Known   bool // there is exactly one service address and port that leads to the endpoint with clients' own addresses
	Several bool // there are more
}

// pickUp opens a connection with the packet of a backend to a client, and forwards it. It opens none by a SYN or
// SYN+ACK: those are of connections that did not begin at a gateway.
func (h syncSide) pickUp(v *view, from uint32, at *PickUp) packet.Verdict {
	if v.part == later {
		return packet.DropNoFlow
	}
	if v.d.Proto == wire.ProtoTCP && (v.flags.Has(wire.FlagSYN) || v.flags&(wire.FlagACK|wire.FlagRST) == 0) {
		return packet.DropNoFlow
	}
	service := h.snap.Backends[at.Backend].Service
	key := clientKey{v.dst, at.VIP, v.dport}
	hash := h.table.hashClient(&key) // the packet was looked up by its backend's key
	switch {
	case h.snap.martian(v.dst) || v.dport == 0 || h.snap.backendAddr(v.dst): // a backend is served from an SNAT address
		return h.tracker().drop(service, packet.DropNoFlow)
	case h.table.findClient(&key, hash) >= 0: // it leads to another backend now, or has another source port
		return h.tracker().drop(service, packet.DropNoFlow)
	case h.snap.Backends[at.Backend].Inactive:
		return h.tracker().drop(service, packet.DropNoBackend)
	case h.snap.Sources.Mark != 0 && h.snap.Sources.denies(v.dst, service):
		return h.tracker().drop(service, packet.DropDenied)
	}
	c := Conn{
		client: v.dst, clientPort: v.dport, vip: at.VIP, backend: at.Backend, lists: h.snap.Sources.Mark,
		endpoint: from, sourcePort: v.dport, state: stateMidFlow, origin: originBackend,
	}
	if v.d.Proto == wire.ProtoUDP {
		c.state = stateUDP
	}
	if hop := h.clientHop(&c); hop.State != HopReady { // nothing is entered for a packet that cannot leave
		return h.tracker().drop(service, hop.usable())
	}
	c.setDeltas(h.snap)
	n := h.evictor().enter(&c, hash)
	verdict := h.tracker().toClient(n, v)
	h.tracker().endIfReset(n, v)
	return verdict
}

// Replies go where the client's packets came from. A connection that is picked up from its backend, or that another
// gateway has sent, has seen no packet of its client here. Then the kernel's route to the client counts: the loop
// leaves the address in a ring, the control side resolves it and brings the hop back by SetClientHop. The packet
// that asked is dropped (no_neighbor) and comes again, as with an address that ARP has to find.

const (
	// clientHopsKept bounds the hops that a loop keeps, and those that wait to be resolved. Each serves the first
	// packet of every connection of an address, which then has it for itself.
	clientHopsKept = 4096

	// clientHopTime is for how many ticks a hop is taken for valid from its first use on, and one that was asked for as
	// on its way.
	clientHopTime ticks = 60 // 1 s

	// clientHopWait is for how many ticks a hop that was found waits for its first use. The packet that asked was dropped:
	// its retransmission comes up to 2 minutes later, the longest timeout of Linux's TCP (RFC 6298 2.5, 5.5).
	clientHopWait = 125 * clientHopTime
)

// clientHops are the hops to clients that a loop has asked for.
type clientHops struct {
	known map[addr]clientHopEntry
	asked *ring.SPSC[addr] // for the control side
	wake  func()           // which this wakes; nil: none resolves
}

type clientHopEntry struct {
	hop   Hop // unresolved while the control side is asked
	until ticks
}

// hasClientHop reports whether the connection knows where its client's packets come from.
func (c *Conn) hasClientHop() bool { return c.mac != [6]byte{} }

// clientHop returns the way back to the client of connection n: where its packets came from, or else what the kernel
// said, which becomes the connection's. It is unresolved until that is known.
func (h syncSide) clientHop(c *Conn) Hop {
	if !c.hasClientHop() {
		hop := h.resolveClient(c.client)
		if hop.State != HopReady {
			return hop
		}
		c.mac, c.vlan, c.dev = hop.MAC, hop.VLAN, hop.Dev
	}
	return Hop{MAC: c.mac, VLAN: c.vlan, Dev: c.dev, State: HopReady}
}

// resolveClient returns the hop to a client as far as it is known, and asks for it if it is not.
func (h syncSide) resolveClient(client addr) Hop {
	e, ok := h.clientHops.known[client]
	if ok && !e.until.expired(h.now) {
		if e.hop.State == HopReady && !e.until.expired(h.now+clientHopTime) { // its first use
			h.keepClientHop(client, e.hop, clientHopTime)
		}
		return e.hop
	}
	if h.clientHops.wake == nil || h.clientHops.asked.Push([]addr{client}) == 0 {
		return Hop{} // too many wait: a later packet asks again
	}
	h.keepClientHop(client, Hop{}, clientHopTime)
	h.clientHops.wake()
	return Hop{}
}

// keepClientHop keeps a hop for so many ticks.
func (h syncSide) keepClientHop(client addr, hop Hop, time ticks) {
	if len(h.clientHops.known) >= clientHopsKept {
		clear(h.clientHops.known)
	}
	h.clientHops.known[client] = clientHopEntry{hop: hop, until: h.now + time}
}

// ResolveClients makes the handler ask for hops to clients: wake is called by the loop when AskedClients has some. It
// is called before the first packet.
func (h *Handler) ResolveClients(wake func()) {
	h.clientHops.wake = wake
	h.clientHops.known = map[addr]clientHopEntry{}
	h.clientHops.asked = ring.NewSPSC[addr](clientHopsKept)
}

// AskedClients appends the clients whose hops the loop asks for to buf. One goroutine at a time may call it.
func (h *Handler) AskedClients(buf []netip.Addr) []netip.Addr {
	var list [64]addr
	for n := h.clientHops.asked.Pop(list[:]); n > 0; n = h.clientHops.asked.Pop(list[:]) {
		for _, a := range list[:n] {
			buf = append(buf, a.Addr())
		}
	}
	return buf
}

// SetClientHop sets the next hop of packets to a client. Only the loop may call it.
func (h *Handler) SetClientHop(now clock.Time, client netip.Addr, hop Hop) {
	h.now = ticksAt(now)
	time := clientHopTime
	if hop.State == HopReady {
		time = clientHopWait
	}
	h.syncSide().keepClientHop(addrOf(client), hop, time)
}

// What a TCP connection is picked up by anyone can forge: a segment with the client's address and random numbers, which
// would lead replies to the forger's link address and keep the client's own segments from being followed. The same holds
// for a record of a peer. So such a connection is provisional. Its segments are forwarded, for the ends know their
// numbers, and each is kept as the candidate of its side. They change nothing until the connection is verified:
//
//	both sides seen    by a segment that agrees with the other side's candidate: each acknowledges about what the other
//	                   has sent. A forger who sees neither side hits both numbers in one of 16 000 attempts.
//	direct modes       by the client alone, once the backend has gone on: a segment near the candidate acknowledges more,
//	                   or carries new data a tick later. Who forges two segments that fit each other passes, but gains
//	                   nothing: there are no replies to lead elsewhere, and a connection that ends is picked up again.
//	with windows of    by one segment that passes conditions I to IV of sequence.go; or as above, where the numbers are
//	the peer           also within syncSlack of the record's
//
// Until then replies go where the client's candidate came from, unless the backend's segment contradicts it: then by the
// kernel's route.

// candidates are the last segments of both sides of a provisional connection.
type candidates [2]candidate

type candidate struct {
	end, ack uint32
	at       ticks
	window   uint16
	state    candidateState
}

type candidateState uint8

const (
	candidateNone candidateState = iota
	candidateSeen
	candidateFIN // it had a FIN
)

const (
	// agreeWithin is the distance that an acknowledgement may have from what the other side has sent: more than what is in flight.
	agreeWithin = unseenWindow

	// syncSlack is the distance that a segment may have from the windows of a peer's record: some times of what the peer lets pass
	// between two records (syncProgress), as they are sent with delays.
	syncSlack = 1 << 27
)

// provisional reports whether no packet of the connection has been verified.
func (c *Conn) provisional() bool { return c.state == stateMidFlow || c.origin == originPeer }

// believes reports whether a datagram of the client may change flow c, which is known by a record only, and is the gateway's
// own from then on. A datagram has no numbers to check. So it must come from where the kernel's route leads to the
// client: a stranger elsewhere neither leads replies to itself nor keeps records of the peer from counting. Others are
// forwarded, and prolong the flow, for a client's own packets may come by another router; replies take the route then.
// They go where the datagram came from while the route is not known.
func (h syncSide) believes(c *Conn, v *view) bool {
	mac, vlan := [6]byte(wire.Ethernet(v.p).Src()), v.vlan()
	hop := h.resolveClient(c.client)
	switch {
	case hop.State == HopReady && (hop.MAC != mac || hop.Dev != v.d.Port || hop.VLAN != vlan):
		c.mac, c.vlan, c.dev = hop.MAC, hop.VLAN, hop.Dev
		return false
	case hop.State == HopUnresolved:
		c.mac, c.vlan, c.dev = mac, vlan, v.d.Port
		return false
	}
	c.seenHere()
	return true
}

// followRoute has the replies of flow c, which is known by a record only, take the kernel's route to the client where that is
// known.
func (h syncSide) followRoute(c *Conn) {
	if hop := h.resolveClient(c.client); hop.State == HopReady {
		c.mac, c.vlan, c.dev = hop.MAC, hop.VLAN, hop.Dev
	}
}

// seenHere notes that a packet of the connection has been believed here.
func (c *Conn) seenHere() {
	if c.origin == originPeer {
		c.origin = originClient
	}
}

// candidate returns what the segment says of its side.
func (seg *segment) candidate(now ticks) candidate {
	state := candidateSeen
	if seg.flags.Has(wire.FlagFIN) {
		state = candidateFIN
	}
	return candidate{seg.end, seg.ack, now, uint16(seg.window), state}
}

// near reports whether two sequence numbers are at most so far apart.
func near(a, b, within uint32) bool { return a-b+within <= 2*within }

// agrees reports whether a segment of the other side fits: it acknowledges about what the candidate's side has sent, and
// has sent about what that acknowledges.
func (a *candidate) agrees(seg *segment) bool {
	return a.state != candidateNone && near(seg.ack, a.end, agreeWithin) && near(seg.end, a.ack, agreeWithin)
}

// continues reports whether a segment of the same side goes on behind the candidate: the other side has acknowledged what was sent.
func (a *candidate) continues(seg *segment, now ticks) bool {
	return after(seg.ack, a.ack) || after(seg.end, a.end) && now != a.at
}

// follows reports whether a segment of the same side is near the candidate.
func (a *candidate) follows(seg *segment) bool {
	return a.state != candidateNone && near(seg.end, a.end, agreeWithin) && near(seg.ack, a.ack, agreeWithin)
}

// known reports whether the windows of a connection are.
func (s *sequences) known(c *Conn) bool {
	return s[sideClient].window != 0 && (c.direct() || s[sideBackend].window != 0)
}

// nearRecord reports whether a segment of a side is about where the record of the peer was.
func (s *sequences) nearRecord(c *Conn, seg *segment, side int) bool {
	return near(seg.end, s[side].end, syncSlack) && (c.direct() || near(seg.ack, s[1-side].end, syncSlack))
}

// verify follows a segment of provisional connection n, and reports whether it may change the connection.
func (h syncSide) verify(n int, v *view, seg *segment, side int) bool {
	c, s, seen := &h.table.conns[n], &h.table.sequences[n], &h.table.seen[n]
	switch f := seg.flags & (wire.FlagSYN | wire.FlagACK | wire.FlagRST); {
	case f&wire.FlagRST != 0:
		return h.verifyReset(n, seg, side)
	case f == wire.FlagSYN && side == sideClient && c.state.confirmed() && !c.direct():
		h.tracker().noteSYN(n, seg)
		return false
	case f == wire.FlagSYN|wire.FlagACK && side == sideBackend && h.tracker().reopen(n, seg):
		c.origin = originClient
		return true
	case f != wire.FlagACK:
		return false
	}
	known := s.known(c)
	if c.direct() {
		return h.verifyDirect(n, seg, known)
	}
	other := &seen[1-side]
	agrees := other.agrees(seg)
	switch {
	case known && s.fits(c, seg, side):
		s.update(c, seg, side)
	case !agrees, known && !s.nearRecord(c, seg, side):
		if agrees { // more has passed than records say: it lives on, and is not followed
			c.deadline = h.now + h.snap.timeout(c)
		}
		seen[side] = seg.candidate(h.now)
		if side == sideClient && (agrees || seen[sideBackend].state == candidateNone) {
			c.mac, c.dev, c.vlan = wire.Ethernet(v.p).Src(), v.d.Port, v.vlan()
		}
		return false
	default:
		s.begin(c, seg, other, side, known)
		if other.state == candidateFIN {
			c.flags |= [2]uint8{connClientFIN, connBackendFIN}[1-side]
		}
	}
	h.verified(n)
	return true
}

// begin enters the numbers of two segments that agree. Windows are scaled as the record says, or else by as much as may be.
func (s *sequences) begin(c *Conn, seg *segment, other *candidate, side int, known bool) {
	if !known {
		c.scales = wire.MaxWindowScale<<4 | wire.MaxWindowScale
	}
	c.flags |= connLoose
	mine, theirs := max(seg.window<<c.scale(side), unseenWindow), max(uint32(other.window)<<c.scale(1-side), unseenWindow)
	s[side] = sequence{end: seg.end, limit: seg.end + theirs, window: mine, acked: seg.ack}
	end := other.end
	if after(seg.ack, end) {
		end = seg.ack
	}
	s[1-side] = sequence{end: end, limit: seg.ack + mine, window: theirs, acked: other.ack}
}

// verified ends the time in which connection n is provisional. A half-open one is confirmed by what follows.
func (h syncSide) verified(n int) {
	c := &h.table.conns[n]
	h.table.seen[n] = candidates{}
	if c.state == stateMidFlow {
		c.state = stateEstablished
	}
	c.seenHere()
}

// verifyReset reports whether a RST ends a provisional connection: one that has the exact number, by the record or the
// other side's candidate, or that has picked up a connection of which nothing else is known, and which it ends.
func (h syncSide) verifyReset(n int, seg *segment, side int) bool {
	c, s, seen := &h.table.conns[n], &h.table.sequences[n], &h.table.seen[n]
	other := &seen[1-side]
	switch {
	case c.halfOpen() && *seen == candidates{}:
		return true
	case s.known(c) && s.exact(c, seg, side), !c.direct() && other.state != candidateNone && seg.seq == other.ack:
		h.verified(n)
		return true
	}
	return false
}

// verifyDirect is verify of a connection whose backend is not seen.
func (h syncSide) verifyDirect(n int, seg *segment, known bool) bool {
	c, s, mine := &h.table.conns[n], &h.table.sequences[n], &h.table.seen[n][sideClient]
	me := &s[sideClient]
	switch {
	case known && me.followDirect(c, seg):
	case !mine.follows(seg):
		*mine = seg.candidate(h.now)
		return false
	case !mine.continues(seg, h.now):
		return false
	case known && !s.nearRecord(c, seg, sideClient):
		c.deadline = h.now + h.snap.timeout(c)
		return false
	default:
		*me = sequence{end: seg.end, limit: seg.seq + 1, window: unseenWindow, acked: seg.ack}
	}
	h.verified(n)
	return true
}

// doubtClient forgets where the client's packets came from, if a segment of the backend contradicts the last of them. Of
// datagrams none does.
func (h syncSide) doubtClient(n int, v *view) {
	if c := &h.table.conns[n]; c.state == stateUDP {
		h.followRoute(c)
		return
	}
	client := &h.table.seen[n][sideClient]
	if v.part != whole || v.d.Proto != wire.ProtoTCP || client.state == candidateNone || v.flags&(wire.FlagACK|wire.FlagRST) != wire.FlagACK {
		return
	}
	if seg := v.segment(); !client.agrees(&seg) {
		*client = candidate{}
		h.table.conns[n].mac = [6]byte{}
	}
}
