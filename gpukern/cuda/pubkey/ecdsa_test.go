package pubkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// ecdsaKeys returns n keys on a curve.
func ecdsaKeys(t testing.TB, e *Engine, c elliptic.Curve, n int) (all []*ECDSAKey) {
	t.Helper()
	for range n {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		k, err := e.NewECDSAKey(key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, k)
	}
	return all
}

// ecdsaRequests returns n requests with digests of three lengths, by keys in runs.
func ecdsaRequests(keys []*ECDSAKey, n int) []*ECDSARequest {
	all := make([]*ECDSARequest, n)
	for i := range all {
		sum := sha512.Sum512([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		all[i] = &ECDSARequest{Key: keys[i/11%len(keys)], Digest: sum[:[]int{sha256.Size, sha512.Size384, sha512.Size, 20}[i%4]]}
	}
	return all
}

// valid reports what crypto/ecdsa says of a signature.
func (r *ECDSARequest) valid() bool {
	return r.Err == nil && ecdsa.VerifyASN1(&r.Key.key.PublicKey, r.Digest, r.Signature)
}

// verifyECDSA has crypto/ecdsa verify all.
func verifyECDSA(t testing.TB, requests []*ECDSARequest) {
	t.Helper()
	offload.Parallel(len(requests), leastDone, func(from, to int) {
		for i, r := range requests[from:to] {
			if !r.valid() {
				t.Errorf("%d on %s: %v, crypto/ecdsa refuses %x", from+i, r.Key.c.name, r.Err, r.Signature)
				return
			}
		}
	})
}

func TestECDSASignaturesVerify(t *testing.T) {
	for _, c := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		t.Run(c.Params().Name, func(t *testing.T) {
			devices(t, 37, 100000, func(t *testing.T, b *bed, n int) {
				requests := ecdsaRequests(ecdsaKeys(t, b.Engine, c, 3), n)
				b.SignECDSA(requests, nil)
				verifyECDSA(t, requests)
				b.onDevice(t, n)
			})
		})
	}
}

// TestCloseLeavesTheKeyOfGo: what crypto/ecdsa has of a key stays as it is, since other goroutines sign by it.
func TestCloseLeavesTheKeyOfGo(t *testing.T) {
	b := openFake(t, Config{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k, err := b.NewECDSAKey(key)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(memory)
	if err := k.Close(); err != nil || !slices.Equal(memory, before) {
		t.Errorf("%v, or the memory of crypto/ecdsa is overwritten", err)
	}
}

// failing fails after some reads.
type failing struct{ left int }

func (f *failing) Read(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, io.ErrNoProgress
	}
	return rand.Read(p)
}

// TestRandomThatFails fails the signatures that get no nonce, and no others of their group.
func TestRandomThatFails(t *testing.T) {
	b := openFake(t, Config{Batch: 8})
	requests := ecdsaRequests(ecdsaKeys(t, b.Engine, elliptic.P256(), 1), 4)
	b.SignECDSA(requests, &failing{left: 3})
	if last := requests[3]; !errors.Is(last.Err, io.ErrNoProgress) || last.Signature != nil {
		t.Errorf("%v, %x", last.Err, last.Signature)
	}
	verifyECDSA(t, requests[:3])
}

// TestAWrongKeyIsFound: with a private key on the device that does not belong to its public key no signature of its groups
// leaves, and all are made again on the CPU.
func TestAWrongKeyIsFound(t *testing.T) {
	for _, c := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		devices(t, 11, 11, func(t *testing.T, b *bed, n int) {
			keys := ecdsaKeys(t, b.Engine, c, 1)
			requests := ecdsaRequests(keys, n)
			b.spoil(t, keys[0].dev, 4)
			b.SignECDSA(requests, nil)
			verifyECDSA(t, requests)
			if s := b.Stats(); s.Faults != uint64(n) || s.Device != uint64(n) {
				t.Errorf("%+v", s)
			}
		})
	}
}
