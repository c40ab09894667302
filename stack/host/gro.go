package host

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// groSlots is the number of flows of a burst that are merged at a time. A flow whose hash selects a used slot flushes it, so
// interleaved flows in one slot are merged less, never reordered. Eight slots fit the bits of gro.used.
const groSlots = 8

// gro merges the packets of a burst by flow (generic receive offload), so that a transport runs once
// for several segments. It lives from the beginning to the end of one Handle: no packet waits for the
// next burst, so merging adds no latency.
//
// The packets of a slot form a list in next, because their verdict is known only when the transport
// has taken them all, and each descriptor has to get it.
type gro struct {
	b     *packet.Batch // borrowed during Handle
	used  uint8         // slots in use, as bits
	slots [groSlots]groSlot
	next  []int32 // of each packet of the batch: the next one that was merged with it, -1 at the end
}

// groSlot holds the packets of one flow, in the order in which they arrived.
type groSlot struct {
	key         groKey
	tuple       wire.Tuple
	first, last int32 // packets, as indices in the batch
	tcp         tcp.Coalescer
	udp         udp.Coalescer
}

// groKey holds the fields that packets must have in common to be merged. TOS (with ECN) and TTL are part of it because sockets see them:
// merging a packet with CE into one without would hide congestion (RFC 3168 6.1.3). What else a transport compares, such as
// TCP options, its Coalescer compares.
type groKey struct {
	src, dst [2]uint64 // IPv4 in the first word alone
	ports    uint32
	tos, ttl uint8
	proto    uint8
	v4       bool
}

// reset begins a batch.
func (g *gro) reset(b *packet.Batch) {
	g.b = b
	if len(b.D) > len(g.next) {
		g.next = make([]int32, max(len(b.D), cap(b.D)))
	}
}

// groKey fills in the key of a, in the byte order of the packet: keys are only compared for equality. For IPv4 one load
// of 8 bytes has both addresses, at offset 12 of the header.
func (a *rxPacket) groKey(f *groKey) {
	f.tos, f.ttl, f.proto, f.v4 = a.TOS, a.TTL, a.d.Proto, a.Is4
	f.ports = binary.LittleEndian.Uint32(a.l4)
	if a.Is4 {
		f.src = [2]uint64{binary.LittleEndian.Uint64(a.L3[12:])}
		f.dst = [2]uint64{}
		return
	}
	f.src = [2]uint64{binary.LittleEndian.Uint64(a.L3[8:]), binary.LittleEndian.Uint64(a.L3[16:])}
	f.dst = [2]uint64{binary.LittleEndian.Uint64(a.L3[24:]), binary.LittleEndian.Uint64(a.L3[32:])}
}

// append adds a packet that Join has taken to the list of its slot.
func (g *gro) append(l *groSlot, at int) {
	g.next[l.last] = int32(at)
	g.next[at] = -1
	l.last = int32(at)
}

// open begins a slot with one packet.
func (g *gro) open(n int, f *groKey, a *rxPacket) *groSlot {
	l := &g.slots[n]
	l.key, l.first, l.last = *f, int32(a.at), int32(a.at)
	g.next[a.at] = -1
	g.used |= 1 << n
	a.fillTuple(&l.tuple)
	return l
}

// flush passes all slots to the transports.
func (g *gro) flush(h *Host, now clock.Time) {
	for n := 0; g.used != 0; n++ {
		if g.used&(1<<n) != 0 {
			g.flushSlot(h, now, n)
		}
	}
	g.b = nil
}

// flushFlow passes the slot of a flow to its transport, before a packet of the same flow takes another path
// that would overtake it.
func (g *gro) flushFlow(h *Host, now clock.Time, hash uint32) {
	if n := int(hash % groSlots); g.used&(1<<n) != 0 {
		g.flushSlot(h, now, n)
	}
}

// flushSlot passes one slot to its transport and writes the verdict to all its packets. A datagram to a
// closed port causes ICMP port unreachable (RFC 1122 4.1.3.1); TCP answers with RST itself.
func (g *gro) flushSlot(h *Host, now clock.Time, n int) {
	l := &g.slots[n]
	g.used &^= 1 << n
	var v packet.Verdict
	if l.key.proto == wire.ProtoTCP {
		l.tcp.TTL = l.key.ttl
		v = h.TCP.Input(now, &l.tuple, &l.tcp.Segment)
	} else {
		v = h.UDP.Input(now, &l.tuple, &l.udp.Datagram)
	}
	for i := l.first; i >= 0; i = g.next[i] {
		d := &g.b.D[i]
		d.Verdict = v
		if v == packet.DropNoSocket && l.key.proto == wire.ProtoUDP {
			h.IP.Reject(now, d.Port, g.b.Arena.Bytes(d)[d.L3:], ip.PortUnreachable)
		}
	}
}

// inputTCP merges a segment with those of its flow that came just before, or opens a slot for it. A segment that cannot be
// merged flushes the slot first, so that it never overtakes one of its flow: TCP would answer that with duplicate ACKs (RFC
// 5681 4.2), and the peer could take it for a loss.
func (h *Host) inputTCP(now clock.Time, b *packet.Batch, a *rxPacket) packet.Verdict {
	seg := wire.TCP(a.l4)
	if !seg.Valid() {
		return packet.DropMalformed
	}
	g := &h.gro
	n := int(a.d.Hash % groSlots)
	l := &g.slots[n]
	var f groKey
	a.groKey(&f)
	if g.used&(1<<n) != 0 {
		if a.n == 1 && l.key == f && l.tcp.Join(seg, wire.ECN(a.TOS&3)) {
			g.append(l, a.at)
			return packet.Undecided
		}
		g.flushSlot(h, now, n)
	}
	l = g.open(n, &f, a)
	l.tcp.Begin(seg, wire.ECN(a.TOS&3))
	if a.n > 1 || a.d.Flags.Has(packet.FlagOffload) {
		h.completeTCP(b, a, &l.tcp)
	}
	return packet.Undecided
}

// completeTCP adds the rest of a segment that came in several frames, and the number of segments that it
// stands for where a device has merged them (LRO): delayed ACKs count those (RFC 9293 3.8.6.3).
func (h *Host) completeTCP(b *packet.Batch, a *rxPacket, m *tcp.Coalescer) {
	if a.n > tcp.MaxCoalesced || a.n > 1 && (m.Options.HasMD5 || m.Options.HasAO) { // a signature covers it in one piece
		h.linear = append(h.linear[:0], a.l4...)
		a.eachRest(b, func(p []byte) { h.linear = append(h.linear, p...) })
		m.Begin(wire.TCP(h.linear), m.ECN)
	} else {
		a.eachRest(b, m.Extend)
	}
	if a.placed > 0 {
		m.ExtendPlaced(a.placed)
	}
	if a.d.Flags.Has(packet.FlagOffload) {
		if o := b.Arena.Offload(a.d); o.GSO != 0 && o.SegmentSize > 0 {
			m.Packets = uint16(packet.Segments(int(m.Len), int(o.SegmentSize)))
		}
	}
}

// inputUDP does for a datagram what inputTCP does for a segment. Datagrams with and without a checksum are not merged,
// since a socket may accept only one kind (RFC 6935). A length beyond the packet is malformed (RFC 768), except in a large
// packet that a device has merged: its header has the length of one segment or of the whole.
func (h *Host) inputUDP(now clock.Time, b *packet.Batch, a *rxPacket) packet.Verdict {
	u := wire.UDP(a.l4)
	if !u.ValidHeader() || int(u.Len()) > a.Payload && !a.d.Flags.Has(packet.FlagOffload) {
		return packet.DropMalformed
	}
	g := &h.gro
	n := int(a.d.Hash % groSlots)
	l := &g.slots[n]
	var f groKey
	a.groKey(&f)
	none := u.Checksum() == 0
	if g.used&(1<<n) != 0 {
		if a.n == 1 && l.key == f && l.udp.NoChecksum == none && l.udp.Join(u) {
			g.append(l, a.at)
			return packet.Undecided
		}
		g.flushSlot(h, now, n)
	}
	l = g.open(n, &f, a)
	l.udp.Datagram = udp.Datagram{
		Hash: a.d.Hash, Interface: uint32(a.d.Port) + 1, TOS: a.TOS, TTL: a.TTL, NoChecksum: none, Time: clock.Time(b.Time(a.at)),
	}
	beginUDP(&l.udp, b, a, u)
	return packet.Undecided
}

// beginUDP gives m the payload of the first datagram, or of several that a device has merged. Those keep
// their boundaries by the segment size.
func beginUDP(m *udp.Coalescer, b *packet.Batch, a *rxPacket, u wire.UDP) {
	o := packet.Offload{}
	if a.d.Flags.Has(packet.FlagOffload) {
		o = b.Arena.Offload(a.d)
	}
	if o.GSO != 0 {
		m.BeginMerged(u, a.Payload-wire.UDPLen, int(o.SegmentSize))
	} else {
		m.Begin(u)
	}
	if a.n > 1 {
		a.eachRest(b, m.Extend)
	}
}
