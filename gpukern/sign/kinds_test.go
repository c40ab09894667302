package sign

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"testing"

	"github.com/millrace/millrace/gpukern/ed25519"
)

// TestEachKeyIsSignedWithAsItsKindIs: certificates of a listener with keys of RSA, on P-256 and of Ed25519 need no key of the
// configuration that says what makes their signatures. In one batch each has passes of its own kind, or is made alone where that takes
// less time.
func TestEachKeyIsSignedWithAsItsKindIs(t *testing.T) {
	signers := []*Signer{NewSigner(keyOf(t, 2048)), NewSigner(curveKey(t, "P-256"))}
	edKey, _ := ed25519Key(t)
	signers = append(signers, NewSigner(edKey))
	digest := sha256.Sum256([]byte("kinds"))
	opts := []crypto.SignerOpts{crypto.SHA256, crypto.SHA256, crypto.Hash(0)}
	counts := []int{2, 2, ed25519.AtOnce()}
	var b Batch
	var all []*Request
	for kind, s := range signers {
		s.Prepare()
		for range counts[kind] {
			r := s.Request(rand.Reader, digest[:], opts[kind])
			b.Add(r)
			all = append(all, r)
		}
	}
	b.Add(signers[0].Request(rand.Reader, digest[:], crypto.SHA256)) // joins the other two of RSA
	b.Run()
	for i, r := range all {
		if r.Err != nil || len(r.Signature) == 0 {
			t.Errorf("request %d: %v", i, r.Err)
		}
	}
	if want := (Stats{Signatures: uint64(len(all) + 1), Passes: 3}); b.Stats() != want {
		t.Errorf("%+v, want a pass for each kind: %+v", b.Stats(), want)
	}
}
