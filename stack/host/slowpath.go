package host

import (
	"math"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// slowPath passes a packet to the network layer: options, fragments, ICMP, ARP and ND, multicast, and
// whatever fastPath rejects. A datagram for a transport that comes of it, such as a reassembled one,
// goes on to that.
//
// It borrows the packet. A chain of frames is copied to one piece first: these packets are rare, and
// ip reads them as one slice.
func (h *Host) slowPath(now clock.Time, b *packet.Batch, i, n int) packet.Verdict {
	d := b.D[i]
	frame := b.Arena.Bytes(&d)
	if n > 1 {
		h.linear = b.Arena.Gather(h.linear[:0], b.D[i:i+n], math.MaxInt)
		frame = h.linear
		d.Len = uint16(min(len(frame), 1<<16-1))
		d.Flags &^= packet.FlagMore
	}
	// Packets of the flow that wait in a GRO slot came before this one.
	h.gro.flushFlow(h, now, d.Hash)
	v := h.IP.Input(now, d.Port, frame, &d, &h.datagram)
	switch v {
	case packet.Undecided:
		return h.deliver(now, &h.datagram)
	case packet.Handover:
		b.D[i].Flow = 0 // neighbours and groups are the leader's
		if h.self == 0 {
			return packet.DropUnsupported
		}
	}
	return v
}

// deliver passes a datagram that ip has accepted to its transport. A reassembled one may belong to a flow
// of another loop: fragments meet by their addresses alone, since only the first has ports.
func (h *Host) deliver(now clock.Time, g *ip.Datagram) packet.Verdict {
	if g.Proto != wire.ProtoTCP && g.Proto != wire.ProtoUDP {
		if h.otherProtocol == nil {
			return packet.DropUnsupported
		}
		return h.otherProtocol(now, h, g)
	}
	if len(g.Payload) < wire.UDPLen {
		return packet.DropMalformed
	}
	u := wire.UDP(g.Payload)
	t := wire.Tuple{Local: g.Dst, Remote: g.Src, LocalPort: u.DstPort(), RemotePort: u.SrcPort()}
	if g.Packets > 1 {
		if owner := h.group.Owner(&t); owner != h {
			return owner.deliverToOwner(now, &t, g)
		}
	}
	return h.inputDatagram(now, &t, g)
}

// deliverToOwner passes a copy of a reassembled datagram to h, on another loop. The caller's frames and
// reassembly buffer stay its own.
func (h *Host) deliverToOwner(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	c, u := *g, *t
	c.Payload = append([]byte(nil), g.Payload...)
	c.Packet = append([]byte(nil), g.Packet...)
	input := func() {
		h.inputDatagram(max(now, h.Now()), &u, &c)
		h.RequestTick() // it reports to the socket's owner
	}
	if !h.Do(input) {
		return packet.DropHandover
	}
	return packet.Deliver
}

// inputDatagram passes a datagram to its transport, unmerged.
func (h *Host) inputDatagram(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	if g.Proto == wire.ProtoUDP {
		return h.inputDatagramUDP(now, t, g)
	}
	seg := wire.TCP(g.Payload)
	if !seg.Valid() {
		return packet.DropMalformed
	}
	if g.Kind != ip.Unicast { // TCP to a group or broadcast address must be ignored (RFC 9293 3.9.2.3, MUST-57)
		return packet.DropNotOurs
	}
	h.single.tcp.Begin(seg, g.ECN())
	h.single.tcp.TTL = g.TTL
	return h.TCP.Input(now, t, &h.single.tcp.Segment)
}

// interfaceOf returns the interface that a datagram counts for. A copy of what this host has sent to a group comes by the loopback
// queue, and counts for the interface that it left by, where the members are: the source address names it.
func (h *Host) interfaceOf(now clock.Time, g *ip.Datagram) uint32 {
	dev := g.Dev
	if dev == ip.LoopDev && g.Kind == ip.Multicast {
		if p, _ := h.IP.Route(now, g.Dst, g.Src, ip.AnyDev); p != nil {
			dev = p.Dev
		}
	}
	return uint32(dev) + 1
}

// inputDatagramUDP is inputDatagram for UDP. Only a unicast datagram to a closed port is answered (RFC 1122 3.2.2): to a
// group or broadcast address, every host without the socket would answer.
func (h *Host) inputDatagramUDP(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	u := wire.UDP(g.Payload)
	if !u.Valid() {
		return packet.DropMalformed
	}
	m := &h.single.udp
	m.Datagram = udp.Datagram{
		Interface: h.interfaceOf(now, g), TOS: g.TOS, TTL: g.TTL,
		Broadcast: g.Kind == ip.Broadcast, NoChecksum: u.Checksum() == 0, Time: now,
	}
	m.Begin(u)
	v := h.UDP.Input(now, t, &m.Datagram)
	if v == packet.DropNoSocket && g.Kind == ip.Unicast {
		h.IP.Reject(now, g.Dev, g.Packet, ip.PortUnreachable)
	}
	return v
}
