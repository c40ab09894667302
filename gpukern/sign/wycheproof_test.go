package sign

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestWycheproof signs the vectors of RSASSA-PKCS1-v1_5 of C2SP/wycheproof: MILLRACE_WYCHEPROOF names its folder
// testvectors_v1.
func TestWycheproof(t *testing.T) {
	dir := os.Getenv("MILLRACE_WYCHEPROOF")
	if dir == "" {
		t.Skip("MILLRACE_WYCHEPROOF is not set")
	}
	signed := 0
	for _, name := range []string{"rsa_pkcs1_2048_sig_gen_test.json", "rsa_pkcs1_3072_sig_gen_test.json", "rsa_pkcs1_4096_sig_gen_test.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var file vectors
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for _, group := range file.TestGroups {
			signed += group.run(t)
		}
	}
	t.Logf("%d signatures", signed)
	if signed < 50 {
		t.Errorf("only %d signatures", signed)
	}
}

// vectors are the fields that are used of a file.
type vectors struct{ TestGroups []vectorGroup }

type vectorGroup struct {
	PrivateKey struct{ Modulus, PrivateExponent, PublicExponent string }
	SHA        string
	Tests      []struct {
		TcID             int
		Msg, Sig, Result string
	}
}

// run signs the messages of a group, and returns how many.
func (g *vectorGroup) run(t *testing.T) (signed int) {
	h, known := map[string]crypto.Hash{"SHA-1": crypto.SHA1, "SHA-256": crypto.SHA256, "SHA-384": crypto.SHA384, "SHA-512": crypto.SHA512}[g.SHA]
	if !known { // crypto/rsa signs with the others
		return 0
	}
	k, err := NewRSAKey(cavp.RSAKey(number(t, g.PrivateKey.Modulus), number(t, g.PrivateKey.PublicExponent), number(t, g.PrivateKey.PrivateExponent)))
	if errors.Is(err, ErrUnsuited) { // of three primes
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	var all []*Request
	for _, v := range g.Tests {
		message, _ := hex.DecodeString(v.Msg)
		d := h.New()
		d.Write(message)
		r := &Request{Key: k, Digest: d.Sum(nil), Opts: h}
		b.Add(r)
		all = append(all, r)
	}
	b.Run()
	for i, v := range g.Tests {
		want, _ := hex.DecodeString(v.Sig)
		if r := all[i]; r.Err != nil || !bytes.Equal(r.Signature, want) {
			t.Errorf("%s, test %d (%s): %x, %v", g.SHA, v.TcID, v.Result, r.Signature, r.Err)
		}
	}
	return len(all)
}

func number(t *testing.T, text string) *big.Int {
	t.Helper()
	n, ok := new(big.Int).SetString(text, 16)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return n
}
