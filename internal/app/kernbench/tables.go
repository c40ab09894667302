package kernbench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/wire"
)

// generator makes tables and packets from a seed: the same seed makes the same.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64, what string) generator {
	h := seed
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return generator{rand.New(rand.NewPCG(seed, h))}
}

// Rules returns n rules as they stand in filters of networks: prefixes of 8 to 32 bits, of which
// many lie inside of others, exact ports, the usual ranges and any; TCP, UDP and any.
func Rules(seed uint64, n int) []acl.Rule {
	g := newGenerator(seed, "rules")
	rules := make([]acl.Rule, n)
	for i := range rules {
		rules[i] = acl.Rule{
			Src: g.prefix4(8, 32), Dst: g.prefix4(16, 32), DstPorts: g.ports(),
			Proto: [...]uint8{wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, 0}[g.IntN(4)],
		}
		if g.IntN(4) == 0 {
			rules[i].SrcPorts = acl.PortRange(1024, 65535)
		}
		if g.IntN(8) == 0 {
			rules[i].Src = netip.Prefix{}
		}
	}
	return rules
}

// ports returns an exact port, one of the usual ranges, or any.
func (g generator) ports() acl.Ports {
	switch g.IntN(4) {
	case 0:
		return acl.Ports{}
	case 1:
		return [...]acl.Ports{acl.PortRange(0, 1023), acl.PortRange(1024, 65535), acl.PortRange(6000, 6063)}[g.IntN(3)]
	}
	p := [...]uint16{22, 25, 53, 80, 123, 443, 993, 3306, 5060, 8080, uint16(g.Uint32())}[g.IntN(11)]
	return acl.PortRange(p, p)
}

// prefix4 returns a prefix of lo to hi bits, of the addresses that are in use on the Internet.
func (g generator) prefix4(lo, hi int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], g.Uint32())
	a[0] = 1 + a[0]%223
	return netip.PrefixFrom(netip.AddrFrom4(a), lo+g.IntN(hi-lo+1)).Masked()
}

// Routes returns a table as a router of the Internet has it: more than half of the IPv4 prefixes
// have 24 bits and most others 16 to 23, half of the IPv6 prefixes have 48. No prefix is there twice.
func Routes(seed uint64, n4, n6 int) []lpm.Route {
	g := newGenerator(seed, "routes")
	routes := make([]lpm.Route, 0, n4+n6)
	seen := make(map[netip.Prefix]bool, n4+n6)
	add := func(n int, make func() netip.Prefix) {
		for end := len(routes) + n; len(routes) < end; {
			if p := make(); !seen[p] {
				seen[p] = true
				routes = append(routes, lpm.Route{Prefix: p, NextHop: uint16(1 + g.IntN(250))})
			}
		}
	}
	add(n4, func() netip.Prefix {
		if g.IntN(100) < 58 {
			return g.prefix4(24, 24)
		}
		if g.IntN(100) < 2 {
			return g.prefix4(25, 32)
		}
		return g.prefix4(16, 23)
	})
	add(n6, func() netip.Prefix {
		if g.IntN(100) < 50 {
			return g.prefix6(48, 48)
		}
		return g.prefix6(28, 64)
	})
	return routes
}

// prefix6 returns a prefix of lo to hi bits inside of 2000::/3.
func (g generator) prefix6(lo, hi int) netip.Prefix {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], g.Uint64())
	a[0] = 0x20 | a[0]&0x1f
	return netip.PrefixFrom(netip.AddrFrom16(a), lo+g.IntN(hi-lo+1)).Masked()
}

// inside returns a random address of p; any IPv4 address where p is the zero value.
func (g generator) inside(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return g.prefix4(32, 32).Addr()
	}
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= byte(g.Uint32()&1) << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// port returns a random port of p.
func (g generator) port(p acl.Ports) uint16 {
	lo, hi, set := p.Range()
	if !set {
		return uint16(1024 + g.IntN(64512))
	}
	return lo + uint16(g.IntN(int(hi-lo)+1))
}

// tables are those of one operation, compiled, and as the lists that the reference scans.
type tables struct {
	seed     uint64
	lists    kernref.Lists
	compiled gpukern.Tables
}

// makeTables makes those of o. Some patterns are cut out of texts, where there are any.
func makeTables(o *Op, seed uint64, texts func() [][]byte) (*tables, error) {
	t := &tables{seed: seed}
	if o.patterns > 0 {
		t.lists.Literals = Literals(seed, o.patterns, texts())
		set, err := literal.Compile(t.lists.Literals)
		if err != nil {
			return nil, fmt.Errorf("patterns: %w", err)
		}
		t.compiled.Literals = set
	}
	if o.rules > 0 {
		t.lists.Rules = Rules(seed, o.rules)
		acl, err := acl.Compile(t.lists.Rules)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		t.compiled.ACL = acl
	}
	if o.routes4+o.routes6 > 0 {
		t.lists.Routes = Routes(seed, o.routes4, o.routes6)
		lpm, err := lpm.Compile(t.lists.Routes)
		if err != nil {
			return nil, fmt.Errorf("routes: %w", err)
		}
		t.compiled.Routes = lpm
	}
	return t, nil
}
