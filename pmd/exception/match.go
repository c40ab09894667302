package exception

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// Matcher decides which packets rules claim. It is the steering program of package afxdp in Go, and agrees with it packet
// for packet. It is immutable: several queues read one.
type Matcher struct {
	to, from map[netip.Addr][]pmd.Rule // by the address of the rule, without prefixes
	prefixes []pmd.Rule
	neighbor map[netip.Addr]bool
	keep     map[netip.Addr]bool
}

// NewMatcher returns a matcher of rules, or an error for one whose fields contradict each other.
func NewMatcher(rules ...pmd.Rule) (*Matcher, error) {
	m := &Matcher{
		to: map[netip.Addr][]pmd.Rule{}, from: map[netip.Addr][]pmd.Rule{},
		neighbor: map[netip.Addr]bool{}, keep: map[netip.Addr]bool{},
	}
	for _, r := range rules {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("rule %v: %w", r, err)
		}
		r.Addr = r.Addr.Unmap()
		r.PortHi = max(r.PortLo, r.PortHi)
		switch {
		case r.Kind == pmd.Neighbor:
			m.neighbor[r.Addr] = true
		case r.Kind == pmd.Keep:
			m.keep[r.Addr] = true
		case r.Kind == pmd.From:
			m.from[r.Addr] = append(m.from[r.Addr], r)
		case r.Bits != 0:
			m.prefixes = append(m.prefixes, r)
		default:
			m.to[r.Addr] = append(m.to[r.Addr], r)
		}
	}
	return m, nil
}

// Claims reports whether a rule claims the packet that begins with p. It reads headers only.
func (m *Matcher) Claims(p []byte) bool {
	f, ok := parse(p)
	if !ok {
		return false
	}
	if f.neighbor.IsValid() && m.neighbor[f.neighbor] || f.meets(m.to[f.dst], f.dstPort) {
		return true
	}
	if m.keep[f.dst] { // the kernel's own address: only a rule for it takes its packets
		return false
	}
	if f.meets(m.from[f.src], f.srcPort) {
		return true
	}
	for i := range m.prefixes {
		if r := &m.prefixes[i]; f.proto == int(r.Proto) && !f.discovery() && netip.PrefixFrom(r.Addr, int(r.Bits)).Contains(f.dst) {
			return true
		}
	}
	return false
}

// unknown stands for a protocol or port that a packet does not have, or that is not in its first bytes.
const unknown = -1

// flow holds the fields of a packet that rules compare.
type flow struct {
	src, dst         netip.Addr
	neighbor         netip.Addr // whom a message of ARP or neighbour discovery concerns; invalid: it is none
	proto            int
	srcPort, dstPort int  // or ICMP's type, in both
	laterFragment    bool // not the first of its packet
	l3, l4           int  // offsets in the packet; l4 is 0 where there is no transport header
}

// discovery reports whether the packet is a message of neighbour discovery (RFC 4861 4), which ICMPv6 rules never claim.
func (f *flow) discovery() bool {
	return f.proto == int(wire.ProtoICMPv6) && f.dstPort >= 133 && f.dstPort <= 137
}

// meets reports whether a rule for an address of the packet claims it, by its protocol and the port beside that address.
func (f *flow) meets(rules []pmd.Rule, port int) bool {
	for i := range rules {
		r := &rules[i]
		switch {
		case r.Proto == 0:
			return true
		case f.proto != int(r.Proto) || f.discovery():
		case r.LaterFragments:
			if f.laterFragment {
				return true
			}
		case r.PortHi == 0 || port >= int(r.PortLo) && port <= int(r.PortHi):
			return true
		}
	}
	return false
}

// parse reads the headers of a frame. It reports false for what no rule can name.
func parse(p []byte) (flow, bool) {
	f := flow{proto: unknown, srcPort: unknown, dstPort: unknown}
	const header, tag = 14, 4
	if len(p) < header {
		return f, false
	}
	kind := binary.BigEndian.Uint16(p[12:])
	f.l3 = header
	for tags := 0; tags < 2 && (kind == wire.EtherTypeVLAN || kind == wire.EtherTypeQinQ); tags++ {
		if len(p) < f.l3+tag {
			return f, false
		}
		kind = binary.BigEndian.Uint16(p[f.l3+2:])
		f.l3 += tag
	}
	switch n := p[f.l3:]; kind {
	case wire.EtherTypeARP:
		// Ethernet and IPv4 (RFC 826); the target protocol address is at byte 24.
		if len(n) < 28 || string(n[:6]) != "\x00\x01\x08\x00\x06\x04" {
			return f, false
		}
		f.neighbor = netip.AddrFrom4([4]byte(n[24:]))
		return f, true
	case wire.EtherTypeIPv4:
		return f, f.parse4(n)
	case wire.EtherTypeIPv6:
		return f, f.parse6(n)
	}
	return f, false
}

// parse4 reads an IPv4 header (RFC 791 3.1) and what is behind it.
func (f *flow) parse4(n []byte) bool {
	if len(n) < wire.IPv4Len || n[0]>>4 != 4 {
		return false
	}
	size := int(n[0]&15) * 4
	if size < wire.IPv4Len || size > len(n) {
		return false
	}
	f.src, f.dst, f.proto = netip.AddrFrom4([4]byte(n[12:])), netip.AddrFrom4([4]byte(n[16:])), int(n[9])
	if f.laterFragment = binary.BigEndian.Uint16(n[6:])&0x1fff != 0; !f.laterFragment {
		f.parsePorts(n[size:], f.l3+size)
	}
	return true
}

// parsePorts reads the ports, or ICMP's type, of a transport header at an offset of the packet.
func (f *flow) parsePorts(t []byte, at int) {
	f.l4 = at
	switch {
	case f.proto <= 255 && pmd.HasPorts(uint8(f.proto)) && len(t) >= 4:
		f.srcPort, f.dstPort = int(binary.BigEndian.Uint16(t)), int(binary.BigEndian.Uint16(t[2:]))
	case f.proto <= 255 && pmd.HasTypes(uint8(f.proto)) && len(t) >= 1:
		f.srcPort, f.dstPort = int(t[0]), int(t[0])
	}
}

// mostExtensions limits the extension headers that parse6 walks, as the program in the kernel does.
const mostExtensions = 6

// parse6 reads an IPv6 header and its extension headers (RFC 8200 4): hop-by-hop options 0, routing 43, fragment 44,
// authentication 51 (RFC 4302 2.2), destination options 60.
func (f *flow) parse6(n []byte) bool {
	if len(n) < wire.IPv6Len || n[0]>>4 != 6 {
		return false
	}
	f.src, f.dst = netip.AddrFrom16([16]byte(n[8:])).Unmap(), netip.AddrFrom16([16]byte(n[24:])).Unmap()
	next, at := int(n[6]), wire.IPv6Len
	for range mostExtensions + 1 {
		p := n[min(at, len(n)):]
		size, need := 0, 4
		switch {
		case next == 0 || next == 43 || next == 60:
			if len(p) >= 2 {
				size = (int(p[1]) + 1) * 8
			}
		case next == 51:
			if len(p) >= 2 {
				size = (int(p[1]) + 2) * 4
			}
		case next == 44:
			size, need = 8, 8
		default:
			f.proto = next
			f.parsePorts(p, f.l3+at)
			f.parseDiscovery(p)
			return true
		}
		if len(p) < need {
			return true
		}
		if next == 44 && binary.BigEndian.Uint16(p[2:])&0xfff8 != 0 {
			f.proto, f.laterFragment = int(p[0]), true
			return true
		}
		next, at = int(p[0]), at+size
	}
	return true
}

// parseDiscovery finds whom a neighbour solicitation or advertisement concerns (RFC 4861 4.3, 4.4): the target is who has
// to answer the first, and the destination of the second has asked.
func (f *flow) parseDiscovery(t []byte) {
	const solicitation, advertisement = 135, 136
	if f.proto != int(wire.ProtoICMPv6) || len(t) < 24 {
		return
	}
	switch t[0] {
	case solicitation:
		f.neighbor = netip.AddrFrom16([16]byte(t[8:])).Unmap()
	case advertisement:
		f.neighbor = f.dst
	}
}

// completeChecksum completes the TCP or UDP checksum of a packet whose sender has left it to its device
// (pmd.CapPartialChecksums): the kernel would drop the packet otherwise. The field has the sum of the pseudo-header then
// (CHECKSUM_PARTIAL).
func completeChecksum(p []byte) {
	f, ok := parse(p)
	if !ok || f.l4 == 0 {
		return
	}
	field := f.l4 + 16 // RFC 9293 3.1
	switch f.proto {
	case int(wire.ProtoTCP):
	case int(wire.ProtoUDP):
		field = f.l4 + 6 // RFC 768
	default:
		return
	}
	var n int
	var pseudo uint32
	if ip := p[f.l3:]; f.dst.Is4() {
		n = int(binary.BigEndian.Uint16(ip[2:])) - (f.l4 - f.l3)
		pseudo = wire.PseudoHeader4(f.src.As4(), f.dst.As4(), uint8(f.proto), uint32(n))
	} else {
		n = int(binary.BigEndian.Uint16(ip[4:])) + wire.IPv6Len - (f.l4 - f.l3)
		pseudo = wire.PseudoHeader6(f.src.As16(), f.dst.As16(), uint8(f.proto), uint32(n))
	}
	if n < 0 || field+2 > f.l4+n || f.l4+n > len(p) || binary.BigEndian.Uint16(p[field:]) != ^wire.Fold(pseudo) {
		return
	}
	// The field is a part of the sum.
	binary.BigEndian.PutUint16(p[field:], wire.UDPChecksum(wire.Fold(wire.Sum(p[f.l4:f.l4+n], 0))))
}
