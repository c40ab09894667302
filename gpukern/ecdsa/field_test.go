package ecdsa

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// forms runs a test by the ways of computing that this machine has.
func forms(t *testing.T, test func(t *testing.T)) {
	vector := supported
	defer func() { supported = vector }()
	for _, form := range []bool{true, false} {
		if form && !vector {
			continue
		}
		supported = form
		t.Run(fmt.Sprintf("vector %v", form), test)
	}
}

var curves = []func() *Curve{P256, P384}

// fields are those of both curves, with their names.
func fields() map[string]*field {
	return map[string]*field{"p of P-256": P256().p, "n of P-256": P256().n, "p of P-384": P384().p, "n of P-384": P384().n}
}

func numberOf(d []uint64) *big.Int {
	p := make([]byte, len(d)*digitBits/8+1)
	montgomery.FillBytes(p, d)
	return new(big.Int).SetBytes(p)
}

func laneNumber(x element, lane int) *big.Int {
	d := make([]uint64, len(x))
	laneOf(d, x, lane)
	return numberOf(d)
}

// below returns a number below times/100 of n: often the largest or a small one, or one of long runs of equal bits.
func below(r *rand.Rand, n *big.Int, times int64) *big.Int {
	limit := new(big.Int).Mul(n, big.NewInt(times))
	limit.Div(limit, big.NewInt(100))
	x := new(big.Int)
	switch r.IntN(6) {
	case 0:
		return x.Sub(limit, big.NewInt(1+r.Int64N(3)))
	case 1:
		return x.SetInt64(r.Int64N(3))
	case 2:
		x.Lsh(x.Sub(x.Lsh(big.NewInt(1), r.UintN(200)), big.NewInt(1)), r.UintN(200))
	case 3:
		return x.Add(x.Mul(n, big.NewInt(r.Int64N(max(1, times/100)))), big.NewInt(r.Int64N(2)))
	default:
		for range 8 {
			x.Add(x.Lsh(x, 64), new(big.Int).SetUint64(r.Uint64()))
		}
	}
	return x.Mod(x, limit)
}

// operands returns an element of numbers below times/100 of n, and the numbers.
func operands(r *rand.Rand, f *field, times int64) (element, [Lanes]*big.Int) {
	e := alignedRows(f.digits)
	var numbers [Lanes]*big.Int
	for lane := range numbers {
		numbers[lane] = below(r, f.prime, times)
		setLane(e, lane, f.digitsOf(numbers[lane]))
	}
	return e, numbers
}

// check compares the lanes of an element with numbers modulo n, and its bound in hundredths of n.
func check(t *testing.T, what string, f *field, got element, bound int64, want func(lane int) *big.Int) {
	t.Helper()
	limit := new(big.Int).Mul(f.prime, big.NewInt(bound))
	limit.Div(limit, big.NewInt(100))
	for lane := range Lanes {
		for i := range got {
			if got[i][lane] > digitMask {
				t.Fatalf("%s: digit %d of lane %d is %x", what, i, lane, got[i][lane])
			}
		}
		g, w := laneNumber(got, lane), want(lane)
		if g.Cmp(limit) > 0 {
			t.Fatalf("%s: lane %d is %x, above %d/100 of n", what, lane, g, bound)
		}
		if g.Mod(g, f.prime).Cmp(w.Mod(w, f.prime)) != 0 {
			t.Fatalf("%s: lane %d is %x, want %x", what, lane, g, w)
		}
	}
}

// TestFieldIsThatOfBig compares each operation with math/big, for operands up to the bounds that field allows.
func TestFieldIsThatOfBig(t *testing.T) {
	forms(t, func(t *testing.T) {
		for name, f := range fields() {
			r := rand.New(rand.NewPCG(1, 2))
			inverseR := new(big.Int).Lsh(big.NewInt(1), uint(f.digits*digitBits))
			inverseR.ModInverse(inverseR, f.prime)
			dst := alignedRows(f.digits)
			for range 300 {
				a, aN := operands(r, f, 400)
				b, bN := operands(r, f, 400)
				f.multiply(dst, a, b)
				check(t, "product for "+name, f, dst, 201, func(i int) *big.Int {
					w := new(big.Int).Mul(aN[i], bN[i])
					return w.Mul(w, inverseR)
				})
				f.subtract(dst, a, b)
				check(t, "difference for "+name, f, dst, slack(f, 800, 2000), func(i int) *big.Int { return new(big.Int).Sub(aN[i], bN[i]) })
				if f.weak != general {
					testCombinations(t, name, f, r, inverseR)
				}
			}
		}
	})
}

// slack returns the bound for five or eight digits.
func slack(f *field, five, eight int64) int64 {
	if f.digits == 5 {
		return five
	}
	return eight
}

func testCombinations(t *testing.T, name string, f *field, r *rand.Rand, inverseR *big.Int) {
	t.Helper()
	dst := alignedRows(f.digits)
	a, aN := operands(r, f, 800)
	b, bN := operands(r, f, 400)
	c, cN := operands(r, f, slack(f, 200, 300))
	d, dN := operands(r, f, 500)
	f.combine(dst, a, b, c)
	check(t, "combination for "+name, f, dst, slack(f, 101, 201), func(i int) *big.Int {
		w := new(big.Int).Add(aN[i], bN[i])
		return w.Sub(w, new(big.Int).Lsh(cN[i], 1))
	})
	f.multiplyAdd(dst, a, d, b, c)
	check(t, "sum of products for "+name, f, dst, 401, func(i int) *big.Int {
		w := new(big.Int).Mul(aN[i], dN[i])
		w.Add(w, new(big.Int).Mul(bN[i], cN[i]))
		return w.Mul(w, inverseR)
	})
	// The destination may be an operand.
	copy(dst, c)
	f.combine(dst, a, b, dst)
	f.combine(a, a, b, c)
	for i := range dst {
		if dst[i] != a[i] {
			t.Fatal("a combination differs where its destination is an operand")
		}
	}
}

// TestVectorsAreThePlainForms compares every row of both forms.
func TestVectorsAreThePlainForms(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA")
	}
	defer func() { supported = true }()
	for name, f := range fields() {
		r := rand.New(rand.NewPCG(3, 4))
		vector, plain := alignedRows(f.digits), alignedRows(f.digits)
		for range 300 {
			a, _ := operands(r, f, 800)
			b, _ := operands(r, f, 400)
			c, _ := operands(r, f, 200)
			d, _ := operands(r, f, 200)
			for what, do := range map[string]func(dst element){
				"multiply":    func(dst element) { f.multiply(dst, a, c) },
				"multiplyAdd": func(dst element) { f.multiplyAdd(dst, a, b, c, d) },
				"subtract":    func(dst element) { f.subtract(dst, a, b) },
				"combine":     func(dst element) { f.combine(dst, a, b, c) },
			} {
				if f.weak == general && (what == "combine" || what == "multiplyAdd") {
					continue
				}
				supported = true
				do(vector)
				supported = false
				do(plain)
				for i := range plain {
					if vector[i] != plain[i] {
						t.Fatalf("%s for %s: row %d is %x, want %x", what, name, i, vector[i], plain[i])
					}
				}
			}
		}
	}
}

func TestInvert(t *testing.T) {
	forms(t, func(t *testing.T) {
		for name, f := range fields() {
			r := rand.New(rand.NewPCG(5, 6))
			memory := alignedRows(inverseEntries * f.digits)
			for range 4 {
				a, aN := operands(r, f, 200)
				dst := alignedRows(f.digits)
				f.multiply(dst, a, f.r2)
				f.invert(dst, dst, memory)
				f.multiply(dst, dst, f.unit)
				check(t, "inverse for "+name, f, dst, 100, func(i int) *big.Int {
					w := new(big.Int).ModInverse(aN[i], f.prime)
					if w == nil { // of 0
						return new(big.Int)
					}
					return w
				})
			}
		}
	})
}

// TestLookUps compares what is chosen of a window with the entries, for every index and sign.
func TestLookUps(t *testing.T) {
	forms(t, func(t *testing.T) {
		for _, curve := range curves {
			p := NewPass(curve())
			f, table := p.c.p, p.c.generator
			for w := range table.windows {
				for first := range table.entries() {
					for lane := range Lanes {
						p.index[w][lane] = uint64(first+5*lane) % uint64(table.entries())
						p.negative[w][lane] = uint64(first+lane) & 1
					}
					p.choose(p.entryX, p.entryY, w)
					for lane := range Lanes {
						x, y := table.point(f, w, int(p.index[w][lane]))
						if p.negative[w][lane] == 1 {
							y.Sub(f.prime, y)
						}
						if laneNumber(p.entryX, lane).Cmp(x) != 0 || laneNumber(p.entryY, lane).Cmp(y) != 0 {
							t.Fatalf("window %d, entry %d: %x, %x", w, p.index[w][lane], laneNumber(p.entryX, lane), laneNumber(p.entryY, lane))
						}
					}
				}
			}
		}
	})
}

// point returns the coordinates of an entry, as they are.
func (t *table) point(f *field, w, e int) (x, y *big.Int) {
	d := make([]uint64, 2*f.digits)
	for i := range d {
		d[i] = t.window(w)[i*t.entries()+e]
	}
	return numberOf(d[:f.digits]), numberOf(d[f.digits:])
}
