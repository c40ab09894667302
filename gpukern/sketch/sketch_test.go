package sketch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/tuple"
)

func TestSketchesOfWrongSizesAreRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"width 1000":    {Width: 1000},
		"width 128":     {Width: 128},
		"width 8388608": {Width: 1 << 23},
		"precision 9":   {Precision: 9},
		"precision 17":  {Precision: 17},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
}

// TestHash compares with numbers that another program made from the definition.
func TestHash(t *testing.T) {
	for _, tc := range []struct{ seed, v4, v6 uint64 }{
		{1, 0xe8d8257b136866d2, 0x6e05676255b67dbe},
		{0xdeadbeefcafe, 0x1df4319a4b1e849d, 0x3cb32b33d447d599},
	} {
		s := newSketch(t, Config{Seed: tc.seed})
		if a, b := s.hash(true, 0xc0000201<<32), s.hash(false, 0x20010db800000000); a != tc.v4 || b != tc.v6 {
			t.Errorf("seed %x: sources %#x, %#x", tc.seed, a, b)
		}
	}
}

// address returns an IPv4 or, every other one, an IPv6 source.
func address(r *rand.Rand, i int) netip.Addr {
	if i%2 == 0 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32())))
	}
	return netip.AddrFrom16([16]byte(append(binary.BigEndian.AppendUint64(nil, r.Uint64()), make([]byte, 8)...)))
}

// feed counts a packet of n bytes.
func (s *Sketch) feed(a netip.Addr, n uint32) {
	hi, _ := tuple.Words(a)
	s.add(s.hash(a.Is4(), hi), n)
}

// truth is what every source sent.
type truth struct {
	sources        map[netip.Addr]*cell
	packets, bytes uint64
}

func (m *truth) count(a netip.Addr, n int) {
	if m.sources == nil {
		m.sources = map[netip.Addr]*cell{}
	}
	if m.sources[a] == nil {
		m.sources[a] = new(cell)
	}
	m.sources[a].packets++
	m.sources[a].bytes += uint64(n)
	m.packets++
	m.bytes += uint64(n)
}

// counted compares s with the truth: never less.
func counted(t testing.TB, s *Sketch, ref *truth) {
	t.Helper()
	if p, b := s.Total(); p != ref.packets || b != ref.bytes {
		t.Fatalf("%d packets and %d bytes in all, want %d and %d", p, b, ref.packets, ref.bytes)
	}
	for src, want := range ref.sources {
		if p, b := s.Rate(src); p < want.packets || b < want.bytes {
			t.Fatalf("%v: %d packets, %d bytes; want %d, %d", src, p, b, want.packets, want.bytes)
		}
	}
}

// TestRatesAreWithinTheBound: more than e/width of all traffic above the truth with probability e^-4 at
// most (Cormode, Muthukrishnan 2005, theorem 1), for heavy-tailed traffic and 5 seeds.
func TestRatesAreWithinTheBound(t *testing.T) {
	const width, sources = 1 << 10, 20000
	beyond, asked := 0, 0
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, ref := newSketch(t, Config{Width: width, Seed: seed + 1}), new(truth)
		for i := range sources {
			a := address(r, i)
			for range min(1+int(1/(0.001+r.Float64())), 300) {
				n := 64 + r.Uint32N(1400)
				s.feed(a, n)
				ref.count(a, int(n))
			}
		}
		counted(t, s, ref)
		for a, want := range ref.sources {
			p, b := s.Rate(a)
			if float64(p-want.packets) > math.E/width*float64(ref.packets) {
				beyond++
			}
			if float64(b-want.bytes) > math.E/width*float64(ref.bytes) {
				beyond++
			}
			asked += 2
		}
	}
	share := float64(beyond) / float64(asked)
	t.Logf("%d of %d estimates (%.4f) are beyond the bound", beyond, asked, share)
	if share > math.Exp(-4) {
		t.Errorf("more than %.4f", math.Exp(-4))
	}
}

func TestARateIsExactWhereNothingCollides(t *testing.T) {
	s := newSketch(t, Config{})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	near, other := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1")
	same := netip.MustParseAddr("c000:201::") // the words of a, in the other family
	for range 3 {
		s.feed(a, 100)
	}
	s.feed(b, 1500)
	for _, tc := range []struct {
		a    netip.Addr
		p, b uint64
	}{{a, 3, 300}, {b, 1, 1500}, {near, 1, 1500}, {other, 0, 0}, {same, 0, 0}, {netip.MustParseAddr("::ffff:192.0.2.1"), 3, 300}} {
		if p, n := s.Rate(tc.a); p != tc.p || n != tc.b {
			t.Errorf("%v: %d packets, %d bytes; want %d, %d", tc.a, p, n, tc.p, tc.b)
		}
	}
	if n := s.Distinct(); math.Abs(n-2) > 0.01 {
		t.Errorf("%v sources, want 2", n)
	}
	s.Reset()
	if p, b := s.Rate(a); p != 0 || b != 0 || s.Distinct() != 0 {
		t.Errorf("after Reset: %d packets, %d bytes, %v sources", p, b, s.Distinct())
	}
}

// TestDistinctIsWithinTheStandardError: over 40 seeds the root of the mean squared error is 1.04/sqrt(m)
// (Flajolet et al. 2007, theorem 1) and the mean error a small part of it, for few sources and many, also
// about 2.5 m, where linear counting and the first estimator meet and both are off.
func TestDistinctIsWithinTheStandardError(t *testing.T) {
	const seeds = 40
	for _, precision := range []int{10, 12} {
		m := 1 << precision
		points := []int{1, 10, m / 4, m, 5 * m / 2, 5 * m, 50 * m}
		sum, squares := make([]float64, len(points)), make([]float64, len(points))
		for seed := range uint64(seeds) {
			s := newSketch(t, Config{Width: MinWidth, Precision: precision, Seed: seed + 1})
			n := 0
			for i, point := range points {
				for ; n < point; n++ {
					at, rank := s.register(s.hash(n%2 == 0, uint64(n)<<32))
					s.registers[at] = max(s.registers[at], rank)
				}
				off := s.Distinct()/float64(n) - 1
				sum[i] += off
				squares[i] += off * off
			}
			s.Close()
		}
		bound := 1.04 / math.Sqrt(float64(m))
		for i, point := range points {
			mean, rms := sum[i]/seeds, math.Sqrt(squares[i]/seeds)
			t.Logf("precision %d, %d sources: error %.4f, mean %+.4f; bound %.4f", precision, point, rms, mean, bound)
			if rms > 1.35*bound || math.Abs(mean) > 0.6*bound { // of 40 samples
				t.Errorf("precision %d, %d sources: error %.4f, mean %+.4f; bound %.4f", precision, point, rms, mean, bound)
			}
		}
	}
}

// TestRanks compares with the definition: the place of the first bit that is set, from the left.
func TestRanks(t *testing.T) {
	for precision := MinPrecision; precision <= MaxPrecision; precision++ {
		s := newSketch(t, Config{Precision: precision, Width: MinWidth})
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 2000 {
			h := r.Uint64() >> (i % 65)
			bin := fmt.Sprintf("%064b", h)
			want := strings.Index(bin[precision:]+"1", "1") + 1
			if at, rank := s.register(h); int(rank) != want || fmt.Sprintf("%0*b", precision, at) != bin[:precision] {
				t.Fatalf("%s: register %d, rank %d, want %d", bin, at, rank, want)
			}
		}
		for i := range s.registers {
			s.registers[i] = uint32(65 - precision) // the highest that there is: an estimate and not a fault
		}
		if n := s.Distinct(); !(n > 1e18) {
			t.Errorf("precision %d: %v sources when all registers are full", precision, n)
		}
	}
}

// TestRowsAreIndependent: sources that meet in one row do not meet in another, but for one in width.
func TestRowsAreIndependent(t *testing.T) {
	const width, sources = 256, 20000
	s := newSketch(t, Config{Width: width, Seed: 1})
	var all [sources][depth]uint32
	for i := range all {
		all[i] = s.rows(s.hash(true, uint64(i)<<32))
		for row, at := range all[i] {
			if at/width != uint32(row) {
				t.Fatalf("counter %d is not in row %d", at, row)
			}
		}
	}
	var met, again [depth]int
	for i := range all {
		for k := i + 1; k < min(sources, i+500); k++ {
			for row := range depth {
				if next := (row + 1) % depth; all[i][row] == all[k][row] {
					met[row]++
					if all[i][next] == all[k][next] {
						again[row]++
					}
				}
			}
		}
	}
	for row := range met {
		if met[row] < 30000 || again[row]*width > 3*met[row] {
			t.Errorf("row %d: %d pairs met, %d of them in the next row too", row, met[row], again[row])
		}
	}
}

// TestDistinctOfNumbersThatNobodyCanFeed draws registers as n sources would leave them: a register's rank
// is at most k with probability exp(-n/m / 2^k). The last two numbers fill some to their limit.
func TestDistinctOfNumbersThatNobodyCanFeed(t *testing.T) {
	s := newSketch(t, Config{Precision: 12, Width: MinWidth})
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []float64{1 << 30, 1 << 50, 1 << 62, 1 << 64} {
		m := float64(len(s.registers))
		for i := range s.registers {
			rank, u := 0, r.Float64()
			for ; rank < 65-12 && math.Exp(-n/m/math.Exp2(float64(rank))) < u; rank++ {
			}
			s.registers[i] = uint32(rank)
		}
		off := s.Distinct()/n - 1
		t.Logf("%g sources: error %+.4f", n, off)
		if math.Abs(off) > 3*1.04/math.Sqrt(m) {
			t.Errorf("%g sources: error %+.4f", n, off)
		}
	}
}

func newSketch(t testing.TB, cfg Config) *Sketch {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
