package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// leastMTU4 is the least MTU of a link with IPv4 (RFC 791 3.2), in bytes.
const leastMTU4 = 68

// tunnelError decides an ICMP error about a packet that a tunnel carried: b quotes outer header and the
// start of the client's packet. If that names a connection its client gets an error (RFC 2003 4, RFC 2473
// 8), from the service address.
func (h tunneler) tunnelError(v *view, b []byte) packet.Verdict {
	if v.d.Flags.Has(packet.FlagMore) { // longer than any error that anybody sends
		return packet.DropUnsupported
	}
	to, inner, is4, why := h.tunneled(v, b)
	if why != packet.Forward {
		return why
	}
	q, why := parseQuote(inner, is4)
	if why != packet.Forward {
		return why
	}
	front, ok := h.snap.findVIP(q.dst, q.dport, q.proto)
	if !ok {
		return packet.DropNoFlow
	}
	f := view{src: q.src, dst: q.dst, sport: q.sport, dport: q.dport, is4: q.is4}
	if loop := h.inboundLoop(&f); loop != h.loop {
		return h.handOver(v.d, loop)
	}
	key := clientKey{q.src, front, q.sport}
	n := h.table.byClient(&key)
	if n < 0 || h.table.conns[n].expired(h.now) {
		return packet.DropNoFlow
	}
	c := &h.table.conns[n]
	backend := h.snap.Backends[c.backend]
	e, _ := h.snap.endpoint(c.endpoint)
	grow := backend.Mode.overhead(e.addr.is4())
	if grow == 0 || e.addr != to || h.snap.Tunnel.source(f.spread(), to.is4()) != v.dst {
		return packet.DropNoFlow
	}
	if unreachableCode(v.p[v.d.L4:], v.is4) {
		h.tally(c.backend)[Unreachable]++
	}
	m, verdict := h.translateError(v.p[v.d.L4:], v.is4, e, grow, &q)
	if verdict != packet.Forward {
		return verdict
	}
	if !h.responder().mayAnswer(answerKind(m), q.src) {
		return packet.DropRateLimit
	}
	hop := h.syncSide().clientHop(c)
	if verdict := hop.usable(); verdict != packet.Forward {
		return verdict
	}
	return h.sendICMPErrorToClient(v, &q, m, &hop)
}

// tunneled reads the outer headers of a packet that a tunnel of the gateway carried: its backend, and
// what it carried. Routers may quote as little as 8 bytes behind the outer IP header (RFC 792); then the
// client cannot be found, and the error is dropped.
func (h tunneler) tunneled(v *view, b []byte) (to addr, inner []byte, is4 bool, why packet.Verdict) {
	var src addr
	var proto uint8
	header := wire.IPv6Len
	if v.is4 {
		header = wire.IPv4Len // we send no options
	}
	if len(b) < header+guePush {
		return to, nil, false, packet.DropTruncated
	}
	if v.is4 {
		src, to, proto = addr4(b[12:16]), addr4(b[16:20]), b[9]
	} else {
		src, to, proto = addr6(b[8:24]), addr6(b[24:40]), b[6]
	}
	inner = b[header:]
	if proto == wire.ProtoFragment && !v.is4 { // an outer fragment; only the first has the client's packet in it
		if binary.BigEndian.Uint16(inner[2:])&^7 != 0 || len(inner) < wire.FragmentHeaderLen+guePush {
			return to, nil, false, packet.DropTruncated
		}
		proto, inner = inner[0], inner[wire.FragmentHeaderLen:]
	}
	if proto == wire.ProtoUDP && wire.UDP(inner).DstPort() == h.snap.Tunnel.port {
		gue := wire.GUE(inner[wire.UDPLen:])
		proto = gue.Proto()
		if gue.HeaderLen() != wire.GUELen || gue.Control() {
			proto = wire.ProtoNone
		}
		inner = inner[guePush:]
	}
	switch {
	case b[0] != 0x45 && v.is4, b[0]>>4 != 6 && !v.is4:
		return to, nil, false, packet.DropMalformed
	case src != v.dst || proto != wire.ProtoIPIP && proto != wire.ProtoIPv6:
		return to, nil, false, packet.DropNoFlow
	}
	return to, inner, proto == wire.ProtoIPIP, packet.Forward
}

// translateError returns what the client gets about its packet q when an error m reports on the
// tunnel's, which is larger by overhead bytes. What a packet could not reach becomes an unreachable
// host, whatever the reason: the path behind the service address is none of the client's business (RFC
// 2003 4, RFC 2473 8).
//
// A smaller MTU of the path lowers that of the tunnel to endpoint e: the next packet that is too large is answered, or
// fragmented, here.
func (h tunneler) translateError(m []byte, is4 bool, e *Endpoint, overhead int, q *quote) (ip.ICMPMessage, packet.Verdict) {
	tooBig := is4 && m[0] == wire.ICMPUnreachable && m[1] == wire.ICMPFragmentationNeeded ||
		!is4 && m[0] == wire.ICMPv6TooBig
	if !tooBig {
		return ip.HostUnreachable.Message(q.is4), packet.Forward
	}
	mtu := int(wire.ICMPv6(m).MTU())
	if is4 {
		mtu = int(wire.ICMP(m).MTU())
	}
	if mtu-overhead < leastMTU4 || mtu > longestPacket { // no link is like that: RFC 5927 7.2
		return ip.ICMPMessage{}, packet.DropMalformed
	}
	h.learnPath(e.addr, mtu)
	if h.snap.Tunnel.fragment {
		return ip.ICMPMessage{}, packet.DropTooBig // the packet comes again, and leaves in fragments
	}
	mtu = max(mtu-overhead, leastMTU4)
	out := ip.TooBig.Message(q.is4)
	switch {
	case !q.is4:
		mtu = max(mtu, ip.MinMTU6)
	case !wire.IPv4(q.b).DontFragment():
		return ip.ICMPMessage{}, packet.DropTooBig // its sender will not make smaller ones
	}
	out.Rest = uint32(mtu)
	return out, packet.Forward
}

// sendICMPErrorToClient makes a packet the error m about q, for q's sender, from q's destination.
func (h tunneler) sendICMPErrorToClient(v *view, q *quote, m ip.ICMPMessage, hop *Hop) packet.Verdict {
	end := min(int(v.d.L3)+v.size(), len(v.p))
	if !h.responder().writeICMPError(v.d, &icmpReport{m, q.dst, q.src, end - len(q.b), len(q.b)}, hop) {
		return packet.DropNoFrame
	}
	return packet.Forward
}
