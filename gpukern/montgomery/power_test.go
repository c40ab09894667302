package montgomery

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// forms are the ways of computing that this machine has.
func forms(t *testing.T, test func(t *testing.T)) {
	vector := supported
	defer func() { supported = vector }()
	for _, form := range []bool{true, false} {
		if form && !vector {
			t.Log("this CPU has no IFMA: the plain form alone is tested")
			continue
		}
		t.Run(fmt.Sprintf("vector %v", form), func(t *testing.T) {
			supported = form
			test(t)
		})
	}
}

// number returns a random number of so many bits, or one whose digits are extreme.
func number(r *rand.Rand, bits int) *big.Int {
	n := new(big.Int)
	switch r.IntN(4) {
	case 0: // all ones
		n.Sub(n.Lsh(big.NewInt(1), uint(bits)), big.NewInt(1))
	case 1: // nearly empty
		n.Lsh(big.NewInt(1), uint(bits-1))
	default:
		for range bits/64 + 1 {
			n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(r.Uint64()))
		}
		n.And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(bits)), big.NewInt(1)))
		n.SetBit(n, bits-1, 1)
	}
	return n
}

func modulusOf(t testing.TB, r *rand.Rand, bits int) (*big.Int, *Modulus) {
	n := number(r, bits)
	n.SetBit(n, 0, 1)
	m, err := NewModulus(n)
	if err != nil {
		t.Fatal(err)
	}
	return n, m
}

func digitsOf(x *big.Int, n int) []uint64 {
	d := make([]uint64, n)
	SetBytes(d, x.Bytes())
	return d
}

func numberOf(digits []uint64) *big.Int {
	p := make([]byte, (len(digits)*digitBits+7)/8)
	FillBytes(p, digits)
	return new(big.Int).SetBytes(p)
}

// TestPowersAreThoseOfBig compares with math/big, at the borders of blocks, with lanes of different moduli.
func TestPowersAreThoseOfBig(t *testing.T) {
	forms(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, bits := range []int{3, 52, 512, 516, 517, 1024, 1028, 1036, 1037, 1536, 2048} {
			if !supported && bits > 600 && testing.Short() {
				continue
			}
			p := NewPower(Blocks(bits))
			var n, base, e [Lanes]*big.Int
			for lane := range Lanes {
				var m *Modulus
				n[lane], m = modulusOf(t, r, bits)
				p.SetModulus(lane, m)
				base[lane], e[lane] = number(r, 2*bits-1), number(r, bits)
				if lane == 3 {
					base[lane] = big.NewInt(0)
				}
				if lane == 4 {
					e[lane] = big.NewInt(1)
				}
				p.SetBase(lane, digitsOf(base[lane], 2*len(m.n)))
				p.SetExponent(lane, e[lane].Bytes())
			}
			p.Raise()
			check(t, p, &n, func(lane int) *big.Int { return new(big.Int).Exp(base[lane], e[lane], n[lane]) })
			for lane := range Lanes {
				p.SetBase(lane, digitsOf(base[lane], 2*len(p.x)))
			}
			p.RaisePublic(65537)
			check(t, p, &n, func(lane int) *big.Int { return new(big.Int).Exp(base[lane], big.NewInt(65537), n[lane]) })
		}
	})
}

// check compares the result of every lane.
func check(t *testing.T, p *Power, n *[Lanes]*big.Int, want func(lane int) *big.Int) {
	t.Helper()
	for lane := range Lanes {
		got := make([]uint64, len(p.x))
		p.Result(lane, got)
		if want := want(lane); numberOf(got).Cmp(want) != 0 {
			t.Fatalf("%d bits, lane %d: %x, want %x", n[lane].BitLen(), lane, numberOf(got), want)
		}
	}
}

// TestProducts has the largest factors that Multiply permits.
func TestProducts(t *testing.T) {
	forms(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, bits := range []int{500, 516, 1036, 1556} {
			p := NewPower(Blocks(bits))
			rInverse := new(big.Int)
			var n, product [Lanes]*big.Int
			var a, b [Lanes][]uint64
			for lane := range Lanes {
				var m *Modulus
				n[lane], m = modulusOf(t, r, bits)
				p.SetModulus(lane, m)
				x, y := new(big.Int).Mul(n[lane], big.NewInt(8)), new(big.Int).Sub(n[lane], big.NewInt(1))
				x.Sub(x, big.NewInt(int64(1+lane)))
				a[lane], b[lane] = digitsOf(x, len(m.n)), digitsOf(y, len(m.n))
				rInverse.ModInverse(new(big.Int).Lsh(big.NewInt(1), uint(len(m.n)*digitBits)), n[lane])
				product[lane] = x.Mul(x, y)
				product[lane].Mod(x.Mul(x, rInverse), n[lane])
			}
			p.Multiply(&a, &b)
			check(t, p, &n, func(lane int) *big.Int { return product[lane] })
		}
	})
}

func TestSubtract(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 100 {
		n, m := modulusOf(t, r, 1030)
		a, b := big.NewInt(int64(r.IntN(3))), new(big.Int).Lsh(n, 2)
		b.Sub(b, big.NewInt(1)) // the largest
		got := m.Digits(a)
		m.Subtract(got, m.Digits(b))
		if want := new(big.Int).Sub(new(big.Int).Add(a, new(big.Int).Lsh(n, 2)), b); numberOf(got).Cmp(want) != 0 {
			t.Fatalf("%x, want %x", numberOf(got), want)
		}
	}
}

// TestVectorColumns compares every column of the vector form with the plain one, for digits that are all ones: the
// largest sums.
func TestVectorColumns(t *testing.T) {
	if !supported {
		t.Log("this CPU has no IFMA")
		return
	}
	r := rand.New(rand.NewPCG(5, 6))
	for blocks := 1; blocks <= 8; blocks++ {
		n := blocks * BlockDigits
		a, b, got, want := alignedRows(n), alignedRows(n), alignedRows(2*n), make([]row, 2*n)
		for i := range a {
			for lane := range Lanes {
				a[i][lane], b[i][lane] = r.Uint64()&digitMask, r.Uint64()&digitMask
				if lane < 2 {
					a[i][lane], b[i][lane] = digitMask, digitMask
				}
			}
		}
		poison(got)
		multiplyIFMA(&got[0], &a[0], &b[0], blocks)
		multiplyPlain(want, a, b)
		same(t, fmt.Sprint("product of blocks ", blocks), got, want)
		poison(got)
		squareIFMA(&got[0], &a[0], blocks)
		multiplyPlain(want, a, a)
		same(t, fmt.Sprint("square of blocks ", blocks), got, want)

		var k0 row
		for lane := range Lanes {
			b[0][lane] |= 1
			inverse := uint64(1)
			for range 6 {
				inverse *= 2 - b[0][lane]*inverse
			}
			k0[lane] = -inverse & digitMask
		}
		m := alignedRows(BlockDigits)
		reduced, reducedWant := alignedRows(n), make([]row, n)
		reduceIFMA(&reduced[0], &got[0], &b[0], &k0, &m[0], blocks)
		reducePlain(reducedWant, want, b, &k0)
		same(t, fmt.Sprint("reduction of blocks ", blocks), reduced, reducedWant)

		table := alignedRows(windowEntries * n)
		for i := range table {
			for lane := range Lanes {
				table[i][lane] = r.Uint64()
			}
		}
		index := row{0, 1, 2, 15, 14, 7, 8, 3}
		chooseIFMA(&reduced[0], &table[0], &index, windowEntries, blocks)
		choosePlain(reducedWant, table, &index, windowEntries)
		same(t, fmt.Sprint("choice of blocks ", blocks), reduced, reducedWant)
	}
}

func poison(x []row) {
	for i := range x {
		for lane := range Lanes {
			x[i][lane] = 0xdeadbeefdeadbeef
		}
	}
}

func same(t *testing.T, what string, got, want []row) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: row %d is %x, want %x", what, i, got[i], want[i])
		}
	}
}

func TestModuliThatAreRefused(t *testing.T) {
	for _, n := range []int64{-3, 0, 1, 2, 4, 1 << 40} {
		if _, err := NewModulus(big.NewInt(n)); err != ErrModulus {
			t.Errorf("modulus %d: %v", n, err)
		}
	}
}

func TestMultiplyAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		bits := 520 * (1 + r.IntN(4))
		a, b, c := number(r, bits), number(r, bits), number(r, bits)
		n := bits / digitBits
		to := make([]uint64, 2*n)
		MultiplyAdd(to, digitsOf(a, n), digitsOf(b, n), digitsOf(c, n))
		if want := a.Add(a.Mul(a, b), c); numberOf(to).Cmp(want) != 0 {
			t.Fatalf("%x, want %x", numberOf(to), want)
		}
	}
}

func FuzzDigits(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add(bytes.Repeat([]byte{0xff}, 65))
	f.Fuzz(func(t *testing.T, p []byte) {
		d := make([]uint64, (len(p)*8+digitBits-1)/digitBits+1)
		SetBytes(d, p)
		for _, x := range d {
			if x > digitMask {
				t.Fatalf("digit %x", x)
			}
		}
		back := make([]byte, len(p)+3)
		FillBytes(back, d)
		if !bytes.Equal(back[3:], p) || back[0]|back[1]|back[2] != 0 {
			t.Fatalf("%x, want %x", back, p)
		}
	})
}

// TestClear has no secret left in the memory of a pass.
func TestClear(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	p := NewPower(1)
	_, m := modulusOf(t, r, 500)
	for lane := range Lanes {
		p.SetModulus(lane, m)
		p.SetBase(lane, m.r2)
		p.SetExponent(lane, []byte{1, 2, 3})
	}
	p.Raise()
	p.Clear()
	for i := range p.rows {
		if p.rows[i] != (row{}) {
			t.Fatalf("row %d is %x", i, p.rows[i])
		}
	}
	m.Clear()
	if m.k0 != 0 || m.n[0] != 0 || m.r3[0] != 0 {
		t.Error("the modulus is still there")
	}
}

// BenchmarkRaise raises eight numbers by moduli of so many bits: the work of four signatures of RSA with twice as many.
func BenchmarkRaise(b *testing.B) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, bits := range []int{1024, 1536, 2048} {
		b.Run(fmt.Sprint(bits), func(b *testing.B) {
			p := NewPower(Blocks(bits))
			for lane := range Lanes {
				n, m := modulusOf(b, r, bits)
				p.SetModulus(lane, m)
				p.SetBase(lane, m.r2)
				p.SetExponent(lane, n.Bytes())
			}
			for b.Loop() {
				p.Raise()
			}
		})
	}
}
