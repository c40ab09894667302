package role

import (
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/wire"
)

// Shapes are the shapes of rule lists that WriteRules knows, with what makes them.
var shapes = map[string]func(*rand.Rand, int) []acl.Rule{
	"acl":    accessList,
	"fw":     firewall,
	"ipc":    chains,
	"masks":  allMasks,
	"nested": nestedMasks,
	"site":   siteRules,
}

// firewall makes n rules after the published seeds of firewalls in ClassBench: half of the rules leave the source
// open and a fifth the destination, and both ports are often ranges.
func firewall(rng *rand.Rand, n int) []acl.Rule {
	nets := networks(rng, n/40)
	rules := make([]acl.Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Src, r.Dst = prefixOf(0, 0), prefixOf(0, 0)
		if rng.IntN(100) >= 50 {
			r.Src = listPrefix(rng, nets)
		}
		if rng.IntN(100) >= 20 {
			r.Dst = prefixOf(nets[rng.IntN(len(nets))]&^0xffff|rng.Uint32()&0xffff, []int{16, 24, 28, 32, 32, 32}[rng.IntN(6)])
		}
		if r.Src.Bits() == 0 && r.Dst.Bits() == 0 && rng.IntN(10) > 0 {
			r.Dst = prefixOf(rng.Uint32(), 32)
		}
		r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, 0}[rng.IntN(6)]
		if r.Proto != 0 {
			r.SrcPorts, r.DstPorts = rangedPorts(rng), rangedPorts(rng)
		}
	}
	return rules
}

// rangedPorts are any, those above 1023, those below 1024, one, or some range.
func rangedPorts(rng *rand.Rand) acl.Ports {
	switch k := rng.IntN(100); {
	case k < 40:
		return acl.Ports{}
	case k < 55:
		return acl.PortRange(1024, 65535)
	case k < 60:
		return acl.PortRange(0, 1023)
	case k < 85:
		p := uint16(rng.IntN(1024))
		return acl.PortRange(p, p)
	}
	lo := uint16(rng.IntN(60000))
	return acl.PortRange(lo, lo+uint16(rng.IntN(5000)))
}

// chains makes n rules after the published seeds of Linux chains in ClassBench: networks of all lengths on either
// side, many protocols, few ranges.
func chains(rng *rand.Rand, n int) []acl.Rule {
	nets := networks(rng, n/16)
	rules := make([]acl.Rule, n)
	end := func() netip.Prefix {
		if rng.IntN(100) < 15 {
			return prefixOf(0, 0)
		}
		bits := [...]int{8, 12, 16, 16, 20, 22, 24, 24, 24, 25, 27, 29, 30, 32, 32, 32, 32, 32}[rng.IntN(18)]
		return prefixOf(nets[rng.IntN(len(nets))]&^0xfff|rng.Uint32()&0xfff, bits)
	}
	for i := range rules {
		r := &rules[i]
		r.Src, r.Dst = end(), end()
		if r.Src.Bits() == 0 && r.Dst.Bits() == 0 && rng.IntN(20) > 0 {
			r.Src = prefixOf(rng.Uint32(), 32)
		}
		r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoESP, wire.ProtoGRE, 0}[rng.IntN(7)]
		if r.Proto == wire.ProtoTCP || r.Proto == wire.ProtoUDP {
			r.SrcPorts, r.DstPorts = listPorts(rng, 20), listPorts(rng, 70)
		}
	}
	return rules
}

// allMasks makes n rules of all 33 x 33 pairs of prefix lengths, each as likely as another: what makes tables slow
// that have a hash table for each mask. Longer prefixes come first.
func allMasks(rng *rand.Rand, n int) []acl.Rule {
	var ranked [65][]acl.Rule
	for range n {
		r := acl.Rule{Src: prefixOf(rng.Uint32(), rng.IntN(33)), Dst: prefixOf(rng.Uint32(), rng.IntN(33)), Proto: wire.ProtoTCP}
		r.DstPorts = listPorts(rng, 50)
		at := 64 - r.Src.Bits() - r.Dst.Bits()
		ranked[at] = append(ranked[at], r)
	}
	var rules []acl.Rule
	for _, some := range ranked {
		rules = append(rules, some...)
	}
	return rules
}

// nestedMasks makes n rules around a few pairs of hosts, of all pairs of prefix lengths that contain them.
func nestedMasks(rng *rand.Rand, n int) []acl.Rule {
	var rules []acl.Rule
	for len(rules) < n {
		src, dst := rng.Uint32(), rng.Uint32()
		for s := 32; s > 8 && len(rules) < n; s-- {
			for d := 32; d > 8 && len(rules) < n; d-- {
				rules = append(rules, acl.Rule{Src: prefixOf(src, s), Dst: prefixOf(dst, d), Proto: wire.ProtoTCP})
			}
		}
	}
	return rules
}

// siteRules makes n rules as of a site's firewall: tenants with a /24 each reach services by host and port, a block
// list of hosts stands before, and each tenant ends with a rule that denies the rest.
func siteRules(rng *rand.Rand, n int) []acl.Rule {
	var rules []acl.Rule
	for range n / 4 {
		rules = append(rules, acl.Rule{Src: prefixOf(rng.Uint32(), 32), Dst: prefixOf(0, 0)})
	}
	well := [...]uint16{22, 53, 80, 123, 443, 3306, 5432, 6379, 8080, 9090}
	for tenant := uint32(0); len(rules) < n; tenant++ {
		home := prefixOf(10<<24|tenant<<8, 24)
		for range 1 + rng.IntN(15) {
			p := well[rng.IntN(len(well))]
			from := prefixOf(0, 0)
			if rng.IntN(3) > 0 {
				from = prefixOf(10<<24|rng.Uint32N(tenant+1)<<8, 24)
			}
			rules = append(rules, acl.Rule{Src: from, Dst: prefixOf(10<<24|tenant<<8|rng.Uint32N(256), 32), Proto: wire.ProtoTCP, DstPorts: acl.PortRange(p, p)})
		}
		rules = append(rules, acl.Rule{Src: home, Dst: prefixOf(10<<24, 8)}, acl.Rule{Src: prefixOf(0, 0), Dst: home})
	}
	return rules[:n]
}

func networks(rng *rand.Rand, n int) []uint32 {
	nets := make([]uint32, max(4, n))
	for i := range nets {
		nets[i] = rng.Uint32()
	}
	return nets
}
