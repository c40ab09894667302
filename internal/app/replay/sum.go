package replay

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Sum counts packets by what the header pass found in them.
type Sum struct {
	Packets          uint64            `json:"packets"`
	Bytes            uint64            `json:"bytes"` // as captured, with link headers
	IPv4             uint64            `json:"ipv4"`
	IPv6             uint64            `json:"ipv6"`
	Protocols        map[string]uint64 `json:"protocols"` // packets by transport protocol, or EtherType where no IP header was read
	Sizes            map[string]uint64 `json:"sizes"`     // packets by size in bytes: "64-127"
	Flows            uint64            `json:"flows"`     // different addresses, ports and protocols, both directions as one
	VLAN             uint64            `json:"vlan"`
	Fragments        uint64            `json:"fragments"`
	Options          uint64            `json:"options"` // IPv4 options or IPv6 extension headers
	IPChecksumErrors uint64            `json:"ip_checksum_errors"`
	L4ChecksumErrors uint64            `json:"l4_checksum_errors"`
	L4Unverified     uint64            `json:"l4_unverified"` // no checksum, fragments, payload not captured
	Malformed        uint64            `json:"malformed"`
	Truncated        uint64            `json:"truncated"` // packets that claim more bytes than were captured

	protocols [256]uint64
	others    map[uint16]uint64 // by EtherType
	sizes     [sizeClasses]uint64
}

func newSum() *Sum { return &Sum{others: map[uint16]uint64{}} }

// oddities counts what few packets have.
func (s *Sum) oddities(g packet.Flags) {
	for _, c := range [...]struct {
		flag packet.Flags
		n    *uint64
	}{
		{packet.FlagVLAN, &s.VLAN},
		{packet.FlagFragment, &s.Fragments},
		{packet.FlagOptions, &s.Options},
		{packet.FlagMalformed, &s.Malformed},
		{packet.FlagTruncated, &s.Truncated},
	} {
		if g.Has(c.flag) {
			*c.n++
		}
	}
}

// transport checks the transport checksum of an IP packet: right, wrong, or not to be verified.
func (s *Sum) transport(p []byte, d *packet.Desc) {
	switch d.Proto {
	case wire.ProtoTCP, wire.ProtoUDP:
	case wire.ProtoICMP, wire.ProtoICMPv6:
		if d.Payload == 0 { // of the other IP version: unknown there
			return
		}
	default:
		return
	}
	const unknown = packet.FlagL4NoChecksum | packet.FlagFragment | packet.FlagTruncated
	switch {
	case d.Flags.Has(packet.FlagL4ChecksumOK):
	case d.Flags&unknown != 0 || rerouted(p, d):
		s.L4Unverified++
	default:
		s.L4ChecksumErrors++
	}
}

// rerouted reports whether a routing header has segments left, so that the pseudo-header has an
// address that is not in the header (RFC 8200 8.1).
func rerouted(p []byte, d *packet.Desc) bool {
	if d.Flags&(packet.FlagIPv6|packet.FlagOptions) != packet.FlagIPv6|packet.FlagOptions {
		return false
	}
	proto, off := p[d.L3+6], int(d.L3)+wire.IPv6Len
	for off+8 <= int(d.L4) {
		if proto == wire.ProtoRouting && p[off+3] != 0 {
			return true
		}
		size := int(p[off+1])*8 + 8
		switch proto {
		case wire.ProtoFragment:
			size = wire.FragmentHeaderLen
		case wire.ProtoAH:
			size = int(p[off+1])*4 + 8
		}
		proto, off = p[off], off+size
	}
	return false
}

// protoName distinguishes a protocol that has only a number from other numbers, and IPv6 inside of IP from the
// EtherType of that name, which counts packets whose IPv6 header is cut off or malformed.
func protoName(p uint8) string {
	if p == wire.ProtoIPv6 {
		return "ipv6 in ip"
	}
	name := wire.ProtoName(p)
	if name[0] >= '0' && name[0] <= '9' {
		return "proto " + name
	}
	return name
}

// noEtherType stands for a packet too short to have one.
const noEtherType = 0xffff

// etherType returns the EtherType in front of the network header. Values below 1536 are lengths of
// IEEE 802.3 frames and count as one.
func etherType(p []byte, d *packet.Desc) uint16 {
	if d.L3 < 14 || int(d.L3) > len(p) {
		return noEtherType
	}
	t := binary.BigEndian.Uint16(p[d.L3-2:])
	if t < 0x600 {
		return 0
	}
	return t
}

func etherName(t uint16) string {
	switch t {
	case noEtherType:
		return "cut off"
	case 0:
		return "802.3"
	}
	return wire.EtherTypeName(t)
}

// Sizes are counted in powers of two.
const sizeClasses = 7

var sizeNames = [sizeClasses]string{"0-63", "64-127", "128-255", "256-511", "512-1023", "1024-2047", "2048-"}

func sizeClass(n int) int {
	return max(0, min(bits.Len(uint(n))-6, sizeClasses-1))
}

// merge adds t to s.
func (s *Sum) merge(t *Sum) {
	for _, c := range [...]struct{ to, from *uint64 }{
		{&s.Packets, &t.Packets},
		{&s.Bytes, &t.Bytes},
		{&s.IPv4, &t.IPv4},
		{&s.IPv6, &t.IPv6},
		{&s.VLAN, &t.VLAN},
		{&s.Fragments, &t.Fragments},
		{&s.Options, &t.Options},
		{&s.IPChecksumErrors, &t.IPChecksumErrors},
		{&s.L4ChecksumErrors, &t.L4ChecksumErrors},
		{&s.L4Unverified, &t.L4Unverified},
		{&s.Malformed, &t.Malformed},
		{&s.Truncated, &t.Truncated},
	} {
		*c.to += *c.from
	}
	for i, n := range t.protocols {
		s.protocols[i] += n
	}
	for i, n := range t.sizes {
		s.sizes[i] += n
	}
	for k, n := range t.others {
		s.others[k] += n
	}
}

// name fills in the maps that people and programs read.
func (s *Sum) name() {
	s.Protocols, s.Sizes = map[string]uint64{}, map[string]uint64{}
	for p, n := range s.protocols {
		if n > 0 {
			s.Protocols[protoName(uint8(p))] += n
		}
	}
	for t, n := range s.others {
		s.Protocols[etherName(t)] += n
	}
	for i, n := range s.sizes {
		if n > 0 {
			s.Sizes[sizeNames[i]] = n
		}
	}
}
