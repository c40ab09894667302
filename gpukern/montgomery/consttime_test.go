package montgomery

import (
	"crypto/rand"
	"math/big"
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
	p := NewPower(1)
	var secret [3]byte
	modulus := make([]byte, 64)
	var run func()
	consttime.Timing(t, func(class int) {
		rand.Read(secret[:])
		for i := range secret {
			secret[i] &= -byte(class)
		}
		rand.Read(modulus)
		for i := range modulus {
			modulus[i] |= -byte(class ^ 1)
		}
		modulus[0] |= 0x80
		modulus[63] |= 1
		run = powers(p, modulus, secret[0], secret[1])
	}, func() { run() })
}
