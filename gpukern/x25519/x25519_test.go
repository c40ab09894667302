package x25519

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/montgomery"
	"github.com/millrace/millrace/internal/testkit/consttime"
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

var prime = func() *big.Int {
	p := new(big.Int).Lsh(big.NewInt(1), 255)
	return p.Sub(p, big.NewInt(19))
}()

// operand returns numbers of up to so many bits: often the largest, small ones, or those near multiples of the prime.
func operand(r *mathrand.Rand, bits uint) (element, [Lanes]*big.Int) {
	e := alignedRows(digits)
	var numbers [Lanes]*big.Int
	limit := new(big.Int).Lsh(big.NewInt(1), bits)
	for lane := range numbers {
		x := new(big.Int)
		switch r.IntN(5) {
		case 0:
			x.Sub(limit, big.NewInt(1+r.Int64N(3)))
		case 1:
			x.SetInt64(r.Int64N(3))
		case 2:
			x.Add(x.Mul(prime, big.NewInt(r.Int64N(1<<(bits-255)))), big.NewInt(r.Int64N(40)))
		default:
			for range 5 {
				x.Add(x.Lsh(x, 64), new(big.Int).SetUint64(r.Uint64()))
			}
		}
		numbers[lane] = x.Mod(x, limit)
		var d [digits]uint64
		montgomery.SetBytes(d[:], x.Bytes())
		for i, v := range d {
			e[i][lane] = v
		}
	}
	return e, numbers
}

func laneNumber(t *testing.T, e element, lane int) *big.Int {
	t.Helper()
	var d [digits]uint64
	for i := range d {
		if d[i] = e[i][lane]; d[i] > digitMask {
			t.Fatalf("digit %d of lane %d is %x", i, lane, d[i])
		}
	}
	p := make([]byte, 33)
	montgomery.FillBytes(p, d[:])
	return new(big.Int).SetBytes(p)
}

// check compares an element with numbers modulo the prime, and its length in bits.
func check(t *testing.T, what string, e element, bits int, want func(lane int) *big.Int) {
	t.Helper()
	for lane := range Lanes {
		got, w := laneNumber(t, e, lane), want(lane)
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
	forms(t, func(t *testing.T) {
		r := mathrand.New(mathrand.NewPCG(1, 2))
		dst, second := alignedRows(digits), alignedRows(digits)
		for range 1000 {
			a, aN := operand(r, 260)
			b, bN := operand(r, 260)
			multiply(dst, a, b)
			check(t, "product", dst, 256, func(i int) *big.Int { return new(big.Int).Mul(aN[i], bN[i]) })
			square(dst, a)
			check(t, "square", dst, 256, func(i int) *big.Int { return new(big.Int).Mul(aN[i], aN[i]) })
			factors := row{}
			for i := range factors {
				factors[i] = []uint64{121665, 0, 1, 1<<17 - 1}[r.IntN(4)]
			}
			scale(dst, a, b, &factors)
			check(t, "scale", dst, 256, func(i int) *big.Int {
				w := new(big.Int).Mul(aN[i], new(big.Int).SetUint64(factors[i]))
				return w.Add(w, bN[i])
			})
			c, cN := operand(r, 256)
			d, dN := operand(r, 256)
			for i := range dN { // below 2^256 - 38, as products are
				if limit := new(big.Int).Lsh(prime, 1); dN[i].Cmp(limit) >= 0 {
					dN[i] = limit
					for j := range d {
						d[j][i] = bias[j][i]
					}
				}
			}
			addSubtract(dst, second, c, d)
			check(t, "sum", dst, 257, func(i int) *big.Int { return new(big.Int).Add(cN[i], dN[i]) })
			check(t, "difference", second, 257, func(i int) *big.Int { return new(big.Int).Sub(cN[i], dN[i]) })
			addSubtract(c, d, c, d) // in place
			for i := range c {
				if c[i] != dst[i] || d[i] != second[i] {
					t.Fatal("the sum or difference differs in place")
				}
			}
		}
	})
}

// TestVectorsAreThePlainForms compares every row of both forms.
func TestVectorsAreThePlainForms(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA")
	}
	defer func() { supported = true }()
	r := mathrand.New(mathrand.NewPCG(3, 4))
	p, q := NewPass(), NewPass()
	for range 300 {
		a, _ := operand(r, 255)
		b, _ := operand(r, 255)
		for lane := range Lanes {
			p.swap[lane] = r.Uint64() & 1
		}
		*q.swap = *p.swap
		for i, pass := range []*Pass{p, q} {
			supported = i == 0
			copy(pass.left, a)
			copy(pass.left[digits:], b)
			copy(pass.right, b)
			copy(pass.right[digits:], a)
			copy(pass.first, b)
			pass.exchange(pass.swap)
			pass.step()
			pass.divide()
			butterfly(pass.t[0], pass.t[1], &divisors, lanesOfX3)
			permute(pass.t[2], pass.t[0], &otherTerms, firstTwo)
			scale(pass.t[3], pass.t[0], pass.t[1], &narrow24)
		}
		for i := range p.rows {
			if p.rows[i] != q.rows[i] {
				t.Fatalf("row %d is %x, want %x", i, p.rows[i], q.rows[i])
			}
		}
	}
}

func from(t *testing.T, text string) (b [Size]byte) {
	t.Helper()
	if n, err := hex.Decode(b[:], []byte(text)); err != nil || n != Size {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

// product multiplies in one lane, beside others.
func product(p *Pass, lane int, scalar, point [Size]byte) [Size]byte {
	var scalars, points, products [Lanes][Size]byte
	for i := range Lanes {
		scalars[i][3], points[i] = byte(i), Base
	}
	scalars[lane], points[lane] = scalar, point
	p.Multiply(products[:], scalars[:], points[:])
	return products[lane]
}

// TestRFC7748 has the vectors of RFC 7748 5.2: MILLRACE_X25519_MILLION asks for all iterations.
func TestRFC7748(t *testing.T) {
	forms(t, func(t *testing.T) {
		p := NewPass()
		for i, v := range [][3]string{
			{
				"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
				"e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
				"c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
			},
			{
				"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
				"e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
				"95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
			},
		} {
			if got := product(p, i%Lanes, from(t, v[0]), from(t, v[1])); got != from(t, v[2]) {
				t.Errorf("vector %d: %x, want %s", i, got, v[2])
			}
		}
		iterations, want := 1, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
		if supported {
			iterations, want = 1000, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"
		}
		if supported && os.Getenv("MILLRACE_X25519_MILLION") != "" {
			iterations, want = 1000000, "7c3911e0ab2586fd864497297e575e6f3bc601c0883c30df5f4dd2d24f665424"
		}
		k, u := Base, Base
		for i := range iterations {
			k, u = product(p, i%Lanes, k, u), k
		}
		if k != from(t, want) {
			t.Errorf("after %d iterations: %x, want %s", iterations, k, want)
		}
	})
}

// standard returns the product by crypto/ecdh. It refuses those that are zero.
func standard(t *testing.T, scalar, point [Size]byte) (shared [Size]byte) {
	t.Helper()
	private, err := ecdh.X25519().NewPrivateKey(scalar[:])
	if err != nil {
		t.Fatal(err)
	}
	public, err := ecdh.X25519().NewPublicKey(point[:])
	if err != nil {
		t.Fatal(err)
	}
	got, err := private.ECDH(public)
	if err != nil {
		return shared
	}
	return [Size]byte(got)
}

// edgePoints are of low order, not reduced, and with the topmost bit (RFC 7748 5 and 6.1; https://cr.yp.to/ecdh.html#validate).
func edgePoints(t *testing.T) (points [][Size]byte) {
	t.Helper()
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"efffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		p := from(t, text)
		points = append(points, p)
		p[31] |= 128
		points = append(points, p)
	}
	return points
}

// TestProductsAreThoseOfECDH has crypto/ecdh multiply the same scalars and points, random and at the edges.
func TestProductsAreThoseOfECDH(t *testing.T) {
	forms(t, func(t *testing.T) {
		edges := edgePoints(t)
		rounds := 64
		if !supported {
			rounds = 6
		}
		p := NewPass()
		zero := 0
		for round := range rounds {
			n := 1 + round%Lanes
			products, scalars, points := make([][Size]byte, n), make([][Size]byte, n), make([][Size]byte, n)
			for i := range n {
				rand.Read(scalars[i][:])
				rand.Read(points[i][:])
				switch (round + i) % 4 {
				case 0:
					points[i] = edges[(round*Lanes+i)%len(edges)]
				case 1:
					scalars[i] = [Size]byte(bytes.Repeat([]byte{byte(255 * (round % 2))}, Size))
				}
			}
			if round%3 == 0 {
				products, scalars, points = products[:min(n, Few)], scalars[:min(n, Few)], points[:min(n, Few)]
				p.MultiplyFew(products, scalars, points)
			} else {
				p.Multiply(products, scalars, points)
			}
			for i := range products {
				if want := standard(t, scalars[i], points[i]); products[i] != want {
					t.Fatalf("%x times %x is %x, want %x", scalars[i], points[i], products[i], want)
				}
				if products[i] == [Size]byte{} {
					zero++
				}
			}
		}
		if zero == 0 {
			t.Error("no point of low order")
		}
	})
}

func TestPublicKeys(t *testing.T) {
	p := NewPass()
	var scalars, points, products [Lanes][Size]byte
	for i := range Lanes {
		rand.Read(scalars[i][:])
		points[i] = Base
	}
	p.Multiply(products[:], scalars[:], points[:])
	for i, k := range scalars {
		private, err := ecdh.X25519().NewPrivateKey(k[:])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(private.PublicKey().Bytes(), products[i][:]) {
			t.Errorf("%x, want %x", products[i], private.PublicKey().Bytes())
		}
	}
}

// TestMultiplyClears has no secret left in the memory of a pass.
func TestMultiplyClears(t *testing.T) {
	p := NewPass()
	product(p, 0, Base, Base)
	var products [Few][Size]byte
	p.MultiplyFew(products[:], [][Size]byte{Base, Base}, [][Size]byte{Base, Base})
	for i := range p.rows {
		if p.rows[i] != (row{}) {
			t.Fatalf("row %d is %x", i, p.rows[i])
		}
	}
	if p.scalars != [Lanes][Size]byte{} {
		t.Error("a scalar is still there")
	}
}

func TestMain(m *testing.M) {
	consttime.Subject("product", func(secret int) func() {
		p := NewPass()
		var scalars, points, products [Lanes][Size]byte
		for i := range Lanes {
			for j := range Size {
				scalars[i][j] = [...]byte{0, 255, byte(37*i + 11*j)}[secret]
			}
			points[i] = Base
		}
		return func() { p.Multiply(products[:], scalars[:], points[:]) }
	})
	consttime.Subject("few", func(secret int) func() {
		p := NewPass()
		var scalars, products [Few][Size]byte
		points := [Few][Size]byte{Base, Base}
		for i := range Few {
			for j := range Size {
				scalars[i][j] = [...]byte{0, 255, byte(37*i + 11*j)}[secret]
			}
		}
		return func() { p.MultiplyFew(products[:], scalars[:], points[:]) }
	})
	os.Exit(consttime.Main(m))
}

func TestBranchesDependOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA")
	}
	secrets := 2
	if os.Getenv(consttime.TimingEnv) != "" {
		secrets = 3
	}
	consttime.Branches(t, "product", secrets, []string{"github.com/millrace/millrace/gpukern/"}, nil,
		[]string{".multiply", ".square", ".scale", ".addSubtract", ".swapIFMA"})
	consttime.Branches(t, "few", secrets, []string{"github.com/millrace/millrace/gpukern/"}, nil,
		[]string{".multiply", ".square", ".scale", ".butterfly", ".permute"})
}

func TestTimeDependsOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA")
	}
	p := NewPass()
	var scalars, points, products [Lanes][Size]byte
	consttime.Timing(t, func(class int) {
		for i := range Lanes {
			rand.Read(scalars[i][:])
			for j := range Size {
				scalars[i][j] &= -byte(class)
			}
			points[i] = Base
		}
	}, func() { p.Multiply(products[:], scalars[:], points[:]) })
	consttime.Timing(t, func(class int) {
		for i := range Few {
			rand.Read(scalars[i][:])
			for j := range Size {
				scalars[i][j] &= -byte(class)
			}
			points[i] = Base
		}
	}, func() { p.MultiplyFew(products[:Few], scalars[:Few], points[:Few]) })
}

// cpuTime returns the CPU time of the process in ns: other processes may have the CPU meanwhile.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkMultiply makes eight key exchanges at once: a public key and a shared secret each; those of crypto/ecdh one by one.
func BenchmarkMultiply(b *testing.B) {
	var scalars, bases, points, products [Lanes][Size]byte
	for i := range Lanes {
		rand.Read(scalars[i][:])
		rand.Read(points[i][:])
		bases[i] = Base
	}
	b.Run("eight", func(b *testing.B) {
		p := NewPass()
		start := cpuTime()
		for b.Loop() {
			p.Multiply(products[:], scalars[:], bases[:])
			p.Multiply(products[:], scalars[:], points[:])
		}
		b.ReportMetric(float64(cpuTime()-start)/1000/float64(Lanes*b.N), "cpu-us/exchange")
	})
	b.Run("crypto", func(b *testing.B) {
		public, err := ecdh.X25519().NewPublicKey(points[0][:])
		if err != nil {
			b.Fatal(err)
		}
		start := cpuTime()
		for b.Loop() {
			private, err := ecdh.X25519().GenerateKey(rand.Reader)
			if err != nil {
				b.Fatal(err)
			}
			private.PublicKey()
			if _, err := private.ECDH(public); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpuTime()-start)/1000/float64(b.N), "cpu-us/exchange")
	})
}
