// Package segment cuts large packets into segments in software, for drivers whose receiving side is given packets that a
// device would have cut (TSO, USO) and whose own device does not.
package segment

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// MaxHeaders is the room in bytes for the headers of a segment: Ethernet (14), two VLAN tags (8), IPv4 with options (60) or
// IPv6 (40) with extension headers, TCP with options (60). A large packet with more is invalid.
const MaxHeaders = 256

// Layout holds the offsets of a packet's parts, bytes from its first.
type Layout struct {
	Network, Transport, Payload int
}

// Cutter cuts one large packet at a time into segments. GRO merged the packet under the rules by which it is cut, so cutting
// restores what the sender sent. The zero value has no packet.
type Cutter struct {
	Layout
	data  []byte           // the packet, borrowed; nil while there is none
	head  [MaxHeaders]byte // headers of the current segment
	mss   int
	size  int // bytes of payload of each segment but the last: mss, or those of a piece
	proto uint8
	at    int // offset of the current segment's payload in the packet's
}

// Start prepares to cut data, which the cutter borrows until the last segment, into segments of mss bytes of payload. gso is
// the kind of large packet (packet.GSOTCPv4 ...). Start reports false when the headers contradict it: they are
// parsed, because lengths and offsets beside a packet are the sender's claim.
func (c *Cutter) Start(data []byte, gso uint8, mss int) bool {
	c.Stop()
	if mss <= 0 || !c.parse(data, gso&^packet.GSOECN) {
		return false
	}
	c.data, c.mss, c.size, c.at = data, mss, mss, 0
	return true
}

// Widen makes each segment a piece of several times mss bytes, which the sending device cuts: as many whole segments as
// most bytes hold behind the headers, one at least. It is called between Start and the first Build.
func (c *Cutter) Widen(most int) { c.size = max(1, (most-c.Payload)/c.mss) * c.mss }

// Active reports whether there is a current segment.
func (c *Cutter) Active() bool { return c.data != nil }

// Stop forgets the packet.
func (c *Cutter) Stop() { c.data = nil }

// First reports whether the current segment is the packet's first.
func (c *Cutter) First() bool { return c.at == 0 }

// MSS returns the bytes of payload that the sender put into a segment.
func (c *Cutter) MSS() int { return c.mss }

// Size returns the bytes of payload of each segment but the last: MSS, or more after Widen.
func (c *Cutter) Size() int { return c.size }

// Segments returns the number of segments of the whole packet.
func (c *Cutter) Segments() int { return packet.Segments(len(c.data)-c.Payload, c.size) }

// Next goes to the next segment. After the last one the cutter is no longer active.
func (c *Cutter) Next() {
	if c.at += c.size; c.Payload+c.at >= len(c.data) {
		c.Stop()
	}
}

// parse finds the headers of a packet and reports whether they are those of the kind gso, with payload behind them.
func (c *Cutter) parse(data []byte, gso uint8) bool {
	etherType, l3, ok := wire.Network(data)
	if !ok {
		return false
	}
	l4, tcp := 0, uint8(packet.GSOTCPv4)
	switch ip := data[l3:]; etherType {
	case wire.EtherTypeIPv4:
		if !largeHeader4(ip) {
			return false
		}
		l4, c.proto = l3+wire.IPv4(ip).HeaderLen(), wire.IPv4(ip).Proto()
	case wire.EtherTypeIPv6:
		proto, off, _, ok := wire.Upper6(ip)
		if !ok {
			return false
		}
		l4, c.proto, tcp = l3+off, proto, packet.GSOTCPv6
	default:
		return false
	}
	header := 0
	switch b := data[l4:]; {
	case gso == packet.GSOUDP && c.proto == wire.ProtoUDP && len(b) >= wire.UDPLen:
		header = wire.UDPLen
	case gso == tcp && c.proto == wire.ProtoTCP && wire.TCP(b).Valid():
		header = wire.TCP(b).DataOffset()
	}
	c.Layout = Layout{Network: l3, Transport: l4, Payload: l4 + header}
	return header > 0 && c.Payload < len(data) && c.Payload <= MaxHeaders
}

// largeHeader4 reports whether the IPv4 header of a large packet is usable. Beyond 64 KiB its total length is 0.
func largeHeader4(b []byte) bool {
	ip := wire.IPv4(b)
	return ip.ValidHeader() || len(b) >= wire.IPv4Len && b[0]-0x45 <= 10 && ip.HeaderLen() <= len(b) && ip.TotalLen() == 0
}

// Build makes the headers of the current segment and returns them and its payload, both borrowed until the next call.
func (c *Cutter) Build() (head, payload []byte) {
	rest := c.data[c.Payload+c.at:]
	payload = rest[:min(len(rest), c.size)]
	head = c.head[:c.Payload]
	copy(head, c.data)
	pseudo := c.network(head[c.Network:], len(payload))
	if c.proto == wire.ProtoTCP {
		c.tcp(wire.TCP(head[c.Transport:]), len(payload) == len(rest))
	} else {
		wire.UDP(head[c.Transport:]).SetLen(uint16(wire.UDPLen + len(payload)))
	}
	c.checksum(head[c.Transport:], payload, pseudo)
	return head, payload
}

// network sets what differs between the IP headers of the segments, and returns the sum of the pseudo-header. IPv4
// identifications count up, as Linux does it, so that fragments of different segments are never reassembled into one
// (RFC 6864). IPv6 has none outside of a fragment header, which a large packet never has.
func (c *Cutter) network(ip []byte, payload int) uint32 {
	transport := c.Payload - c.Transport + payload
	if v4 := wire.IPv4(ip); v4.Version() == 4 {
		v4.SetTotalLen(uint16(c.Transport - c.Network + transport))
		v4.SetID(v4.ID() + uint16(c.at/c.mss))
		v4.FillChecksum()
		return wire.PseudoHeader4(v4.Src(), v4.Dst(), c.proto, uint32(transport))
	}
	v6 := wire.IPv6(ip)
	v6.SetPayloadLen(uint16(c.Transport - c.Network - wire.IPv6Len + transport))
	return wire.PseudoHeader6(v6.Src(), v6.Dst(), c.proto, uint32(transport))
}

// tcp sets what differs between the TCP headers: FIN and PSH belong to the last byte, CWR to the first packet after a
// reduction (RFC 3168 6.1.2).
func (c *Cutter) tcp(h wire.TCP, last bool) {
	h.SetSeq(h.Seq() + uint32(c.at))
	f := h.Flags()
	if !last {
		f &^= wire.FlagFIN | wire.FlagPSH
	}
	if c.at > 0 {
		f &^= wire.FlagCWR
	}
	h.SetFlags(f)
}

// checksum fills in the transport checksum of a segment (RFC 9293 3.1, RFC 768): it is at byte 16 of a TCP header and at
// byte 6 of a UDP header. Header and payload are summed apart, which the header's even length permits. The
// checksum of a piece is left to the device that sends it: the field has the sum of the pseudo-header, not complemented
// (packet.Offload).
func (c *Cutter) checksum(transport, payload []byte, pseudo uint32) {
	field := transport[6:]
	if c.proto == wire.ProtoTCP {
		field = transport[16:]
	}
	if len(payload) > c.mss {
		binary.BigEndian.PutUint16(field, ^wire.Fold(pseudo))
		return
	}
	binary.BigEndian.PutUint16(field, 0)
	sum := wire.Sum(payload, wire.Sum(transport, pseudo))
	binary.BigEndian.PutUint16(field, wire.UDPChecksum(wire.Fold(sum)))
}
