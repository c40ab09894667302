package stack

import (
	"encoding/binary"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// selector holds the fields of one packet that claims compare. It is made from the bytes of the
// frame, the outermost headers, by the same rules as in the XDP program
// (pmd/afxdp/bpf/steer.c): what cannot be parsed has no selector.
type selector struct {
	datagram // src, dst and proto of every packet; id of fragments

	sport, dport uint16 // of ICMP the type
	hasPorts     bool
	fragment     bool
	rest         bool // a fragment after the first

	neighbor bool    // ARP or neighbour discovery about the address `about`
	quoted   bool    // an ICMP error about a packet that `about` has sent
	about    addrKey //

	quotedProto   uint8
	quotedPort    uint16 // source port of the packet that the error is about
	quotedHasPort bool
}

// mapped returns an IPv4 address as the table has it.
func mapped(a [4]byte) (k addrKey) {
	k[10], k[11] = 0xff, 0xff
	copy(k[12:], a[:])
	return k
}

// maxTags bounds the VLAN tags that are skipped: 802.1ad outside of 802.1Q.
const maxTags = 2

// selectorOf reads the headers of a frame.
func selectorOf(frame []byte) (s selector, ok bool) {
	if !wire.Ethernet(frame).Valid() {
		return s, false
	}
	kind, p := wire.Ethernet(frame).EtherType(), frame[wire.EthernetLen:]
	for range maxTags {
		if !wire.IsTag(kind) {
			break
		}
		if !wire.VLAN(p).Valid() {
			return s, false
		}
		kind, p = wire.VLAN(p).EtherType(), wire.VLAN(p).Payload()
	}
	switch kind {
	case wire.EtherTypeARP:
		if !wire.ARP(p).Valid() {
			return s, false
		}
		s.neighbor, s.about = true, mapped(wire.ARP(p).Target())
		return s, true
	case wire.EtherTypeIPv4:
		return s, s.read4(p)
	case wire.EtherTypeIPv6:
		return s, s.read6(p)
	}
	return s, false
}

// read4 reads an IPv4 packet.
func (s *selector) read4(p []byte) bool {
	q := wire.IPv4(p)
	if !q.ValidHeader() {
		return false
	}
	s.src, s.dst, s.proto = mapped(q.Src()), mapped(q.Dst()), q.Proto()
	s.fragment, s.id = q.Fragment(), uint32(q.ID())
	if s.rest = q.FragmentOffset() != 0; !s.rest {
		s.readTransport(p[q.HeaderLen():])
	}
	return true
}

// read6 reads an IPv6 packet. A chain of extension headers that is cut off or too long
// leaves the protocol unknown (0), so that only claims of the whole address match.
func (s *selector) read6(p []byte) bool {
	q := wire.IPv6(p)
	if !q.ValidHeader() {
		return false
	}
	s.src, s.dst = q.Src(), q.Dst()
	proto, off, frag, ok := wire.Upper6(p)
	if !ok {
		return true
	}
	s.proto, s.fragment, s.id = proto, !frag.Unfragmented(), frag.ID
	if s.rest = !frag.First(); !s.rest {
		s.readTransport(p[off:])
	}
	return true
}

// readTransport reads the ports, or the type of an ICMP message and what it is about.
func (s *selector) readTransport(p []byte) {
	switch {
	case pmd.HasPorts(s.proto) && len(p) >= 4:
		s.sport, s.dport, s.hasPorts = binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]), true
	case s.proto == wire.ProtoICMP && wire.ICMP(p).Valid():
		s.sport, s.dport, s.hasPorts = uint16(p[0]), uint16(p[0]), true
		if wire.ICMP(p).Error() {
			s.readQuote4(wire.ICMP(p).Payload())
		}
	case s.proto == wire.ProtoICMPv6 && wire.ICMPv6(p).Valid():
		s.sport, s.dport, s.hasPorts = uint16(p[0]), uint16(p[0]), true
		s.readICMPv6(p)
	}
}

// readICMPv6 reads what a message is about: a neighbour (RFC 4861), or the packet that
// it quotes.
func (s *selector) readICMPv6(p []byte) {
	switch {
	case wire.NeighborSolicit(p).Valid():
		s.neighbor, s.about = true, wire.NeighborSolicit(p).Target()
	case p[0] == wire.ICMPv6NeighborAdvert:
		s.neighbor, s.about = true, s.dst // the answer to a solicitation from dst
	case p[0] >= wire.ICMPv6RouterSolicit && p[0] <= wire.ICMPv6Redirect:
		s.proto = 0 // no claim of ICMPv6 is meant for discovery, only one of the whole address
	case wire.ICMPv6(p).Error():
		q := wire.IPv6(wire.ICMPv6(p).Payload())
		if !q.ValidHeader() {
			return
		}
		if proto, off, frag, ok := wire.Upper6(q); ok && frag.First() {
			s.quote(q.Src(), proto, q[off:])
		}
	}
}

// readQuote4 reads the start of the IPv4 packet that an ICMP error is about.
func (s *selector) readQuote4(p []byte) {
	q := wire.IPv4(p)
	if q.ValidHeader() && q.FragmentOffset() == 0 {
		s.quote(mapped(q.Src()), q.Proto(), q[q.HeaderLen():])
	}
}

// quote notes the sender of a quoted packet. RFC 792 promises 8 bytes behind the IP
// header: the ports.
func (s *selector) quote(src addrKey, proto uint8, l4 []byte) {
	s.quoted, s.about, s.quotedProto = true, src, proto
	if pmd.HasPorts(proto) && len(l4) >= 2 {
		s.quotedPort, s.quotedHasPort = binary.BigEndian.Uint16(l4), true
	}
}
