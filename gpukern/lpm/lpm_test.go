package lpm_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

func TestRoutesAreFoundAsByScanning(t *testing.T) {
	for seed := range uint64(40) {
		g := kernref.NewGenerator(seed)
		routes := g.Routes(1 + g.IntN(400))
		if seed == 0 {
			routes = nil
		}
		for _, bits := range []string{"0.0.0.0/0", "::/0", "128.0.0.0/1", "::ffff:0:0/96"} {
			p := netip.MustParsePrefix(bits)
			if g.Chance(30) && !slices.ContainsFunc(routes, func(r lpm.Route) bool { return r.Prefix == p }) {
				routes = append(routes, lpm.Route{Prefix: p, NextHop: 65535})
			}
		}
		l, err := lpm.Compile(routes)
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
		for _, a := range kernref.Probes(g, prefixes) {
			if got, want := l.Lookup(a), kernref.ScanRoutes(routes, a); got != want {
				t.Fatalf("seed %d: %v leads to %d, by scanning to %d", seed, a, got, want)
			}
			hi, lo := tuple.Words(a)
			if got, want := l.LookupWords(hi, lo, a.Is4()), l.Lookup(a); got != want {
				t.Fatalf("seed %d: the words of %v lead to %d, it to %d", seed, a, got, want)
			}
		}
	}
}

func TestALargeTableOfRoutesStaysSmall(t *testing.T) {
	g := kernref.NewGenerator(1)
	routes := kernref.Internet(g, 100000)
	l, err := lpm.Compile(routes)
	if err != nil {
		t.Fatal(err)
	}
	if l.Size() > 8<<20+2<<lpm.DirectBits {
		t.Errorf("100000 routes take %d bytes", l.Size())
	}
	for range 200 {
		a := netip.AddrFrom4([4]byte(g.Bytes(4)))
		if got, want := l.Lookup(a), kernref.ScanRoutes(routes, a); got != want {
			t.Fatalf("%v leads to %d, by scanning to %d", a, got, want)
		}
	}
}

// TestRoutesAreFoundManyAtOnce compares the forms that take many addresses with those that take one.
func TestRoutesAreFoundManyAtOnce(t *testing.T) {
	bothForms(t, func(t *testing.T) {
		for seed := range uint64(12) {
			g := kernref.NewGenerator(seed)
			routes := g.Routes([]int{0, 1, 6, 90, 700, 4000}[seed%6])
			if seed >= 6 {
				routes = append(kernref.Internet(g, lpm.DirectRoutes+int(seed)), without4(routes, 64)...)
			}
			for i := range routes {
				if seed%2 == 0 && i%5 == 0 {
					routes[i].NextHop |= lpm.AskTrie
				}
			}
			table, err := lpm.Compile(routes)
			if err != nil {
				t.Fatal(err)
			}
			var prefixes []netip.Prefix
			for _, r := range routes[:min(len(routes), 3000)] {
				prefixes = append(prefixes, r.Prefix)
			}
			many(t, table, kernref.Probes(g, prefixes))
		}
	})
}

// without4 returns the IPv6 routes of at most so many bits: those leave the first word to the fast form.
func without4(routes []lpm.Route, bits int) []lpm.Route {
	var out []lpm.Route
	for _, r := range routes {
		if r.Prefix.Addr().Is6() && r.Prefix.Bits() <= bits {
			out = append(out, r)
		}
	}
	return out
}

func many(t *testing.T, table *lpm.Table, all []netip.Addr) {
	t.Helper()
	var a4 []uint32
	var a6 [][2]uint64
	var want4, want6 []uint16
	for _, a := range all {
		hi, lo := tuple.Words(a)
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

// bothForms runs a test with the vector instructions of the machine, and without.
func bothForms(t *testing.T, test func(t *testing.T)) {
	t.Run("fast", test)
	lpm.PlainForm(t)
	t.Run("plain", test)
}

// kernelRoutes compares gk_lpm with a table, which other tests compare with a scan.
func kernelRoutes(t *testing.T, l *hostkern.Library, table *lpm.Table, all []netip.Addr) {
	t.Helper()
	m4, m6 := table.Images()
	for _, v4 := range []bool{true, false} {
		var in [][2]uint64
		var mine []netip.Addr
		for _, a := range all {
			if a.Is4() == v4 {
				hi, lo := tuple.Words(a)
				in, mine = append(in, [2]uint64{hi, lo}), append(mine, a)
			}
		}
		m := m6
		if v4 {
			m = m4
		}
		for i, got := range l.Lookup(t, "gk_test_lpm_kernel", m, unsafe.Pointer(&in[0]), len(in)) {
			if want := table.Lookup(mine[i]); got != uint32(want) {
				t.Fatalf("%v leads to %d, want %d", mine[i], got, want)
			}
		}
	}
}

func TestKernelsFindRoutesAsTheTableDoes(t *testing.T) {
	l := hostkern.Open(t, "testdata/tables.cu")
	for seed := range uint64(12) {
		g := kernref.NewGenerator(seed)
		routes := g.Routes([]int{0, 1, 5, 60, 400, 3000}[seed%6])
		if seed == 11 {
			routes = kernref.Internet(g, 20000)
		}
		table, err := lpm.Compile(routes)
		if err != nil {
			t.Fatal(err)
		}
		var prefixes []netip.Prefix
		for _, r := range routes {
			prefixes = append(prefixes, r.Prefix)
		}
		kernelRoutes(t, l, table, kernref.Probes(g, prefixes))
	}
	kernelRoutes(t, l, new(lpm.Table), kernref.Probes(kernref.NewGenerator(1), nil))
	if m4, m6 := (*lpm.Table)(nil).Images(); len(m4.Parts)+len(m6.Parts) != 0 || len(m4.Struct) != len(m6.Struct) {
		t.Error("no table has parts")
	}
}

func TestRoutesThatMakeNoSenseAreRejected(t *testing.T) {
	p := netip.MustParsePrefix
	for _, tc := range []struct {
		routes []lpm.Route
		want   string
	}{
		{[]lpm.Route{{Prefix: p("10.0.0.0/8")}}, "route 1: next hop 0"},
		{[]lpm.Route{{Prefix: p("10.0.0.0/8"), NextHop: 1}, {Prefix: p("::/0"), NextHop: 1}, {Prefix: p("10.0.0.0/8"), NextHop: 1}}, "route 3: 10.0.0.0/8 is there already"},
		{[]lpm.Route{{}}, "route 1: the prefix is not valid"},
	} {
		_, err := lpm.Compile(tc.routes)
		var bad *lpm.RouteError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}
