package pubkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// ed25519Checks returns n checks of right signatures, by a few keys.
func ed25519Checks(t testing.TB, n int) []Ed25519Check {
	t.Helper()
	all := make([]Ed25519Check, n)
	var keys [8]ed25519.PrivateKey
	for i := range keys {
		_, k, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = k
	}
	offload.Parallel(n, leastDone, func(from, to int) {
		for i := from; i < to; i++ {
			k := keys[i%len(keys)]
			m := fmt.Append(nil, "message ", i)
			all[i] = Ed25519Check{Key: k.Public().(ed25519.PublicKey), Message: m, Signature: ed25519.Sign(k, m)}
		}
	})
	return all
}

// order is that of the generator (RFC 8032 5.1).
var order, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

// forge makes a right signature a wrong one, in the i-th way.
func forge(c *Ed25519Check, i int) {
	s := append([]byte(nil), c.Signature...)
	switch i % 8 {
	case 0:
		s[i%32] ^= 1 << (i % 8) // R
	case 1:
		s[32+i%31] ^= 1 << (i % 8) // s
	case 2:
		c.Message = append(c.Message, 'x')
	case 3: // s + order: the same to a verifier that reduces it
		v := new(big.Int).SetBytes(reversed(s[32:]))
		copy(s[32:], reversed(v.Add(v, order).FillBytes(make([]byte, 32))))
	case 4:
		k := append([]byte(nil), c.Key...)
		k[i%31] ^= 1 << (i % 8)
		c.Key = k
	case 5:
		s = s[:63]
	case 6:
		c.Key = c.Key[:31]
	case 7:
		s[31] ^= 0x80 // the sign of R's x
	}
	c.Signature = s
}

func reversed(b []byte) []byte {
	r := make([]byte, len(b))
	for i, v := range b {
		r[len(b)-1-i] = v
	}
	return r
}

// TestForgedSignaturesAreFoundOneByOne has forged ones among right ones.
func TestForgedSignaturesAreFoundOneByOne(t *testing.T) {
	devices(t, 48, 100000, func(t *testing.T, b *bed, n int) {
		checks := ed25519Checks(t, n)
		for i := range checks {
			if i%3 == 1 {
				forge(&checks[i], i/3)
			}
			checks[i].Valid = i%3 == 1 // that nothing keeps what was there
		}
		b.VerifyEd25519(checks)
		wrong := 0
		for i, c := range checks {
			if c.Valid != (i%3 != 1) {
				if wrong++; wrong < 5 {
					t.Errorf("%d (forged in way %d): %v", i, i/3%8, c.Valid)
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d", wrong, n)
		}
		b.onDevice(t, n)
	})
}

// TestEd25519Vectors has the vectors of RFC 8032 7.1, and points of low order, which crypto/ed25519 takes: it
// has the last word on each.
func TestEd25519Vectors(t *testing.T) {
	bytes := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	checks := []Ed25519Check{
		{
			Key: bytes("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
			Signature: bytes("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b" +
				"d25bf5f0595bbe24655141438e7a100b"),
		},
		{
			Key: bytes("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"), Message: []byte{0x72},
			Signature: bytes("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c" +
				"387b2eaeb4302aeeb00d291612bb0c00"),
		},
	}
	for _, y := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000", // the neutral point
		"0100000000000000000000000000000000000000000000000000000000000080", // with the sign of a zero
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // 1, not below the prime
		"0000000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"0200000000000000000000000000000000000000000000000000000000000000", // no point
	} {
		for _, r := range []string{y, "0100000000000000000000000000000000000000000000000000000000000000"} {
			for m := range 4 {
				checks = append(checks, Ed25519Check{Key: bytes(y), Message: []byte{byte(m)}, Signature: append(bytes(r), make([]byte, 32)...)})
			}
		}
	}
	devices(t, len(checks), len(checks), func(t *testing.T, b *bed, n int) {
		b.VerifyEd25519(checks)
		taken := 0
		for i, c := range checks {
			if want := ed25519.Verify(c.Key, c.Message, c.Signature); c.Valid != want {
				t.Errorf("%d: %v, crypto/ed25519 says %v: %+v", i, c.Valid, want, c)
			} else if want {
				taken++
			}
		}
		if taken < 4 {
			t.Errorf("%d are right", taken)
		}
		b.onDevice(t, n)
	})
}

// ed25519Requests returns n requests by some keys.
func ed25519Requests(t testing.TB, e *Engine, n int) []*Ed25519Request {
	t.Helper()
	var keys [3]*Ed25519Key
	for i := range keys {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		k, err := e.NewEd25519Key(key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		keys[i] = k
	}
	all := make([]*Ed25519Request, n)
	for i := range all {
		all[i] = &Ed25519Request{Key: keys[i%len(keys)], Message: fmt.Append(nil, "message ", i)}
	}
	return all
}

// sameEd25519 compares signatures with those of crypto/ed25519: there is one for each key and message.
func sameEd25519(t testing.TB, requests []*Ed25519Request) {
	t.Helper()
	offload.Parallel(len(requests), leastDone, func(from, to int) {
		for i, r := range requests[from:to] {
			if want := ed25519.Sign(r.Key.key, r.Message); string(r.Signature) != string(want) {
				t.Errorf("%d: %x, want %x", from+i, r.Signature, want)
				return
			}
		}
	})
}

func TestEd25519SignaturesAreThoseOfTheStandard(t *testing.T) {
	devices(t, 40, 100000, func(t *testing.T, b *bed, n int) {
		requests := ed25519Requests(t, b.Engine, n)
		b.SignEd25519(requests)
		sameEd25519(t, requests)
		b.onDevice(t, 2*n) // each has two calls
	})
}

// TestAWrongEd25519KeyIsFound: no signature by a scalar that a fault of the device's memory has changed leaves.
func TestAWrongEd25519KeyIsFound(t *testing.T) {
	devices(t, 6, 6, func(t *testing.T, b *bed, n int) {
		requests := ed25519Requests(t, b.Engine, n)
		b.spoil(t, requests[1].Key.dev, 7)
		b.SignEd25519(requests)
		sameEd25519(t, requests)
		if s := b.Stats(); s.Faults != uint64(n)/3 || s.CPU != 0 {
			t.Errorf("%+v", s)
		}
	})
}
