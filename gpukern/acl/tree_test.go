package acl_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/kernref"
)

func TestTreesMatchAsByScanning(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		taken := 0
		for seed := range uint64(60) {
			g := kernref.NewGenerator(seed)
			rules := rulesOf(g, seed, 0, 1, 3, 17, 40, 120, 300)
			a := acl.TreeOf(rules)
			if a == nil {
				continue
			}
			taken++
			var all []kernref.Query
			for range 700 {
				all = append(all, g.Query(true))
			}
			decided(t, rules, a, true, all)
		}
		if taken < 50 {
			t.Errorf("only %d of 60 lists have a tree", taken)
		}
	})
}

func TestTreesMatchAccessLists(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		for _, n := range []int{10, 100, 1000, 10000} {
			g := kernref.Generator{Rand: rand.New(rand.NewPCG(uint64(n), 3))}
			rules := kernref.ClassBench(g, n)
			a := acl.TreeOf(rules)
			if a == nil {
				t.Fatalf("%d rules have no tree", n)
			}
			trees, words, blocks, bytes := a.TreeShape()
			t.Logf("%d rules: %d trees, %d words, %d blocks, %d bytes", n, trees, words, blocks, bytes)
			next := kernref.TraceFor(g, rules)
			var all []kernref.Query
			for range 1200 {
				all = append(all, query(next()))
			}
			decided(t, rules, a, true, all)
		}
	})
}

// TestTreesTellNestedMasksApart takes all pairs of prefix lengths around some hosts, longest first: each region
// between two masks has another answer.
func TestTreesTellNestedMasksApart(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 7))
		var rules []acl.Rule
		var all []kernref.Query
		for range 3 {
			src, dst := rng.Uint32(), rng.Uint32()
			for s := 32; s > 8; s-- {
				for d := 32; d > 8; d-- {
					rules = append(rules, acl.Rule{Src: prefix4(src, s), Dst: prefix4(dst, d)})
					all = append(all, kernref.Query{Src: near(rng, src), Dst: near(rng, dst), Proto: 6, SrcPort: 1, DstPort: 2})
				}
			}
		}
		a := acl.TreeOf(rules)
		if a == nil {
			t.Fatal("no tree")
		}
		decided(t, rules, a, true, all)
	})
}

func addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}

func prefix4(v uint32, bits int) netip.Prefix { return netip.PrefixFrom(addr4(v), bits).Masked() }

// near returns an address that has some first bits of v.
func near(rng *rand.Rand, v uint32) netip.Addr { return addr4(v ^ rng.Uint32()>>rng.IntN(33)) }

// TestTreesHaveRulesThatHideOthers takes a rule for all packets with ports before one for all packets.
func TestTreesHaveRulesThatHideOthers(t *testing.T) {
	rules := []acl.Rule{{Proto: 17}, {DstPorts: acl.PortRange(0, 65535)}, {Proto: 6}, {}, {Proto: 1}}
	a := acl.TreeOf(rules)
	decided(t, rules, a, true, []kernref.Query{
		{Src: addr4(1), Dst: addr4(2), Proto: 6, SrcPort: 1 << 16, DstPort: 1 << 16},
		{Src: addr4(1), Dst: addr4(2), Proto: 1, SrcPort: 1 << 16, DstPort: 1 << 16},
		{Src: addr4(1), Dst: addr4(2), Proto: 6, SrcPort: 0, DstPort: 0},
		{Src: addr4(1), Dst: addr4(2), Proto: 17, SrcPort: 9, DstPort: 9},
	})
}

// TestTreesTellRangesFromPrefixes takes ranges of two and four ports, of which those of two begin at an odd one.
func TestTreesTellRangesFromPrefixes(t *testing.T) {
	var rules []acl.Rule
	var all []kernref.Query
	for lo := uint16(0); lo < 400; lo += 4 {
		rules = append(rules, acl.Rule{DstPorts: acl.PortRange(lo+1, lo+2)}, acl.Rule{DstPorts: acl.PortRange(lo, lo+3), Proto: 6}, acl.Rule{DstPorts: acl.PortRange(lo, lo+3)})
	}
	for port := range uint32(410) {
		for proto := range uint8(8) {
			all = append(all, kernref.Query{Src: addr4(1), Dst: addr4(2), Proto: proto, SrcPort: 1, DstPort: port})
		}
	}
	decided(t, rules, acl.TreeOf(rules), true, all)
}

// TestListsWithoutATreeStillMatch takes more alike rules than a leaf has.
func TestListsWithoutATreeStillMatch(t *testing.T) {
	var rules []acl.Rule
	for i := range 80 { // every pair of ranges overlaps, none contains another
		rules = append(rules, acl.Rule{SrcPorts: acl.PortRange(uint16(i), uint16(40000+i)), DstPorts: acl.PortRange(uint16(200-i), uint16(50000-i))})
	}
	for _, n := range []int{60, 80} {
		a, err := acl.Compile(rules[:n])
		if err != nil {
			t.Fatal(err)
		}
		var all []kernref.Query
		rng := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			all = append(all, kernref.Query{Src: addr4(1), Dst: addr4(2), Proto: 6, SrcPort: rng.Uint32N(100), DstPort: rng.Uint32N(256)})
		}
		decided(t, rules[:n], a, true, all)
	}
}

// FuzzTree makes rules and packets of bytes, near each other, and compares a tree with a scan of the rules.
func FuzzTree(f *testing.F) {
	f.Add([]byte{3, 0, 32, 24, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{200, 1, 2, 3, 16, 32, 8, 0, 0, 255, 254, 1, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			at++
			return int(data[at%len(data)]) + at/len(data)*37&0xff
		}
		addr := func() uint32 {
			return uint32(next()%4)<<24 | uint32(next()%4)<<12 | uint32(next()&3)<<6 | uint32(next())
		}
		ports := func() acl.Ports {
			lo := next() * 17
			switch next() % 3 {
			case 0:
				return acl.Ports{}
			case 1:
				return acl.PortRange(uint16(lo), uint16(lo))
			}
			return acl.PortRange(uint16(lo), uint16(min(lo+next()*next(), 65535)))
		}
		rules := make([]acl.Rule, min(len(data)*2, 120))
		for i := range rules {
			rules[i] = acl.Rule{Src: prefix4(addr(), next()%33), Dst: prefix4(addr(), next()%33), SrcPorts: ports(), DstPorts: ports(), Proto: uint8(next() % 3)}
			if next()%5 == 0 {
				rules[i].Src = netip.Prefix{}
			}
		}
		a := acl.TreeOf(rules)
		if a == nil {
			return
		}
		all := make([]kernref.Query, 70)
		for i := range all {
			all[i] = kernref.Query{Src: addr4(addr()), Dst: addr4(addr()), Proto: uint8(next() % 3), SrcPort: uint32(next() * 17), DstPort: uint32(next() * 17)}
			if next()%6 == 0 {
				all[i].SrcPort, all[i].DstPort = 1<<16, 1<<16
			}
		}
		decided(t, rules, a, true, all)
	})
}
