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

// groSlots is how many flows of a burst are merged at a time. Flows whose hashes meet in a lane take turns.
const groSlots = 8

// gro is what waits in Handle for its neighbours: for each lane the packets of one flow, in order.
type gro struct {
	b     *packet.Batch
	used  uint8 // lanes in use, as bits
	slots [groSlots]groSlot
	next  []int32 // of each packet of the batch: the next one that was merged with it, -1 at the end
}

// groSlot holds the packets of one flow.
type groSlot struct {
	key         groKey
	tuple       wire.Tuple
	first, last int32 // packets, as indices in the batch
	tcp         tcp.Coalescer
	udp         udp.Coalescer
}

// groKey is what packets must have in common to be merged.
type groKey struct {
	src, dst [2]uint64 // IPv4 in the first word alone
	ports    uint32
	tos, ttl uint8
	proto    uint8
	v4       bool
}

// reset stands g before a batch.
func (g *gro) reset(b *packet.Batch) {
	g.b = b
	if len(b.D) > len(g.next) {
		g.next = make([]int32, max(len(b.D), cap(b.D)))
	}
}

// groKey fills in the flow of a.
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

// append puts a packet that Join took behind the others of its lane.
func (g *gro) append(l *groSlot, at int) {
	g.next[l.last] = int32(at)
	g.next[at] = -1
	l.last = int32(at)
}

// open has a lane begin anew with one packet.
func (g *gro) open(n int, f *groKey, a *rxPacket) *groSlot {
	l := &g.slots[n]
	l.key, l.first, l.last = *f, int32(a.at), int32(a.at)
	g.next[a.at] = -1
	g.used |= 1 << n
	a.fillTuple(&l.tuple)
	return l
}

// flush gives what waits in all lanes to the transports.
func (g *gro) flush(h *Host, now clock.Time) {
	for n := 0; g.used != 0; n++ {
		if g.used&(1<<n) != 0 {
			g.flushSlot(h, now, n)
		}
	}
	g.b = nil
}

// flushSlot gives what waits in one lane to its transport.
func (g *gro) flushSlot(h *Host, now clock.Time, n int) {
	l := &g.slots[n]
	g.used &^= 1 << n
	var v packet.Verdict
	if l.key.proto == wire.ProtoTCP {
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

// inputTCP merges a segment with those of its flow that came just before, or has it wait for the next.
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

// completeTCP adds the rest of a segment that came in several frames, and how many segments it stands for where
// a device has merged them.
func (h *Host) completeTCP(b *packet.Batch, a *rxPacket, m *tcp.Coalescer) {
	if a.n > tcp.MaxCoalesced || a.n > 1 && (m.Options.HasMD5 || m.Options.HasAO) { // what signs wants it in one piece
		h.linear = append(h.linear[:0], a.l4...)
		a.eachRest(b, func(p []byte) { h.linear = append(h.linear, p...) })
		m.Begin(wire.TCP(h.linear), m.ECN)
	} else {
		a.eachRest(b, m.Extend)
	}
	if a.d.Flags.Has(packet.FlagOffload) {
		if o := b.Arena.Offload(a.d); o.GSO != 0 && o.SegmentSize > 0 {
			m.Packets = uint16(packet.Segments(int(m.Len), int(o.SegmentSize)))
		}
	}
}

// inputUDP does for a datagram what inputTCP does for a segment.
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

// beginUDP gives m the payload of the first datagram, or of several that a device has merged.
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
