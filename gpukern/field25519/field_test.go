package field25519

import (
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/internal/testkit/avx512"
)

var prime = func() *big.Int {
	p := new(big.Int).Lsh(big.NewInt(1), 255)
	return p.Sub(p, big.NewInt(19))
}()

// simulated is IFMA by a model of its instructions.
func simulated(t testing.TB) *Form {
	p := avx512.Load(t, "ifma_amd64.s")
	u := func(r *Row) unsafe.Pointer { return unsafe.Pointer(r) }
	return &Form{
		name: "IFMA, simulated", lanes: MaxLanes, radix: digitBits, bias: ifmaBias(), run: true,
		multiply:    func(dst, a, b *Row) { p.Call("multiplyIFMA", u(dst), u(a), u(b)) },
		square:      func(dst, a *Row) { p.Call("squareIFMA", u(dst), u(a)) },
		scale:       func(dst, a, b, factors *Row) { p.Call("scaleIFMA", u(dst), u(a), u(b), u(factors)) },
		addSubtract: func(s, d, a, b, bias *Row) { p.Call("addSubtractIFMA", u(s), u(d), u(a), u(b), u(bias)) },
		swap:        func(a, b, swap *Row) { p.Call("swapIFMA", u(a), u(b), u(swap)) },
		choose:      func(dst *Row, w *uint64, index *Row) { p.Call("chooseIFMA", u(dst), unsafe.Pointer(w), u(index)) },
		gather: func(dst *Row, base *uint64, offsets *Row, words, stride uint64) {
			p.Call("gatherIFMA", u(dst), unsafe.Pointer(base), u(offsets), words, stride)
		},
		butterfly: func(dst, src, index, bias *Row, sums uint64) {
			p.Call("butterflyIFMA", u(dst), u(src), u(index), u(bias), sums)
		},
		permute: func(dst, src, index *Row, keep uint64) { p.Call("permuteIFMA", u(dst), u(src), u(index), keep) },
	}
}

// each runs a test by the forms that this machine has, and by the model of IFMA.
func each(t *testing.T, test func(t *testing.T, f *Form)) {
	for _, f := range append(Forms(), simulated(t)) {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

// number returns one below 2^255: often the largest, a small one, or one near the prime.
func number(r *mathrand.Rand) *big.Int {
	x := new(big.Int)
	switch r.IntN(5) {
	case 0:
		x.Sub(x.Lsh(big.NewInt(1), 255), big.NewInt(1+r.Int64N(3)))
	case 1:
		x.SetInt64(r.Int64N(3))
	case 2:
		x.Add(prime, big.NewInt(r.Int64N(38)-19))
	default:
		for range 4 {
			x.Add(x.Lsh(x, 64), new(big.Int).SetUint64(r.Uint64()))
		}
		x.Rsh(x, 1)
	}
	return x
}

func encode(x *big.Int) (b [Size]byte) {
	x.FillBytes(b[:])
	slices.Reverse(b[:])
	return b
}

// laneOf returns the number of a lane, which Bytes agrees with.
func laneOf(t *testing.T, f *Form, e Element, lane int) *big.Int {
	t.Helper()
	x, l := new(big.Int), f.limbsOf(e, lane)
	for i := range l {
		x.Add(x.Lsh(x, f.radix), new(big.Int).SetUint64(l[len(l)-1-i]))
	}
	var got [Size]byte
	if f.Bytes(&got, e, lane); got != encode(new(big.Int).Mod(x, prime)) {
		t.Fatalf("lane %d is encoded as %x, and is %x", lane, got, x)
	}
	return x
}

// operand is an element and its numbers.
type operand struct {
	e Element
	n [MaxLanes]*big.Int
}

func (f *Form) operand(r *mathrand.Rand) operand {
	o := operand{e: Rows(rows)}
	for lane := range f.lanes {
		o.n[lane] = number(r)
		b := encode(o.n[lane])
		f.Set(o.e, lane, &b)
	}
	return o
}

// widest returns the largest factor that formulas have: the sum of a sum and a difference.
func (f *Form) widest(t *testing.T, a, b operand) operand {
	o := operand{e: Rows(rows)}
	sum, difference := Element(Rows(rows)), Element(Rows(rows))
	f.AddSubtract(sum, difference, a.e, b.e)
	f.AddSubtract(o.e, sum, sum, difference)
	for lane := range f.lanes {
		o.n[lane] = laneOf(t, f, o.e, lane)
		if want := new(big.Int).Lsh(a.n[lane], 1); want.Sub(want, o.n[lane]).Mod(want, prime).Sign() != 0 {
			t.Fatalf("a + b + (a - b) is %x in lane %d, a is %x", o.n[lane], lane, a.n[lane])
		}
	}
	return o
}

// check compares an element with numbers modulo the prime, and its length in bits.
func (f *Form) check(t *testing.T, what string, e Element, bits int, want func(lane int) *big.Int) {
	t.Helper()
	for lane := range f.lanes {
		got, w := laneOf(t, f, e, lane), want(lane)
		if got.BitLen() > bits {
			t.Fatalf("%s: lane %d is %x, longer than %d bits", what, lane, got, bits)
		}
		if got.Mod(got, prime).Cmp(w.Mod(w, prime)) != 0 {
			t.Fatalf("%s: lane %d is %x, want %x", what, lane, got, w)
		}
	}
}

// TestArithmeticIsThatOfBig compares each operation with math/big, up to the longest operands.
func TestArithmeticIsThatOfBig(t *testing.T) {
	each(t, func(t *testing.T, f *Form) {
		r := mathrand.New(mathrand.NewPCG(1, 2))
		dst, second := Element(Rows(rows)), Element(Rows(rows))
		for range 300 {
			a, b := f.operand(r), f.operand(r)
			f.AddSubtract(dst, second, a.e, b.e)
			f.check(t, "sum", dst, 257, func(i int) *big.Int { return new(big.Int).Add(a.n[i], b.n[i]) })
			f.check(t, "difference", second, 257, func(i int) *big.Int { return new(big.Int).Sub(a.n[i], b.n[i]) })
			c, d := f.widest(t, a, b), f.widest(t, b, a)
			f.Multiply(dst, c.e, d.e)
			f.check(t, "product", dst, 256, func(i int) *big.Int { return new(big.Int).Mul(c.n[i], d.n[i]) })
			f.Square(dst, c.e)
			f.check(t, "square", dst, 256, func(i int) *big.Int { return new(big.Int).Mul(c.n[i], c.n[i]) })
			factors := Row{}
			for i := range factors {
				factors[i] = []uint64{121665, 0, 1, 1<<17 - 1}[r.IntN(4)]
			}
			f.Scale(dst, c.e, d.e, &factors)
			f.check(t, "scale", dst, 256, func(i int) *big.Int {
				w := new(big.Int).Mul(c.n[i], new(big.Int).SetUint64(factors[i]))
				return w.Add(w, d.n[i])
			})
			f.AddSubtract(dst, second, a.e, b.e)
			f.AddSubtract(a.e, b.e, a.e, b.e) // in place
			if *a.e.words() != *dst.words() || *b.e.words() != *second.words() {
				t.Fatal("the sum or difference differs in place")
			}
			f.Multiply(c.e, c.e, d.e)
			f.check(t, "product in place", c.e, 256, func(i int) *big.Int { return new(big.Int).Mul(c.n[i], d.n[i]) })
		}
	})
}

// TestPowersAreThoseOfBig inverts, and raises to the power of square roots.
func TestPowersAreThoseOfBig(t *testing.T) {
	each(t, func(t *testing.T, f *Form) {
		r := mathrand.New(mathrand.NewPCG(5, 6))
		p, dst := NewPowers(Rows(PowersRows)), Element(Rows(rows))
		p58 := new(big.Int).Rsh(new(big.Int).Sub(prime, big.NewInt(5)), 3)
		for range 3 {
			a := f.operand(r)
			p.PowerP58(f, dst, a.e)
			f.check(t, "power", dst, 256, func(i int) *big.Int { return new(big.Int).Exp(a.n[i], p58, prime) })
			p.Invert(f, dst, a.e)
			f.check(t, "inverse", dst, 256, func(i int) *big.Int {
				return new(big.Int).Exp(a.n[i], new(big.Int).Sub(prime, big.NewInt(2)), prime)
			})
		}
	})
}

// TestWordsAreMoved swaps, chooses, gathers and looks up.
func TestWordsAreMoved(t *testing.T) {
	each(t, func(t *testing.T, f *Form) {
		r := mathrand.New(mathrand.NewPCG(7, 8))
		var windows [MaxLanes][]uint64
		var entries [MaxLanes][Entries][3]*big.Int
		for lane := range f.lanes {
			windows[lane] = make([]uint64, WindowWords)
			for e := range Entries {
				for i := range 3 {
					o := f.operand(r)
					f.SetEntry(windows[lane], e, i, o.e, 1)
					entries[lane][e][i] = o.n[1]
				}
			}
		}
		dst, table := Rows(3*rows), Rows(2*rows*Entries)
		numbers := [2 * Entries]operand{}
		for i := range numbers {
			numbers[i] = f.operand(r)
			copy(table[i*rows:], numbers[i].e)
		}
		for range 20 {
			var index, swap Row
			for lane := range f.lanes {
				index[lane], swap[lane] = r.Uint64N(Entries), r.Uint64N(2)
			}
			f.Gather(dst, &windows, &index)
			for i := range 3 {
				f.check(t, "gathered", dst[i*rows:][:rows], 256, func(l int) *big.Int { return new(big.Int).Set(entries[l][index[l]][i]) })
			}
			f.Choose(dst, windows[1], &index)
			for i := range 3 {
				f.check(t, "chosen", dst[i*rows:][:rows], 256, func(l int) *big.Int { return new(big.Int).Set(entries[1][index[l]][i]) })
			}
			f.Lookup(dst, table, 2, &index)
			for i := range 2 {
				f.check(t, "looked up", dst[i*rows:][:rows], 256, func(l int) *big.Int {
					return new(big.Int).Set(numbers[2*int(index[l])+i].n[l])
				})
			}
			a, b := slices.Clone(table[:2*rows]), slices.Clone(table[2*rows:4*rows])
			f.Swap(a, b, &swap)
			for i := range 4 {
				side := [2][]Row{a, b}[i/2]
				f.check(t, "swapped", side[i%2*rows:][:rows], 256, func(l int) *big.Int {
					return new(big.Int).Set(numbers[(i/2^int(swap[l]))*2+i%2].n[l])
				})
			}
		}
	})
}

// TestLanesOfEightArePlain compares every row of IFMA with the plain form.
func TestLanesOfEightArePlain(t *testing.T) {
	for _, f := range append(Forms(), simulated(t)) {
		if !f.Wide() || f == plainForm {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			r := mathrand.New(mathrand.NewPCG(3, 4))
			for range 100 {
				a, b := f.operand(r), f.operand(r)
				index := Row{0, 1, 1, 0, 4, 5, 5, r.Uint64N(8)}
				keep := r.Uint64N(256)
				results := [2][]Row{}
				for i, form := range []*Form{f, plainForm} {
					to := Rows(7 * rows)
					form.AddSubtract(to[:rows], to[rows:], a.e, b.e)
					form.Multiply(to[2*rows:], to[:rows], to[rows:])
					form.Square(to[3*rows:], to[rows:])
					form.Butterfly(to[4*rows:], a.e, &index, keep)
					form.Permute(to[5*rows:], b.e, &index, keep)
					form.Scale(to[6*rows:], a.e, b.e, &Row{121665, 1, 0, 2, 121665, 1, 1, 3})
					results[i] = to
				}
				if !slices.Equal(results[0], results[1]) {
					t.Fatalf("rows are %x, want %x", results[0], results[1])
				}
			}
		})
	}
}

// TestFormsAreOrdered: the fastest comes first, the plain one last.
func TestFormsAreOrdered(t *testing.T) {
	forms := Forms()
	if last := forms[len(forms)-1]; last != plainForm || last.Vector() || Best() != forms[0] {
		t.Errorf("the last form is %s", last.Name())
	}
	for i, f := range forms[1:] {
		if f.lanes > forms[i].lanes && f != plainForm {
			t.Errorf("%s comes before %s", forms[i].Name(), f.Name())
		}
	}
}

// BenchmarkForms reports each operation for one lane.
func BenchmarkForms(b *testing.B) {
	for _, f := range Forms() {
		r := mathrand.New(mathrand.NewPCG(1, 2))
		x, y, z := f.operand(r).e, f.operand(r).e, Element(Rows(rows))
		for name, op := range map[string]func(){
			"multiply": func() { f.Multiply(z, x, y) },
			"square":   func() { f.Square(z, x) },
			"add":      func() { f.AddSubtract(z, z, x, y) },
		} {
			b.Run(fmt.Sprint(f.name, "/", name), func(b *testing.B) {
				for b.Loop() {
					op()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(f.lanes*b.N), "ns/lane")
			})
		}
	}
}

// TestBytesAreReduced up to the longest factors: one subtraction of multiples of 2^255 is not enough.
func TestBytesAreReduced(t *testing.T) {
	each(t, func(t *testing.T, f *Form) {
		e := Element(Rows(rows))
		for _, bits := range []uint{255, 256, 257, f.radix * rows} {
			for below := range int64(40) {
				x := new(big.Int).Lsh(big.NewInt(1), bits)
				x.Sub(x, big.NewInt(1+below))
				var l limbs
				rest := new(big.Int).Set(x)
				for i := range l {
					l[i] = new(big.Int).And(rest, big.NewInt(1<<f.radix-1)).Uint64()
					rest.Rsh(rest, f.radix)
				}
				l[rows-1] += rest.Uint64() << f.radix
				f.setLimbs(e, 1, &l)
				if got := laneOf(t, f, e, 1); got.Cmp(x) != 0 { // it compares the encoding
					t.Fatalf("%x is %x", x, got)
				}
			}
		}
	})
}
