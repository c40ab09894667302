package host

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// tcpOutput is the host as tcp sees it.
type tcpOutput struct{ h *Host }

// maxPayload is the most payload of one tcp.Outgoing, bytes: with its headers it is an IP packet still, as
// devices want that cut (TSO).
const maxPayload = 1<<16 - 1 - wire.IPv6Len - wire.TCPMaxLen

// Offload implements tcp.Output.
func (o tcpOutput) Offload() int { return maxPayload }

// MTU implements tcp.Output.
func (o tcpOutput) MTU(t *wire.Tuple) int {
	h := o.h
	p, _ := h.route(h.Now(), t, ip.AnyPort, nil)
	if p == nil {
		return 0
	}
	return min(h.IP.MTU(h.Now(), p, t.Remote), h.maxMTU)
}

// Send implements tcp.Output. What has no way is lost, as it would be a hop later: the connection's timers
// see to it.
func (o tcpOutput) Send(now clock.Time, s *tcp.Outgoing) bool {
	h := o.h
	p, why := h.route(now, s.Tuple, ip.AnyPort, s.RouteCache)
	if p == nil {
		h.txDropped[why] += uint64(s.Segments())
		return true
	}
	t := s.Tuple
	hdr := ip.Header{
		Src: t.Local, Dst: t.Remote, Proto: wire.ProtoTCP, TTL: s.TTL, TOS: uint8(s.ECN),
		DontFragment: true, FlowLabel: h.flowLabel(t),
	}
	h.segmenter.Begin(s, wire.PseudoHeader(t.Local, t.Remote, wire.ProtoTCP, 0))
	if !p.Resolved {
		return h.queueTCP(now, p, &hdr)
	}
	hdr.ID = h.id
	h.header.init(p, &hdr)
	switch {
	case p.Port != ip.LoopPort && h.tso[p.Port] && deviceSegments(s):
		return h.sendTSO(p, s)
	case h.header.n+h.segmenter.Size() > h.frameRoom():
		return h.sendChained(p, s)
	}
	return h.sendSegments(p, s)
}

// sendSegments sends segments that fit into a frame each.
func (h *Host) sendSegments(p *ip.Path, s *tcp.Outgoing) bool {
	frames := h.reserve(p.Port, s.Segments())
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
	h.transmit(p.Port)
	return true
}

// sendChained sends segments that are longer than a frame: in chains of frames.
func (h *Host) sendChained(p *ip.Path, s *tcp.Outgoing) bool {
	c, head := &h.segmenter, h.header.n
	n := s.Segments()
	frames := h.reserve(p.Port, (n-1)*h.frames(head+c.Size())+h.frames(head+c.LastSize()))
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
	h.transmit(p.Port)
	return true
}

// frames returns how many frames a packet of n bytes takes.
func (h *Host) frames(n int) int { return (n + h.frameRoom() - 1) / h.frameRoom() }

// chain appends one packet to h.out, in as many of the frames as it needs, and returns the rest of them.
func (h *Host) chain(frames []uint32, b []byte) []uint32 {
	for len(b) > 0 {
		n := min(len(b), h.frameRoom())
		d := packet.Desc{Off: frames[0] + headroom, Len: uint16(n)}
		copy(h.arena.Bytes(&d), b[:n])
		if b = b[n:]; len(b) > 0 {
			d.Flags = packet.FlagMore
		}
		h.tx = append(h.tx, d)
		frames = frames[1:]
	}
	return frames
}

// virtio_net_hdr (virtio 1.2, 5.1.6.2).
const (
	needsChecksum = 1
	gsoTCP4       = 1
	gsoUDPL4      = 5
	gsoTCP6       = 4
	gsoECN        = 0x80
)

// sendTSO sends one packet that the device cuts, and whose checksums it fills in.
func (h *Host) sendTSO(p *ip.Path, s *tcp.Outgoing) bool {
	c, head := &h.segmenter, h.header.n+h.segmenter.HeaderLen()
	payload := len(s.Payload[0]) + len(s.Payload[1])
	frames := h.reserve(p.Port, h.frames(head+payload))
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
		Flags: needsChecksum, HeadersEnd: uint16(headroom + head),
		ChecksumFrom: uint16(headroom + h.header.n), ChecksumAt: tcp.ChecksumAt,
	}
	if s.Segments() > 1 {
		o.GSO, o.SegmentSize = gsoType(s), uint16(s.SegmentSize)
	}
	h.arena.SetOffload(first, &o)
	h.id = h.header.id + uint16(s.Segments()) - 1
	h.transmit(p.Port)
	return true
}

// deviceSegments reports whether a device can cut s: it knows nothing of signatures, and takes CWR for what only the
// first segment has.
func deviceSegments(s *tcp.Outgoing) bool {
	return s.Sign == nil && !(s.ACE && s.Header.Flags.Has(wire.FlagCWR))
}

// gsoType returns what a device is told of segments to be cut. CWR stays with the first (RFC 3168 6.1.2).
func gsoType(s *tcp.Outgoing) uint8 {
	kind := uint8(gsoTCP4)
	if !s.Tuple.Local.Is4() {
		kind = gsoTCP6
	}
	if s.Header.Flags.Has(wire.FlagCWR) {
		kind |= gsoECN
	}
	return kind
}

// queueTCP has segments wait for their neighbour, as far as there is room: the rest is lost, and sent
// again when the timer says so.
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
