package acl_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/wire"
)

func TestRulesMatchAsByScanning(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 500, 4096, 4097, 9000} {
		g := kernref.NewGenerator(uint64(n))
		rules := g.Rules(n)
		if n > 4000 {
			distinct(g, rules)
		}
		probe(t, g, rules, acl.VectorsOf(rules, 0), 4000)
	}
}

// distinct makes most rules match little, so that later ones win too.
func distinct(g kernref.Generator, rules []acl.Rule) {
	for i := range rules {
		rules[i].Proto, rules[i].DstPorts = wire.ProtoTCP, acl.PortRange(uint16(i), uint16(i))
	}
	copy(rules[len(rules)/2:], g.Rules(100))
}

// one matches a packet by itself.
func one(a *acl.List, u tuple.Tuple, v4 bool) uint16 {
	var rule [1]uint16
	a.Match([]tuple.Tuple{u}, v4, rule[:])
	return rule[0]
}

// probe compares a list with a scan of the rules, for packets of both families in turn.
func probe(t *testing.T, g kernref.Generator, rules []acl.Rule, a *acl.List, n int) {
	t.Helper()
	hits := 0
	for i := range n {
		v4 := i%2 == 0
		q := g.Query(v4)
		got, want := one(a, q.Tuple(), v4), q.Rule(rules)
		if got != want {
			t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), q, got, want)
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
	g := kernref.NewGenerator(3)
	rules := g.Rules(1500)
	for _, budget := range []int{5000, 3000, 1500} {
		a := acl.VectorsOf(rules, budget)
		if !a.Coarse() {
			t.Errorf("budget %d: nothing is coarse", budget)
		}
		if n := a.VectorWords(); n > 5*budget {
			t.Errorf("budget %d: %d words", budget, n)
		}
		probe(t, g, rules, a, 4000)
	}
}

// TestTheWorstRulesStayInsideOfTheBudget takes as many rules as there may be, each with other ports
// and addresses, below prefixes that take everything.
func TestTheWorstRulesStayInsideOfTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("short: takes a second")
	}
	rules := make([]acl.Rule, acl.MaxRules)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range rules {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(rng.Uint32())})
		rules[i].Src, _ = a.Prefix(8 + i%25)
		rules[i].DstPorts = acl.PortRange(uint16(i), uint16(i)|0xff)
		rules[i].SrcPorts = acl.PortRange(uint16(rng.Uint32())/2, 65535)
	}
	a, err := acl.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if a.Len() != acl.MaxRules || a.Size() > 100<<20 {
		t.Errorf("%d rules take %d bytes", a.Len(), a.Size())
	}
}

func TestARuleForPortsTakesNoPacketWithoutThem(t *testing.T) {
	a, err := acl.Compile([]acl.Rule{{DstPorts: acl.PortRange(0, 65535)}, {}})
	if err != nil {
		t.Fatal(err)
	}
	if got := one(a, tuple.Tuple{Known: tuple.Addresses}, true); got != 2 {
		t.Errorf("without ports: rule %d", got)
	}
	if got := one(a, tuple.Tuple{Known: tuple.Ports}, true); got != 1 {
		t.Errorf("port 0: rule %d", got)
	}
}

// decided compares a list with a scan of the rules, packet by packet and many at once.
func decided(t *testing.T, rules []acl.Rule, a *acl.List, v4 bool, all []kernref.Query) {
	t.Helper()
	tuples, got := make([]tuple.Tuple, len(all)), make([]uint16, len(all))
	for i, q := range all {
		tuples[i] = q.Tuple()
	}
	a.Match(tuples, v4, got)
	for i, q := range all {
		want := q.Rule(rules)
		if got[i] != want {
			t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), q, got[i], want)
		}
		if alone := one(a, tuples[i], v4); alone != want {
			t.Fatalf("%d rules: %+v alone matches rule %d, by scanning %d", len(rules), q, alone, want)
		}
	}
}

// bothForms runs a test with the vector instructions of the machine, and without.
func bothForms(t *testing.T, test func(t *testing.T)) {
	t.Run("fast", test)
	acl.PlainForm(t)
	t.Run("plain", test)
}

// rulesOf returns a list of one of the lengths. One list in four has sources and destinations that are short, or not there.
func rulesOf(g kernref.Generator, seed uint64, lengths ...int) []acl.Rule {
	rules := g.Rules(lengths[seed%uint64(len(lengths))])
	if seed%4 != 0 {
		return rules
	}
	for i := range rules {
		if g.Chance(40) {
			rules[i].Src = netip.PrefixFrom(netip.AddrFrom4([4]byte{192}), 2+g.IntN(7)).Masked()
			rules[i].Dst = netip.Prefix{}
		}
	}
	return rules
}

func TestDecisionsMatchAsByScanning(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		taken := 0
		for seed := range uint64(60) {
			g := kernref.NewGenerator(seed)
			rules := rulesOf(g, seed, 1, 3, 17, 40, 120, 300)
			for _, v4 := range []bool{true, false} {
				d := acl.DecisionOf(rules, v4)
				if d == nil {
					continue
				}
				taken++
				var all []kernref.Query
				for range 700 {
					all = append(all, g.Query(v4))
				}
				decided(t, rules, d, v4, all)
			}
		}
		if taken < 80 {
			t.Errorf("only %d of 120 lists have a decision", taken)
		}
	})
}

func TestDecisionsMatchAccessLists(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		for _, n := range []int{10, 100, 1000, 10000} {
			g := kernref.Generator{Rand: rand.New(rand.NewPCG(uint64(n), 3))}
			rules := kernref.ClassBench(g, n)
			d := acl.DecisionOf(rules, true)
			if d == nil {
				t.Fatalf("%d rules have no decision", n)
			}
			if d.Size() > 64+400*n {
				t.Errorf("%d rules take %d bytes", n, d.Size())
			}
			next := kernref.TraceFor(g, rules)
			var all []kernref.Query
			for range 1200 {
				all = append(all, query(next()))
			}
			decided(t, rules, d, true, all)
		}
	})
}

// TestListsThatStayLongHaveVectors takes rules that all match the same packets.
func TestListsThatStayLongHaveVectors(t *testing.T) {
	rules := make([]acl.Rule, acl.ListMost+1)
	if d := acl.DecisionOf(rules, true); d != nil {
		t.Error("a list of rules that nothing tells apart has a decision")
	}
	if d := acl.DecisionOf(rules[:acl.ListMost], true); d == nil {
		t.Error("a list of rules that is just short enough has none")
	}
	a, err := acl.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if got := one(a, tuple.Tuple{Known: tuple.Addresses}, true); got != 1 {
		t.Errorf("rule %d", got)
	}
}

// kernelRules compares gk_acl with a scan of the rules, for n packets of each family.
func kernelRules(t *testing.T, l *hostkern.Library, g kernref.Generator, rules []acl.Rule, a *acl.List, n int) {
	t.Helper()
	m4, m6 := a.Images()
	for _, v4 := range []bool{true, false} {
		in, want := make([]hostkern.Tuple, n), make([]uint16, n)
		for i := range in {
			q := g.Query(v4)
			u := q.Tuple()
			in[i], want[i] = hostkern.TupleOf(&u, v4), q.Rule(rules)
		}
		m := m6
		if v4 {
			m = m4
		}
		for i, got := range l.Lookup(t, "gk_test_acl_kernel", m, unsafe.Pointer(&in[0]), n) {
			if got != uint32(want[i]) {
				t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), in[i], got, want[i])
			}
		}
	}
}

func TestKernelsMatchRulesAsByScanning(t *testing.T) {
	l := hostkern.Open(t, "testdata/tables.cu")
	for _, n := range []int{0, 1, 2, 64, 65, 256, 257, 500, 4097, 9000} {
		g := kernref.NewGenerator(uint64(n))
		rules := g.Rules(n)
		if n > 4000 {
			distinct(g, rules)
		}
		a, err := acl.Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		kernelRules(t, l, g, rules, a, 2000)
		kernelRules(t, l, g, rules, acl.VectorsOf(rules, 0), 1000)
	}
	kernelRules(t, l, kernref.NewGenerator(1), nil, nil, 100)
}

func TestKernelsMatchCoarseVectorsAsByScanning(t *testing.T) {
	l := hostkern.Open(t, "testdata/tables.cu")
	g := kernref.NewGenerator(3)
	rules := g.Rules(1500)
	for _, budget := range []int{5000, 1500} {
		a := acl.VectorsOf(rules, budget)
		if !a.Coarse() {
			t.Errorf("budget %d: nothing is coarse", budget)
		}
		kernelRules(t, l, g, rules, a, 2000)
	}
}

func TestKernelsMatchClassBench(t *testing.T) {
	l := hostkern.Open(t, "testdata/tables.cu")
	g := kernref.NewGenerator(5)
	rules := kernref.ClassBench(g, 3000)
	a, err := acl.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	next := kernref.TraceFor(g, rules)
	in, want := make([]hostkern.Tuple, 4000), make([]uint16, 4000)
	for i := range in {
		q := query(next())
		u := q.Tuple()
		in[i], want[i] = hostkern.TupleOf(&u, true), q.Rule(rules)
	}
	m, _ := a.Images()
	for i, got := range l.Lookup(t, "gk_test_acl_kernel", m, unsafe.Pointer(&in[0]), len(in)) {
		if got != uint32(want[i]) {
			t.Fatalf("%+v matches rule %d, by scanning %d", in[i], got, want[i])
		}
	}
}

// query returns a TCP or UDP packet over IPv4.
func query(src, dst [4]byte, sport, dport uint16, proto uint8) kernref.Query {
	return kernref.Query{Src: netip.AddrFrom4(src), Dst: netip.AddrFrom4(dst), SrcPort: uint32(sport), DstPort: uint32(dport), Proto: proto}
}

func TestRulesThatMakeNoSenseAreRejected(t *testing.T) {
	p := netip.MustParsePrefix
	for _, tc := range []struct {
		rules []acl.Rule
		want  string
	}{
		{[]acl.Rule{{}, {Src: p("10.0.0.1/8")}}, "rule 2: 10.0.0.1/8 has bits beyond its length; 10.0.0.0/8 is meant"},
		{[]acl.Rule{{Src: p("10.0.0.0/8"), Dst: p("::/0")}}, "rule 1: 10.0.0.0/8 and ::/0 are of different families"},
		{[]acl.Rule{{SrcPorts: acl.PortRange(2, 1)}}, "rule 1: ports 2-1: the first is above the last"},
		{[]acl.Rule{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 33)}}, "rule 1: the prefix is not valid"},
		{make([]acl.Rule, acl.MaxRules+1), "rule 65535: a list has at most 65534 rules"},
	} {
		_, err := acl.Compile(tc.rules)
		var bad *acl.RuleError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}
