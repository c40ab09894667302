package netsim

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Packet is an IP packet on its way.
type Packet struct {
	Bytes   []byte // from the IP header on
	From    wire.Addr
	Corrupt bool // bits of it were flipped on the way

	to   wire.Addr
	hops []*Pipe // still to be passed
	side *side   // as the monitor knows the sender
}

// packet returns an empty packet.
func (n *Net) packet(from wire.Addr) *Packet {
	if k := len(n.free); k > 0 {
		p := n.free[k-1]
		n.free = n.free[:k-1]
		*p = Packet{Bytes: p.Bytes[:0], From: from}
		return p
	}
	return &Packet{Bytes: make([]byte, 0, 2048), From: from}
}

func (n *Net) release(p *Packet) { n.free = append(n.free, p) }

func (n *Net) copy(p *Packet) *Packet {
	q := n.packet(p.From)
	q.Bytes = append(q.Bytes, p.Bytes...)
	q.Corrupt, q.to, q.hops, q.side = p.Corrupt, p.to, p.hops, p.side
	return q
}

const defaultTTL = 64

// AppendIP appends an IP header for payload bytes of TCP that follow; IPv4 or IPv6 as the tuple's
// addresses are. The tuple is the sender's.
func AppendIP(b []byte, t *wire.Tuple, payload int, ecn wire.ECN, ttl uint8) []byte {
	if ttl == 0 {
		ttl = defaultTTL
	}
	if t.Local.Is4() {
		return wire.AppendIPv4(b, &wire.IPv4Header{
			Src: t.Local.As4(), Dst: t.Remote.As4(), Proto: wire.ProtoTCP, TTL: ttl,
			TOS: uint8(ecn), DontFragment: true, PayloadLen: payload,
		})
	}
	return wire.AppendIPv6(b, &wire.IPv6Header{
		Src: t.Local, Dst: t.Remote, NextHeader: wire.ProtoTCP, HopLimit: ttl,
		TrafficClass: uint8(ecn), PayloadLen: payload,
	})
}

// Pseudo returns the sum of the pseudo header for a TCP segment of n bytes.
func Pseudo(t *wire.Tuple, n int) uint32 {
	return wire.PseudoHeader(t.Local, t.Remote, wire.ProtoTCP, uint32(n))
}

// Parse reads an IP packet with a TCP segment as a host does that trusts nothing: t is the flow as
// the receiver sees it. The segment borrows b. The verdict is Deliver or the reason not to.
func Parse(b []byte) (t wire.Tuple, seg wire.TCP, ecn wire.ECN, v packet.Verdict) {
	var body []byte
	var sum uint32
	switch wire.Version(b) {
	case 4:
		h := wire.IPv4(b)
		switch {
		case !h.Valid():
			return t, nil, 0, packet.DropMalformed
		case !h.ChecksumOK():
			return t, nil, 0, packet.DropIPChecksum
		case h.Fragment():
			return t, nil, 0, packet.DropFragment
		case h.Proto() != wire.ProtoTCP:
			return t, nil, 0, packet.DropUnsupported
		}
		t.Local, t.Remote = wire.AddrFrom4(h.Dst()), wire.AddrFrom4(h.Src())
		body, sum, ecn = h.Payload(), h.Pseudo(), h.ECN()
	case 6:
		h := wire.IPv6(b)
		if !h.Valid() {
			return t, nil, 0, packet.DropMalformed
		}
		if h.NextHeader() != wire.ProtoTCP {
			return t, nil, 0, packet.DropUnsupported
		}
		t.Local, t.Remote = h.Dst(), h.Src()
		body, ecn = h.Payload(), h.ECN()
		sum = wire.PseudoHeader6(h.Src(), h.Dst(), wire.ProtoTCP, uint32(len(body)))
	default:
		return t, nil, 0, packet.DropMalformed
	}
	seg = wire.TCP(body)
	if !seg.Valid() {
		return t, nil, ecn, packet.DropMalformed
	}
	if !seg.ChecksumOK(sum) {
		return t, nil, ecn, packet.DropL4Checksum
	}
	t.LocalPort, t.RemotePort = seg.DstPort(), seg.SrcPort()
	return t, seg, ecn, packet.Deliver
}
