package kernbench

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/wire"
)

// tuple is one direction of a flow.
type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
}

func (t tuple) back() tuple {
	return tuple{t.dst, t.src, t.dport, t.sport, t.proto}
}

// traffic makes the packets of an operation. Half of the flows meet a rule, where there are rules;
// of the others 7 in 8 have a route, where there are routes.
type traffic struct {
	seed  uint64
	lists kernref.Lists
}

// flow returns flow i, always the same.
func (f *traffic) flow(i int) tuple {
	g := generator{rand.New(rand.NewPCG(f.seed, uint64(i)))}
	var r acl.Rule
	switch rules, routes := f.lists.Rules, f.lists.Routes; {
	case len(rules) > 0 && g.IntN(2) == 0:
		r = rules[g.IntN(len(rules))]
	case len(routes) > 0 && g.IntN(8) > 0:
		r.Dst = routes[g.IntN(len(routes))].Prefix
	}
	t := tuple{dst: g.inside(r.Dst), proto: r.Proto, sport: g.port(r.SrcPorts), dport: g.port(r.DstPorts)}
	if t.dst.Is6() && !r.Src.IsValid() {
		r.Src = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8}), 32)
	}
	t.src = g.inside(r.Src)
	if t.proto == 0 {
		t.proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP}[g.IntN(2)]
	}
	return t
}

// imix is the usual mix: 7 small, 4 medium and 1 large packet.
var imix = []int{60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1514}

// lengths returns the lengths of the packets of a made size, in turn.
func lengths(size string) []int {
	switch size {
	case SizeIMIX:
		return imix
	case SizeHostile:
		size = Size1408
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		panic("kernbench: size " + size + " is not one of packets that are made")
	}
	return []int{n}
}

// least returns the length of the shortest packet of t: one of UDP without a payload.
func (t tuple) least() int {
	if t.src.Is6() {
		return wire.EthernetLen + wire.IPv6Len + wire.UDPLen
	}
	return wire.EthernetLen + wire.IPv4Len + wire.UDPLen
}

// write makes a packet of t that fills p, with right checksums; the payload is what p holds there.
// Where p is too short for TCP the packet is one of UDP.
func (t tuple) write(p []byte) {
	wire.Ethernet(p).SetDst(wire.MAC{2, 0, 0, 0, 0, 2})
	wire.Ethernet(p).SetSrc(wire.MAC{2, 0, 0, 0, 0, 1})
	ether := uint16(wire.EtherTypeIPv4)
	if t.src.Is6() {
		ether = wire.EtherTypeIPv6
	}
	wire.Ethernet(p).SetEtherType(ether)
	t.writeIP(p[wire.EthernetLen:])
}

// writeIP makes an IP packet that fills p.
func (t tuple) writeIP(p []byte) {
	ip4, header := !t.src.Is6(), wire.IPv4Len
	if !ip4 {
		header = wire.IPv6Len
	}
	l4, proto := p[header:], t.proto
	if len(l4) < wire.TCPLen {
		proto = wire.ProtoUDP
	}
	var pseudo uint32
	if ip4 {
		src, dst := t.src.As4(), t.dst.As4()
		writeIPv4(p, src, dst, proto)
		pseudo = wire.PseudoHeader4(src, dst, proto, uint32(len(l4)))
	} else {
		ip, src, dst := wire.IPv6(p), t.src.As16(), t.dst.As16()
		clear(p[:header])
		ip.SetVersion()
		ip.SetPayloadLen(uint16(len(l4)))
		ip.SetNextHeader(proto)
		ip.SetHopLimit(64)
		ip.SetSrc(src)
		ip.SetDst(dst)
		pseudo = wire.PseudoHeader6(src, dst, proto, uint32(len(l4)))
	}
	t.writeL4(l4, proto, pseudo)
}

// writeL4 makes a TCP segment or a UDP datagram that fills p.
func (t tuple) writeL4(p []byte, proto uint8, pseudo uint32) {
	header, check := wire.TCPLen, 16
	if proto == wire.ProtoUDP {
		header, check = wire.UDPLen, 6
	}
	clear(p[:header])
	binary.BigEndian.PutUint16(p[0:], t.sport)
	binary.BigEndian.PutUint16(p[2:], t.dport)
	if proto == wire.ProtoUDP {
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)))
	} else {
		p[12], p[13] = 5<<4, byte(wire.FlagACK)
	}
	sum := wire.Fold(wire.Sum(p, pseudo))
	if sum == 0 && proto == wire.ProtoUDP {
		sum = 0xffff // RFC 768: 0 means that there is none
	}
	binary.BigEndian.PutUint16(p[check:], sum)
}

// writeIPv4 makes an IPv4 header of a packet that fills p.
func writeIPv4(p []byte, src, dst [4]byte, proto uint8) {
	ip := wire.IPv4(p)
	clear(p[:wire.IPv4Len])
	ip.SetHeaderLen(wire.IPv4Len)
	ip.SetTotalLen(uint16(len(p)))
	p[8] = 64
	ip.SetProto(proto)
	ip.SetSrc(src)
	ip.SetDst(dst)
	ip.SetChecksum(wire.Fold(wire.Sum(p[:wire.IPv4Len], 0)))
}
