package host

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// udpOutput implements udp.Output.
type udpOutput struct{ h *Host }

// Offload implements udp.Output.
func (o udpOutput) Offload() int { return 1<<16 - 1 - wire.IPv6Len - wire.UDPLen }

// Send implements udp.Output.
func (o udpOutput) Send(now clock.Time, s *udp.Outgoing) packet.Verdict {
	h := o.h
	dev := ip.AnyDev
	if s.Interface != 0 {
		if dev = uint8(s.Interface - 1); int(dev) >= len(h.macs) {
			return packet.DropNoRoute
		}
	}
	p, why := h.route(now, s.Tuple, dev, s.RouteCache)
	if p == nil {
		return why
	}
	t := *s.Tuple
	switch {
	case p.Kind == ip.Broadcast && !s.Broadcast: // without SO_BROADCAST: the destination may be a typing error
		return packet.DropDenied
	case t.Local == wire.Addr{}:
		src, ok := h.IP.Source(now, t.Remote, dev)
		if !ok {
			return packet.DropNoRoute
		}
		t.Local = src
	case !h.IP.Usable(t.Local):
		return packet.DropDenied
	}
	hdr := ip.Header{
		Src: t.Local, Dst: t.Remote, Proto: wire.ProtoUDP, TTL: s.TTL, TOS: s.TOS,
		DontFragment: s.DontFragment, FlowLabel: h.flowLabel(&t),
	}
	h.udpSegmenter.Begin(s, &t, wire.PseudoHeader(t.Local, t.Remote, wire.ProtoUDP, 0))
	v := h.sendUDP(now, p, &hdr, s)
	if v == packet.Forward && s.Loop && p.Kind == ip.Multicast {
		h.loopMulticast(&hdr, s)
	}
	return v
}

// sendUDP chooses how datagrams leave: straight into frames where each fits the path, else by way of ip,
// which fragments them or keeps them until the neighbour's address is known.
func (h *Host) sendUDP(now clock.Time, p *ip.Path, hdr *ip.Header, s *udp.Outgoing) packet.Verdict {
	head := wire.IPv6Len + wire.UDPLen
	if hdr.Src.Is4() {
		head = wire.IPv4Len + wire.UDPLen
	}
	// One identification per datagram, which its fragments share; the receiver joins them by it (RFC 791 3.2).
	if head+s.SegmentSize > h.IP.MTU(now, p, hdr.Dst) {
		if s.DontFragment {
			return packet.DropTooBig
		}
		hdr.ID = h.IP.NextID(hdr)
		return h.queueUDP(now, p, hdr)
	}
	if !p.Resolved {
		return h.queueUDP(now, p, hdr)
	}
	hdr.ID = h.id
	h.header.init(p, hdr)
	if n := s.Segments(); p.Dev != ip.LoopDev && h.uso[p.Dev] && 1 < n && n <= mostLarge && !s.NoChecksum {
		return h.largeUDP(p, s)
	}
	return h.frameUDP(p, s)
}

// frameUDP writes datagrams that fit the path into frames, longer ones than a frame into chains.
func (h *Host) frameUDP(p *ip.Path, s *udp.Outgoing) packet.Verdict {
	c, head := &h.udpSegmenter, h.header.n
	frames := h.reserve(p.Dev, (s.Segments()-1)*h.frames(head+c.Size())+h.frames(head+c.LastSize()))
	if frames == nil {
		return packet.DropTxFull
	}
	for c.Size() > 0 {
		n := c.Size()
		if head+n <= h.frameRoom() {
			h.tx = append(h.tx, packet.Desc{Off: frames[0] + headroom, Len: uint16(head + n)})
			frames = frames[1:]
			b := h.arena.Bytes(&h.tx[len(h.tx)-1])
			h.header.write(b, n)
			c.Next(b[head:])
		} else {
			h.linear = slices.Grow(h.linear[:0], head+n)[:head+n]
			h.header.write(h.linear, n)
			c.Next(h.linear[head:])
			frames = h.chain(frames, h.linear)
		}
	}
	h.id = h.header.id
	h.transmit(p.Dev)
	return packet.Forward
}

// queueUDP passes datagrams to ip one by one. The verdict is that of the first: the caller tries again only
// where nothing was sent, and what is lost behind it is counted.
func (h *Host) queueUDP(now clock.Time, p *ip.Path, hdr *ip.Header) packet.Verdict {
	for first := true; h.udpSegmenter.Size() > 0; first = false {
		h.linear = slices.Grow(h.linear[:0], h.udpSegmenter.Size())[:h.udpSegmenter.Size()]
		h.udpSegmenter.Next(h.linear)
		v := h.IP.Send(now, p, hdr, h.linear)
		if v == packet.DropNoFrame {
			v = packet.DropTxFull
		}
		if v != packet.Forward && first {
			return v
		}
		if v != packet.Forward {
			h.txDropped[v]++
		}
		if hdr.ID != 0 {
			hdr.ID = h.IP.NextID(hdr)
		}
	}
	return packet.Forward
}

// loopMulticast sends a copy of what was sent to a group to its members on this host (RFC 1112 6.1, IP_MULTICAST_LOOP): a
// device does not receive what it sends. The segmenter begins again, because it has consumed the payload.
func (h *Host) loopMulticast(hdr *ip.Header, s *udp.Outgoing) {
	back := ip.Path{Dev: ip.LoopDev, Resolved: true, Kind: ip.Multicast, Header: ip.LoopHeader(hdr.Src.Is4())}
	t := *s.Tuple
	t.Local = hdr.Src
	h.udpSegmenter.Begin(s, &t, wire.PseudoHeader(t.Local, t.Remote, wire.ProtoUDP, 0))
	h.header.init(&back, hdr)
	if v := h.frameUDP(&back, s); v != packet.Forward {
		h.txDropped[v]++
	}
}
