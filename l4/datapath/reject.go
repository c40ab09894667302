package datapath

import (
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A packet that is rejected becomes the answer to its sender, in its own frame: no frame is allocated, and a
// flood of bad packets cannot exhaust the pool. An ICMP error quotes the packet, so its headers go into the
// headroom and the quote stays where it is:
//
//	before       | headroom ............ | Ethernet | IP | TCP, UDP ...
//	ICMP error   | Ethernet | IP | ICMP  |          | IP | TCP, UDP, as much as fits
//	reset        | headroom ............ | Ethernet | IP | TCP |
//
// Of a packet that spans several frames the answer takes the first, and Handle releases the others.
//
// It leaves by the port that the packet came by, to the link address and VLAN that it came from.

// dropOrReport decides a packet of a service that cannot leave. One that is too big is answered, or path MTU
// discovery would see a black hole; for other reasons the sender can do nothing.
func (h responder) dropOrReport(v *view, service uint32, why packet.Verdict) packet.Verdict {
	if why == packet.DropTooBig && h.tooBig(v) {
		return packet.Forward
	}
	return h.tracker().drop(service, why)
}

// tooBig answers a packet that is larger than the way out takes and may not leave in fragments (RFC 1191 4, RFC 4443 3.2).
func (h responder) tooBig(v *view) bool {
	from := v.localAddr
	if from == (addr{}) {
		from = v.dst
	}
	m := ip.TooBig.Message(v.is4)
	m.Rest = uint32(v.mtu)
	return h.sendICMPError(v, from, m)
}

// ttlExpired answers a packet whose time to live is over (RFC 1812 5.3.1, RFC 4443 3.3). Only those to
// one of our addresses have an answer.
func (h responder) ttlExpired(v *view) packet.Verdict {
	if h.snap.martian(v.src) {
		return h.tracker().dropTo(v, packet.DropMartian)
	}
	if h.toClosedPort(v) { // it is at its destination: so ends traceroute
		return h.closedPort(v, packet.DropNoService)
	}
	if h.snap.local(v.dst) && h.sendICMPError(v, v.dst, ip.TimeExceeded.Message(v.is4)) {
		return packet.Forward
	}
	return h.tracker().dropTo(v, packet.DropTTL)
}

// noFlow decides a packet of a service that belongs to no connection and may not open one. Its sender learns that the
// connection is gone, from a restart or a time-out, and need not wait until it gives up.
func (h responder) noFlow(v *view, service uint32) packet.Verdict {
	if h.snap.Services[service].ResetUnknown && h.resetUnknown(v) {
		return packet.Forward
	}
	return h.tracker().drop(service, packet.DropNoFlow)
}

// resetUnknown resets the sender of a segment that belongs to no connection, unless another handler of the loop or a peer
// gateway may know the connection.
func (h responder) resetUnknown(v *view) bool {
	return v.d.Proto == wire.ProtoTCP && h.offered != toFirst && !h.snap.HoldResets && h.reset(v, answerUnknown)
}

// toClosedPort reports whether a packet is for a port of a service address that no service has, and closed ports of the
// address are answered. A reply of a backend is not, if the address is an SNAT address too.
func (h responder) toClosedPort(v *view) bool {
	if !h.snap.closes(v.dst) {
		return false
	}
	_, served := h.snap.findVIP(v.dst, v.dport, v.d.Proto)
	_, _, reply := h.lookups().findEndpoint(v)
	return !served && !reply
}

// closedPort decides a packet to a port that has no service, and is dropped for the reason why: at the address of a service
// it is answered as a host without a listener does, so that a wrong port is no time-out. Not while another handler of the
// loop or a peer gateway may serve the port, and not about a fragment, of whose datagram the rest may never come. The first
// fragment of a datagram that was held until it was whole (answersWhole) stands for all of it.
func (h responder) closedPort(v *view, why packet.Verdict) packet.Verdict {
	switch {
	case v.part == later, v.part == first && !h.held.deciding, h.offered == toFirst, h.snap.HoldResets, !h.snap.closes(v.dst):
		return why
	case h.snap.martian(v.src):
		return packet.DropMartian
	case h.snap.Sources.all.denies(v.src):
		return packet.DropDenied
	case h.reject(v, answerClosed):
		return packet.Forward
	}
	return why
}

// noBackend decides a packet of a service that has no backend for it.
func (h responder) noBackend(v *view, service uint32) packet.Verdict {
	if h.snap.Services[service].Reject && h.reject(v, answerReset) {
		return packet.Forward
	}
	return h.tracker().drop(service, packet.DropNoBackend)
}

// reject answers a client as a host without a listener does: by a reset, or by port unreachable (RFC 1122
// 4.1.3.1, RFC 4443 3.1). It reports false where no answer may be sent or the frame has no room.
func (h responder) reject(v *view, kind int) bool {
	if v.d.Proto == wire.ProtoTCP {
		return h.reset(v, kind)
	}
	if kind != answerClosed { // which has a budget for both protocols: a scan takes nothing from the clients of services
		kind = answerUnreachable
	}
	return h.sendICMPErrorAs(v, v.dst, ip.PortUnreachable.Message(v.is4), kind)
}

// sendICMPError turns a packet into the ICMP error m about it, from an address of the gateway. It reports
// false, and has changed nothing, where none may be sent or the frame has no room.
func (h responder) sendICMPError(v *view, from addr, m ip.ICMPMessage) bool {
	return h.sendICMPErrorAs(v, from, m, answerKind(m))
}

// sendICMPErrorAs is sendICMPError for a message that is counted as an answer of the given kind, and bounded as such.
func (h responder) sendICMPErrorAs(v *view, from addr, m ip.ICMPMessage, kind int) bool {
	if !v.answerable() || !h.mayAnswer(kind, v.src) {
		return false
	}
	hop := Hop{MAC: wire.Ethernet(v.p).Src(), VLAN: v.vlan(), Dev: v.d.Port}
	return h.writeICMPError(v.d, &icmpReport{m, from, v.src, int(v.d.L3), v.size()}, &hop)
}

// answerable reports whether an error about a packet may be sent at all: not about a later fragment, or to what is no
// host's address, nor where ip.ErrorAllowed forbids it (RFC 1812 4.3.2.7, RFC 4443 2.4 (e)). Packets to a group or to all
// of a link are dropped before.
func (v *view) answerable() bool {
	return v.part != later && !v.src.martian() && !wire.Ethernet(v.p).Src().Multicast() && ip.ErrorAllowed(v.p[v.d.L3:])
}

// reset turns a TCP segment into the reset that answers it (RFC 9293 3.10.7.1): with the sequence number
// that the sender expects, or without one an acknowledgement of all that it sent. A reset has no
// answer. It is counted as an answer of the given kind, and bounded as such.
func (h responder) reset(v *view, kind int) bool {
	d := v.d
	if v.flags.Has(wire.FlagRST) || d.L4 == 0 || !v.answerable() || !h.mayAnswer(kind, v.src) {
		return false
	}
	in := wire.TCP(v.p[d.L4:])
	header := wire.TCPHeader{SrcPort: v.dport, DstPort: v.sport, Flags: wire.FlagRST}
	if v.flags.Has(wire.FlagACK) {
		header.Seq = in.Ack()
	} else {
		header.Flags |= wire.FlagACK
		header.Ack = in.Seq() + v.segmentLen()
	}
	d.L4 = uint16(int(d.L3) + ipLen(v.is4))
	d.Len = d.L4 + wire.TCPLen
	d.Payload = d.Len
	d.Flags &^= packet.FlagOptions | packet.FlagOffload | packet.FlagMore
	p := h.arena.Bytes(d)
	eth := wire.Ethernet(p)
	eth.SetDst(eth.Src())
	eth.SetSrc(h.snap.Devices[d.Port].MAC)
	putOwn(p[d.L3:], v.dst, v.src, wire.ProtoTCP, wire.TCPLen)
	wire.AppendTCP(p[d.L4:d.L4], &header)
	wire.TCP(p[d.L4:]).FillChecksum(v.dst.pseudo(v.src, wire.ProtoTCP, wire.TCPLen))
	return true
}

// segmentLen is SEG.LEN of RFC 9293 3.10.7: the sequence numbers that a segment uses up.
func (v *view) segmentLen() uint32 {
	tcp := wire.TCP(v.p[v.d.L4:])
	n := uint32(max(v.size()-int(v.d.L4)+int(v.d.L3)-tcp.DataOffset(), 0))
	if v.flags.Has(wire.FlagSYN) {
		n++
	}
	if v.flags.Has(wire.FlagFIN) {
		n++
	}
	return n
}
