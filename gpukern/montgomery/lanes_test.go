package montgomery

import (
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/avx512"
)

// operands are rows of digits, often the largest, for a number of blocks.
type operands struct {
	a, b, n, t []row
	k0         row
}

func newOperands(r *mathrand.Rand, blocks int) *operands {
	d := blocks * BlockDigits
	o := &operands{a: alignedRows(d), b: alignedRows(d), n: alignedRows(d), t: alignedRows(2 * d)}
	for _, x := range [][]row{o.a, o.b, o.n} {
		for i := range x {
			for lane := range Lanes {
				if x[i][lane] = r.Uint64() & digitMask; r.IntN(4) == 0 {
					x[i][lane] = digitMask
				}
			}
		}
	}
	for lane := range Lanes {
		o.n[0][lane] |= 1
		inverse := uint64(1)
		for range 6 {
			inverse *= 2 - o.n[0][lane]*inverse
		}
		o.k0[lane] = -inverse & digitMask
	}
	return o
}

// TestAssemblyByItsModel executes the assembly of IFMA without such a CPU: results are those of the plain forms, and it has as many
// multiplications as docs/design/054-signatures.md counts.
func TestAssemblyByItsModel(t *testing.T) {
	p := avx512.Load(t, "lanes_amd64.s")
	at := func(r []row) unsafe.Pointer { return unsafe.Pointer(&r[0]) }
	for _, blocks := range []int{1, 2, 3} {
		r := mathrand.New(mathrand.NewPCG(1, uint64(blocks)))
		products := func(did map[string]int) int { return did["VPMADD52LUQ"] + did["VPMADD52HUQ"] }
		d := blocks * BlockDigits
		for range 3 {
			o := newOperands(r, blocks)
			want := alignedRows(2 * d)
			multiplyPlain(want, o.a, o.b)
			did := p.Call("multiplyIFMA", at(o.t), at(o.a), at(o.b), uint64(blocks))
			if !slices.Equal(o.t, want) || products(did) != 2*d*d {
				t.Fatalf("%d blocks: the product differs, or has %d multiplications, not %d", blocks, products(did), 2*d*d)
			}
			dst, wantDigits, m := alignedRows(d), alignedRows(d), alignedRows(BlockDigits)
			reducePlain(wantDigits, want, o.n, &o.k0)
			did = p.Call("reduceIFMA", at(dst), at(o.t), at(o.n), unsafe.Pointer(&o.k0), at(m), uint64(blocks))
			if !slices.Equal(dst, wantDigits) || products(did) != 2*d*d+d {
				t.Fatalf("%d blocks: the reduction differs, or has %d multiplications, not %d", blocks, products(did), 2*d*d+d)
			}
			multiplyPlain(want, o.a, o.a)
			did = p.Call("squareIFMA", at(o.t), at(o.a), uint64(blocks))
			if !slices.Equal(o.t, want) || products(did) != d*d+d {
				t.Fatalf("%d blocks: the square differs, or has %d multiplications, not %d", blocks, products(did), d*d+d)
			}
		}
		table, index, dst, want := alignedRows(windowEntries*d), row{}, alignedRows(d), alignedRows(d)
		for i := range table {
			table[i] = row{r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64()}
		}
		for lane := range index {
			index[lane] = r.Uint64N(windowEntries)
		}
		choosePlain(want, table, &index, windowEntries)
		p.Call("chooseIFMA", at(dst), at(table), unsafe.Pointer(&index), uint64(windowEntries), uint64(blocks))
		if !slices.Equal(dst, want) {
			t.Fatalf("%d blocks: another entry is chosen", blocks)
		}
	}
}

var sink uint64

// cyclesPerNs is the clock of the core: a chain of multiplications takes three cycles for each.
func cyclesPerNs() float64 {
	const n = 1 << 20
	best := int64(1 << 62)
	for range 20 {
		start := cpuTime()
		x := uint64(start) | 1
		for range n {
			x *= x
		}
		sink += x
		best = min(best, cpuTime()-start)
	}
	return 3 * n / float64(best)
}

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkMultiplications reports how many multiplications of eight lanes each operation does in a cycle, for a modulus of 1024
// bits. CPUs have one or two ports for them: at 1.0 or 2.0 only fewer multiplications make it faster.
func BenchmarkMultiplications(b *testing.B) {
	if !supported {
		b.Skip("this CPU has no AVX-512 IFMA")
	}
	const blocks = 2
	o := newOperands(mathrand.New(mathrand.NewPCG(1, 2)), blocks)
	dst, m, table, d := alignedRows(blocks*BlockDigits), alignedRows(BlockDigits), alignedRows(windowEntries*blocks*BlockDigits), blocks*BlockDigits
	for _, c := range []struct {
		name     string
		products int
		run      func()
	}{
		{"product", 2 * d * d, func() { multiplyIFMA(&o.t[0], &o.a[0], &o.b[0], blocks) }},
		{"square", d*d + d, func() { squareIFMA(&o.t[0], &o.a[0], blocks) }},
		{"reduction", 2*d*d + d, func() { reduceIFMA(&dst[0], &o.t[0], &o.n[0], &o.k0, &m[0], blocks) }},
		{"look-up", 0, func() { chooseIFMA(&dst[0], &table[0], &o.k0, windowEntries, blocks) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			start := cpuTime()
			for b.Loop() {
				c.run()
			}
			cycles := float64(cpuTime()-start) * cyclesPerNs() / float64(b.N)
			b.ReportMetric(cycles, "cycles")
			b.ReportMetric(float64(c.products)/cycles, "products/cycle")
		})
	}
}
