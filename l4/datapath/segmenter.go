package datapath

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// segments describes a packet whose segmentation is left to the device that sends it, when its segments are larger than
// the way out: they are made here, and each leaves in fragments, as it had if it had come alone.
type segments struct {
	ip, l4  int // lengths of the headers that each segment repeats
	payload int // bytes of the packet's payload
	size    int // of each segment's payload, but the last
	proto   uint8
	ecn     bool // the first segment alone carries CWR (RFC 3168 6.1.2)
	id      uint16
	seq     uint32
	flags   wire.TCPFlags
}

// segmentsOf reads the headers of a packet with FlagOffload.
func (h fragmenter) segmentsOf(v *view) segments {
	p, o := h.arena.Bytes(v.d), h.arena.Offload(v.d)
	ip := wire.IPv4(p[v.d.L3:])
	s := segments{
		ip: ip.HeaderLen(), l4: int(v.d.Payload) - int(v.d.L4), proto: v.d.Proto, id: ip.ID(), size: int(o.SegmentSize),
		ecn: o.GSO&packet.GSOECN != 0,
	}
	s.payload = int(ip.TotalLen()) - s.ip - s.l4
	if o.GSO == packet.GSONone || s.size == 0 {
		s.size = s.payload
	}
	if s.proto == wire.ProtoTCP {
		t := wire.TCP(p[v.d.L4:])
		s.seq, s.flags = t.Seq(), t.Flags()
	}
	return s
}

// segmentable reports whether the segments of a packet with FlagOffload can be made here.
func (h fragmenter) segmentable(v *view) bool {
	switch h.arena.Offload(v.d).GSO &^ packet.GSOECN {
	case packet.GSONone, packet.GSOTCPv4, packet.GSOUDP:
		return v.d.L4 != 0 && v.d.Payload > v.d.L4
	}
	return false
}

// leaveSegments sends the segments of a packet in fragments. The loop originates all but the last fragment of the last
// segment, which leaves in the packet's own frame. Where frames run out the rest is dropped.
func (h fragmenter) leaveSegments(v *view, hop *Hop, translated bool) packet.Verdict {
	s := h.segmentsOf(v)
	for at := 0; ; at += s.size {
		last := at+s.size >= s.payload
		h.segment = h.makeSegment(h.segment[:0], v, hop, &s, at, min(s.size, s.payload-at))
		id := uint32(s.id) + uint32(at/max(s.size, 1))
		if translated {
			id = h.fragments.nextID(h.loop, h.loops)
		}
		verdict := h.fragment(v, hop, &fragmentation{
			size: len(h.segment) - linkLen(hop), mtu: v.mtu, header: s.ip, is4: true, id: id, data: h.segment, ahead: !last,
		})
		if verdict != packet.Forward || last {
			return verdict
		}
	}
}

// makeSegment appends to p the segment of n bytes of payload from at on, with its link header.
func (h fragmenter) makeSegment(p []byte, v *view, hop *Hop, s *segments, at, n int) []byte {
	link := linkLen(hop)
	head := link + s.ip + s.l4
	p = append(p, h.arena.Bytes(v.d)[:head]...)
	p = append(p, make([]byte, n)...)
	h.copyChain(p[head:], head+at)
	ip := wire.IPv4(p[link:])
	ip.SetTotalLen(uint16(len(p) - link))
	l4 := p[link+s.ip:]
	if s.proto == wire.ProtoUDP {
		wire.UDP(l4).SetLen(uint16(len(l4)))
		wire.UDP(l4).FillChecksum(ip.Pseudo())
		return p
	}
	t, flags := wire.TCP(l4), s.flags
	if at > 0 && s.ecn {
		flags &^= wire.FlagCWR
	}
	if at+n < s.payload {
		flags &^= wire.FlagFIN | wire.FlagPSH
	}
	t.SetSeq(s.seq + uint32(at))
	t.SetFlags(flags)
	t.FillChecksum(ip.Pseudo())
	return p
}
