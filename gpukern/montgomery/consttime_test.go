package montgomery

import (
	"bytes"
	"crypto/rand"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/consttime"
)

func TestMain(m *testing.M) {
	consttime.Subject("power", func(secret int) func() {
		p := NewPower(1)
		s := secretPowers[secret%len(secretPowers)]
		n := make([]byte, 64)
		for i := range n {
			n[i] = s.modulus
		}
		return powers(p, n, s.exponent, s.base)
	})
	os.Exit(consttime.Main(m))
}

// secretPowers are moduli of 512 bits, exponents and bases, by the byte that they consist of.
var secretPowers = []struct{ modulus, exponent, base byte }{{0xff, 0, 0}, {0x81, 0xff, 0xff}, {0xa5, 0x5a, 0x12}}

// powers returns the part of a signature of RSA that works on secrets.
func powers(p *Power, modulus []byte, exponent, base byte) func() {
	m, err := NewModulus(new(big.Int).SetBytes(modulus))
	if err != nil {
		panic(err)
	}
	e := make([]byte, len(modulus))
	for i := range e {
		e[i] = exponent
	}
	digits, product := make([]uint64, BlockDigits), make([]uint64, 2*BlockDigits)
	b := make([]byte, len(modulus)-1)
	for i := range b {
		b[i] = base
	}
	return func() {
		p.Clear()
		SetBytes(digits, b)
		for lane := range Lanes {
			p.SetModulus(lane, m)
			p.SetExponent(lane, e)
			p.SetBase(lane, digits)
		}
		p.Raise()
		p.Result(0, digits)
		m.Subtract(digits, m.one)
		MultiplyAdd(product, digits, m.one, m.n)
	}
}

func TestBranchesDependOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA, and signs by crypto/rsa")
	}
	secrets := 2
	if os.Getenv(consttime.TimingEnv) != "" {
		secrets = len(secretPowers)
	}
	consttime.Branches(t, "power", secrets, []string{"github.com/millrace/millrace/gpukern/montgomery."}, nil,
		[]string{".(*Power).multiply", ".(*Power).square", ".(*Power).reduce"})
}

func TestTimeDependsOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA, and signs by crypto/rsa")
	}
	// All secrets are prepared before: that takes different times, and would leave traces in the caches.
	p := NewPower(1)
	var runs [2][64]func()
	for class := range runs {
		for i := range runs[class] {
			secret, modulus := make([]byte, 2), bytes.Repeat([]byte{0xff}, 64)
			if class == 1 {
				rand.Read(secret)
				rand.Read(modulus)
				modulus[0] |= 0x80
				modulus[63] |= 1
			}
			runs[class][i] = powers(p, modulus, secret[0], secret[1])
		}
	}
	var run func()
	consttime.Timing(t, func(class int) { run = runs[class][mathrand.IntN(64)] }, func() { run() })
}
