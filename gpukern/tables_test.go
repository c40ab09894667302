package gpukern

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

// probes returns addresses where a routing table changes its mind: the ends of each prefix and
// their neighbours, and some at random.
func probes(g generator, prefixes []netip.Prefix) []netip.Addr {
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
		all = append(all, netip.AddrFrom4(g.addr4()), netip.AddrFrom16(g.addr6()))
	}
	return all
}

func TestRoutesAreFoundAsByScanning(t *testing.T) {
	for seed := range uint64(40) {
		g := newGenerator(seed)
		routes := g.routes(1 + g.IntN(400))
		if seed == 0 {
			routes = nil
		}
		for _, bits := range []string{"0.0.0.0/0", "::/0", "128.0.0.0/1", "::ffff:0:0/96"} {
			p := netip.MustParsePrefix(bits)
			if g.chance(30) && !slices.ContainsFunc(routes, func(r Route) bool { return r.Prefix == p }) {
				routes = append(routes, Route{p, 65535})
			}
		}
		l, err := CompileLPM(routes)
		if err != nil {
			t.Fatal(err)
		}
		if l.Len() != len(routes) {
			t.Errorf("%d routes, want %d", l.Len(), len(routes))
		}
		var prefixes []netip.Prefix
		for _, r := range routes {
			prefixes = append(prefixes, r.Prefix)
		}
		for _, a := range probes(g, prefixes) {
			if got, want := l.Lookup(a), scanRoutes(routes, a); got != want {
				t.Fatalf("seed %d: %v leads to %d, by scanning to %d", seed, a, got, want)
			}
			hi, lo := words(a)
			if got, want := l.LookupWords(hi, lo, a.Is4()), l.Lookup(a); got != want {
				t.Fatalf("seed %d: the words of %v lead to %d, it to %d", seed, a, got, want)
			}
		}
	}
}

func TestALargeTableOfRoutesStaysSmall(t *testing.T) {
	g := newGenerator(1)
	routes := internet(g, 100000)
	l, err := CompileLPM(routes)
	if err != nil {
		t.Fatal(err)
	}
	if l.Size() > 8<<20+2<<directBits {
		t.Errorf("100000 routes take %d bytes", l.Size())
	}
	for range 200 {
		a := netip.AddrFrom4([4]byte(g.bytes(4)))
		if got, want := l.Lookup(a), scanRoutes(routes, a); got != want {
			t.Fatalf("%v leads to %d, by scanning to %d", a, got, want)
		}
	}
}

// refOf returns a packet of random addresses, ports and protocol, as scanRules takes it and as
// classifiers do.
func refOf(g generator, v4 bool) (*refPacket, *tuple) {
	r := &refPacket{src: netip.AddrFrom16(g.addr6()), dst: netip.AddrFrom16(g.addr6()), sport: noPort, dport: noPort}
	if v4 {
		r.src, r.dst = netip.AddrFrom4(g.addr4()), netip.AddrFrom4(g.addr4())
	}
	r.proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6, uint8(g.Uint32())}[g.IntN(5)]
	u := &tuple{proto: r.proto, known: knowsAddresses}
	u.srcHi, u.srcLo = words(r.src)
	u.dstHi, u.dstLo = words(r.dst)
	if g.chance(80) {
		r.sport, r.dport = uint32(g.port()), uint32(g.port())
		u.ports, u.known = r.sport<<16|r.dport, knowsPorts
	}
	return r, u
}

// one matches a packet as engines do.
func (f *family) one(t *tuple) uint16 {
	var best [chunkSize]uint16
	f.match(new(matcher), []tuple{*t}, everyone[:1], &best)
	return best[0] + 1
}

// match finds the rule of t, from its addresses on.
func (c *classifier) match(t *tuple) uint16 {
	if len(c.rules) == 0 {
		return 0
	}
	var v [5]uint32
	c.fields(t, &v)
	return c.first(t, &v)
}

func TestRulesMatchAsByScanning(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 500, 4096, 4097, 9000} {
		g := newGenerator(uint64(n))
		rules := g.rules(n)
		if n > 4000 {
			distinct(g, rules)
		}
		var c [2]classifier
		c[0].compile(rules, (*Rule).for4, vectorBudget)
		c[1].compile(rules, (*Rule).for6, vectorBudget)
		probe(t, g, rules, &c, 4000)
	}
}

// distinct makes most rules match little, so that later ones win too.
func distinct(g generator, rules []Rule) {
	for i := range rules {
		rules[i].Proto, rules[i].DstPorts = wire.ProtoTCP, PortRange(uint16(i), uint16(i))
	}
	copy(rules[len(rules)/2:], g.rules(100))
}

// probe compares classifiers for both families with a scan of the rules.
func probe(t *testing.T, g generator, rules []Rule, c *[2]classifier, n int) {
	t.Helper()
	hits := 0
	for i := range n {
		r, u := refOf(g, i%2 == 0)
		got, want := c[i%2].match(u), scanRules(rules, r)
		if got != want {
			t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), *r, got, want)
		}
		if got != 0 {
			hits++
		}
	}
	if len(rules) > 100 && hits < n/20 {
		t.Errorf("%d rules: only %d of %d packets match", len(rules), hits, n)
	}
}

func TestCoarseVectorsMatchAsByScanning(t *testing.T) {
	g := newGenerator(3)
	rules := g.rules(1500)
	for _, budget := range []int{5000, 3000, 1500} {
		var c [2]classifier
		c[0].compile(rules, (*Rule).for4, budget)
		c[1].compile(rules, (*Rule).for6, budget)
		if !c[0].coarse && !c[1].coarse {
			t.Errorf("budget %d: nothing is coarse", budget)
		}
		if len(c[0].vec) > 5*budget {
			t.Errorf("budget %d: %d words", budget, len(c[0].vec))
		}
		probe(t, g, rules, &c, 4000)
	}
}

// TestTheWorstRulesStayInsideOfTheBudget takes as many rules as there may be, each with other ports
// and addresses, below prefixes that take everything.
func TestTheWorstRulesStayInsideOfTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("short: takes a second")
	}
	rules := make([]Rule, MaxRules)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range rules {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(rng.Uint32())})
		rules[i].Src, _ = a.Prefix(8 + i%25)
		rules[i].DstPorts = PortRange(uint16(i), uint16(i)|0xff)
		rules[i].SrcPorts = PortRange(uint16(rng.Uint32())/2, 65535)
	}
	a, err := CompileACL(rules)
	if err != nil {
		t.Fatal(err)
	}
	if a.Len() != MaxRules || a.Size() > 100<<20 {
		t.Errorf("%d rules take %d bytes", a.Len(), a.Size())
	}
}

func TestTablesThatMakeNoSenseAreRefused(t *testing.T) {
	p := netip.MustParsePrefix
	for _, tc := range []struct {
		rules  []Rule
		routes []Route
		want   string
	}{
		{rules: []Rule{{}, {Src: p("10.0.0.1/8")}}, want: "rule 2: 10.0.0.1/8 has bits beyond its length; 10.0.0.0/8 is meant"},
		{rules: []Rule{{Src: p("10.0.0.0/8"), Dst: p("::/0")}}, want: "rule 1: 10.0.0.0/8 and ::/0 are of different families"},
		{rules: []Rule{{SrcPorts: PortRange(2, 1)}}, want: "rule 1: ports 2-1: the first is above the last"},
		{rules: []Rule{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 33)}}, want: "rule 1: the prefix is not valid"},
		{rules: make([]Rule, MaxRules+1), want: "rule 65535: a list has at most 65534 rules"},
		{routes: []Route{{p("10.0.0.0/8"), 0}}, want: "route 1: next hop 0"},
		{routes: []Route{{p("10.0.0.0/8"), 1}, {p("::/0"), 1}, {p("10.0.0.0/8"), 1}}, want: "route 3: 10.0.0.0/8 is there already"},
		{routes: []Route{{}}, want: "route 1: the prefix is not valid"},
	} {
		_, err := CompileACL(tc.rules)
		if err == nil {
			_, err = CompileLPM(tc.routes)
		}
		var bad *TableError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}

func TestARuleForPortsTakesNoPacketWithoutThem(t *testing.T) {
	a, err := CompileACL([]Rule{{DstPorts: PortRange(0, 65535)}, {}})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.v4.one(&tuple{known: knowsAddresses}); got != 2 {
		t.Errorf("without ports: rule %d", got)
	}
	if got := a.v4.one(&tuple{known: knowsPorts}); got != 1 {
		t.Errorf("port 0: rule %d", got)
	}
}
