package pubkey

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda"
)

// arithmeticBytes is the length of an operand of testdata/arithmetic.cu.
const arithmeticBytes = 4 * 64

// arithmeticParams is struct pk_arithmetic.
type arithmeticParams struct {
	a, b, m, result cuda.Ptr
	n, op           uint32
}

// operation is one of testdata/arithmetic.cu, in the order of its enum.
type operation struct {
	name  string
	words int
	m     *big.Int // nil is a modulus of RSA
	want  func(a, b, m, r *big.Int) *big.Int
	loose bool // the result is any number of its words that is the same modulo m
}

func operations() []operation {
	mul := func(a, b, _, _ *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	add := func(a, b, _, _ *big.Int) *big.Int { return new(big.Int).Add(a, b) }
	sub := func(a, b, _, _ *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
	reduced := func(a, b, m, r *big.Int) *big.Int { // a*b/R
		v := new(big.Int).Mul(a, b)
		return v.Mul(v, new(big.Int).ModInverse(r, m))
	}
	first := func(a, _, _, _ *big.Int) *big.Int { return a }
	prime := edwardsPrime
	p256p, p256n, p384p, p384n := p256.params.P, p256.params.N, p384.params.P, p384.params.N
	return []operation{
		{"fe_mul", 8, prime, mul, true},
		{"fe_add", 8, prime, add, true},
		{"fe_sub", 8, prime, sub, true},
		{"fe_scale", 8, prime, func(_, b, _, _ *big.Int) *big.Int { return new(big.Int).Mul(b, big.NewInt(121665)) }, true},
		{"fe_lower", 8, prime, first, false},
		{"fe_invert", 8, prime, func(a, _, m, _ *big.Int) *big.Int {
			if v := new(big.Int).ModInverse(a, m); v != nil {
				return v
			}
			return new(big.Int)
		}, true},
		{"P-256", 8, p256p, reduced, false},
		{"P-256 sum", 8, p256p, add, false},
		{"P-256 difference", 8, p256p, sub, false},
		{"P-256 order", 8, p256n, reduced, false},
		{"P-384", 12, p384p, reduced, false},
		{"P-384 difference", 12, p384p, sub, false},
		{"P-384 order", 12, p384n, reduced, false},
		{"Ed25519 order", 8, edwardsOrder.m, reduced, false},
		{"RSA, 32 words", 32, nil, reduced, false},
		{"RSA, 48 words", 48, nil, reduced, false},
		{"RSA, 64 words", 64, nil, reduced, false},
		{"RSA, in memory", 64, nil, reduced, false},
	}
}

// edge returns a number below limit: often one at which carries run far.
func edge(r *rand.Rand, limit *big.Int, words int) *big.Int {
	v := new(big.Int)
	switch r.IntN(6) {
	case 0:
		v.Sub(limit, big.NewInt(1+r.Int64N(3)))
	case 1:
		v.SetInt64(r.Int64N(3))
	case 2: // words of ones and zeros
		for range words {
			v.Lsh(v, 32)
			v.Or(v, big.NewInt(int64(-(r.Uint32()&1))&0xffffffff))
		}
	case 3: // around 2^255 - 19 and its double
		v.Lsh(edwardsPrime, uint(r.IntN(2)))
		v.Add(v, big.NewInt(r.Int64N(80)-40))
	default:
		for range words {
			v.Lsh(v, 32)
			v.Or(v, big.NewInt(int64(r.Uint32())))
		}
	}
	return v.Mod(v, limit)
}

// TestArithmeticIsThatOfBig compares the arithmetic with math/big, at operands at which carries run far.
func TestArithmeticIsThatOfBig(t *testing.T) {
	devices(t, 192, 20000, func(t *testing.T, b *bed, n int) {
		if _, err := b.dev.Load(os.DirFS("testdata/ptx")); err != nil {
			t.Fatal(err)
		}
		for code, o := range operations() {
			t.Run(o.name, func(t *testing.T) { o.compare(t, b, uint32(code), n) })
		}
	})
}

// compare runs an operation on n pairs.
func (o *operation) compare(t *testing.T, b *bed, code uint32, n int) {
	r := rand.New(rand.NewPCG(1, uint64(code)))
	whole := new(big.Int).Lsh(big.NewInt(1), uint(32*o.words))
	f, err := newFlight(b.dev, &task{in: []int{arithmeticBytes, arithmeticBytes, arithmeticBytes}, out: []int{arithmeticBytes}}, n)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.n = n
	operands := make([][3]*big.Int, n)
	for i := range operands {
		m := o.m
		if m == nil { // as long as its words, as primes of RSA are, and odd
			m = edge(r, whole, o.words)
			m.SetBit(m.SetBit(m, 32*o.words-1, 1), 0, 1)
		}
		limit := m // of the second factor; the first one is any number
		if o.loose || o.name == "fe_lower" {
			limit = whole
		}
		x, y := edge(r, whole, o.words), edge(r, limit, o.words)
		if o.name == "P-256 sum" || o.name == "P-256 difference" || o.name == "P-384 difference" {
			x.Mod(x, m)
		}
		operands[i] = [3]*big.Int{x, y, m}
		for k, v := range operands[i] {
			putWords(f.in[k].at(i)[:4*o.words], v)
		}
	}
	tasks := task{launch: func(_ *Engine, f *flight) error {
		return launch(f, "pk_arithmetic", f.n, 32, &arithmeticParams{f.in[0].ptr, f.in[1].ptr, f.in[2].ptr, f.out[0].ptr, uint32(f.n), code})
	}}
	if err := errors.Join(f.put(b.Engine, &tasks), f.Stream.Wait()); err != nil {
		t.Fatal(err)
	}
	for i, v := range operands {
		got := new(big.Int).SetBytes(reversed(f.out[0].at(i)[:4*o.words]))
		want := o.want(v[0], v[1], v[2], whole)
		want.Mod(want, v[2])
		if o.loose {
			got.Mod(got, v[2])
		}
		if got.Cmp(want) != 0 {
			t.Fatalf("%d: %x, %x modulo %x is %x, want %x", i, v[0], v[1], v[2], got, want)
		}
	}
	if testing.Verbose() {
		fmt.Fprintln(t.Output(), n, "pairs")
	}
}
