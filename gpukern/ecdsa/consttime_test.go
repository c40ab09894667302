package ecdsa

import (
	"crypto/rand"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/consttime"
)

func TestMain(m *testing.M) {
	consttime.Subject("P-256", func(secret int) func() { return signing(P256(), secret) })
	consttime.Subject("P-384", func(secret int) func() { return signing(P384(), secret) })
	os.Exit(consttime.Main(m))
}

// signing returns the part of a pass that works on secrets, with the nonces and keys of that number: 0 has nonces and keys of
// few bits, 1 those of many, 2 others.
func signing(c *Curve, secret int) func() {
	r := mathrand.New(mathrand.NewPCG(uint64(secret), 1))
	p := NewPass(c)
	var keys [Lanes]*Key
	var nonces [Lanes][]byte
	for i := range Lanes {
		d, k := big.NewInt(int64(1+i)), big.NewInt(int64(1+i))
		switch secret {
		case 1:
			d.Sub(c.params.N, d)
			k.Sub(c.params.N, k)
		case 2:
			d.SetUint64(r.Uint64())
			k.Lsh(k.SetUint64(r.Uint64()), r.UintN(uint(8*c.size-64)))
		}
		keys[i] = &Key{c: c, d: c.n.residue(d)}
		nonces[i] = k.FillBytes(make([]byte, 2*c.size))
	}
	return func() {
		p.Clear()
		for i := range Lanes {
			p.Set(keys[i], []byte{1, 2, 3}, nonces[i])
		}
		p.reduceNonces()
		p.multiplyGenerator()
		p.toAffine()
		p.solve()
	}
}

// TestBranchesDependOnNoSecret: r and s are public, so that lowering them may depend on them.
func TestBranchesDependOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA, and signs by crypto/ecdsa")
	}
	subjects, secrets := []string{"P-256"}, 2
	if os.Getenv(consttime.TimingEnv) != "" { // these take longer
		subjects, secrets = append(subjects, "P-384"), 3
	}
	within := []string{"github.com/millrace/millrace/gpukern/ecdsa.", "github.com/millrace/millrace/gpukern/montgomery."}
	public := []string{".(*field).lower", ".(*field).isBelow"}
	straight := []string{".(*field).multiply", ".(*field).multiplyAdd", ".(*field).subtract", ".(*field).combine"}
	for _, curve := range subjects {
		consttime.Branches(t, curve, secrets, within, public, straight)
	}
}

// TestTimeDependsOnNoSecret compares one nonce and key with others.
func TestTimeDependsOnNoSecret(t *testing.T) {
	if !supported {
		t.Skip("this CPU has no AVX-512 IFMA, and signs by crypto/ecdsa")
	}
	for _, curve := range curves {
		c := curve()
		// All secrets are prepared before: that takes different times, and would leave traces in the caches.
		p := NewPass(c)
		var keys [2][64]*Key
		var nonces [2][64][]byte
		for class := range keys {
			for i := range keys[class] {
				d, nonce := make([]byte, c.size), make([]byte, 2*c.size)
				if class == 1 {
					rand.Read(d)
					rand.Read(nonce[c.size:])
				}
				d[c.size-1] |= 1
				nonce[2*c.size-1] |= 1
				keys[class][i], nonces[class][i] = &Key{c: c, d: c.n.residue(new(big.Int).SetBytes(d))}, nonce
			}
		}
		consttime.Timing(t, func(class int) {
			i := mathrand.IntN(64)
			key, nonce := keys[class][i], nonces[class][i]
			p.Clear()
			for range Lanes {
				p.Set(key, nil, nonce)
			}
		}, func() {
			p.reduceNonces()
			p.multiplyGenerator()
			p.toAffine()
			p.solve()
		})
	}
}
