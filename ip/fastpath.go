package ip

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// slowFlags are the findings of the header pass that Input has to decide about: tags, fragments, options or extension
// headers, tunnels, and headers that contradict each other or end early.
const slowFlags = packet.FlagVLAN | packet.FlagFragment | packet.FlagFragmentRest | packet.FlagOptions |
	packet.FlagMalformed | packet.FlagTruncated | packet.FlagTunnel

// fast4 are the findings that an IPv4 packet needs for the fast path.
const fast4 = packet.FlagIPv4 | packet.FlagIPChecksumOK

// ipv4Prefix are the bits of an IPv4 address, in the form of wire.Addr, above its own 32 in the second of its words.
const ipv4Prefix = 0xffff << 32

// FastPacket is a received packet on the fast path: complete, unfragmented TCP or UDP behind an IP header without
// options, from what can be another host to an address of this one. Its transport checksum has not been looked at.
type FastPacket struct {
	L3      []byte // from the IP header to the end of the frame; borrowed
	Is4     bool
	TOS     uint8 // type of service or traffic class, with ECN in the low two bits
	TTL     uint8
	Payload int // bytes behind the IP header, in all frames of the packet
}

// FastPath decides whether the packet that d describes and frame begins with may go to its transport without Input,
// and fills in p. It borrows frame. After false, Input decides on the packet.
//
// The two paths agree on every packet that the fast one takes. An own address or a directed broadcast as source is left to
// Input, which drops it: the answer of a socket would go to this host by the loopback queue, and where a socket answers
// there too, one forged packet would circulate for ever.
func (n *Node) FastPath(frame []byte, d *packet.Desc, p *FastPacket) bool {
	if d.Flags&slowFlags != 0 || d.Payload == 0 || d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP {
		return false
	}
	if int(d.Port) >= len(n.links) || wire.MAC(frame) != n.links[d.Port].MAC {
		return false // the loopback queue; link broadcasts and multicasts
	}
	p.L3 = frame[d.L3:]
	switch {
	case d.Flags.Has(fast4):
		q := wire.IPv4(p.L3)
		p.Is4, p.TOS, p.TTL, p.Payload = true, q.TOS(), q.TTL(), int(q.TotalLen())-wire.IPv4Len
		return !q.MartianSrc() && !n.own4(d.Port, q.Src()) && n.unicast4(d.Port, q.Dst())
	case d.Flags.Has(packet.FlagIPv6):
		q := wire.IPv6(p.L3)
		p.Is4, p.TOS, p.TTL, p.Payload = false, q.TrafficClass(), q.HopLimit(), int(q.PayloadLen())
		return !q.MartianSrc() && !n.own6(d.Port, p.L3[8:24]) && n.Local(d.Port, q.Dst()) == Unicast
	}
	return false
}

// unicast4 reports whether a is an address of this host for a packet that came in on dev. It compares the last argument of
// Local word by word: a wire.Addr that is written and then read as 16 bytes costs 10 ns, because the
// CPU cannot forward two stores to one load.
func (n *Node) unicast4(dev uint8, a [4]byte) bool {
	k := &n.local.last.key
	lower := ipv4Prefix | uint64(binary.BigEndian.Uint32(a[:]))
	if k.dev == dev && binary.BigEndian.Uint64(k.addr[8:]) == lower && binary.BigEndian.Uint64(k.addr[:8]) == 0 {
		return n.local.last.kind == Unicast
	}
	return n.lookUp(dev, wire.AddrFrom4(a)) == Unicast
}

// own4 reports whether a is an address of this host, or the broadcast address of one of its networks. The filter spares
// most packets the access to the map.
func (n *Node) own4(dev uint8, a [4]byte) bool {
	return n.local.own.has(0, ipv4Prefix|uint64(binary.BigEndian.Uint32(a[:]))) && n.ownOrBroadcast(dev, wire.AddrFrom4(a))
}

// own6 is own4 for the 16 bytes of an IPv6 address.
func (n *Node) own6(dev uint8, a []byte) bool {
	return n.local.own.has(binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(a[8:])) &&
		n.ownOrBroadcast(dev, wire.Addr(a))
}
