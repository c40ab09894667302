package pubkey

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// rsaKeys makes a key of a size once.
var rsaKeys sync.Map

func standardRSA(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	once, _ := rsaKeys.LoadOrStore(bits, sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, bits) }))
	k, err := once.(func() (*rsa.PrivateKey, error))()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rsaKey(t testing.TB, e *Engine, key *rsa.PrivateKey) *RSAKey {
	t.Helper()
	k, err := e.NewRSAKey(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// rsaRequests returns n requests with both paddings.
func rsaRequests(k *RSAKey, n int) []*RSARequest {
	all := make([]*RSARequest, n)
	for i := range all {
		sum := sha256.Sum256(fmt.Append(nil, i))
		all[i] = &RSARequest{Key: k, Digest: sum[:], Opts: crypto.SHA256}
		if i%2 == 0 {
			sum := sha512.Sum512(fmt.Append(nil, i))
			all[i].Digest, all[i].Opts = sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA512}
		}
	}
	return all
}

// valid reports what crypto/rsa says of a signature.
func (r *RSARequest) valid() bool {
	if r.Err != nil {
		return false
	}
	if pss, ok := r.Opts.(*rsa.PSSOptions); ok {
		return rsa.VerifyPSS(&r.Key.key.PublicKey, r.Opts.HashFunc(), r.Digest, r.Signature, pss) == nil
	}
	return rsa.VerifyPKCS1v15(&r.Key.key.PublicKey, r.Opts.HashFunc(), r.Digest, r.Signature) == nil
}

// verifyRSA has crypto/rsa verify all.
func verifyRSA(t testing.TB, requests []*RSARequest) {
	t.Helper()
	offload.Parallel(len(requests), leastDone, func(from, to int) {
		for i, r := range requests[from:to] {
			if !r.valid() {
				t.Errorf("%d: %v, crypto/rsa refuses %x", from+i, r.Err, r.Signature)
				return
			}
		}
	})
}

func TestRSASignaturesVerify(t *testing.T) {
	for _, c := range []struct{ bits, n, many int }{{2048, 7, 100000}, {3072, 5, 20000}, {4096, 3, 10000}} {
		t.Run(fmt.Sprint(c.bits), func(t *testing.T) {
			devices(t, c.n, c.many, func(t *testing.T, b *bed, n int) {
				requests := rsaRequests(rsaKey(t, b.Engine, standardRSA(t, c.bits)), n)
				b.SignRSA(requests, nil)
				verifyRSA(t, requests)
				b.onDevice(t, n)
			})
		})
	}
}

// TestRSAKeysOfOneBatch has keys of several sizes, and of two primes in both orders.
func TestRSAKeysOfOneBatch(t *testing.T) {
	devices(t, 2, 100, func(t *testing.T, b *bed, n int) {
		key := standardRSA(t, 2048)
		other := &rsa.PrivateKey{PublicKey: key.PublicKey, D: key.D, Primes: []*big.Int{key.Primes[1], key.Primes[0]}}
		other.Precompute()
		var all []*RSARequest
		for _, k := range []*rsa.PrivateKey{key, other, standardRSA(t, 3072)} {
			all = append(all, rsaRequests(rsaKey(t, b.Engine, k), n)...)
		}
		b.SignRSA(all, nil)
		verifyRSA(t, all)
		b.onDevice(t, 3*n)
	})
}

// TestAWrongRSAKeyIsFound: no signature by a key that a fault of the device's memory has changed leaves.
func TestAWrongRSAKeyIsFound(t *testing.T) {
	const words = 32
	for name, at := range map[string]int{"exponent": 3 * words * 4, "prime": 4, "inverse": 8 * words * 4} {
		t.Run(name, func(t *testing.T) {
			devices(t, 2, 2, func(t *testing.T, b *bed, n int) {
				k := rsaKey(t, b.Engine, standardRSA(t, 2048))
				requests := rsaRequests(k, n)
				b.spoil(t, k.dev, at)
				b.SignRSA(requests, nil)
				verifyRSA(t, requests)
				if s := b.Stats(); s.Faults != uint64(n) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestRSAKeysThatAreRefused are those that Montgomery's product or the kernels' lengths are not for.
func TestRSAKeysThatAreRefused(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	key := standardRSA(t, 2048)
	p, q := key.Primes[0], key.Primes[1]
	one := big.NewInt(1)
	odd := new(big.Int).Add(p, one)
	for name, k := range map[string]*rsa.PrivateKey{
		"even prime":    {PublicKey: rsa.PublicKey{N: new(big.Int).Mul(odd, q), E: 65537}, D: key.D, Primes: []*big.Int{odd, q}},
		"three primes":  {PublicKey: key.PublicKey, D: key.D, Primes: []*big.Int{p, q, one}},
		"even exponent": {PublicKey: rsa.PublicKey{N: key.N, E: 65536}, D: key.D, Primes: key.Primes},
		"no primes":     {PublicKey: key.PublicKey, D: key.D},
		"another D":     {PublicKey: key.PublicKey, D: new(big.Int).Add(key.D, one), Primes: key.Primes},
		"1024 bits":     {PublicKey: rsa.PublicKey{N: p, E: 65537}, D: key.D, Primes: []*big.Int{p, one}},
	} {
		if _, err := e.NewRSAKey(k); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := e.NewRSAKey(&rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Mul(odd, q), E: 65537}, D: key.D, Primes: []*big.Int{odd, q}}); !errors.Is(err, ErrUnsuited) {
		t.Errorf("an even prime: %v", err)
	}
}

// TestDigestsThatCannotBeSigned fail alone.
func TestDigestsThatCannotBeSigned(t *testing.T) {
	b := openFake(t, Config{Batch: 4})
	requests := rsaRequests(rsaKey(t, b.Engine, standardRSA(t, 2048)), 2)
	requests[1].Digest = requests[1].Digest[1:]
	b.SignRSA(requests, nil)
	if requests[1].Err == nil || requests[1].Signature != nil {
		t.Errorf("%v, %x", requests[1].Err, requests[1].Signature)
	}
	verifyRSA(t, requests[:1])
}
