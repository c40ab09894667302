package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"reflect"
	"slices"
	"sync"
	"testing"
)

// secrets returns the memory of the private key that batches sign with.
func secrets(k Key) (all []reflect.Value) {
	switch k := k.(type) {
	case *RSAKey:
		for _, p := range []any{k.dp, k.dq, k.qInverse, k.qDigits} {
			all = append(all, reflect.ValueOf(p))
		}
		for _, m := range []any{k.p, k.q} {
			all = append(all, reflect.ValueOf(m).Elem().FieldByName("n"))
		}
	case *ECDSAKey:
		all = append(all, reflect.ValueOf(k.private), reflect.ValueOf(k.digits.Load()).Elem().FieldByName("d"))
	}
	return all
}

// zeros reports whether the memory is zero throughout.
func zeros(all []reflect.Value) bool {
	for _, s := range all {
		for i := range s.Len() {
			if !s.Index(i).IsZero() {
				return false
			}
		}
	}
	return true
}

// retirable are signers of either kind, prepared.
func retirable(t *testing.T) map[string]*Signer {
	onP256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := *keyOf(t, 2048)
	all := map[string]*Signer{"RSA": NewSigner(&own), "ECDSA": NewSigner(onP256)}
	for _, s := range all {
		s.Prepare()
	}
	return all
}

// verified reports whether a signature is the key's.
func verified(s *Signer, digest, signature []byte) bool {
	switch k := s.Public().(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, digest, signature) == nil
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, digest, signature)
	}
	return false
}

// TestRetireWaitsForRequests has one request made, one withdrawn and one dropped before it was added. The memory is zero after
// the last one of them, and not before. The signer signs on by its own key.
func TestRetireWaitsForRequests(t *testing.T) {
	d := sha256.Sum256([]byte("retired"))
	for name, s := range retirable(t) {
		t.Run(name, func(t *testing.T) {
			memory := secrets(s.batch)
			if zeros(memory) {
				t.Fatal("there is no key")
			}
			var b Batch
			made, withdrawn, unused := s.Request(rand.Reader, d[:], crypto.SHA256), s.Request(rand.Reader, d[:], crypto.SHA256), s.Request(rand.Reader, d[:], crypto.SHA256)
			b.Add(made)
			b.Add(withdrawn)
			s.Retire()
			s.Retire() // once more changes nothing
			if s.Request(rand.Reader, d[:], crypto.SHA256) != nil {
				t.Error("a retired key takes requests")
			}
			withdrawn.Cancel()
			withdrawn.Cancel()
			unused.Cancel()
			if zeros(memory) {
				t.Fatal("the key is gone before the signature is made")
			}
			b.Run()
			if made.Err != nil || !verified(s, d[:], made.Signature) {
				t.Errorf("the signature that was waited for: %v", made.Err)
			}
			if !zeros(memory) {
				t.Error("the key stays in memory")
			}
			signature, err := s.Sign(rand.Reader, d[:], crypto.SHA256)
			if err != nil || !verified(s, d[:], signature) {
				t.Errorf("signing afterwards: %v", err)
			}
			s.Prepare()
			if s.batch != nil {
				t.Error("the key is prepared again")
			}
		})
	}
}

func TestRetireAnIdleKey(t *testing.T) {
	for name, s := range retirable(t) {
		memory := secrets(s.batch)
		s.Retire()
		if !zeros(memory) {
			t.Errorf("%s: the key stays in memory", name)
		}
	}
	s := NewSigner(keyOf(t, 2048)) // of which nothing is prepared
	s.Retire()
	if d := sha256.Sum256(nil); s.Request(rand.Reader, d[:], crypto.SHA256) != nil {
		t.Error("a retired key takes requests")
	}
}

// TestClearLeavesTheKeyOfGo: what crypto/ecdsa has of a key stays as it is, since other goroutines sign by it.
func TestClearLeavesTheKeyOfGo(t *testing.T) {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewECDSAKey(key)
		if err != nil {
			t.Fatal(err)
		}
		memory, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(memory)
		k.Clear()
		if !slices.Equal(memory, before) {
			t.Errorf("%s: the memory of crypto/ecdsa is overwritten", curve.Params().Name)
		}
	}
}

// TestRetireWhileLoopsSign has every signature right, whichever side of Retire it is made on.
func TestRetireWhileLoopsSign(t *testing.T) {
	d := sha256.Sum256([]byte("retired"))
	for name, s := range retirable(t) {
		memory := secrets(s.batch)
		var loops sync.WaitGroup
		begun := make(chan struct{}, 8)
		for range 4 {
			loops.Go(func() {
				for i := range 20 {
					if i == 2 {
						begun <- struct{}{}
					}
					if signature, err := s.Sign(rand.Reader, d[:], crypto.SHA256); err != nil || !verified(s, d[:], signature) {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
		<-begun
		s.Retire()
		loops.Wait()
		if !zeros(memory) || s.Faults() != 0 {
			t.Errorf("%s: zeros %v, %d faults", name, zeros(memory), s.Faults())
		}
	}
}
