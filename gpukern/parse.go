package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// What the header pass finds, exactly. The fast form here, the slow one in internal/kernref and every
// later kernel agree on each of these sentences; testdata/golden.txt holds them as vectors.
//
//   - Captured bytes are those of the first descriptor of a packet; total bytes are those of all its
//     descriptors (packet.FlagMore). Headers must lie in the captured bytes, whole.
//   - L3 is set where the Ethernet header and its tags are whole, also for packets that are not IP.
//     Those have Proto 0 and no flag but FlagVLAN. Up to two tags (0x8100, 0x88a8) are skipped; a
//     third makes the packet one that is not IP.
//   - FlagIPv4 and FlagIPv6 say that the IP header is whole and consistent: version, IHL >= 5 and
//     TotalLen >= header (RFC 791 3.1), version 6 (RFC 8200 3).
//   - FlagMalformed says that fields contradict each other, however many bytes there were: the
//     version, IHL or TotalLen; a transport header that does not fit the length that IP gives, also
//     in a first fragment (RFC 1858 3, RFC 7112 5); TCP's data offset; UDP's length below 8 or
//     beyond IP's (RFC 768); an extension header beyond the payload length, a Hop-by-Hop header
//     that is not the first (RFC 8200 4.1), or more than wire.MaxExtHeaders of them. L4, Payload, Hash,
//     Rule and NextHop are 0 then.
//   - FlagTruncated says that the packet claims bytes that are not there: a header goes on beyond
//     the captured bytes, or IP's length is larger than the total. Where only payload is missing,
//     every offset and lookup stands. Bytes behind IP's length are padding and legal.
//   - L4 is set where the transport header is whole, TCP options included, and for other protocols
//     where their first byte is there. Payload is set for TCP, UDP, ICMP, ICMPv6 and SCTP. ICMP is
//     known over IPv4 only, ICMPv6 over IPv6 only.
//   - FlagFragment is set where the offset or the more-fragments bit is; a fragment header with
//     neither (RFC 6946) counts as an extension header only.
//   - Proto is what the last header read names, also where L4 is 0. Extension headers are those of RFC
//     8200 4, AH and Mobility; over IPv4 those numbers are transports as any others.
//
// Layer 2 encapsulations, with OpL2Encap:
//
//   - Behind the tags of the first Ethernet header, a PPPoE session header (RFC 2516 4: version and type
//     1, code 0) and the two bytes of the PPP protocol are skipped where that is IPv4 or IPv6, and an MPLS
//     label stack (RFC 3032 2.1) of at most 8 entries where a 4 or 6 follows the bottom of the stack in
//     the four bits of IP's version. L3 is then behind them. The length in the PPPoE header is not looked at.
//   - Any other packet of these EtherTypes is found what it is found without OpL2Encap, but that one cut
//     within these headers is truncated and has no L3.
//   - They are for packets that are looked at, not sent on: what forwards a packet expects L3 behind Ethernet
//     and tags.
//
// A descriptor that continues a packet keeps Off, Len, Port, Stamp, Flow, Verdict, FlagMore and FlagOffload, and
// has zeros elsewhere.

// The shortest transport header by protocol; 0 is a protocol that is not looked into.
var (
	header4 = [256]uint8{wire.ProtoICMP: 8, wire.ProtoTCP: 20, wire.ProtoUDP: 8, wire.ProtoSCTP: 12}
	header6 = [256]uint8{wire.ProtoICMPv6: 8, wire.ProtoTCP: 20, wire.ProtoUDP: 8, wire.ProtoSCTP: 12}
)

// parser is one packet on its way through the parse stage.
type parser struct {
	d       *packet.Desc
	p       []byte // captured bytes
	total   int    // bytes in all descriptors
	t       *tuple.Tuple
	l2encap bool // headers of MPLS and PPPoE are to be skipped
}

// boundless is beyond the end of every packet.
const boundless = 1 << 30

// lacks reports whether n bytes at off are not there: because what holds them ends before, which is a
// contradiction, or because they were not captured.
func (s parser) lacks(off, n, end int) bool {
	if off+n > end {
		s.malformed()
		return true
	}
	if off+n > len(s.p) {
		s.d.Flags |= packet.FlagTruncated
		return true
	}
	return false
}

// malformed takes back what must not be used.
func (s parser) malformed() {
	s.d.Flags |= packet.FlagMalformed
	s.d.L4, s.d.Payload = 0, 0
	s.t.Known = tuple.None
}

// link reads Ethernet and its tags, and what they carry.
func (s parser) link() {
	p := s.p
	if s.lacks(0, 14, boundless) {
		return
	}
	l3, ether := 14, binary.BigEndian.Uint16(p[12:])
	for ether == wire.EtherTypeVLAN || ether == wire.EtherTypeQinQ {
		if l3 == 22 {
			break
		}
		s.d.Flags |= packet.FlagVLAN
		if s.lacks(l3, 4, boundless) {
			return
		}
		ether = binary.BigEndian.Uint16(p[l3+2:])
		l3 += 4
	}
	if s.l2encap {
		var whole bool
		if l3, ether, whole = s.skipL2Encap(l3, ether); !whole {
			return
		}
	}
	s.network(l3, ether)
}

// The headers of layer 2 that OpL2Encap skips.
const (
	pppoeLen  = 6 + 2 // with the PPP protocol
	pppIPv4   = 0x0021
	pppIPv6   = 0x0057
	maxLabels = 8 // of an MPLS stack
)

// skipL2Encap returns the offset and the EtherType of the IP packet in the MPLS or PPPoE packet at l3, and both
// as they are for others. False means that its headers are cut off.
func (s parser) skipL2Encap(l3 int, ether uint16) (int, uint16, bool) {
	switch ether {
	case wire.EtherTypePPPoE:
		if s.lacks(l3, pppoeLen, boundless) {
			return 0, 0, false
		}
		if h := s.p[l3 : l3+pppoeLen]; h[0] == 0x11 && h[1] == 0 {
			switch binary.BigEndian.Uint16(h[6:]) {
			case pppIPv4:
				return l3 + pppoeLen, wire.EtherTypeIPv4, true
			case pppIPv6:
				return l3 + pppoeLen, wire.EtherTypeIPv6, true
			}
		}
	case wire.EtherTypeMPLS, wire.EtherTypeMPLSUpstream:
		at := l3
		for range maxLabels {
			if s.lacks(at, 5, boundless) { // with the first byte behind the entry
				return 0, 0, false
			}
			at += 4
			if s.p[at-2]&1 == 0 { // not the bottom of the stack
				continue
			}
			switch s.p[at] >> 4 {
			case 4:
				return at, wire.EtherTypeIPv4, true
			case 6:
				return at, wire.EtherTypeIPv6, true
			}
			return l3, ether, true // a pseudowire, or the like
		}
	}
	return l3, ether, true
}

// network reads what an Ethernet type names, at l3.
func (s parser) network(l3 int, ether uint16) {
	s.d.L3 = uint8(l3)
	switch ether {
	case wire.EtherTypeIPv4:
		s.ipv4(l3)
	case wire.EtherTypeIPv6:
		s.ipv6(l3)
	}
}

// ipv4 reads an IPv4 header (RFC 791 3.1) at l3.
func (s parser) ipv4(l3 int) {
	d, t := s.d, s.t
	if l3+20 > len(s.p) {
		s.cut4(l3)
		return
	}
	h := s.p[l3 : l3+20]
	header := int(h[0]&15) * 4
	size := int(binary.BigEndian.Uint16(h[2:]))
	if h[0]>>4 != 4 || header < 20 || size < header {
		s.malformed()
		return
	}
	if header > 20 {
		if s.lacks(l3, header, boundless) {
			return
		}
		d.Flags |= packet.FlagOptions
	}
	d.Flags |= packet.FlagIPv4
	t.SrcHi = uint64(binary.BigEndian.Uint32(h[12:])) << 32
	t.DstHi = uint64(binary.BigEndian.Uint32(h[16:])) << 32
	t.SrcLo, t.DstLo = 0, 0
	t.Known = tuple.Addresses
	s.ends(l3 + size)

	d.Proto = h[9]
	frag := binary.BigEndian.Uint16(h[6:])
	if frag&0x3fff != 0 { // more fragments, or an offset
		d.Flags |= packet.FlagFragment
		if frag&0x1fff != 0 {
			d.Flags |= packet.FlagFragmentRest
			return
		}
	}
	s.transport(l3+header, l3+size, int(header4[h[9]]))
}

// cut4 checks an IPv4 header of which less than 20 bytes are there: what is there may already
// contradict itself.
func (s parser) cut4(l3 int) {
	if h := s.p[min(l3, len(s.p)):]; len(h) > 0 && (h[0]>>4 != 4 || h[0]&15 < 5) {
		s.malformed()
		return
	}
	s.d.Flags |= packet.FlagTruncated
}

// ends notes where IP says that the packet ends.
func (s parser) ends(end int) {
	if end > s.total {
		s.d.Flags |= packet.FlagTruncated
		return
	}
	s.t.End = uint32(end)
}

// ipv6 reads an IPv6 header (RFC 8200 3) at l3 and the extension headers behind it.
func (s parser) ipv6(l3 int) {
	d, t := s.d, s.t
	if h := s.p[min(l3, len(s.p)):]; len(h) > 0 && h[0]>>4 != 6 {
		s.malformed()
		return
	}
	if s.lacks(l3, 40, boundless) {
		return
	}
	h := s.p[l3 : l3+40]
	end := l3 + 40 + int(binary.BigEndian.Uint16(h[4:]))
	d.Flags |= packet.FlagIPv6
	t.SrcHi, t.SrcLo = binary.BigEndian.Uint64(h[8:]), binary.BigEndian.Uint64(h[16:])
	t.DstHi, t.DstLo = binary.BigEndian.Uint64(h[24:]), binary.BigEndian.Uint64(h[32:])
	t.Known = tuple.Addresses
	s.ends(end)
	d.Proto = h[6]
	off := l3 + 40
	if extension[h[6]] {
		var more bool
		if off, more = s.extensions(off, end); !more {
			return
		}
	}
	if d.Proto != wire.ProtoNone {
		s.transport(off, end, int(header6[d.Proto]))
	}
}

var extension = [256]bool{
	wire.ProtoHopByHop: true, wire.ProtoRouting: true, wire.ProtoFragment: true,
	wire.ProtoDestOpts: true, wire.ProtoAH: true, wire.ProtoMobility: true,
}

// extensionLen returns the length of the extension header of type proto whose first bytes are h:
// eight bytes and h[1] times eight more, but for the fragment header, which has no length, and AH,
// which counts words of four and leaves out two (RFC 4302 2.2).
func extensionLen(proto uint8, h []byte) int {
	switch proto {
	case wire.ProtoFragment:
		return wire.FragmentHeaderLen
	case wire.ProtoAH:
		return int(h[1])*4 + 8
	}
	return int(h[1])*8 + 8
}

// extensions walks the extension headers from off (RFC 8200 4) and leaves in Proto what follows
// them. It returns where that is, and whether there is more to read.
func (s parser) extensions(off, end int) (int, bool) {
	d := s.d
	d.Flags |= packet.FlagOptions
	for n := 0; extension[d.Proto]; n++ {
		if n == wire.MaxExtHeaders || n > 0 && d.Proto == wire.ProtoHopByHop {
			s.malformed()
			return 0, false
		}
		if s.lacks(off, 8, end) {
			return 0, false
		}
		h := s.p[off : off+8]
		size := extensionLen(d.Proto, h)
		if s.lacks(off, size, end) {
			return 0, false
		}
		if d.Proto == wire.ProtoFragment && s.fragment6(h) {
			return 0, false
		}
		d.Proto = h[0]
		off += size
	}
	return off, true
}

// fragment6 reads a fragment header (RFC 8200 4.5) and reports whether the packet is a later
// fragment, with Proto set to what the header names.
func (s parser) fragment6(h []byte) bool {
	d := s.d
	at := binary.BigEndian.Uint16(h[2:])
	if at&0xfff9 == 0 { // RFC 6946: atomic
		return false
	}
	d.Flags |= packet.FlagFragment
	if at&0xfff8 == 0 {
		return false
	}
	d.Flags |= packet.FlagFragmentRest
	d.Proto = h[0]
	return true
}

// transport reads the transport header at off, of at least header bytes, in a packet that IP lets
// end at end.
func (s parser) transport(off, end, header int) {
	d := s.d
	if header == 0 {
		if off < min(end, len(s.p)) {
			d.L4 = uint16(off)
		}
		return
	}
	if s.lacks(off, header, end) {
		return
	}
	h := s.p[off:]
	switch d.Proto {
	case wire.ProtoTCP:
		header = int(h[12]>>4) * 4 // RFC 9293 3.1
		if header < 20 {
			s.malformed()
			return
		}
		if s.lacks(off, header, end) {
			return
		}
	case wire.ProtoUDP:
		size := int(binary.BigEndian.Uint16(h[4:]))
		if size < 8 || off+size > end && d.Flags&packet.FlagFragment == 0 {
			s.malformed()
			return
		}
	case wire.ProtoICMP, wire.ProtoICMPv6:
		d.L4, d.Payload = uint16(off), uint16(off+header)
		return
	}
	d.L4, d.Payload = uint16(off), uint16(off+header)
	s.t.Ports = binary.BigEndian.Uint32(h)
	s.t.Known = tuple.Ports
}
