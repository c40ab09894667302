package sign

import (
	"bytes"
	"crypto"
	standard "crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/gpukern/ed25519"
)

func ed25519Key(t testing.TB) (standard.PrivateKey, *Ed25519Key) {
	t.Helper()
	_, key, err := standard.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewEd25519Key(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, k
}

// TestBatchesOfEd25519 has keys with and without tables, beside one on a curve, in batches of any length.
func TestBatchesOfEd25519(t *testing.T) {
	first, a := ed25519Key(t)
	second, b := ed25519Key(t)
	rare, c := ed25519Key(t)
	a.prepare()
	b.prepare()
	fewest := fewestEd25519Eight
	if ed25519.AtOnce() < mostAtOnce {
		fewest = fewestEd25519Four
	}
	for n := range ed25519.AtOnce() + 1 {
		var batch Batch
		var requests []*Request
		var keys []standard.PrivateKey
		add := func(own Key, key standard.PrivateKey) {
			m := fmt.Append(nil, "message ", len(requests))
			requests = append(requests, &Request{Key: own, Random: rand.Reader, Digest: m, Opts: crypto.Hash(0)})
			keys = append(keys, key)
		}
		for i := range n {
			if i%2 == 0 {
				add(a, first)
			} else {
				add(b, second)
			}
		}
		if n == 0 {
			add(c, rare)
		}
		for _, r := range requests {
			batch.Add(r)
		}
		batch.Run()
		for i, r := range requests {
			if want := standard.Sign(keys[i], r.Digest); r.Err != nil || !bytes.Equal(r.Signature, want) {
				t.Errorf("%d of %d: %x, %v, want %x", i, n, r.Signature, r.Err, want)
			}
		}
		want := Stats{Alone: uint64(max(n, 1))}
		if n >= fewest {
			want = Stats{Signatures: uint64(n), Passes: 1}
		}
		if batch.Stats() != want {
			t.Errorf("%d: %+v, want %+v", n, batch.Stats(), want)
		}
	}
}

// TestAFaultOfEd25519IsSignedAgain: by crypto/ed25519, and counted.
func TestAFaultOfEd25519IsSignedAgain(t *testing.T) {
	key, _ := ed25519Key(t)
	s := NewSigner(key)
	s.Prepare()
	s.batch.(*Ed25519Key).digits.Load().Clear() // signs with 0
	var batch Batch
	var requests []*Request
	for i := range ed25519.AtOnce() {
		requests = append(requests, s.Request(rand.Reader, []byte{byte(i)}, crypto.Hash(0)))
		batch.Add(requests[i])
	}
	batch.Run()
	for i, r := range requests {
		if r.Err != ErrFault || r.Signature != nil {
			t.Fatalf("request %d: %v, %x", i, r.Err, r.Signature)
		}
		if got, err := s.Result(r); err != nil || !bytes.Equal(got, standard.Sign(key, r.Digest)) {
			t.Errorf("request %d: %x, %v", i, got, err)
		}
	}
	if n := uint64(len(requests)); batch.Stats().Faults != n || s.Faults() != n {
		t.Errorf("%+v, %d", batch.Stats(), s.Faults())
	}
}

// TestWhatBatchesOfEd25519Leave: digests and contexts are crypto/ed25519's.
func TestWhatBatchesOfEd25519Leave(t *testing.T) {
	key, _ := ed25519Key(t)
	s := NewSigner(key)
	digest := make([]byte, 64)
	for name, opts := range map[string]crypto.SignerOpts{
		"digest": crypto.SHA512, "context": &standard.Options{Context: "c"}, "both": &standard.Options{Hash: crypto.SHA512, Context: "c"},
	} {
		if s.Request(rand.Reader, digest, opts) != nil {
			t.Errorf("%s: a batch takes it", name)
		}
		if _, err := s.Sign(rand.Reader, digest, opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := s.Request(rand.Reader, digest, &standard.Options{})
	if r == nil {
		t.Fatal("a batch takes no plain message")
	}
	if s.Retire(); bytes.Equal(s.batch.(*Ed25519Key).key, make([]byte, len(key))) {
		t.Error("the key is overwritten before its last request has ended")
	}
	own := s.batch.(*Ed25519Key)
	if r.Cancel(); !bytes.Equal(own.key, make([]byte, len(key))) {
		t.Error("a retired key is still there")
	}
	if got, err := s.Sign(rand.Reader, digest, crypto.Hash(0)); err != nil || !standard.Verify(key.Public().(standard.PublicKey), digest, got) {
		t.Errorf("a retired signer: %x, %v", got, err)
	}
	if _, err := NewEd25519Key(key[:32]); !errors.Is(err, ErrUnsuited) {
		t.Errorf("a key of 32 bytes: %v", err)
	}
	if _, wrapped := Wrap(key).(*Signer); wrapped != ed25519.Supported() {
		t.Errorf("wrapped %v, supported %v", wrapped, ed25519.Supported())
	}
}
