package gpukern

import (
	"fmt"
	"math"
	"net/netip"
)

// Route sends the addresses of a prefix to a next hop.
type Route struct {
	Prefix  netip.Prefix // IPv4 or IPv6, without bits beyond its length
	NextHop uint16       // from 1; what the number means is the caller's affair
}

// LPM is a compiled routing table: longest prefix match over IPv4 and IPv6. It is immutable and may
// be shared by engines. The zero value finds nothing.
type LPM struct {
	v4, v6 trie[uint16]
	direct []uint16 // of many IPv4 routes: see fillDirect
	deep6  bool     // IPv6 routes are longer than 64 bits
	n      int
}

// A table of at least directRoutes IPv4 routes has a direct form too, in 32 MiB: next hops by the first 24
// bits of the address, after Gupta, Lin and McKeown's DIR-24-8 (INFOCOM 1998). One read answers where the
// trie takes two or three and counts bits: twice as fast with ten thousand routes, and never slower. Smaller
// tables are not worth the memory. What it cannot say, it leaves to the trie.
const (
	directRoutes = 10_000
	directBits   = 24
	askTrie      = 1 << 15 // the route is longer, or its next hop does not fit
)

// fillDirect makes the direct form of routes in order.
func (t *LPM) fillDirect(all []route) {
	t.direct = make([]uint16, 1<<directBits)
	for i := range all {
		r := &all[i]
		val, first, n := uint16(r.val), r.hi>>(64-directBits), 1
		if r.bits <= directBits {
			n = 1 << (directBits - r.bits)
		}
		if r.bits > directBits {
			val = askTrie // a next hop that does not fit has the bit itself
		}
		for k := range t.direct[first:][:n] {
			t.direct[int(first)+k] = val
		}
	}
}

// TableError says which entry of a table cannot be compiled, and why.
type TableError struct {
	Entry  string // "rule" or "route"
	N      int    // which, counted from 1
	Reason string
}

// Error implements error.
func (e *TableError) Error() string { return fmt.Sprintf("%s %d: %s", e.Entry, e.N, e.Reason) }

// CompileLPM compiles routes; their order means nothing. The error is a *TableError that names the
// first route in the way: a prefix that is not valid or occurs twice, or a next hop of 0.
func CompileLPM(routes []Route) (*LPM, error) {
	n4 := 0
	for _, r := range routes {
		if r.Prefix.Addr().Is4() {
			n4++
		}
	}
	v4, v6 := make([]route, 0, n4), make([]route, 0, len(routes)-n4)
	for i, r := range routes {
		if reason := checkPrefix(r.Prefix); reason != "" {
			return nil, &TableError{"route", i + 1, reason}
		}
		if r.NextHop == 0 {
			return nil, &TableError{"route", i + 1, "next hop 0 means none; count from 1"}
		}
		one := route{n: uint32(i), val: uint32(r.NextHop), bits: uint8(r.Prefix.Bits())}
		one.hi, one.lo = words(r.Prefix.Addr())
		if r.Prefix.Addr().Is4() {
			v4 = append(v4, one)
		} else {
			v6 = append(v6, one)
		}
	}
	order(v4)
	order(v6)
	if n := min(firstTwice(v4), firstTwice(v6)); n < len(routes) {
		return nil, &TableError{"route", n + 1, fmt.Sprintf("%v is there already", routes[n].Prefix)}
	}
	t := &LPM{v4: trieOf[uint16](v4, firstRow), v6: trieOf[uint16](v6, firstRow), n: len(routes)}
	t.deep6 = longest(v6) > 64
	if len(v4) >= directRoutes {
		t.fillDirect(v4)
	}
	return t, nil
}

// firstTwice returns the first place in the caller's list of a prefix that stands before it too; sorted
// is in order. A place that no list has says that there is none.
func firstTwice(sorted []route) int {
	first := math.MaxInt
	for i := 1; i < len(sorted); i++ {
		if sorted[i].same(&sorted[i-1]) {
			first = min(first, int(sorted[i].n))
		}
	}
	return first
}

// checkPrefix returns what is wrong with p, "" where nothing is.
func checkPrefix(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "the prefix is not valid"
	case p != p.Masked():
		return fmt.Sprintf("%v has bits beyond its length; %v is meant", p, p.Masked())
	}
	return ""
}

// Lookup returns the next hop of a, 0 where no route has it. An IPv4 address in IPv6 form is an
// IPv6 address here, as it is in packets.
func (t *LPM) Lookup(a netip.Addr) uint16 {
	hi, lo := words(a)
	if a.Is4() {
		return t.v4.find(hi, lo)
	}
	return t.v6.find(hi, lo)
}

// LookupWords is Lookup for an address of 128 bits in two words; an IPv4 address, which v4 tells, lies in
// the upper half of hi.
func (t *LPM) LookupWords(hi, lo uint64, v4 bool) uint16 {
	if v4 {
		return t.v4.find(hi, lo)
	}
	return t.v6.find(hi, lo)
}

// Len returns the number of routes.
func (t *LPM) Len() int { return t.n }

// Size returns the memory that the table takes, in bytes.
func (t *LPM) Size() int { return t.v4.size() + t.v6.size() + 2*len(t.direct) }
