package kernref

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// FlowBatch returns a batch of n TCP packets of size bytes over IPv4, with right checksums, from
// tuples that next makes.
func FlowBatch(n, size int, next func() (src, dst [4]byte, sport, dport uint16, proto uint8)) *packet.Batch {
	var packets [][][]byte
	g := NewGenerator(uint64(size))
	for range n {
		src, dst, sport, dport, proto := next()
		p := make([]byte, size)
		binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv4)
		ip := wire.IPv4(p[14:])
		ip.SetHeaderLen(20)
		ip.SetTotalLen(uint16(size - 14))
		ip.SetProto(proto)
		ip.SetSrc(src)
		ip.SetDst(dst)
		ip.SetChecksum(wire.Fold(wire.SumPlain(ip[:20], 0)))
		l4, field := p[34:], 16
		copy(l4, g.Bytes(len(l4)))
		binary.BigEndian.PutUint16(l4, sport)
		binary.BigEndian.PutUint16(l4[2:], dport)
		switch proto {
		case wire.ProtoTCP:
			l4[12] = 5 << 4
		case wire.ProtoUDP:
			binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
			field = 6
		}
		binary.BigEndian.PutUint16(l4[field:], 0)
		sum := wire.SumPlain(l4, wire.PseudoHeader4(src, dst, proto, uint32(len(l4))))
		binary.BigEndian.PutUint16(l4[field:], wire.Fold(sum))
		packets = append(packets, One(p))
	}
	return BatchOf(packets...)
}

// ClassBench makes n rules with the shape of access lists in use, after the published seeds of
// ClassBench: most name both addresses with long prefixes out of a few dozen networks, few name
// source ports, most name TCP or UDP and one destination port or range.
func ClassBench(g Generator, n int) []acl.Rule {
	nets := make([]uint32, max(4, n/24))
	for i := range nets {
		nets[i] = g.Uint32()
	}
	prefix := func() netip.Prefix {
		bits := [...]int{0, 8, 16, 21, 24, 24, 26, 28, 30, 32, 32, 32, 32}[g.IntN(13)]
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], nets[g.IntN(len(nets))]&^0xffff|g.Uint32()&0xffff)
		p, err := netip.AddrFrom4(a).Prefix(bits)
		if err != nil {
			panic(err)
		}
		return p
	}
	well := []uint16{20, 21, 22, 23, 25, 53, 80, 110, 123, 135, 137, 143, 161, 389, 443, 445, 993, 1433, 1521, 3306, 3389, 5060, 5900, 8080}
	ports := func(named int) acl.Ports {
		if !g.Chance(named) {
			return acl.Ports{}
		}
		switch g.IntN(10) {
		case 0:
			return acl.PortRange(1024, 65535)
		case 1:
			lo := uint16(g.IntN(60000))
			return acl.PortRange(lo, lo+uint16(g.IntN(4000)))
		}
		p := well[g.IntN(len(well))]
		return acl.PortRange(p, p)
	}
	rules := make([]acl.Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Src, r.Dst = prefix(), prefix()
		if i < n*9/10 && r.Src.Bits() == 0 && r.Dst.Bits() == 0 {
			r.Dst = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)
		}
		r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, 0}[g.IntN(6)]
		if r.Proto != 0 {
			r.SrcPorts, r.DstPorts = ports(5), ports(85)
		}
	}
	return rules
}

// TraceFor returns tuples inside of rules chosen at random; one in ten is random altogether.
func TraceFor(g Generator, rules []acl.Rule) func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
	inside := func(p netip.Prefix) [4]byte {
		v := g.Uint32()
		if p != (netip.Prefix{}) {
			a := p.Addr().As4()
			mask := uint32(uint64(1)<<(32-p.Bits()) - 1)
			v = binary.BigEndian.Uint32(a[:]) | v&mask
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], v)
		return a
	}
	port := func(p acl.Ports) uint16 {
		lo, hi, asks := p.Range()
		if !asks {
			return uint16(g.Uint32())
		}
		return lo + uint16(g.IntN(int(hi-lo)+1))
	}
	return func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
		r := acl.Rule{}
		if len(rules) > 0 && !g.Chance(10) {
			r = rules[g.IntN(len(rules))]
		}
		proto = r.Proto
		if proto == 0 {
			proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP}[g.IntN(2)]
		}
		return inside(r.Src), inside(r.Dst), port(r.SrcPorts), port(r.DstPorts), proto
	}
}

// Internet returns n routes with the prefix lengths of a full IPv4 table: six in ten are /24.
func Internet(g Generator, n int) []lpm.Route {
	seen := map[netip.Prefix]bool{}
	routes := make([]lpm.Route, 0, n)
	for len(routes) < n {
		bits := [...]int{24, 24, 24, 24, 24, 24, 23, 22, 22, 22, 21, 20, 20, 19, 18, 16}[g.IntN(16)]
		if g.Chance(2) {
			bits = [...]int{8, 12, 14, 26, 28, 30, 32}[g.IntN(7)]
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], g.Uint32()%0xdf000000+0x01000000)
		p, err := netip.AddrFrom4(a).Prefix(bits)
		if err != nil {
			panic(err)
		}
		if !seen[p] {
			seen[p] = true
			routes = append(routes, lpm.Route{Prefix: p, NextHop: uint16(1 + g.IntN(64))})
		}
	}
	return routes
}

// Probes returns addresses where a routing table changes its mind: the ends of each prefix and
// their neighbours, and some at random.
func Probes(g Generator, prefixes []netip.Prefix) []netip.Addr {
	all := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	for _, p := range prefixes {
		first := p.Masked().Addr()
		last := first.AsSlice()
		for i := p.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{first.Prev(), first, end, end.Next()} {
			if a.IsValid() {
				all = append(all, a)
			}
		}
	}
	for range 200 {
		all = append(all, netip.AddrFrom4(g.Addr4()), netip.AddrFrom16(g.Addr6()))
	}
	return all
}
