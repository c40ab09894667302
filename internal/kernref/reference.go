// Package kernref is what the engines of package gpukern are compared with: the header pass in the most
// obvious way there is, packet by packet and bit by bit (Reference), golden vectors as text, and generators
// of packets, rules and routes. Tests and the commands that verify an engine use it; nothing on a
// packet's way does.
package kernref

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Lists are tables that are not compiled: what Reference scans from the front.
type Lists struct {
	Rules   []acl.Rule
	Routes  []lpm.Route
	HashKey [40]byte // all zeros is gpukern.DefaultHashKey

	Literals   Patterns
	MatchLimit int               // as in Config
	Streams    map[string][]byte // what each direction of a flow has sent, by its addresses, ports and protocol; nil is none

	Flows *Flows // nil is no flow table
}

// Reference does the header pass over b as an engine with ops and with the tables compiled from l
// does, in the most obvious way there is: one packet at a time, bit by bit, rule by rule. It shares
// no function with the fast form: headers are read by the views of package wire, checksums added up by
// wire.SumPlain. Every engine is compared with it; nothing else should use it.
func Reference(b *packet.Batch, ops gpukern.Ops, l Lists) {
	if l.HashKey == [40]byte{} {
		l.HashKey = gpukern.DefaultHashKey
	}
	b.Matches = b.Matches[:0]
	for i := 0; i < len(b.D); {
		first := i
		all := append([]byte(nil), b.Bytes(i)...)
		for ; b.D[i].Flags&packet.FlagMore != 0 && i+1 < len(b.D); i++ {
			all = append(all, b.Bytes(i+1)...)
		}
		i++
		r := look(b.Bytes(first), all, ops&gpukern.OpL2Encap != 0)
		r.offload = b.D[first].Flags&packet.FlagOffload != 0
		if r.flags&packet.FlagMalformed != 0 {
			r.l4, r.payload, r.src, r.dst = 0, 0, netip.Addr{}, netip.Addr{}
		}
		for k := first; k < i; k++ {
			d := &b.D[k]
			*d = packet.Desc{
				Off: d.Off, Len: d.Len, Port: d.Port, Stamp: d.Stamp,
				Flow: d.Flow, Verdict: d.Verdict, Flags: d.Flags & (packet.FlagMore | packet.FlagOffload),
			}
		}
		r.store(&b.D[first], ops|gpukern.OpParse, l)
		if ops&gpukern.OpLiterals != 0 {
			r.literals(b, first, ops, l)
		}
	}
}

// anywhere is beyond the end of every packet.
const anywhere = 1 << 30

// packetView holds the fields of a packet that the reference reads.
type packetView struct {
	captured, all []byte
	flags         packet.Flags
	proto         uint8
	l3            int
	next          int // offset of what the last IP header names; 0 where it was not reached
	l4, payload   int
	end           int        // where IP says that it ends; 0 where IP is not known
	src, dst      netip.Addr // not valid where IP is not known
	l2encap       bool       // headers of MPLS and PPPoE are skipped
	offload       bool       // the sending device makes the transport checksum
	sport, dport  uint32     // noPort where there are none
}

// store writes what was found, as far as ops ask for it.
func (r *packetView) store(d *packet.Desc, ops gpukern.Ops, l Lists) {
	d.L3, d.L4, d.Payload = uint8(r.l3), uint16(r.l4), uint16(r.payload)
	d.Flags |= r.flags
	d.Proto = r.proto
	if ops&gpukern.OpChecksum != 0 {
		d.Flags |= r.checksums()
	}
	if ops&gpukern.OpFlow != 0 && l.Flows != nil {
		d.Flow = 0
	}
	if !r.src.IsValid() {
		return
	}
	if ops&gpukern.OpFlow != 0 && l.Flows != nil {
		d.Flow = l.Flows.see(r.flow())
	}
	if ops&gpukern.OpHash != 0 {
		d.Hash = Toeplitz(l.HashKey[:], r.ends())
	}
	if ops&gpukern.OpACL != 0 {
		d.Rule = r.query().Rule(l.Rules)
	}
	if ops&gpukern.OpLPM != 0 {
		d.NextHop = ScanRoutes(l.Routes, r.dst)
	}
}

// look reads the headers of a packet.
func look(captured, all []byte, l2encap bool) *packetView {
	r := &packetView{captured: captured, all: all, l2encap: l2encap, sport: noPort, dport: noPort}
	r.ethernet()
	return r
}

// ethernet reads an Ethernet header and its tags.
func (r *packetView) ethernet() {
	if !r.within(0, wire.EthernetLen, anywhere) {
		return
	}
	ether := wire.Ethernet(r.captured).EtherType()
	at := wire.EthernetLen
	for tags := 0; tags < 2 && (ether == wire.EtherTypeVLAN || ether == wire.EtherTypeQinQ); tags++ {
		r.flags |= packet.FlagVLAN
		if !r.within(at, 4, anywhere) {
			return
		}
		ether = wire.VLAN(r.captured[at:]).EtherType()
		at += 4
	}
	if r.l2encap && ether == wire.EtherTypePPPoE {
		r.pppoe(at)
		return
	}
	if r.l2encap && (ether == wire.EtherTypeMPLS || ether == wire.EtherTypeMPLSUpstream) {
		r.mpls(at, ether)
		return
	}
	r.network(at, ether)
}

// pppoe reads a PPPoE session header and the PPP protocol behind it: RFC 2516 4.
func (r *packetView) pppoe(at int) {
	if !r.within(at, 8, anywhere) {
		return
	}
	switch string(r.captured[at:at+2]) + string(r.captured[at+6:at+8]) {
	case "\x11\x00\x00\x21":
		r.network(at+8, wire.EtherTypeIPv4)
	case "\x11\x00\x00\x57":
		r.network(at+8, wire.EtherTypeIPv6)
	default:
		r.network(at, wire.EtherTypePPPoE)
	}
}

// mpls reads a label stack: RFC 3032 2.1.
func (r *packetView) mpls(at int, ether uint16) {
	for n := 1; n <= 8; n++ {
		if !r.within(at, 4*n+1, anywhere) {
			return
		}
		entry := binary.BigEndian.Uint32(r.captured[at+4*n-4:])
		if bottom := entry&0x100 != 0; bottom {
			version := wire.Version(r.captured[at+4*n:])
			if version == 4 {
				r.network(at+4*n, wire.EtherTypeIPv4)
				return
			}
			if version == 6 {
				r.network(at+4*n, wire.EtherTypeIPv6)
				return
			}
			break
		}
	}
	r.network(at, ether)
}

// network reads what an Ethernet type names, at an offset.
func (r *packetView) network(at int, ether uint16) {
	r.l3 = at
	here := r.captured[min(at, len(r.captured)):]
	switch ether {
	case wire.EtherTypeIPv4:
		r.look4(wire.IPv4(here))
	case wire.EtherTypeIPv6:
		r.look6(wire.IPv6(here))
	}
}

// look4 reads an IPv4 header: RFC 791 3.1.
func (r *packetView) look4(ip wire.IPv4) {
	if len(ip) > 0 && (ip.Version() != 4 || ip.HeaderLen() < wire.IPv4Len) {
		r.flags |= packet.FlagMalformed
		return
	}
	if len(ip) >= wire.IPv4Len && int(ip.TotalLen()) < ip.HeaderLen() {
		r.flags |= packet.FlagMalformed
		return
	}
	if len(ip) < wire.IPv4Len || len(ip) < ip.HeaderLen() {
		r.flags |= packet.FlagTruncated
		return
	}
	r.flags |= packet.FlagIPv4
	if len(ip.Options()) > 0 {
		r.flags |= packet.FlagOptions
	}
	r.src, r.dst, r.proto = ip.SrcAddr(), ip.DstAddr(), ip.Proto()
	r.bound(r.l3 + int(ip.TotalLen()))
	if ip.MoreFragments() || ip.FragmentOffset() != 0 {
		r.flags |= packet.FlagFragment
	}
	if ip.FragmentOffset() != 0 {
		r.flags |= packet.FlagFragmentRest
		return
	}
	r.upper(r.l3 + ip.HeaderLen())
}

// bound takes note of where IP says that the packet ends.
func (r *packetView) bound(end int) {
	r.end = end
	if end > len(r.all) {
		r.flags |= packet.FlagTruncated
	}
}

// look6 reads an IPv6 header and its extension headers: RFC 8200 3 and 4.
func (r *packetView) look6(ip wire.IPv6) {
	if len(ip) > 0 && ip.Version() != 6 {
		r.flags |= packet.FlagMalformed
		return
	}
	if len(ip) < wire.IPv6Len {
		r.flags |= packet.FlagTruncated
		return
	}
	r.flags |= packet.FlagIPv6
	r.src, r.dst, r.proto = ip.SrcAddr(), ip.DstAddr(), ip.NextHeader()
	r.bound(r.l3 + wire.IPv6Len + int(ip.PayloadLen()))
	at := r.l3 + wire.IPv6Len
	for seen := 0; ; seen++ {
		length, ok := r.extensionAt(at, seen)
		if !ok {
			return
		}
		if length == 0 {
			break
		}
		if r.proto == wire.ProtoFragment && r.fragment(r.captured[at:]) {
			r.proto = r.captured[at]
			return
		}
		r.proto = r.captured[at]
		at += length
	}
	if r.proto != wire.ProtoNone {
		r.upper(at)
	}
}

// extensionAt returns the length of the extension header at, 0 where r.proto is none, and false
// where the walk ends there.
func (r *packetView) extensionAt(at, seen int) (int, bool) {
	switch r.proto {
	case wire.ProtoHopByHop, wire.ProtoRouting, wire.ProtoFragment, wire.ProtoDestOpts, wire.ProtoAH, wire.ProtoMobility:
	default:
		return 0, true
	}
	r.flags |= packet.FlagOptions
	if seen == wire.MaxExtHeaders || r.proto == wire.ProtoHopByHop && seen > 0 {
		r.flags |= packet.FlagMalformed
		return 0, false
	}
	if !r.holds(at, 8) {
		return 0, false
	}
	length := 8 * (1 + int(r.captured[at+1]))
	if r.proto == wire.ProtoFragment {
		length = 8
	}
	if r.proto == wire.ProtoAH {
		length = 4 * (2 + int(r.captured[at+1]))
	}
	return length, r.holds(at, length)
}

// holds reports whether n bytes at an offset belong to the IP packet and were captured, and flags
// what is wrong where not.
func (r *packetView) holds(at, n int) bool { return r.within(at, n, r.end) }

// within is holds for what ends at end.
func (r *packetView) within(at, n, end int) bool {
	if at+n > end {
		r.flags |= packet.FlagMalformed
		return false
	}
	if at+n > len(r.captured) {
		r.flags |= packet.FlagTruncated
		return false
	}
	return true
}

// fragment reads a fragment header (RFC 8200 4.5) and reports whether the transport header is in
// another fragment.
func (r *packetView) fragment(h []byte) bool {
	offset, more := int(h[2])<<5|int(h[3])>>3, h[3]&1 == 1
	if offset > 0 || more {
		r.flags |= packet.FlagFragment
	}
	if offset > 0 {
		r.flags |= packet.FlagFragmentRest
	}
	return offset > 0
}

// upper reads the transport header at an offset.
func (r *packetView) upper(at int) {
	r.next = at
	var header int
	switch {
	case r.proto == wire.ProtoTCP:
		header = 20
	case r.proto == wire.ProtoUDP,
		r.proto == wire.ProtoICMP && r.flags&packet.FlagIPv4 != 0,
		r.proto == wire.ProtoICMPv6 && r.flags&packet.FlagIPv6 != 0:
		header = 8
	case r.proto == wire.ProtoSCTP:
		header = 12
	default:
		if at < r.end && at < len(r.captured) {
			r.l4 = at
		}
		return
	}
	if !r.holds(at, header) {
		return
	}
	h := r.captured[at:]
	switch r.proto {
	case wire.ProtoTCP:
		header = wire.TCP(h).DataOffset()
		if header < 20 {
			r.flags |= packet.FlagMalformed
			return
		}
		if !r.holds(at, header) {
			return
		}
	case wire.ProtoUDP:
		length := int(wire.UDP(h).Len())
		whole := r.flags&packet.FlagFragment == 0
		if length < 8 || whole && at+length > r.end {
			r.flags |= packet.FlagMalformed
			return
		}
	}
	r.l4, r.payload = at, at+header
	if r.proto != wire.ProtoICMP && r.proto != wire.ProtoICMPv6 {
		r.sport = uint32(h[0])<<8 | uint32(h[1])
		r.dport = uint32(h[2])<<8 | uint32(h[3])
	}
}

// checksums returns the flags of the checksums that are right.
func (r *packetView) checksums() packet.Flags {
	var f packet.Flags
	if r.flags&packet.FlagIPv4 != 0 {
		ip := wire.IPv4(r.captured[r.l3:])
		if wire.Fold(wire.SumPlain(ip[:ip.HeaderLen()], 0)) == 0 {
			f = packet.FlagIPChecksumOK
		}
	}
	if r.payload == 0 || r.end > len(r.all) || r.flags&packet.FlagFragment != 0 {
		return f
	}
	if r.offload && r.proto != wire.ProtoSCTP {
		return f | packet.FlagL4ChecksumOK
	}
	l4 := r.all[r.l4:r.end]
	var sum uint32
	switch r.proto {
	case wire.ProtoSCTP:
		return f
	case wire.ProtoICMP:
		sum = wire.SumPlain(l4, 0)
	case wire.ProtoUDP:
		if wire.UDP(l4).Checksum() == 0 {
			if r.src.Is4() {
				f |= packet.FlagL4NoChecksum
			}
			return f
		}
		l4 = l4[:wire.UDP(l4).Len()]
		fallthrough
	default:
		sum = wire.SumPlain(l4, r.pseudoHeader(len(l4)))
	}
	if wire.Fold(sum) == 0 {
		f |= packet.FlagL4ChecksumOK
	}
	return f
}

func (r *packetView) pseudoHeader(n int) uint32 {
	if r.src.Is4() {
		return wire.PseudoHeader4(r.src.As4(), r.dst.As4(), r.proto, uint32(n))
	}
	return wire.PseudoHeader6(r.src.As16(), r.dst.As16(), r.proto, uint32(n))
}

// ends returns the input of the hash: the two ends in ascending order, addresses first.
func (r *packetView) ends() []byte {
	sport, dport := r.sport, r.dport
	if r.flags&packet.FlagFragment != 0 || sport == noPort {
		sport, dport = 0, 0
	}
	src, dst := r.src, r.dst
	if c := src.Compare(dst); c > 0 || c == 0 && sport > dport {
		src, dst, sport, dport = dst, src, dport, sport
	}
	in := append(src.AsSlice(), dst.AsSlice()...)
	return append(in, byte(sport>>8), byte(sport), byte(dport>>8), byte(dport))
}

// Toeplitz is the hash as Microsoft's "Verifying the RSS Hash Calculation" defines it: for each bit
// of the input that is set, from the left, add the leftmost 32 bits of the key; then shift the key
// left by one.
func Toeplitz(key, input []byte) uint32 {
	bit := func(b []byte, i int) uint32 {
		if i/8 >= len(b) {
			return 0
		}
		return uint32(b[i/8]>>(7-i%8)) & 1
	}
	var sum uint32
	for i := range len(input) * 8 {
		if bit(input, i) == 0 {
			continue
		}
		var window uint32
		for k := range 32 {
			window = window<<1 | bit(key, i+k)
		}
		sum ^= window
	}
	return sum
}

// Tables returns l, compiled.
func (l Lists) Tables() (t gpukern.Tables, err error) {
	if t.ACL, err = acl.Compile(l.Rules); err != nil {
		return t, err
	}
	if t.Routes, err = lpm.Compile(l.Routes); err != nil {
		return t, err
	}
	t.Literals, err = literal.Compile(l.Literals)
	return t, err
}
