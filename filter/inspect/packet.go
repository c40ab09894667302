package inspect

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// packet is one IP packet, decoded: of a frame, of a tunnel in it, or put together from fragments. Its slices
// alias the frame, so that it is valid only while the frame is inspected: what is kept for longer is copied into
// the flow.
type packet struct {
	src, dst netip.Addr // IPv4 as IPv4-mapped
	v6       bool
	proto    uint8
	bit      signature.IPProtocols
	ttl, tos uint8
	id       uint16
	fragOff  int // in 8 bytes
	fragBits uint8
	whole    bool // no fragment
	joined   bool // put together from fragments

	srcPort, dstPort uint16
	tcp              wire.TCP // nil for others
	icmp             []byte
	payload          []byte
	hasL4            bool

	flow    *flow
	dir     signature.Direction
	depth   int  // tunnels around it
	added   bool // its payload went into a stream
	stateOK bool // the connection is established
}

// maxDepth bounds tunnels inside of one another: each costs a decoding and a flow, and a packet of headers alone could
// have hundreds.
const maxDepth = 4

// PPP protocol numbers of IP, in PPPoE (RFC 2516, RFC 1661).
const (
	pppIPv4 = 0x21
	pppIPv6 = 0x57
)

// frame decodes an Ethernet frame and inspects the IP packets in it. One that is too short for a header is no error of
// a sender: captures cut frames, and Ethernet's minimum of 60 bytes holds only on the wire.
func (e *Engine) frame(b []byte, depth int) {
	if len(b) < wire.EthernetLen {
		return
	}
	e.link(binary.BigEndian.Uint16(b[12:]), b[wire.EthernetLen:], depth)
}

// link inspects what an EtherType says that b is.
func (e *Engine) link(etherType uint16, b []byte, depth int) {
	switch etherType, b = network(etherType, b, depth < maxDepth); etherType {
	case wire.EtherTypeIPv4:
		e.ipv4(b, depth)
	case wire.EtherTypeIPv6:
		e.ipv6(b, depth)
	}
}

// network returns the packet of IP in what an EtherType says that b is, and its EtherType; 0 where there is none. Tags and labels may
// come in any order and number (IEEE 802.1Q, RFC 3032): a packet that was not inspected for one tag more would be a way around
// every rule. bridged says whether Ethernet may follow.
func network(etherType uint16, b []byte, bridged bool) (uint16, []byte) {
	for range 8 { // tags and labels: more are no Ethernet that devices forward, and a loop must end
		switch etherType {
		case wire.EtherTypeIPv4, wire.EtherTypeIPv6:
			return etherType, b
		case wire.EtherTypeVLAN, wire.EtherTypeQinQ, 0x9100:
			if len(b) < wire.VLANLen {
				return 0, nil
			}
			etherType, b = binary.BigEndian.Uint16(b[2:]), b[4:]
		// The session stage of PPPoE (RFC 2516 5): version and type, code (0 is data), session, length, and the protocol of PPP.
		// Addresses of an access network are within it, so that rules have to see them.
		case 0x8864:
			if len(b) < 8 || b[1] != 0 {
				return 0, nil
			}
			switch binary.BigEndian.Uint16(b[6:]) {
			case pppIPv4:
				etherType = wire.EtherTypeIPv4
			case pppIPv6:
				etherType = wire.EtherTypeIPv6
			default:
				return 0, nil
			}
			b = b[8:]
		case 0x8847, 0x8848: // MPLS: labels of four bytes up to the bottom of the stack (RFC 3032 2.1)
			for {
				if len(b) < 5 {
					return 0, nil
				}
				bottom := b[2]&1 != 0
				if b = b[4:]; bottom {
					break
				}
			}
			// No label names the protocol behind the last one. Routers look at the version of IP as well (RFC 4928 3).
			if etherType = wire.EtherTypeIPv4; b[0]>>4 == 6 {
				etherType = wire.EtherTypeIPv6
			}
		case 0x6558: // transparent Ethernet bridging, of GRE and GENEVE
			if !bridged || len(b) < wire.EthernetLen {
				return 0, nil
			}
			etherType, b = binary.BigEndian.Uint16(b[12:]), b[wire.EthernetLen:]
		default:
			return 0, nil
		}
	}
	return 0, nil
}

// ipv4 decodes an IPv4 packet. The packets of all depths lie in the engine: a tunnel is inspected while the packet around it still
// is, and none is allocated.
func (e *Engine) ipv4(b []byte, depth int) {
	ip := wire.IPv4(b)
	if !ip.ValidHeader() || depth > maxDepth {
		e.stats.Malformed++
		return
	}
	p := &e.packets[depth]
	*p = packet4(ip, depth)
	body := b[ip.HeaderLen():end4(ip)]
	if p.whole = !ip.Fragment(); !p.whole {
		e.fragment(p, uint32(ip.ID()), ip.FragmentOffset(), ip.MoreFragments(), body)
		return
	}
	e.transport(p, body)
}

// packet4 returns the fields of an IPv4 header. The flags keep their order of RFC 791 3.1, from the lowest: more
// fragments, do not fragment, reserved.
func packet4(ip wire.IPv4, depth int) packet {
	return packet{
		src: mapped(ip.SrcAddr()), dst: mapped(ip.DstAddr()), proto: ip.Proto(), ttl: ip.TTL(), tos: ip.TOS(), id: ip.ID(), depth: depth,
		fragOff:  ip.FragmentOffset() / 8,
		fragBits: uint8(boolInt(ip.MoreFragments()) | boolInt(ip.DontFragment())<<1 | int(ip[6]>>7)<<2),
	}
}

// end4 returns where an IPv4 packet ends: at the end of its bytes where it was cut by the capture, or is segmented later by a
// device (0).
func end4(ip wire.IPv4) int {
	end := int(ip.TotalLen())
	if end > len(ip) || end < ip.HeaderLen() {
		return len(ip)
	}
	return end
}

// packet6 returns the fields of an IPv6 header, with the protocol behind the extension headers.
func packet6(ip wire.IPv6, proto uint8, depth int) packet {
	return packet{src: ip.SrcAddr(), dst: ip.DstAddr(), v6: true, proto: proto, ttl: ip.HopLimit(), tos: ip.TrafficClass(), depth: depth}
}

// end6 is end4 for IPv6.
func end6(ip wire.IPv6) int {
	end := wire.IPv6Len + int(ip.PayloadLen())
	if end > len(ip) || ip.PayloadLen() == 0 {
		return len(ip)
	}
	return end
}

// ipv6 decodes an IPv6 packet and its extension headers. A fragment header without an offset and without more fragments
// is no fragment: such "atomic" packets are taken as whole ones (RFC 8200 4.5, RFC 6946 4), or each would begin a
// reassembly that nothing continues.
func (e *Engine) ipv6(b []byte, depth int) {
	ip := wire.IPv6(b)
	if !ip.ValidHeader() || depth > maxDepth {
		e.stats.Malformed++
		return
	}
	end := end6(ip)
	proto, off, frag, ok := wire.Upper6(b[:end])
	if !ok || off > end {
		e.stats.Malformed++
		return
	}
	p := &e.packets[depth]
	*p = packet6(ip, proto, depth)
	if p.whole = !frag.Present() || frag.Unfragmented(); !p.whole {
		p.fragOff, p.fragBits = int(frag.Offset)/8, uint8(boolInt(frag.More))
		e.fragment(p, frag.ID, int(frag.Offset), frag.More, b[off:end])
		return
	}
	e.transport(p, b[off:end])
}

// mapped returns an address as IPv6, IPv4-mapped if it is IPv4 (RFC 4291 2.5.5.2): flows and rules then compare one kind.
func mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// transport decodes what IP carries, inspects the packet, and then what a tunnel carries. A header that is not valid
// ends the packet: its receiver discards it as well, so that nothing is missed.
func (e *Engine) transport(p *packet, b []byte) {
	p.payload, p.bit = b, bitOf(p.proto)
	switch p.proto {
	case wire.ProtoTCP:
		t := wire.TCP(b)
		if !t.Valid() {
			e.stats.Malformed++
			return
		}
		p.tcp, p.payload, p.hasL4 = t, t.Payload(), true
		p.srcPort, p.dstPort = t.SrcPort(), t.DstPort()
	case wire.ProtoUDP:
		if len(b) < wire.UDPLen {
			e.stats.Malformed++
			return
		}
		// The length of UDP may be below IP's, and the receiver gets only so much (RFC 768). Above it, or 0 as in a segment that a
		// device cuts later, IP's holds.
		u := wire.UDP(b)
		end := len(b)
		if n := int(u.Len()); n >= wire.UDPLen && n < end {
			end = n
		}
		p.payload, p.hasL4 = b[wire.UDPLen:end], true
		p.srcPort, p.dstPort = u.SrcPort(), u.DstPort()
	case wire.ProtoICMP, wire.ProtoICMPv6:
		if len(b) < wire.ICMPLen {
			e.stats.Malformed++
			return
		}
		p.icmp, p.payload, p.hasL4 = b, b[wire.ICMPLen:], true
	case wire.ProtoSCTP:
		if len(b) >= 12 { // the common header (RFC 9260 3.1); chunks are searched as one payload
			p.srcPort, p.dstPort, p.hasL4 = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), true
			p.payload = b[12:]
		}
	}
	e.inspect(p)
	e.tunnel(p, b)
}

// bitOf returns the bit of a protocol of IP.
func bitOf(proto uint8) signature.IPProtocols {
	switch proto {
	case wire.ProtoTCP:
		return signature.TCP
	case wire.ProtoUDP:
		return signature.UDP
	case wire.ProtoICMP, wire.ProtoICMPv6:
		return signature.ICMP
	case wire.ProtoSCTP:
		return signature.SCTP
	}
	return signature.OtherIP
}

// Ports of tunnels over UDP, as IANA has assigned them.
const (
	portVXLAN  = 4789
	portGENEVE = 6081
	portTeredo = 3544
	portGTPU   = 2152
)

// tunnel inspects the packets that p carries: IP in IP (RFC 2003, RFC 4213 3), GRE (RFC 2784), VXLAN (RFC 7348), GENEVE (RFC 8926),
// Teredo and GTP-U. They have flows of their own, apart by their depth: the same addresses may be used within several tunnels.
func (e *Engine) tunnel(p *packet, b []byte) {
	if p.depth >= maxDepth {
		return
	}
	d := p.depth + 1
	switch p.proto {
	case wire.ProtoIPIP:
		e.ipv4(b, d)
	case wire.ProtoIPv6:
		e.ipv6(b, d)
	case wire.ProtoGRE:
		if g := wire.GRE(b); g.Valid() {
			if g.EtherType() == 0x6558 {
				e.frame(g.Payload(), d)
			} else {
				e.link(g.EtherType(), g.Payload(), d)
			}
		}
	case wire.ProtoUDP:
		e.udpTunnel(p.payload, p.srcPort, p.dstPort, d)
	}
}

// udpTunnel inspects the packet of a tunnel over UDP. The port decides, and a header that fits: a datagram that is none is inspected as
// what it is, too.
func (e *Engine) udpTunnel(b []byte, src, dst uint16, depth int) {
	switch {
	case dst == portVXLAN && wire.VXLAN(b).Valid():
		e.frame(wire.VXLAN(b).Payload(), depth)
	case dst == portGENEVE && wire.Geneve(b).Valid():
		g := wire.Geneve(b)
		if g.EtherType() == 0x6558 {
			e.frame(g.Payload(), depth)
		} else {
			e.link(g.EtherType(), g.Payload(), depth)
		}
	case src == portTeredo || dst == portTeredo: // RFC 4380 5.1.1: origin indication, then IPv6
		if len(b) > 8 && b[0] == 0 && b[1] == 0 {
			b = b[8:]
		}
		if len(b) >= wire.IPv6Len && b[0]>>4 == 6 && wire.IPv6(b).Valid() {
			e.ipv6(b, depth)
		}
	case dst == portGTPU || src == portGTPU: // 3GPP TS 29.281 5.1: version 1, G-PDU
		if len(b) > 8 && b[0]>>5 == 1 && b[1] == 0xff {
			e.gtp(b, depth)
		}
	}
}

// gtp skips the header of a G-PDU: sequence number, N-PDU number and extension headers where a flag says so (3GPP TS 29.281 5.1, 5.2):
//
//	| version 3, PT 1, 0 1, E 1, S 1, PN 1 | type 8 | length 16 | TEID 32 | [sequence 16 | N-PDU 8 | next 8] |
//
// An extension header has its length first, in units of four bytes, and the type of the next one last.
func (e *Engine) gtp(b []byte, depth int) {
	at := 8
	if b[0]&7 != 0 {
		if len(b) < 12 {
			return
		}
		next := b[11]
		at = 12
		for b[0]&4 != 0 && next != 0 {
			if at >= len(b) || b[at] == 0 || at+4*int(b[at]) > len(b) {
				return
			}
			size := 4 * int(b[at])
			next = b[at+size-1]
			at += size
		}
	}
	if at >= len(b) {
		return
	}
	switch b[at] >> 4 {
	case 4:
		e.ipv4(b[at:], depth)
	case 6:
		e.ipv6(b[at:], depth)
	}
}

// number returns the field of a packet that a rule compares; ok is false where the packet has no such field.
func (e *Engine) number(p *packet, f signature.Field) (n uint64, ok bool) {
	switch f {
	case signature.FieldPayloadLen:
		return uint64(len(p.payload)), true
	case signature.FieldTTL:
		return uint64(p.ttl), true
	case signature.FieldTOS:
		return uint64(p.tos), true
	case signature.FieldIPID:
		return uint64(p.id), !p.v6
	case signature.FieldIPProto:
		return uint64(p.proto), true
	case signature.FieldFragOffset:
		return uint64(p.fragOff), true
	case signature.FieldICMPType, signature.FieldICMPCode, signature.FieldICMPID, signature.FieldICMPSeq:
		if p.icmp == nil {
			return 0, false
		}
		switch f {
		case signature.FieldICMPType:
			return uint64(p.icmp[0]), true
		case signature.FieldICMPCode:
			return uint64(p.icmp[1]), true
		case signature.FieldICMPID:
			return uint64(binary.BigEndian.Uint16(p.icmp[4:])), true
		}
		return uint64(binary.BigEndian.Uint16(p.icmp[6:])), true
	}
	if p.tcp == nil {
		return 0, false
	}
	switch f {
	case signature.FieldWindow:
		return uint64(p.tcp.Window()), true
	case signature.FieldSeq:
		return uint64(p.tcp.Seq()), true
	case signature.FieldAck:
		return uint64(p.tcp.Ack()), true
	}
	return 0, false
}

// packetTest reports whether a test of a header holds.
func (e *Engine) packetTest(p *packet, t *signature.PacketTest) bool {
	switch t.Field {
	case signature.FieldFlags:
		return p.tcp != nil && t.Bits.Has(uint8(p.tcp.Flags()))
	case signature.FieldFragBits:
		return t.Bits.Has(p.fragBits)
	case signature.FieldStreamClient, signature.FieldStreamServer, signature.FieldStreamBoth, signature.FieldStreamEither:
		f := p.flow
		if f == nil || p.tcp == nil || !f.sides[0].stream.Started() && !f.sides[1].stream.Started() {
			return false
		}
		c, s := t.Range.Has(f.sequenced(0)), t.Range.Has(f.sequenced(1))
		switch t.Field {
		case signature.FieldStreamClient:
			return c
		case signature.FieldStreamServer:
			return s
		case signature.FieldStreamBoth:
			return c && s
		}
		return c || s
	}
	n, ok := e.number(p, t.Field)
	return ok && t.Range.Has(n)
}
