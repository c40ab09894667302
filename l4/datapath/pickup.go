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

// PickUp is what the packets of an endpoint belong to where no connection is known.
type PickUp struct {
	VIP     uint32
	Backend uint32
	Known   bool // there is exactly one service address and port that leads to the endpoint with clients' own addresses
	Several bool // there are more
}

// pickUp opens a connection with the packet of a backend to a client, and forwards it. It opens none by a SYN or
// SYN+ACK: those are of connections that did not begin at a gateway.
func (h *Handler) pickUp(v *view, from uint32, at *PickUp) packet.Verdict {
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
		return h.drop(service, packet.DropNoFlow)
	case h.table.findClient(&key, hash) >= 0: // it leads to another backend now, or has another source port
		return h.drop(service, packet.DropNoFlow)
	case h.snap.Backends[at.Backend].Inactive:
		return h.drop(service, packet.DropNoBackend)
	case h.snap.Sources.Mark != 0 && h.snap.Sources.denies(v.dst, service):
		return h.drop(service, packet.DropDenied)
	}
	c := Conn{
		client: v.dst, clientPort: v.dport, vip: at.VIP, backend: at.Backend, lists: h.snap.Sources.Mark,
		endpoint: from, sourcePort: v.dport, state: stateMidFlow, origin: originBackend,
	}
	if v.d.Proto == wire.ProtoUDP {
		c.state = stateUDP
	}
	if hop := h.clientHop(&c); hop.State != HopReady { // nothing is entered for a packet that cannot leave
		return h.drop(service, hop.usable())
	}
	c.setDeltas(h.snap)
	n := h.enter(&c, hash)
	verdict := h.toClient(n, v)
	h.endIfReset(n, v)
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
func (h *Handler) clientHop(c *Conn) Hop {
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
func (h *Handler) resolveClient(client addr) Hop {
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
func (h *Handler) keepClientHop(client addr, hop Hop, time ticks) {
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

// SetClientHop says where packets to a client leave. Only the loop may call it.
func (h *Handler) SetClientHop(now clock.Time, client netip.Addr, hop Hop) {
	h.now = ticksAt(now)
	time := clientHopTime
	if hop.State == HopReady {
		time = clientHopWait
	}
	h.keepClientHop(addrOf(client), hop, time)
}
