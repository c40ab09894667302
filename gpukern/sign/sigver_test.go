package sign

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/montgomery"
	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVPOfVerification has NIST's vectors of right and forged signatures of RSA pass the verification that each signature passes
// before it leaves: those whose message, exponent, signature or encoding was changed do not.
func TestCAVPOfVerification(t *testing.T) {
	for file, pss := range map[string]bool{"SigVer15_186-3.rsp": false, "SigVerPSS_186-3.rsp": true} {
		var right, forged int
		var p pass
		var results []string
		var all []*Request
		run := func() {
			if p.n == 0 {
				return
			}
			p.verify(montgomery.NewPower(p.keys[0].n.Blocks()))
			for i, r := range all {
				valid := r.Err == nil && r.Signature != nil
				if valid != strings.HasPrefix(results[i], "P") || valid == (r.Err == ErrFault) {
					t.Errorf("%s: %v for %s", file, r.Err, results[i])
				}
				if valid {
					right++
				} else {
					forged++
				}
			}
			p, results, all = pass{}, nil, nil
		}
		for _, r := range cavp.Records(t, file) {
			h, known := cavp.Hashes[r["SHAAlg"]]
			if !known || r["mod"] == "1024" || r["mod"] == "1536" {
				continue
			}
			k := publicKey(t, r)
			if p.n == rsaAtOnce || p.n > 0 && p.keys[0].n.Blocks() != k.n.Blocks() {
				run()
			}
			request := &Request{}
			p.add(request, k, encodingOf(t, r, h, pss))
			montgomery.SetBytes(p.digits[p.n-1], r.Bytes(t, "S"))
			all, results = append(all, request), append(results, r["Result"])
		}
		run()
		if right < 3 || forged < 5*right {
			t.Errorf("%s: %d signatures are right, %d forged", file, right, forged)
		}
	}
}

// publicKey is a key without its private parts.
func publicKey(t *testing.T, r cavp.Record) *RSAKey {
	t.Helper()
	n := r.Number(t, "n")
	m, err := montgomery.NewModulus(n)
	if err != nil {
		t.Fatal(err)
	}
	return &RSAKey{public: &rsa.PublicKey{N: n, E: int(r.Number(t, "e").Int64())}, n: m, qDigits: make([]uint64, m.Blocks()*montgomery.BlockDigits)}
}

// encodingOf is the digest of a vector encoded, with the salt that it names.
func encodingOf(t *testing.T, r cavp.Record, h crypto.Hash, pss bool) []byte {
	t.Helper()
	n := r.Number(t, "n")
	em, opts, random := make([]byte, (n.BitLen()+7)/8), crypto.SignerOpts(h), rand.Reader
	if pss {
		salt := cavp.Salt(r.Bytes(t, "SaltVal"))
		opts, random = &rsa.PSSOptions{SaltLength: len(salt), Hash: h}, salt
	}
	if err := Encode(em, n.BitLen(), random, r.Digest(t, h), opts); err != nil {
		t.Fatal(err)
	}
	return em
}
