package gateway

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inbound decides a packet from a client to a service address: it belongs to a connection, or
// starts one.
func (h *Handler) inbound(v *view, front uint32) packet.Verdict {
	key := clientKey{v.src, front, v.sport}
	n := h.table.byClient(&key)
	if n >= 0 && h.over(n, v) {
		h.forget(n)
		n = -1
	}
	if n < 0 {
		return h.open(v, front)
	}
	c := &h.table.conns[n]
	if !h.snap.backends[c.backend].usable {
		return h.drop(h.snap.backends[c.backend].service, packet.DropNoBackend)
	}
	return h.forward(c, v)
}

// over reports whether a connection ends before the packet from its client: it expired, the packet
// opens a new one with the same ports, or its backend is gone and the client does not mind another.
func (h *Handler) over(n int, v *view) bool {
	c := &h.table.conns[n]
	if c.expired(h.now) {
		return true
	}
	syn := v.flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN
	if syn && c.state == stateClosing {
		return true
	}
	return (syn || c.state == stateUDP) && !h.snap.backends[c.backend].usable
}

// forward sends a packet of a client on to the backend of its connection.
func (h *Handler) forward(c *conn, v *view) packet.Verdict {
	b, to := &h.snap.backends[c.backend], &h.snap.endpoints[c.endpoint]
	if verdict := h.passable(v, &to.hop); verdict != packet.Forward {
		return h.drop(b.service, verdict)
	}
	c.state = c.state.fromClient(v.flags)
	c.deadline = h.now + ticks(h.snap.timeouts[c.state])
	c.mac, c.port = wire.Ethernet(v.p).Src(), v.d.Port
	r := rewrite{
		src: v.src, dst: to.addr, sport: c.sourcePort, dport: to.port, l3: c.l3Delta, l4: c.l4Delta,
		srcMAC: h.snap.ports[to.hop.Port].MAC, dstMAC: to.hop.MAC,
	}
	if c.snat != 0 {
		r.src = h.snap.snats[c.snat]
	}
	v.apply(&r)
	v.d.Port = to.hop.Port
	t := h.tally(c.backend)
	t[toPackets]++
	t[toBytes] += uint32(v.d.Len)
	return packet.Forward
}

// passable reports whether a packet can leave by hop: Forward, or why not.
func (h *Handler) passable(v *view, hop *Hop) packet.Verdict {
	switch hop.State {
	case HopNoRoute:
		return packet.DropNoRoute
	case HopUnresolved:
		return packet.DropNoNeighbor
	}
	if mtu := h.snap.ports[hop.Port].MTU; mtu != 0 && v.size() > mtu {
		return packet.DropTooBig
	}
	return packet.Forward
}

// outbound decides a packet that is not for a service address: a reply of a backend to an SNAT
// address or to a client itself, or none of our business.
func (h *Handler) outbound(v *view) packet.Verdict {
	snat, toUs := h.snap.keys.find(v.dst, tagOf(kindSNAT, 0, 0))
	from, ok := h.snap.keys.find(v.src, tagOf(kindEndpoint, v.sport, v.d.Proto))
	if !ok && !toUs {
		return packet.DropNoService
	}
	if !ok {
		return packet.DropNoFlow
	}
	key := backendKey{endpoint: from, port: v.dport, snat: uint16(snat)}
	if !toUs {
		key.client = v.dst
	}
	n := h.table.byBackend(&key)
	if n >= 0 && h.table.conns[n].expired(h.now) {
		h.forget(n)
		n = -1
	}
	if n < 0 {
		return packet.DropNoFlow
	}
	return h.back(&h.table.conns[n], v)
}

// back sends a reply of a backend to the client: to the link address and out of the port that the
// client's packets came from, whatever the routes say.
func (h *Handler) back(c *conn, v *view) packet.Verdict {
	hop := Hop{MAC: c.mac, Port: c.port, State: HopReady}
	if verdict := h.passable(v, &hop); verdict != packet.Forward {
		return h.drop(h.snap.backends[c.backend].service, verdict)
	}
	c.state = c.state.fromBackend(v.flags)
	c.deadline = h.now + ticks(h.snap.timeouts[c.state])
	front := &h.snap.fronts[c.front]
	v.apply(&rewrite{
		src: front.addr, dst: c.client, sport: front.port, dport: c.clientPort, l3: ^c.l3Delta, l4: ^c.l4Delta,
		srcMAC: h.snap.ports[c.port].MAC, dstMAC: c.mac,
	})
	v.d.Port = c.port
	t := h.tally(c.backend)
	t[fromPackets]++
	t[fromBytes] += uint32(v.d.Len)
	return packet.Forward
}

// open starts a connection with the packet of a client, and forwards it.
func (h *Handler) open(v *view, number uint32) packet.Verdict {
	front := &h.snap.fronts[number]
	if front.service < 0 {
		return packet.DropNoService
	}
	id := uint32(front.service)
	s := &h.snap.services[id]
	if verdict := h.mayOpen(v); verdict != packet.Forward {
		return h.drop(id, verdict)
	}
	hash := selection.sum(v.src, uint64(v.sport)<<16|uint64(v.dport))
	chosen, ok := s.pool(v.dst).pick(hash)
	if !ok {
		return h.drop(id, packet.DropNoBackend)
	}
	to := h.snap.backends[chosen].endpoint
	if verdict := h.passable(v, &h.snap.endpoints[to].hop); verdict != packet.Forward {
		return h.drop(id, verdict)
	}
	c := conn{
		client: v.src, clientPort: v.sport, front: number, backend: chosen, endpoint: to,
		state: stateSynSent,
	}
	if v.d.Proto == wire.ProtoUDP {
		c.state = stateUDP
	}
	if !h.source(&c, s, hash) {
		return h.drop(id, packet.DropPortsFull)
	}
	c.setDeltas(v, h.snap)
	n := h.table.add(&c)
	h.tally(chosen)[opened]++
	return h.forward(&h.table.conns[n], v)
}

// mayOpen reports whether a packet may start a connection, and whether there is room for one.
func (h *Handler) mayOpen(v *view) packet.Verdict {
	const flags = wire.FlagSYN | wire.FlagACK | wire.FlagFIN | wire.FlagRST
	switch {
	case v.d.Proto == wire.ProtoTCP && v.flags&flags != wire.FlagSYN:
		return packet.DropNoFlow
	case v.src.martian() || v.sport == 0:
		return packet.DropUnsupported
	}
	if h.table.full() {
		h.table.sweep(h.now, 64, h.forget) // expired ones are no reason to refuse
	}
	if h.table.full() {
		return packet.DropTableFull
	}
	return packet.Forward
}

// source gives the connection the source that the backend sees; false when none is left. With
// clients' own addresses that is their own port, taken when another service leads the same client
// port to the same backend.
func (h *Handler) source(c *conn, s *service, hash uint64) bool {
	if s.fromClient {
		c.sourcePort = c.clientPort
		key := c.backendKey()
		n := h.table.byBackend(&key)
		if n >= 0 && h.table.conns[n].expired(h.now) {
			h.forget(n)
			n = -1
		}
		return n < 0
	}
	list := h.snap.snat6
	if c.client.is4() {
		list = h.snap.snat4
	}
	for i := range list {
		c.snat = list[(uint64(i)+hash>>32)%uint64(len(list))]
		if port, ok := h.ports.take(portPair{c.endpoint, c.snat}); ok {
			c.sourcePort = port
			return true
		}
	}
	return false
}

// forget ends connection n and gives back what it holds.
func (h *Handler) forget(n int) {
	c := &h.table.conns[n]
	if c.snat != 0 {
		h.ports.put(portPair{c.endpoint, c.snat}, c.sourcePort)
	}
	h.tally(c.backend)[closed]++
	h.table.remove(n)
}

// drop counts a drop of a service's packet.
func (h *Handler) drop(service uint32, v packet.Verdict) packet.Verdict {
	h.snap.services[service].drops[h.loop].Add(int(v), 1)
	return v
}
