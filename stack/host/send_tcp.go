package host

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// tcpOutput implements tcp.Output. Each Outgoing leaves in one of four ways: in a frame for each segment, in
// a chain of frames for each (jumbo frames), as one large packet that the device segments (TSO), or by
// way of ip, where the neighbour's address is not known yet.
type tcpOutput struct{ h *Host }

// maxPayload is the most payload of one tcp.Outgoing, in bytes: with its headers it is still one IP packet,
// which a device segments.
const maxPayload = 1<<16 - 1 - wire.IPv6Len - wire.TCPMaxLen

// Offload implements tcp.Output.
func (o tcpOutput) Offload() int { return maxPayload }

// MTU implements tcp.Output: that of the path, from which TCP derives its segment size (RFC 9293 3.7.1), and no more than
// a burst has frames for. 0 means that there is no route for TCP: a broadcast has no single peer (RFC 9293 3.9.2.3, MUST-57).
func (o tcpOutput) MTU(t *wire.Tuple) int {
	h := o.h
	p, _ := h.route(h.Now(), t, ip.AnyDev, nil)
	if p == nil || p.Kind == ip.Broadcast {
		return 0
	}
	return min(h.IP.MTU(h.Now(), p, t.Remote), h.maxMTU)
}

// LinkMTU implements tcp.Output.
func (o tcpOutput) LinkMTU(t *wire.Tuple) int {
	h := o.h
	p, _ := h.route(h.Now(), t, ip.AnyDev, nil)
	if p == nil {
		return 0
	}
	return min(p.MTU, h.maxMTU)
}

// Send implements tcp.Output. False means that there is no room and tcp tries again; a segment without a
// route counts as sent and lost, as if a router had dropped it, and is retransmitted.
func (o tcpOutput) Send(now clock.Time, s *tcp.Outgoing) bool {
	h := o.h
	p, why := h.route(now, s.Tuple, ip.AnyDev, s.RouteCache)
	if p == nil {
		h.txDropped[why] += uint64(s.Segments())
		return true
	}
	t := s.Tuple
	// DF unless the program requests fragments: a smaller path MTU is then reported instead of hidden (RFC 1191 3).
	hdr := ip.Header{
		Src: t.Local, Dst: t.Remote, Proto: wire.ProtoTCP, TTL: s.TTL, TOS: s.TOS | uint8(s.ECN),
		DontFragment: !s.Fragment, FlowLabel: h.flowLabel(t),
	}
	h.segmenter.Begin(s, wire.PseudoHeader(t.Local, t.Remote, wire.ProtoTCP, 0))
	if !p.Resolved {
		return h.queueTCP(now, p, &hdr)
	}
	hdr.ID = h.id
	h.header.init(p, &hdr)
	switch {
	case p.Dev != ip.LoopDev && h.tso[p.Dev] && deviceSegments(s):
		return h.sendTSO(p, s)
	case h.header.n+h.segmenter.Size() > h.frameRoom():
		return h.sendChained(p, s)
	}
	return h.sendSegments(p, s)
}

// sendSegments writes each segment into a frame of its own. It is the common case.
func (h *Host) sendSegments(p *ip.Path, s *tcp.Outgoing) bool {
	frames := h.reserve(p.Dev, s.Segments())
	if frames == nil {
		return false
	}
	c, head := &h.segmenter, h.header.n
	for _, off := range frames {
		n := c.Size()
		h.tx = append(h.tx, packet.Desc{Off: off + headroom, Len: uint16(head + n)})
		d := &h.tx[len(h.tx)-1]
		b := h.arena.Bytes(d)
		h.header.write(b, n)
		c.Next(b[head:])
	}
	h.id = h.header.id
	h.transmit(p.Dev)
	return true
}

// sendChained writes each segment into a chain of frames. The segment is built in one piece and copied, because its header
// and checksum need contiguous bytes; jumbo frames are the exception.
func (h *Host) sendChained(p *ip.Path, s *tcp.Outgoing) bool {
	c, head := &h.segmenter, h.header.n
	n := s.Segments()
	frames := h.reserve(p.Dev, (n-1)*h.frames(head+c.Size())+h.frames(head+c.LastSize()))
	if frames == nil {
		return false
	}
	for c.Size() > 0 {
		n := c.Size()
		h.linear = slices.Grow(h.linear[:0], head+n)[:head+n]
		h.header.write(h.linear, n)
		c.Next(h.linear[head:])
		frames = h.chain(frames, h.linear)
	}
	h.id = h.header.id
	h.transmit(p.Dev)
	return true
}

// sendTSO sends one large packet, in a chain of frames, that the device segments and whose checksums it
// fills in. The segments get consecutive identifications, from the first one's on, so that h.id is advanced by as
// many. Offsets in packet.Offload count from the start of the frame, hence the headroom.
func (h *Host) sendTSO(p *ip.Path, s *tcp.Outgoing) bool {
	c, head := &h.segmenter, h.header.n+h.segmenter.HeaderLen()
	payload := len(s.Payload[0]) + len(s.Payload[1])
	frames := h.reserve(p.Dev, h.frames(head+payload))
	if frames == nil {
		return false
	}
	at := 0
	for i, off := range frames {
		d := packet.Desc{Off: off + headroom, Len: uint16(h.frameRoom())}
		b := h.arena.Bytes(&d)
		n := 0
		if i == 0 {
			h.header.write(b, c.HeaderLen()+payload)
			n = h.header.n + c.WriteTSO(b[h.header.n:])
		}
		m := c.Payload(b[n:], at)
		at += m
		d.Len = uint16(n + m)
		if i+1 < len(frames) {
			d.Flags = packet.FlagMore
		}
		h.tx = append(h.tx, d)
	}
	first := &h.tx[0]
	first.Flags |= packet.FlagOffload
	o := packet.Offload{
		Flags: packet.OffloadNeedsChecksum, HeadersEnd: uint16(headroom + head),
		ChecksumFrom: uint16(headroom + h.header.n), ChecksumAt: tcp.ChecksumAt,
		GSO: gsoType(s), SegmentSize: uint16(s.SegmentSize),
	}
	h.arena.SetOffload(first, &o)
	h.id = h.header.id + uint16(s.Segments()) - 1
	h.transmit(p.Dev)
	return true
}

// deviceSegments reports whether a device has something to segment in s, and can. A single segment leaves
// complete: its checksum costs less here than the detour of large packets (of AF_XDP, a packet socket: 1.5
// times the CPU time of a packet in the tx ring). A device cannot sign segments, and clears CWR in all but
// the first, which with AccECN is a bit of the counter in every one (RFC 9768 3.2.2).
func deviceSegments(s *tcp.Outgoing) bool {
	return s.Segments() > 1 && s.Sign == nil && !(s.ACE && s.Header.Flags.Has(wire.FlagCWR))
}

// gsoType returns the kind of segmentation. With packet.GSOECN, CWR stays with the first segment (RFC 3168 6.1.2).
func gsoType(s *tcp.Outgoing) uint8 {
	kind := uint8(packet.GSOTCPv4)
	if !s.Tuple.Local.Is4() {
		kind = packet.GSOTCPv6
	}
	if s.Header.Flags.Has(wire.FlagCWR) {
		kind |= packet.GSOECN
	}
	return kind
}

// queueTCP passes segments to ip, which keeps copies of them until the neighbour's address is known, as far as it has
// room. The rest counts as lost and is retransmitted: blocking the connection would need an event for the resolution, which
// takes a round trip on the link in the usual case.
func (h *Host) queueTCP(now clock.Time, p *ip.Path, hdr *ip.Header) bool {
	for first := true; h.segmenter.Size() > 0; first = false {
		n := h.segmenter.Size()
		h.linear = slices.Grow(h.linear[:0], n)[:n]
		h.segmenter.Next(h.linear)
		switch v := h.IP.Send(now, p, hdr, h.linear); {
		case v == packet.DropNoFrame && first:
			return false
		case v != packet.Forward:
			h.txDropped[v]++
		}
	}
	return true
}
