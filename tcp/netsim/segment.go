package netsim

import (
	"bytes"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// cut calls emit for each segment that an Outgoing is: n bytes of its payload from off on, and the
// header, which is the callee's for the call.
func cut(o *tcp.Outgoing, emit func(off, n int, hdr *wire.TCPHeader)) {
	total := len(o.Payload[0]) + len(o.Payload[1])
	size := o.SegmentSize
	if size <= 0 {
		size = max(total, 1)
	}
	for off := 0; ; off += size {
		n := min(size, total-off)
		hdr := o.Header
		hdr.Seq += uint32(off)
		if off > 0 {
			hdr.Flags &^= wire.FlagCWR
		}
		if off+n < total {
			hdr.Flags &^= wire.FlagFIN | wire.FlagPSH
		}
		urgent(&hdr, off)
		emit(off, n, &hdr)
		if off+n >= total {
			return
		}
	}
}

// urgent moves the urgent pointer with the segment that it is counted from.
func urgent(h *wire.TCPHeader, off int) {
	if h.Flags&wire.FlagURG == 0 {
		return
	}
	if off > int(h.Urgent) {
		h.Flags &^= wire.FlagURG
		h.Urgent = 0
		return
	}
	h.Urgent -= uint16(off)
}

// appendSegment appends the IP packet of n payload bytes from off on.
func appendSegment(b []byte, o *tcp.Outgoing, hdr *wire.TCPHeader, off, n int) []byte {
	size := wire.TCPLen + (len(hdr.Options)+3)&^3 + n
	b = AppendIP(b, o.Tuple, size, o.ECN, o.TTL)
	at := len(b)
	hdr.SrcPort, hdr.DstPort = o.Tuple.LocalPort, o.Tuple.RemotePort
	b = wire.AppendTCP(b, hdr)
	for _, part := range o.Payload {
		if off >= len(part) {
			off -= len(part)
			continue
		}
		k := min(n, len(part)-off)
		b = append(b, part[off:off+k]...)
		n -= k
		off = 0
	}
	seg := wire.TCP(b[at:])
	seg.SetAE(o.AE)
	if o.Sign != nil {
		o.Sign(seg)
	}
	seg.FillChecksum(Pseudo(o.Tuple, len(seg)))
	return b
}

// merger puts segments together that follow each other, as generic receive offload does.
type merger struct {
	tuple   ip.Tuple
	seg     tcp.Segment
	options []byte
	packets []*Packet // whose bytes seg borrows
}

// maxMerged bounds the payload of a merged segment.
const maxMerged = 65_535

// begin takes the first segment.
func (m *merger) begin(t *ip.Tuple, s wire.TCP, ecn wire.ECN) {
	m.tuple, m.options = *t, s.Options()
	payload := m.seg.Payload[:0]
	if len(s.Payload()) > 0 {
		payload = append(payload, s.Payload())
	}
	m.seg = tcp.Segment{
		Seq: s.Seq(), Ack: s.Ack(), Window: s.Window(), Urgent: s.Urgent(), Flags: s.Flags(), AE: s.AE(),
		ECN: ecn, Packets: 1, Len: uint32(len(s.Payload())), Payload: payload, Raw: s,
	}
	s.ParseOptions(&m.seg.Options)
}

// keep keeps the packet until the segment is passed on.
func (m *merger) keep(p *Packet) { m.packets = append(m.packets, p) }

// append adds a segment if it continues the one at hand.
func (m *merger) append(t *ip.Tuple, s wire.TCP, ecn wire.ECN) bool {
	if !m.continues(t, s, ecn) {
		return false
	}
	m.seg.Payload = append(m.seg.Payload, s.Payload())
	m.seg.Len += uint32(len(s.Payload()))
	m.seg.Flags |= s.Flags()
	m.seg.Window = s.Window()
	m.seg.Packets++
	m.seg.Raw = nil
	s.ParseOptions(&m.seg.Options)
	return true
}

// continues reports whether s is the next one of the segment at hand and differs in nothing else.
func (m *merger) continues(t *ip.Tuple, s wire.TCP, ecn wire.ECN) bool {
	const data = wire.FlagACK | wire.FlagPSH
	g := &m.seg
	return len(m.packets) > 0 && m.tuple == *t && g.Flags&^data == 0 && s.Flags()&^data == 0 &&
		g.Len > 0 && len(s.Payload()) > 0 && g.Len+uint32(len(s.Payload())) <= maxMerged &&
		g.Seq+g.Len == s.Seq() && g.Ack == s.Ack() && g.AE == s.AE() && g.ECN == ecn &&
		alike(m.options, s.Options())
}

// alike reports whether options are the same but for the values of timestamps, laid out as everybody
// does (RFC 7323 appendix A). Other options keep segments apart.
func alike(a, b []byte) bool {
	if len(a) == 0 {
		return len(b) == 0
	}
	return len(a) == 12 && len(b) == 12 && bytes.Equal(a[:4], b[:4]) && a[2] == wire.TCPOptTimestamps
}
