package gpukern

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// decided compares a decision with a scan of the rules, packet by packet and many at once, in the forms that
// the machine has.
func decided(t *testing.T, rules []Rule, d *decision, refs []*refPacket, tuples []tuple) {
	t.Helper()
	m := new(matcher)
	var best [chunkSize]uint16
	for from := 0; from < len(tuples); from += chunkSize {
		part := tuples[from:min(from+chunkSize, len(tuples))]
		who := everyone[:len(part)]
		d.match(m, part, who, &best)
		for i := range part {
			want := scanRules(rules, refs[from+i])
			if got := best[i] + 1; got != want {
				t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), *refs[from+i], got, want)
			}
			if got := d.find(&part[i]); got != want {
				t.Fatalf("%d rules: %+v alone matches rule %d, by scanning %d", len(rules), *refs[from+i], got, want)
			}
		}
	}
}

// bothForms runs a test with the vector instructions of the machine, and without.
func bothForms(t *testing.T, test func(t *testing.T)) {
	t.Run("fast", test)
	plainForm(t)
	t.Run("plain", test)
}

func TestDecisionsMatchAsByScanning(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		taken := 0
		for seed := range uint64(60) {
			g := newGenerator(seed)
			rules := g.rules([]int{1, 3, 17, 40, 120, 300}[seed%6])
			if seed%4 == 0 { // sources and destinations that are short, or not there
				for i := range rules {
					if g.chance(40) {
						rules[i].Src = netip.PrefixFrom(netip.AddrFrom4([4]byte{192}), 2+g.IntN(7)).Masked()
						rules[i].Dst = netip.Prefix{}
					}
				}
			}
			for _, v4 := range []bool{true, false} {
				d := decide(rules, v4)
				if d == nil {
					continue
				}
				taken++
				var refs []*refPacket
				var tuples []tuple
				for range 700 {
					r, u := refOf(g, v4)
					refs, tuples = append(refs, r), append(tuples, *u)
				}
				decided(t, rules, d, refs, tuples)
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
			g := generator{rand.New(rand.NewPCG(uint64(n), 3))}
			rules := classBench(g, n)
			d := decide(rules, true)
			if d == nil {
				t.Fatalf("%d rules have no decision", n)
			}
			if d.size() > 64+400*n {
				t.Errorf("%d rules take %d bytes", n, d.size())
			}
			next := traceFor(g, rules)
			var refs []*refPacket
			var tuples []tuple
			for range 1200 {
				r, u := tupleOf(next())
				refs, tuples = append(refs, r), append(tuples, *u)
			}
			decided(t, rules, d, refs, tuples)
		}
	})
}

// TestListsThatStayLongHaveVectors takes rules that all match the same packets.
func TestListsThatStayLongHaveVectors(t *testing.T) {
	rules := make([]Rule, listMost+1)
	if d := decide(rules, true); d != nil {
		t.Error("a list of rules that nothing tells apart has a decision")
	}
	if d := decide(rules[:listMost], true); d == nil {
		t.Error("a list of rules that is just short enough has none")
	}
	a, err := CompileACL(rules)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.v4.one(&tuple{known: knowsAddresses}); got != 1 {
		t.Errorf("rule %d", got)
	}
}

// TestRoutesAreFoundManyAtOnce compares the forms that take many addresses with those that take one.
func TestRoutesAreFoundManyAtOnce(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		for seed := range uint64(12) {
			g := newGenerator(seed)
			routes := g.routes([]int{0, 1, 6, 90, 700, 4000}[seed%6])
			if seed >= 6 {
				routes = append(internet(g, directRoutes+int(seed)), without4(routes, 64)...)
			}
			for i := range routes {
				if seed%2 == 0 && i%5 == 0 {
					routes[i].NextHop |= askTrie
				}
			}
			table, err := CompileLPM(routes)
			if err != nil {
				t.Fatal(err)
			}
			var prefixes []netip.Prefix
			for _, r := range routes[:min(len(routes), 3000)] {
				prefixes = append(prefixes, r.Prefix)
			}
			many(t, table, probes(g, prefixes))
		}
	})
}

// without4 returns the IPv6 routes of at most so many bits: those leave the first word to the fast form.
func without4(routes []Route, bits int) []Route {
	var out []Route
	for _, r := range routes {
		if r.Prefix.Addr().Is6() && r.Prefix.Bits() <= bits {
			out = append(out, r)
		}
	}
	return out
}

func many(t *testing.T, table *LPM, all []netip.Addr) {
	t.Helper()
	var a4 []uint32
	var a6 [][2]uint64
	var want4, want6 []uint16
	for _, a := range all {
		hi, lo := words(a)
		if a.Is4() {
			a4, want4 = append(a4, uint32(hi>>32)), append(want4, table.Lookup(a))
		} else {
			a6, want6 = append(a6, [2]uint64{hi, lo}), append(want6, table.Lookup(a))
		}
	}
	got4, got6 := make([]uint16, len(a4)), make([]uint16, len(a6))
	table.Lookup4(a4, got4)
	table.Lookup6(a6, got6)
	for i, got := range got4 {
		if got != want4[i] {
			t.Fatalf("%x leads to %d, alone to %d", a4[i], got, want4[i])
		}
	}
	for i, got := range got6 {
		if got != want6[i] {
			t.Fatalf("%x leads to %d, alone to %d", a6[i], got, want6[i])
		}
	}
}
