package gpukern

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/internal/hostkern"
)

// testKernels are the kernels that look up tables and do nothing else.
const testKernels = "testdata/tables.cu"

// place writes the addresses of m's parts into its struct, as whoever brings it to a device does. The
// result is to be kept while kernels run, and m too.
func (m *Image) place() []byte {
	out := append([]byte(nil), m.Struct...)
	for _, p := range m.Parts {
		binary.LittleEndian.PutUint64(out[p.At:], uint64(uintptr(unsafe.Pointer(&p.Data[0]))))
	}
	return out
}

// lookIn runs a kernel of testKernels with the table m over n entries of input and returns what it found.
func lookIn(t *testing.T, l *hostkern.Library, kernel string, m Image, input unsafe.Pointer, n int) []uint32 {
	t.Helper()
	found := make([]uint32, n)
	params := m.place()
	if len(params)%8 != 0 {
		t.Fatalf("%s: the struct has %d bytes", kernel, len(params))
	}
	for _, v := range []uint64{uint64(uintptr(input)), uint64(uintptr(unsafe.Pointer(&found[0]))), uint64(n)} {
		params = binary.LittleEndian.AppendUint64(params, v)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(input)
	pin.Pin(&found[0])
	l.Run(t, kernel, unsafe.Pointer(&params[0]), 3, 64, 0)
	runtime.KeepAlive(m.Parts)
	return found
}

// gkTuple is struct gk_tuple.
type gkTuple struct {
	srcHi, srcLo, dstHi, dstLo uint64
	ports, end                 uint32
	proto, known, v4           uint8
	_                          [5]uint8
}

func (t *tuple) gk(v4 bool) gkTuple {
	g := gkTuple{t.srcHi, t.srcLo, t.dstHi, t.dstLo, t.ports, t.end, t.proto, uint8(t.known), 0, [5]uint8{}}
	if v4 {
		g.v4 = 1
	}
	return g
}

// kernelRoutes compares gk_lpm with a table, which other tests compare with a scan.
func kernelRoutes(t *testing.T, l *hostkern.Library, table *LPM, all []netip.Addr) {
	t.Helper()
	m4, m6 := table.Images()
	for _, v4 := range []bool{true, false} {
		var in [][2]uint64
		var mine []netip.Addr
		for _, a := range all {
			if a.Is4() == v4 {
				hi, lo := words(a)
				in, mine = append(in, [2]uint64{hi, lo}), append(mine, a)
			}
		}
		m := m6
		if v4 {
			m = m4
		}
		for i, got := range lookIn(t, l, "gk_test_lpm_kernel", m, unsafe.Pointer(&in[0]), len(in)) {
			if want := table.Lookup(mine[i]); got != uint32(want) {
				t.Fatalf("%v leads to %d, want %d", mine[i], got, want)
			}
		}
	}
}

func TestKernelsFindRoutesAsTheTableDoes(t *testing.T) {
	l := hostkern.Open(t, testKernels)
	for seed := range uint64(12) {
		g := newGenerator(seed)
		routes := g.routes([]int{0, 1, 5, 60, 400, 3000}[seed%6])
		if seed == 11 {
			routes = internet(g, 20000)
		}
		table, err := CompileLPM(routes)
		if err != nil {
			t.Fatal(err)
		}
		var prefixes []netip.Prefix
		for _, r := range routes {
			prefixes = append(prefixes, r.Prefix)
		}
		kernelRoutes(t, l, table, probes(g, prefixes))
	}
	kernelRoutes(t, l, new(LPM), probes(newGenerator(1), nil))
	if m4, m6 := (*LPM)(nil).Images(); len(m4.Parts)+len(m6.Parts) != 0 || len(m4.Struct) != len(m6.Struct) {
		t.Error("no table has parts")
	}
}

// kernelRules compares gk_acl with a scan of the rules, for n packets of each family.
func kernelRules(t *testing.T, l *hostkern.Library, g generator, rules []Rule, a *ACL, n int) {
	t.Helper()
	m4, m6 := a.Images()
	for _, v4 := range []bool{true, false} {
		in, want := make([]gkTuple, n), make([]uint16, n)
		for i := range in {
			r, u := refOf(g, v4)
			in[i], want[i] = u.gk(v4), scanRules(rules, r)
		}
		m := m6
		if v4 {
			m = m4
		}
		for i, got := range lookIn(t, l, "gk_test_acl_kernel", m, unsafe.Pointer(&in[0]), n) {
			if got != uint32(want[i]) {
				t.Fatalf("%d rules: %+v matches rule %d, by scanning %d", len(rules), in[i], got, want[i])
			}
		}
	}
}

func TestKernelsMatchRulesAsByScanning(t *testing.T) {
	l := hostkern.Open(t, testKernels)
	for _, n := range []int{0, 1, 2, 64, 65, 256, 257, 500, 4097, 9000} {
		g := newGenerator(uint64(n))
		rules := g.rules(n)
		if n > 4000 {
			distinct(g, rules)
		}
		a, err := CompileACL(rules)
		if err != nil {
			t.Fatal(err)
		}
		kernelRules(t, l, g, rules, a, 2000)
		v := &ACL{n: n}
		v.v4.vectors.compile(rules, (*Rule).for4, vectorBudget)
		v.v6.vectors.compile(rules, (*Rule).for6, vectorBudget)
		kernelRules(t, l, g, rules, v, 1000)
	}
	kernelRules(t, l, newGenerator(1), nil, nil, 100)
}

func TestKernelsMatchCoarseVectorsAsByScanning(t *testing.T) {
	l := hostkern.Open(t, testKernels)
	g := newGenerator(3)
	rules := g.rules(1500)
	for _, budget := range []int{5000, 1500} {
		a := &ACL{n: len(rules)}
		a.v4.vectors.compile(rules, (*Rule).for4, budget)
		a.v6.vectors.compile(rules, (*Rule).for6, budget)
		if !a.v4.vectors.coarse && !a.v6.vectors.coarse {
			t.Errorf("budget %d: nothing is coarse", budget)
		}
		kernelRules(t, l, g, rules, a, 2000)
	}
}

func TestKernelsMatchClassBench(t *testing.T) {
	l := hostkern.Open(t, testKernels)
	g := newGenerator(5)
	rules := classBench(g, 3000)
	a, err := CompileACL(rules)
	if err != nil {
		t.Fatal(err)
	}
	next := traceFor(g, rules)
	in, want := make([]gkTuple, 4000), make([]uint16, 4000)
	for i := range in {
		r, u := tupleOf(next())
		in[i], want[i] = u.gk(true), scanRules(rules, r)
	}
	m, _ := a.Images()
	for i, got := range lookIn(t, l, "gk_test_acl_kernel", m, unsafe.Pointer(&in[0]), len(in)) {
		if got != uint32(want[i]) {
			t.Fatalf("%+v matches rule %d, by scanning %d", in[i], got, want[i])
		}
	}
}

// tupleOf returns a TCP or UDP packet over IPv4, as scanRules takes it and as classifiers do.
func tupleOf(src, dst [4]byte, sport, dport uint16, proto uint8) (*refPacket, *tuple) {
	r := &refPacket{src: netip.AddrFrom4(src), dst: netip.AddrFrom4(dst), sport: uint32(sport), dport: uint32(dport), proto: proto}
	u := &tuple{proto: proto, known: knowsPorts, ports: uint32(sport)<<16 | uint32(dport)}
	u.srcHi, _ = words(r.src)
	u.dstHi, _ = words(r.dst)
	return r, u
}
