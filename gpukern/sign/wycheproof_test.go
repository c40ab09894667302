package sign

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
	"github.com/millrace/millrace/internal/testkit/wycheproof"
)

// TestWycheproof signs the vectors of RSASSA-PKCS1-v1_5.
func TestWycheproof(t *testing.T) {
	signed := 0
	for _, name := range []string{"rsa_pkcs1_2048_sig_gen_test.json", "rsa_pkcs1_3072_sig_gen_test.json", "rsa_pkcs1_4096_sig_gen_test.json"} {
		for _, g := range wycheproof.Groups(t, name) {
			signed += signGroup(t, &g)
		}
	}
	t.Logf("%d signatures", signed)
	if signed < 20 {
		t.Errorf("only %d signatures", signed)
	}
}

// signGroup signs the messages of a group, and returns how many.
func signGroup(t *testing.T, g *wycheproof.Group) (signed int) {
	h, known := wycheproof.Hashes[g.SHA]
	if !known { // crypto/rsa signs with the others
		return 0
	}
	k, err := NewRSAKey(cavp.RSAKey(g.PrivateKey.Modulus.Number(), g.PrivateKey.PublicExponent.Number(), g.PrivateKey.PrivateExponent.Number()))
	if errors.Is(err, ErrUnsuited) { // of three primes
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	var all []*Request
	for _, v := range g.Tests {
		r := &Request{Key: k, Digest: v.Digest(h), Opts: h}
		b.Add(r)
		all = append(all, r)
	}
	b.Run()
	for i, v := range g.Tests {
		if r := all[i]; r.Err != nil || !bytes.Equal(r.Signature, v.Sig) {
			t.Errorf("%s, test %d (%s): %x, %v", g.SHA, v.TcID, v.Result, r.Signature, r.Err)
		}
	}
	return len(all)
}
