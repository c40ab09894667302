package role

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/wire"
)

// accessList makes n rules with the shape of access lists in use, after the published seeds of
// ClassBench: most name both addresses with long prefixes out of some networks, few name source ports,
// most name TCP or UDP and one destination port or range.
func accessList(rng *rand.Rand, n int) []acl.Rule {
	nets := make([]uint32, max(4, n/24))
	for i := range nets {
		nets[i] = rng.Uint32()
	}
	rules := make([]acl.Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Src, r.Dst = listPrefix(rng, nets), listPrefix(rng, nets)
		if i < n*9/10 && r.Src.Bits() == 0 && r.Dst.Bits() == 0 {
			r.Dst = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)
		}
		r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, 0}[rng.IntN(6)]
		if r.Proto != 0 {
			r.SrcPorts, r.DstPorts = listPorts(rng, 5), listPorts(rng, 85)
		}
	}
	return rules
}

func listPrefix(rng *rand.Rand, nets []uint32) netip.Prefix {
	bits := [...]int{0, 8, 16, 21, 24, 24, 26, 28, 30, 32, 32, 32, 32}[rng.IntN(13)]
	return prefixOf(nets[rng.IntN(len(nets))]&^0xffff|rng.Uint32()&0xffff, bits)
}

func prefixOf(a uint32, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a))), bits).Masked()
}

// listPorts returns the ports that a rule asks for, in so many of a hundred for some.
func listPorts(rng *rand.Rand, named int) acl.Ports {
	if rng.IntN(100) >= named {
		return acl.Ports{}
	}
	switch rng.IntN(10) {
	case 0:
		return acl.PortRange(1024, 65535)
	case 1:
		lo := uint16(rng.IntN(60000))
		return acl.PortRange(lo, lo+uint16(rng.IntN(4000)))
	}
	well := [...]uint16{20, 21, 22, 23, 25, 53, 80, 110, 123, 135, 137, 143, 161, 389, 443, 445, 993, 1433, 1521, 3306, 3389, 5060, 5900, 8080}
	p := well[rng.IntN(len(well))]
	return acl.PortRange(p, p)
}

// flowThrough returns a packet inside of one of rules; one in ten is random altogether.
func flowThrough(rng *rand.Rand, rules []acl.Rule) (src, dst netip.AddrPort, proto uint8) {
	var r acl.Rule
	if rng.IntN(10) > 0 {
		r = rules[rng.IntN(len(rules))]
	}
	if proto = r.Proto; proto == 0 {
		proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP}[rng.IntN(2)]
	}
	end := func(p netip.Prefix, ports acl.Ports) netip.AddrPort {
		if p == (netip.Prefix{}) {
			p = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		lo, hi, ok := ports.Range()
		if !ok {
			hi = 65535
		}
		return netip.AddrPortFrom(inside(rng, p), lo+uint16(rng.IntN(int(hi-lo)+1)))
	}
	return end(r.Src, r.SrcPorts), end(r.Dst, r.DstPorts), proto
}

// inside returns an address of p.
func inside(rng *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		if free := 8*(i+1) - p.Bits(); free > 0 {
			b[i] |= byte(rng.Uint32()) & byte(1<<min(free, 8)-1)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Internet4 makes n routes with the lengths of a full IPv4 table: six in ten are /24.
func Internet4(rng *rand.Rand, n int) []lpm.Route {
	return distinct(n, func() netip.Prefix {
		bits := [...]int{24, 24, 24, 24, 24, 24, 23, 22, 22, 22, 21, 20, 20, 19, 18, 16}[rng.IntN(16)]
		if rng.IntN(50) == 0 {
			bits = [...]int{8, 12, 14, 26, 28, 30, 32}[rng.IntN(7)]
		}
		return prefixOf(rng.Uint32()%0xdf000000+0x01000000, bits)
	})
}

// Internet6 makes n routes with the shape of a full IPv6 table: allocations of /29 to /32 out of the
// blocks that the registries have, announced whole or, most often, in parts of up to /48.
func Internet6(rng *rand.Rand, n int) []lpm.Route {
	blocks := [...]uint32{0x20010000, 0x24000000, 0x26000000, 0x28000000, 0x2a000000, 0x2a100000, 0x2c000000}
	wide := [...]int{16, 12, 12, 12, 12, 13, 12}
	allocated := make([]uint32, n/8)
	for i := range allocated {
		b := rng.IntN(len(blocks))
		allocated[i] = blocks[b] | rng.Uint32()>>wide[b]
	}
	lengths := [...]int{29, 32, 32, 32, 36, 40, 40, 44, 44, 46, 47, 48, 48, 48, 48, 48, 48, 48, 48, 64}
	return distinct(n, func() netip.Prefix {
		var a [16]byte
		binary.BigEndian.PutUint32(a[:], allocated[rng.IntN(len(allocated))])
		parts := rng.Uint32()
		if rng.IntN(2) == 0 { // networks are numbered from the lower end, or spread
			parts &= 0xf
		}
		binary.BigEndian.PutUint16(a[4:], uint16(parts))
		a[7] = byte(rng.Uint32())
		return netip.PrefixFrom(netip.AddrFrom16(a), lengths[rng.IntN(len(lengths))]).Masked()
	})
}

// distinct makes routes to n different prefixes.
func distinct(n int, next func() netip.Prefix) []lpm.Route {
	seen := make(map[netip.Prefix]bool, n)
	routes := make([]lpm.Route, 0, n)
	for len(routes) < n {
		if p := next(); !seen[p] {
			seen[p] = true
			routes = append(routes, lpm.Route{Prefix: p, NextHop: uint16(1 + len(routes)*7919%250)})
		}
	}
	return routes
}
