package ip

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Header holds the fields of an IP header that a sender chooses. The zero value of a field beside the addresses and Proto
// is the default: the TTL of the path, no DSCP, not ECN-capable, may be fragmented, no flow label.
type Header struct {
	Src, Dst     wire.Addr
	Proto        uint8
	TTL          uint8
	TOS          uint8  // or traffic class, with ECN in the low two bits
	DontFragment bool   // IPv4 DF; over both versions a packet larger than the path MTU is then not sent
	ID           uint16 // IPv4: unique where the packet may be fragmented (RFC 6864 4); 0 has Send choose one
	FlowLabel    uint32 // IPv6, 20 bits
}

// headerLen returns the length of the IP header without extension headers.
func (h *Header) headerLen() int {
	if h.Dst.Is4() {
		return wire.IPv4Len
	}
	return wire.IPv6Len
}

// Put writes the Ethernet and IP headers of a packet with payload bytes behind them to the start of b and returns their
// length. b has room for 54 bytes. It is for callers that write the packet into a frame of their own: they choose the ID
// and keep to the MTU themselves.
func (p *Path) Put(b []byte, h *Header, payload int) int {
	copy(b, p.Header[:])
	return wire.EthernetLen + p.putIP(b[wire.EthernetLen:], h, h.Proto, payload)
}

// putIP writes the IP header for payload bytes of protocol proto.
func (p *Path) putIP(b []byte, h *Header, proto uint8, payload int) int {
	ttl := h.TTL
	if ttl == 0 {
		ttl = p.TTL
	}
	if !h.Dst.Is4() {
		wire.AppendIPv6(b[:0], &wire.IPv6Header{
			Src: h.Src, Dst: h.Dst, NextHeader: proto, HopLimit: ttl,
			TrafficClass: h.TOS, FlowLabel: h.FlowLabel, PayloadLen: payload,
		})
		return wire.IPv6Len
	}
	wire.AppendIPv4(b[:0], &wire.IPv4Header{
		Src: h.Src.As4(), Dst: h.Dst.As4(), Proto: proto, TTL: ttl, TOS: h.TOS,
		DontFragment: h.DontFragment, ID: h.ID, PayloadLen: payload,
	})
	return wire.IPv4Len
}

// Send sends one packet: Forward, or the reason why not: DropTooBig (not to be fragmented and larger
// than the path MTU), DropNoNeighbor (the neighbour does not answer), DropMemory (the packets that wait
// for neighbours are too many), DropNoFrame (the caller may try again). payload are the pieces of
// transport header and data in order, with the checksum filled in. They are borrowed: the bytes are copied into a frame.
// What is larger than the MTU is fragmented unless h forbids it.
func (n *Node) Send(now clock.Time, p *Path, h *Header, payload ...[]byte) packet.Verdict {
	n.setNow(now)
	return n.send(p, h, payload)
}

func (n *Node) send(p *Path, h *Header, payload [][]byte) packet.Verdict {
	size := 0
	for _, b := range payload {
		size += len(b)
	}
	if h.headerLen()+size > n.mtu(p, h.Dst) {
		return n.sendFragments(p, h, payload, size)
	}
	f, v := n.frame(p, wire.EthernetLen+h.headerLen()+size, h.Src)
	if f == nil {
		return v
	}
	g := *h
	if g.Dst.Is4() && !g.DontFragment && g.ID == 0 {
		g.ID = uint16(n.ids.next(h)) // a router may fragment it; with DF the ID is ignored (RFC 6864 4.1)
	}
	at := p.Put(f, &g, size)
	for _, b := range payload {
		at += copy(f[at:], b)
	}
	return n.dispatch(p, at)
}

// frame returns room for a frame of size bytes by way of p: of the output, or in the queue of a neighbour that is not
// resolved, whose resolution it starts (RFC 4861 7.2.2).
func (n *Node) frame(p *Path, size int, src wire.Addr) ([]byte, packet.Verdict) {
	if p.Resolved {
		f := n.cfg.Output.Frame(p.Dev, size)
		return f, packet.DropNoFrame
	}
	e := n.byRef(p.Ref)
	if e == nil || !n.startResolution(e, src) {
		return nil, packet.DropNoNeighbor
	}
	return n.enqueue(e, size), packet.DropMemory
}

// dispatch sends the frame that was written last. One in a neighbour's queue is sent by setLinkAddr.
func (n *Node) dispatch(p *Path, size int) packet.Verdict {
	if p.Resolved {
		n.cfg.Output.Send(p.Dev, size)
	}
	return packet.Forward
}

// sendFragments sends a packet that is larger than the path MTU in fragments (RFC 791 3.2, RFC 8200 4.5). All but the last
// have a multiple of 8 bytes of payload, since the offset counts in 8 bytes. A drop in the middle ends the packet: what
// was sent is useless, and the receiver's timer frees it.
func (n *Node) sendFragments(p *Path, h *Header, payload [][]byte, size int) packet.Verdict {
	head, longest := h.headerLen(), maxDatagram
	if h.Dst.Is4() {
		longest -= head // the total length counts the header (RFC 791 3.1)
	} else {
		// The payload length does not count the header (RFC 8200 3), and the whole has no fragment header.
		head += wire.FragmentHeaderLen
	}
	if h.DontFragment || size > longest {
		return packet.DropTooBig
	}
	// One identification for all fragments: the receiver joins them by it.
	g := *h
	if g.Dst.Is4() && g.ID == 0 {
		g.ID = uint16(n.ids.next(h))
	}
	id := uint32(0)
	if !g.Dst.Is4() {
		id = n.ids.next(h)
	}
	most := (n.mtu(p, h.Dst) - head) &^ 7
	in := payloadReader{rest: payload}
	for off := 0; off < size; off += most {
		part := min(most, size-off)
		f, v := n.frame(p, wire.EthernetLen+head+part, h.Src)
		if f == nil {
			return v
		}
		at := p.putFragment(f, &g, id, off, part, off+part < size)
		in.copy(f[at : at+part])
		n.dispatch(p, at+part)
	}
	n.stats.Fragmented++
	return packet.Forward
}

// putFragment writes the headers of a fragment with part bytes from offset off, a multiple of 8: in a fragment header it
// stands above the three low bits, of which the lowest is the M flag (RFC 8200 4.5). id is of IPv6; that of IPv4 is h.ID.
func (p *Path) putFragment(f []byte, h *Header, id uint32, off, part int, more bool) int {
	copy(f, p.Header[:])
	b := f[wire.EthernetLen:]
	if h.Dst.Is4() {
		p.putIP(b, h, h.Proto, part)
		ip := wire.IPv4(b)
		ip.SetFragmentOffset(off)
		ip.SetMoreFragments(more)
		ip.FillChecksum()
		return wire.EthernetLen + wire.IPv4Len
	}
	p.putIP(b, h, wire.ProtoFragment, wire.FragmentHeaderLen+part)
	x := b[wire.IPv6Len:]
	x[0], x[1] = h.Proto, 0
	flags := uint16(off)
	if more {
		flags |= 1
	}
	binary.BigEndian.PutUint16(x[2:], flags)
	binary.BigEndian.PutUint32(x[4:], id)
	return wire.EthernetLen + wire.IPv6Len + wire.FragmentHeaderLen
}

// payloadReader reads a payload that lies in several slices, so that transport header and data need not be joined first.
type payloadReader struct {
	rest [][]byte
	off  int // in the first of them
}

// copy fills b.
func (s *payloadReader) copy(b []byte) {
	for len(b) > 0 {
		k := copy(b, s.rest[0][s.off:])
		b = b[k:]
		if s.off += k; s.off == len(s.rest[0]) {
			s.rest, s.off = s.rest[1:], 0
		}
	}
}

// idCounters generates identifications of packets that may be fragmented (RFC 7739 5.3): a hash of source, destination and
// protocol under a secret key, plus a counter that flows with the same low byte of the hash share. A global counter would
// show each peer how much this host sends to others, and a predictable one lets an attacker inject fragments.
type idCounters struct {
	key   random.Key
	count [256]uint32
}

func (t *idCounters) next(h *Header) uint32 {
	var b [33]byte
	copy(b[:], h.Src[:])
	copy(b[16:], h.Dst[:])
	b[32] = h.Proto
	x := t.key.Sum(b[:])
	c := &t.count[x&0xff]
	*c++
	return uint32(x>>32) + *c
}

// NextID returns an identification for an IPv4 packet that may be fragmented. For one flow it repeats only after 65,536
// packets of its counter: earlier, fragments of two datagrams could be reassembled into one (RFC 4963).
func (n *Node) NextID(h *Header) uint16 { return uint16(n.ids.next(h)) }
