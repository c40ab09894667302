package stack

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// gro joins the TCP segments, or the UDP datagrams, of a flow that came in one burst to one large packet (generic receive
// offload), so that the handler, the queue and the device's system call each cost once for all of them. The device that sends the packet cuts it
// again where a wire needs that (packet.FlagOffload), into the segments that came.
//
//	received    | Ethernet IP TCP  a | | Ethernet IP TCP  b | | Ethernet IP TCP  c |
//	one packet  | Ethernet IP TCP  a |                  | b |                  | c |   descriptors of one chain
//
// No payload moves: a follower's descriptor begins behind its headers. No packet waits for the next burst, so joining adds
// no latency.
//
// What is joined follows the rules of Linux (tcp_gro_receive, inet_gro_receive), and so does what ends a packet: segments
// are in order, and headers equal but for sequence number, checksum, PSH and the identification. A segment that
// cannot be joined closes the packet of its slot, so that none of a flow overtakes another (RFC 5681 4.2).
//
// Datagrams are joined by the rules of udp_gro_receive_segment: all of one length, but the last, which may be shorter, and each
// with a checksum.
type gro struct {
	udp   bool   // join datagrams too
	used  uint32 // slots with an open packet, as bits
	slots [groSlots]groSlot
	burst []packet.Desc // scratch: the burst, while it is put into its new order

	// next is, by descriptor, how the burst is linked: 0 is a packet that was not joined, n > 0 one whose first
	// follower is n. Of a follower it is the complement, so negative: ^n, where n is the next one and 0 is none.
	next []int32
}

// groSlots is the number of flows of a burst that are joined at a time. A flow whose ports select a used slot closes it: flows that
// share one are joined less, never reordered.
const groSlots = 32

// groSlot is a packet that may still grow.
type groSlot struct {
	first, last int    // descriptors: the one with the headers, and the newest
	seq         uint32 // of the byte behind the newest segment
	segment     int    // payload of the first segment, bytes; only the last one may have less
	size        int    // of the network-layer packet, bytes
	segments    int
	ended       bool // no segment may follow: the last one has PSH or is shorter than the first
}

// mostMerged is the longest network-layer packet that IPv4 can express, bytes.
const mostMerged = 1<<16 - 1

// mostDatagrams bounds the datagrams of a packet. It is UDP_MAX_SEGMENTS of kernels before 6.9, which reject a packet
// of more.
const mostDatagrams = 64

// groNever are the findings that keep a packet from being joined: it is not a whole one in one frame, or has more headers
// than those that are compared.
const groNever = notFast | packet.FlagOptions | packet.FlagVLAN | packet.FlagMore | packet.FlagOffload | packet.FlagHanded

// The checksums must have been verified: they are made anew, which would hide an error.
const (
	groIPv4 = packet.FlagIPv4 | packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK
	groIPv6 = packet.FlagIPv6 | packet.FlagL4ChecksumOK
)

// merge joins what it can of a burst that the engine has processed, and returns by how many packets there are fewer. Literal
// matches name descriptors by their place, so a burst that has some stays as it is.
func (g *gro) merge(b *packet.Batch) (fewer uint64) {
	if len(b.D) < 2 || len(b.Matches) > 0 {
		return 0
	}
	g.begin(len(b.D))
	for i := 0; i < len(b.D); i++ {
		d := &b.D[i]
		switch has := d.Flags; {
		case d.Proto != wire.ProtoTCP && (!g.udp || d.Proto != wire.ProtoUDP):
		case has&groNever == 0 && (has&groIPv4 == groIPv4 || has&groIPv6 == groIPv6):
			fewer += g.add(b, i)
		default:
			g.closeAll(b) // a fragment, or what is malformed, may belong to any flow
		}
		for b.D[i].Flags.Has(packet.FlagMore) && i+1 < len(b.D) { // the rest of a packet that came in several frames
			i++
		}
	}
	g.closeAll(b)
	if fewer > 0 {
		g.reorder(b)
	}
	return fewer
}

// begin forgets the burst before.
func (g *gro) begin(n int) {
	if n > len(g.next) {
		g.next = make([]int32, n)
	}
	clear(g.next[:n])
}

// add joins segment i to the open packet of its flow, and returns 1, or opens one with it.
func (g *gro) add(b *packet.Batch, i int) (joined uint64) {
	d := &b.D[i]
	p := b.Bytes(i)
	n := int(binary.BigEndian.Uint32(p[d.L4:]) * 0x9e3779b1 >> 27) // the ports, multiplied by 2^32 / golden ratio
	s := &g.slots[n]
	size := networkLen(d, p)
	payload := size - (int(d.Payload) - int(d.L3))
	data := payload > 0 && int(d.L3)+size == len(p) && onlyData(d, p, payload)
	if g.used&(1<<n) != 0 {
		if data && g.follows(b, s, d, p, payload) {
			g.join(b, s, i, payload)
			if s.ended {
				g.close(b, n)
			}
			return 1
		}
		g.close(b, n)
	}
	if data && !pushes(d, p) && b.Arena.Headroom(d) >= packet.OffloadLen {
		*s = groSlot{first: i, last: i, segment: payload, size: size, segments: 1}
		if d.Proto == wire.ProtoTCP {
			s.seq = wire.TCP(p[d.L4:]).Seq() + uint32(payload)
		}
		g.used |= 1 << n
	}
	return 0
}

// onlyData reports whether nothing but payload is lost when the headers of p are replaced by those of a packet before it.
//
// A control bit of TCP has its place in the order of segments, and CWR is for the first of several (RFC 3168 6.1.2). A datagram
// must end where its packet does (RFC 768). It has a checksum, or the engine had not found that right: the device that cuts the
// packet writes one for each.
func onlyData(d *packet.Desc, p []byte, payload int) bool {
	if d.Proto == wire.ProtoUDP {
		return int(wire.UDP(p[d.L4:]).Len()) == wire.UDPLen+payload
	}
	return wire.TCP(p[d.L4:]).Flags()&^(wire.FlagPSH|wire.FlagECE) == wire.FlagACK
}

// pushes reports whether p is a segment that no other may follow in its packet.
func pushes(d *packet.Desc, p []byte) bool {
	return d.Proto == wire.ProtoTCP && wire.TCP(p[d.L4:]).Flags().Has(wire.FlagPSH)
}

// networkLen returns the length of the network-layer packet by its header.
func networkLen(d *packet.Desc, p []byte) int {
	if d.Flags.Has(packet.FlagIPv4) {
		return int(wire.IPv4(p[d.L3:]).TotalLen())
	}
	return wire.IPv6Len + int(wire.IPv6(p[d.L3:]).PayloadLen())
}

// follows reports whether segment d, whose bytes are p, continues the packet of a slot. One of the other protocol has its payload
// elsewhere.
func (g *gro) follows(b *packet.Batch, s *groSlot, d *packet.Desc, p []byte, payload int) bool {
	first := &b.D[s.first]
	if payload > s.segment || s.size+payload > mostMerged ||
		d.L3 != first.L3 || d.L4 != first.L4 || d.Payload != first.Payload {
		return false
	}
	head := b.Arena.Bytes(first)[:d.Payload]
	p = p[:d.Payload]
	if !bytes.Equal(head[:d.L3], p[:d.L3]) { // link addresses, which replies go to, and the type: IPv4 or IPv6
		return false
	}
	if d.Flags.Has(packet.FlagIPv4) {
		if !sameIPv4(head[d.L3:], p[d.L3:], s.segments) {
			return false
		}
	} else if !sameIPv6(head[d.L3:], p[d.L3:]) {
		return false
	}
	if d.Proto == wire.ProtoUDP {
		return s.segments < mostDatagrams && binary.NativeEndian.Uint32(head[d.L4:]) == binary.NativeEndian.Uint32(p[d.L4:])
	}
	return wire.TCP(p[d.L4:]).Seq() == s.seq && sameTCP(head[d.L4:], p[d.L4:])
}

// sameIPv4 compares two headers without options. The device that segments counts identifications up, so they must do that
// here; without fragmentation they have no meaning and may also all be the same (RFC 6864 4.1).
func sameIPv4(a, b wire.IPv4, after int) bool {
	const keepsDF = 6 // offset of flags and fragment offset
	id := b.ID() - a.ID()
	return a[1] == b[1] && // TOS with ECN: a mark of congestion must not spread or vanish (RFC 3168 5.3)
		binary.NativeEndian.Uint16(a[keepsDF:]) == binary.NativeEndian.Uint16(b[keepsDF:]) &&
		a.TTL() == b.TTL() &&
		binary.NativeEndian.Uint64(a[12:]) == binary.NativeEndian.Uint64(b[12:]) && // addresses
		(id == uint16(after) || id == 0 && a.DontFragment())
}

// sameIPv6 compares all but the length of two headers.
func sameIPv6(a, b wire.IPv6) bool {
	return bytes.Equal(a[:4], b[:4]) && bytes.Equal(a[6:wire.IPv6Len], b[6:wire.IPv6Len])
}

// sameTCP compares all but the sequence number, PSH, the checksum and the urgent pointer, which means nothing without URG, of
// two headers of the same length. Equal options have equal timestamps (RFC 7323 3).
func sameTCP(a, b wire.TCP) bool {
	const push = uint32(wire.FlagPSH) << 16 // in the word of data offset, flags and window
	return binary.NativeEndian.Uint32(a) == binary.NativeEndian.Uint32(b) && a.Ack() == b.Ack() &&
		(binary.BigEndian.Uint32(a[12:])^binary.BigEndian.Uint32(b[12:]))&^push == 0 &&
		bytes.Equal(a[wire.TCPLen:], b[wire.TCPLen:])
}

// join makes segment i, which follows, the last of a slot's packet. Its descriptor is one that continues a packet now:
// it has no findings of its own.
func (g *gro) join(b *packet.Batch, s *groSlot, i, payload int) {
	d := &b.D[i]
	if pushes(d, b.Bytes(i)) {
		tcp := wire.TCP(b.Bytes(s.first)[b.D[s.first].L4:])
		tcp.SetFlags(tcp.Flags() | wire.FlagPSH)
		s.ended = true
	}
	s.ended = s.ended || payload < s.segment
	*d = packet.Desc{Off: d.Off + uint32(d.Payload), Len: uint16(payload), Port: d.Port, Stamp: d.Stamp}
	b.D[s.last].Flags |= packet.FlagMore
	if s.last == s.first {
		g.next[s.last] = int32(i)
	} else {
		g.next[s.last] = ^int32(i)
	}
	g.next[i] = ^int32(0)
	s.last, s.seq, s.size, s.segments = i, s.seq+uint32(payload), s.size+payload, s.segments+1
}

// closeAll closes the packets of all slots.
func (g *gro) closeAll(b *packet.Batch) {
	for n := 0; g.used != 0; n++ {
		if g.used&(1<<n) != 0 {
			g.close(b, n)
		}
	}
}

// close ends the packet of a slot and, where it has grown, writes what its headers become.
func (g *gro) close(b *packet.Batch, n int) {
	g.used &^= 1 << n
	s := &g.slots[n]
	if s.segments == 1 {
		return
	}
	d := &b.D[s.first]
	p := b.Arena.Bytes(d)
	kind, pseudo := uint8(packet.GSOTCPv4), uint32(0)
	if ip := wire.IPv4(p[d.L3:d.L4]); d.Flags.Has(packet.FlagIPv4) {
		ip.SetTotalLen(uint16(s.size))
		ip.FillChecksum()
		pseudo = ip.Pseudo()
	} else {
		ip := wire.IPv6(p[d.L3:d.L4])
		ip.SetPayloadLen(uint16(s.size - wire.IPv6Len))
		kind, pseudo = packet.GSOTCPv6, ip.Pseudo()
	}
	checksumAt := 16 // of a TCP header
	if udp := wire.UDP(p[d.L4:]); d.Proto == wire.ProtoUDP {
		kind, checksumAt = packet.GSOUDP, 6
		udp.SetLen(uint16(s.size - (int(d.L4) - int(d.L3))))
	}
	binary.BigEndian.PutUint16(p[int(d.L4)+checksumAt:], ^wire.Fold(pseudo)) // the rest is the device's; see packet.Offload
	d.Flags |= packet.FlagOffload
	at := uint16(b.Arena.Headroom(d))
	b.Arena.SetOffload(d, &packet.Offload{
		Flags: packet.OffloadNeedsChecksum, GSO: kind, HeadersEnd: at + uint16(d.Payload), SegmentSize: uint16(s.segment),
		ChecksumFrom: at + uint16(d.L4), ChecksumAt: uint16(checksumAt),
	})
}

// reorder puts the followers of each packet behind it. Packets keep the order of their first segments.
func (g *gro) reorder(b *packet.Batch) {
	g.burst = append(g.burst[:0], b.D...)
	b.D = b.D[:0]
	for i := range g.burst {
		next := g.next[i]
		if next < 0 {
			continue
		}
		b.D = append(b.D, g.burst[i])
		for next > 0 {
			b.D = append(b.D, g.burst[next])
			next = ^g.next[next]
		}
	}
}
