package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// icmp decides an ICMP message over IPv4, or an ICMPv6 message over IPv6: echo requests and neighbour
// solicitations are answered, errors go where the packet that they quote came from.
func (h responder) icmp(d *packet.Desc, p []byte) packet.Verdict {
	is4, kind := d.Flags.Has(packet.FlagIPv4), p[d.L4]
	if !is4 && kind == wire.ICMPv6NeighborSolicit {
		return h.nd(d, p)
	}
	switch {
	case wire.Ethernet(p).Dst() != h.snap.Devices[d.Port].MAC:
		return packet.DropUnsupported
	case d.Payload == 0:
		return packet.DropTruncated
	case !d.Flags.Has(packet.FlagL4ChecksumOK): // nothing in it can be believed
		return packet.DropL4Checksum
	case is4 && kind == wire.ICMPEcho, !is4 && kind == wire.ICMPv6Echo:
		return h.echo(d, p)
	case carriesQuote(kind, is4):
		return h.icmpError(d, p)
	}
	return packet.DropUnsupported
}

// carriesQuote reports whether a message of the type is an error that is passed on: it quotes the packet that
// caused it. Redirects are for hosts on the link, and source quench is of no use (RFC 6633).
func carriesQuote(kind uint8, is4 bool) bool {
	if is4 {
		return kind == wire.ICMPUnreachable || kind == wire.ICMPTimeExceeded || kind == wire.ICMPParamProblem
	}
	return kind >= wire.ICMPv6Unreachable && kind <= wire.ICMPv6ParamProblem
}

// An ICMP error is for the sender of the packet that it quotes (RFC 792, RFC 4443 2.4 (c)). A translator has
// to undo its translation in the quote too, or the sender could not find the connection (RFC 5508 4):
//
//	addressed to       it quotes                          it goes to
//	a service address  what a client was sent             the backend
//	an SNAT address    what a backend was sent            the client
//	a client           the same, with `source: client`    the client
//	a tunnel source    an outer packet to a backend       the client, made anew (tunnelerror.go)
//
// It must quote a packet of a connection, with the addresses and ports that the packet had on that side. The
// receiver decides whether to believe the error, because it knows the sequence numbers (RFC 5927 4.1). Here
// it ends no connection and refreshes none, so a forged one achieves no more than without the gateway.

// icmpError decides an ICMP error whose own checksum is right.
func (h responder) icmpError(d *packet.Desc, p []byte) packet.Verdict {
	var v view
	v.readIP(d, p)
	if h.snap.martian(v.src) {
		return packet.DropMartian
	}
	if v.hopsLeft() <= 1 {
		return packet.DropTTL
	}
	b := p[d.Payload:min(int(d.L3)+v.size(), len(p))]
	if h.snap.Tunnel.holds(v.dst) {
		return h.tunneler().tunnelError(&v, b)
	}
	q, why := parseQuote(b, v.is4)
	if why != packet.Forward {
		return why
	}
	front, toFront := h.snap.findVIP(q.src, q.sport, q.proto)
	switch {
	case q.src != v.dst: // the error is for another than it speaks of
		return packet.DropNoFlow
	case toFront:
		return h.errorToBackend(&v, &q, front)
	}
	return h.errorToClient(&v, &q)
}

// errorToBackend passes on an error about a packet that a client was sent.
func (h responder) errorToBackend(v *view, q *quote, front uint32) packet.Verdict {
	f := view{d: v.d, p: v.p, src: q.dst, dst: q.src, sport: q.dport, dport: q.sport, is4: v.is4, part: later}
	if to := h.inboundLoop(&f); to != h.loop {
		return h.handOver(v.d, to)
	}
	key := clientKey{q.dst, front, q.dport}
	n := h.table.byClient(&key)
	if n < 0 || h.kernelSide().expired(&h.table.conns[n]) {
		return h.errorByHash(&f, q, front)
	}
	c := &h.table.conns[n]
	to, port := h.snap.endpoint(c.endpoint)
	if c.direct() {
		return h.countDrop(c, h.tunneler().forwardDirect(c, &f, to))
	}
	if verdict := h.tracker().checkHop(v, &to.Hop); verdict != packet.Forward {
		return h.countDrop(c, verdict)
	}
	from := v.src
	r := rewrite{src: to.addr, dst: q.dst, sport: port, dport: c.sourcePort, l3: c.l3Delta, l4: c.l4Delta}
	if c.snat != 0 { // the backend may know no way to whoever sent the error
		r.dst = h.snap.snats[c.snat]
		from = r.dst
	}
	v.applyError(q, &r, from, to.addr)
	return h.countDrop(c, h.translator().leave(v, &to.Hop))
}

// errorByHash passes on an error about a packet of a backend that answers clients itself, when the
// table does not know the connection: it may have begun on another gateway.
func (h responder) errorByHash(f *view, q *quote, front uint32) packet.Verdict {
	id := h.snap.serviceOf(front)
	if h.snap.martian(q.dst) { // no client: what the error quotes was never sent
		return packet.DropMartian
	}
	if h.offered == toFirst || id < 0 || q.proto != wire.ProtoTCP || h.snap.Services[id].Mode == ModeNAT || h.snap.Services[id].LeastConnections {
		return packet.DropNoFlow
	}
	chosen, verdict := h.selector().pick(f, h.snap.Services[id], true)
	if verdict != packet.Forward {
		return h.tracker().drop(uint32(id), verdict)
	}
	c := Conn{backend: chosen}
	return h.countDrop(&c, h.tunneler().forwardDirect(&c, f, h.snap.Endpoints[h.snap.Backends[chosen].Endpoint]))
}

// errorToClient passes on an error about a packet that a backend was sent. It comes from the backend or
// from a router in front of it; the client sees the service address, which is all that it knows.
func (h responder) errorToClient(v *view, q *quote) packet.Verdict {
	snat, toUs := h.snap.keys.find(q.src, tagOf(kindSNAT, 0, 0))
	endpoint, known := h.snap.findEndpoint(q.dst, q.dport, q.proto)
	if !known && !toUs {
		return packet.DropNoService
	}
	if !known {
		return packet.DropNoFlow
	}
	f := view{src: q.dst, dst: q.src, sport: q.dport, dport: q.sport}
	if to := h.outboundLoop(&f, toUs); to != h.loop {
		return h.handOver(v.d, to)
	}
	key := backendKey{endpoint: endpoint, port: q.sport, snat: uint16(snat)}
	if !toUs {
		key.client = q.src
	}
	n := h.table.byBackend(&key)
	if n < 0 || h.kernelSide().expired(&h.table.conns[n]) {
		return packet.DropNoFlow
	}
	c := &h.table.conns[n]
	hop := h.syncSide().clientHop(c)
	if verdict := h.tracker().checkHop(v, &hop); verdict != packet.Forward {
		return h.countDrop(c, verdict)
	}
	if unreachableCode(v.p[v.d.L4:], v.is4) {
		h.tally(c.backend)[Unreachable]++
	}
	front, port := h.snap.vip(c.vip)
	r := rewrite{src: c.client, dst: front.addr, sport: c.clientPort, dport: port, l3: ^c.l3Delta, l4: ^c.l4Delta}
	v.applyError(q, &r, front.addr, c.client)
	return h.countDrop(c, h.translator().leave(v, &hop))
}

// countDrop counts the verdict on a packet of a connection's service if it is a drop.
func (h responder) countDrop(c *Conn, v packet.Verdict) packet.Verdict {
	if v.Dropped() {
		h.tracker().drop(h.snap.Backends[c.backend].Service, v)
	}
	return v
}

// unreachableCode reports whether a message says that a packet did not reach its destination: not that
// it was too big.
func unreachableCode(m []byte, is4 bool) bool {
	if is4 {
		return m[0] == wire.ICMPUnreachable && m[1] != wire.ICMPFragmentationNeeded
	}
	return m[0] == wire.ICMPv6Unreachable
}

// applyError rewrites an ICMP error and the packet that it quotes: RFC 5508 4.2 and 4.3. The checksum of the
// message covers the quoted packet, in IPv6 also the addresses of its own.
func (v *view) applyError(q *quote, r *rewrite, src, dst addr) {
	diff := q.rewrite(r)
	addresses := wire.AddDiff(v.src.diff(src), v.dst.diff(dst))
	v.applyIP(src, dst, addresses)
	if !v.is4 {
		diff = wire.AddDiff(diff, addresses)
	}
	icmp := wire.ICMP(v.p[v.d.L4:])
	icmp.SetChecksum(wire.Apply(icmp.Checksum(), diff))
}

// quote is the start of a packet, as an ICMP error quotes it. It borrows the frame.
type quote struct {
	b            []byte // from the IP header on, as much as there is
	l4           int    // offset of the transport header, of which the first 8 bytes are there
	src, dst     addr
	sport, dport uint16
	proto        uint8
	is4          bool
}

// parseQuote reads a quoted packet of TCP or UDP: Forward, or why it names no connection. Its version is that of the
// error itself.
func parseQuote(b []byte, is4 bool) (q quote, why packet.Verdict) {
	if len(b) > 0 && (wire.Version(b) == 4) != is4 {
		return q, packet.DropMalformed
	}
	r, why := ip.ReadQuote(b)
	switch {
	case r.L4 == 0:
		return q, why
	case r.Proto != wire.ProtoTCP && r.Proto != wire.ProtoUDP:
		return q, packet.DropUnsupported // also errors about errors (RFC 1122 3.2.2)
	}
	of := wireAddr6
	if is4 {
		of = addr6 // which the reader has mapped
	}
	return quote{
		b: b, l4: r.L4, src: of(r.Flow.Local[:]), dst: of(r.Flow.Remote[:]),
		sport: r.Flow.LocalPort, dport: r.Flow.RemotePort, proto: r.Proto, is4: is4,
	}, why
}

// rewrite makes the quoted packet the one that its sender knows, and returns what that adds to a checksum
// over it. The checksums inside are updated as far as they are quoted.
func (q *quote) rewrite(r *rewrite) uint16 {
	covered := q.b[:min(len(q.b), q.l4+18)&^1] // 18: up to the checksum of TCP
	before := wire.Sum(covered, 0)
	if q.is4 {
		ip := wire.IPv4(q.b[:20])
		r.src.put(ip[12:16])
		r.dst.put(ip[16:20])
		ip.SetChecksum(wire.Apply(ip.Checksum(), r.l3))
	} else {
		r.src.put(q.b[8:24])
		r.dst.put(q.b[24:40])
	}
	l4 := q.b[q.l4:]
	binary.BigEndian.PutUint32(l4, uint32(r.sport)<<16|uint32(r.dport))
	switch {
	case q.proto == wire.ProtoUDP:
		wire.UDP(l4).Update(r.l4)
	case len(l4) >= 18:
		wire.TCP(l4).SetChecksum(wire.Apply(wire.TCP(l4).Checksum(), r.l4))
	}
	return wire.AddDiff(uint16(0xffff-before), uint16(wire.Sum(covered, 0)))
}
