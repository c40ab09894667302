package host

import (
	"math"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// slowPath has the network layer look at a packet that is not plain. What it finds to be for a transport, a
// reassembled datagram for instance, goes on to that.
func (h *Host) slowPath(now clock.Time, b *packet.Batch, i, n int) packet.Verdict {
	d := b.D[i]
	frame := b.Arena.Bytes(&d)
	if n > 1 {
		h.linear = b.Arena.Gather(h.linear[:0], b.D[i:i+n], math.MaxInt)
		frame = h.linear
		d.Len = uint16(min(len(frame), 1<<16-1))
		d.Flags &^= packet.FlagMore
	}
	h.gro.flushFlow(h, now, d.Hash)
	v := h.IP.Input(now, d.Port, frame, &d, &h.datagram)
	switch v {
	case packet.Undecided:
		return h.deliver(now, &h.datagram)
	case packet.Handover:
		b.D[i].Flow = 0 // the leader
		if h.self == 0 {
			return packet.DropUnsupported
		}
	}
	return v
}

// flushFlow delivers what waits in the lane of a flow, so that nothing of that overtakes it.
func (g *gro) flushFlow(h *Host, now clock.Time, hash uint32) {
	if n := int(hash % groSlots); g.used&(1<<n) != 0 {
		g.flushSlot(h, now, n)
	}
}

// deliver gives a datagram that ip has looked at to whom it is for. One that was reassembled may belong to
// a flow of another loop: its fragments have met by their addresses alone.
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

// deliverToOwner has another loop take a reassembled datagram: a copy. It is rare enough.
func (h *Host) deliverToOwner(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	c, u := *g, *t
	c.Payload = append([]byte(nil), g.Payload...)
	c.Packet = append([]byte(nil), g.Packet...)
	if !h.Do(func() { h.inputDatagram(max(now, h.Now()), &u, &c) }) {
		return packet.DropHandover
	}
	return packet.Deliver
}

// inputDatagram gives a datagram to its transport.
func (h *Host) inputDatagram(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	if g.Proto == wire.ProtoUDP {
		return h.inputDatagramUDP(now, t, g)
	}
	seg := wire.TCP(g.Payload)
	if !seg.Valid() {
		return packet.DropMalformed
	}
	if g.Kind != ip.Unicast { // RFC 9293 3.9.2.3, MUST-57
		return packet.DropNotOurs
	}
	h.single.tcp.Begin(seg, g.ECN())
	return h.TCP.Input(now, t, &h.single.tcp.Segment)
}

func (h *Host) inputDatagramUDP(now clock.Time, t *wire.Tuple, g *ip.Datagram) packet.Verdict {
	u := wire.UDP(g.Payload)
	if !u.Valid() {
		return packet.DropMalformed
	}
	m := &h.single.udp
	m.Datagram = udp.Datagram{
		Interface: uint32(g.Port) + 1, TOS: g.TOS, TTL: g.TTL,
		Broadcast: g.Kind == ip.Broadcast, NoChecksum: u.Checksum() == 0, Time: now,
	}
	m.Begin(u)
	v := h.UDP.Input(now, t, &m.Datagram)
	if v == packet.DropNoSocket && g.Kind == ip.Unicast {
		h.IP.Reject(now, g.Port, g.Packet, ip.PortUnreachable)
	}
	return v
}
