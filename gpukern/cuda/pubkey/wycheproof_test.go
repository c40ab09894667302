package pubkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/mlkem"
	"crypto/rand"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
	"github.com/millrace/millrace/internal/testkit/wycheproof"
)

// TestWycheproofOfRSA signs the vectors of RSASSA-PKCS1-v1_5.
func TestWycheproofOfRSA(t *testing.T) {
	files := []string{"rsa_pkcs1_2048_sig_gen_test.json", "rsa_pkcs1_3072_sig_gen_test.json", "rsa_pkcs1_4096_sig_gen_test.json"}
	devices(t, 30, 0, func(t *testing.T, b *bed, _ int) {
		if b.drv != nil { // on the CPU kernels take seconds for longer keys
			files = files[:1]
		}
		var all []*RSARequest
		var want []wycheproof.Vector
		for _, name := range files {
			for _, g := range wycheproof.Groups(t, name) {
				h, known := wycheproof.Hashes[g.SHA]
				key := cavp.RSAKey(g.PrivateKey.Modulus.Number(), g.PrivateKey.PublicExponent.Number(), g.PrivateKey.PrivateExponent.Number())
				if !known || key.Primes[0].BitLen() != key.Primes[1].BitLen() || g.PrivateKey.PublicExponent.Number().BitLen() > 31 { // ErrUnsuited
					continue
				}
				k := rsaKey(t, b.Engine, key)
				for _, v := range g.Tests {
					all, want = append(all, &RSARequest{Key: k, Digest: v.Digest(h), Opts: h}), append(want, v)
				}
			}
		}
		b.SignRSA(all, rand.Reader)
		for i, v := range want {
			if r := all[i]; r.Err != nil || !bytes.Equal(r.Signature, v.Sig) {
				t.Errorf("test %d (%s): %x, %v", v.TcID, v.Result, r.Signature, r.Err)
			}
		}
		if len(all) < 9 {
			t.Errorf("%d vectors", len(all))
		}
		b.onDevice(t, len(all))
	})
}

// TestWycheproofOfX25519 has points of low order, on the twist and above the prime: the product of those of low order is zero, which
// the caller refuses (RFC 7748 6.1).
func TestWycheproofOfX25519(t *testing.T) {
	vectors := wycheproof.Groups(t, "x25519_test.json")[0].Tests
	devices(t, 60, len(vectors), func(t *testing.T, b *bed, n int) {
		var tests []wycheproof.Vector
		for i := range n { // of all over the file
			tests = append(tests, vectors[i*len(vectors)/n])
		}
		scalars, points, products := make([][32]byte, n), make([][32]byte, n), random32(4, n)
		for i, v := range tests {
			if copy(scalars[i][:], v.Private) != 32 || copy(points[i][:], v.Public) != 32 {
				t.Fatalf("test %d has other lengths", v.TcID)
			}
		}
		b.X25519(products, scalars, points)
		for i, v := range tests {
			if v.Result == "invalid" || !bytes.Equal(products[i][:], v.Shared) {
				t.Errorf("test %d (%s): %x, want %x", v.TcID, v.Result, products[i], v.Shared)
			}
		}
		b.onDevice(t, n)
	})
}

// TestWycheproofOfEd25519 verifies right and forged signatures.
func TestWycheproofOfEd25519(t *testing.T) {
	var checks []Ed25519Check
	var valid []bool
	for _, g := range wycheproof.Groups(t, "ed25519_test.json") {
		for _, v := range g.Tests {
			checks = append(checks, Ed25519Check{Key: ed25519.PublicKey(g.PublicKey.PK), Message: v.Msg, Signature: v.Sig})
			valid = append(valid, v.Result == "valid")
		}
	}
	if len(checks) < 151 {
		t.Fatalf("%d vectors", len(checks))
	}
	devices(t, len(checks), len(checks), func(t *testing.T, b *bed, n int) {
		for i := range checks {
			checks[i].Valid = !valid[i] // that nothing keeps what was there
		}
		b.VerifyEd25519(checks)
		for i, c := range checks {
			if c.Valid != valid[i] {
				t.Errorf("%d: %v, want %v: %+v", i, c.Valid, valid[i], c)
			}
		}
		b.onDevice(t, n)
	})
}

// TestWycheproofOfEncapsulation has public keys with coefficients that are not below the modulus, and of other lengths.
func TestWycheproofOfEncapsulation(t *testing.T) {
	var all []wycheproof.Vector
	for _, g := range wycheproof.Groups(t, "mlkem_768_encaps_test.json") {
		all = append(all, g.Tests...)
	}
	devices(t, len(all), len(all), func(t *testing.T, b *bed, n int) {
		// One goroutine fills such calls: it reads the randomness in order.
		for tests := range slices.Chunk(all, leastCopied/4) {
			encapsulateVectors(t, b, tests)
		}
		b.onDevice(t, n)
	})
}

func encapsulateVectors(t *testing.T, b *bed, tests []wycheproof.Vector) {
	t.Helper()
	seeds := &inOrder{}
	all := make([]Encapsulation, len(tests))
	for i, v := range tests {
		all[i].Key = v.EK
		seeds.seeds = append(seeds.seeds, [32]byte(v.M))
	}
	b.EncapsulateMLKEM768(all, seeds)
	for i, v := range tests {
		c := &all[i]
		if v.Result != "valid" {
			if !errors.Is(c.Err, ErrKey) || c.Shared != [32]byte{} {
				t.Errorf("test %d (%s): %v", v.TcID, v.Result, c.Err)
			}
			continue
		}
		if c.Err != nil || !bytes.Equal(c.Shared[:], v.K) || !bytes.Equal(c.Ciphertext[:], v.C) {
			t.Errorf("test %d: %v, secret %x, want %x, the ciphertext is right: %v", v.TcID, c.Err, c.Shared, v.K, bytes.Equal(c.Ciphertext[:], v.C))
		}
	}
}

// TestWycheproofOfDecapsulation has ciphertexts that give another secret, and of other lengths.
func TestWycheproofOfDecapsulation(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		var all []Decapsulation
		var tests []wycheproof.Vector
		for _, g := range wycheproof.Groups(t, "mlkem_768_test.json") {
			for _, v := range g.Tests {
				key, err := mlkem.NewDecapsulationKey768(v.Seed)
				if err != nil {
					if v.Result == "valid" {
						t.Errorf("test %d: %v", v.TcID, err)
					}
					continue
				}
				k, err := b.NewMLKEMKey(key)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := k.Close(); err != nil {
						t.Error(err)
					}
				})
				all, tests = append(all, Decapsulation{Key: k, Ciphertext: v.C}), append(tests, v)
			}
		}
		b.DecapsulateMLKEM768(all)
		right := 0
		for i, v := range tests {
			c := &all[i]
			if (c.Err == nil) != (v.Result == "valid") || v.Result == "valid" && !bytes.Equal(c.Shared[:], v.K) {
				t.Errorf("test %d (%s): %v, %x, want %x", v.TcID, v.Result, c.Err, c.Shared, v.K)
			}
			if v.Result == "valid" {
				right++
			}
		}
		if s := b.Stats(); right < 6 || s.Device != uint64(right) || s.Lost != 0 {
			t.Errorf("%d of %d vectors are right, %+v", right, len(tests), s)
		}
	})
}
