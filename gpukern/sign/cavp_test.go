package sign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

var cavpHashes = map[string]crypto.Hash{"SHA256": crypto.SHA256, "SHA384": crypto.SHA384, "SHA512": crypto.SHA512}

// cavpDigest returns the digest of a vector's message.
func cavpDigest(t *testing.T, r cavp.Record, h crypto.Hash) []byte {
	t.Helper()
	d := h.New()
	d.Write(r.Bytes(t, "Msg"))
	return d.Sum(nil)
}

// TestCAVPOfRSA signs NIST's vectors of RSASSA-PKCS1-v1_5, whose signatures are the only right ones.
func TestCAVPOfRSA(t *testing.T) {
	var b Batch
	var all []*Request
	var want [][]byte
	keys := map[string]*RSAKey{}
	for _, r := range cavp.Records(t, "SigGen15_186-3.txt") {
		h, known := cavpHashes[r["SHAAlg"]]
		if !known || r["mod"] == "1024" || r["mod"] == "1536" {
			continue
		}
		if keys[r["n"]] == nil {
			key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: number(t, r["n"]), E: int(number(t, r["e"]).Int64())}, D: number(t, r["d"])}
			p := factor(key)
			key.Primes = []*big.Int{p, new(big.Int).Div(key.N, p)}
			key.Precompute()
			k, err := NewRSAKey(key)
			if err != nil {
				t.Fatal(err)
			}
			keys[r["n"]] = k
		}
		all = append(all, &Request{Key: keys[r["n"]], Random: rand.Reader, Digest: cavpDigest(t, r, h), Opts: h})
		b.Add(all[len(all)-1])
		want = append(want, r.Bytes(t, "S"))
	}
	b.Run()
	for i, r := range all {
		if r.Err != nil || !bytes.Equal(r.Signature, want[i]) {
			t.Errorf("%d: %x, want %x: %v", i, r.Signature, want[i], r.Err)
		}
	}
	if len(all) < 12 || len(keys) < 2 {
		t.Errorf("%d vectors of %d keys", len(all), len(keys))
	}
}

// TestCAVPOfECDSA signs the messages of NIST's vectors with their keys, and verifies by the points that NIST says are theirs.
func TestCAVPOfECDSA(t *testing.T) {
	var b Batch
	var all []*Request
	var points []*ecdsa.PublicKey
	for _, r := range cavp.Records(t, "SigGen.txt") {
		curve, hash, _ := strings.Cut(r["section"], ",")
		c := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384()}[curve]
		h, known := cavpHashes[strings.ReplaceAll(hash, "-", "")]
		if c == nil || !known {
			continue
		}
		key := &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: c, X: number(t, r["Qx"]), Y: number(t, r["Qy"])}, D: number(t, r["d"])}
		k, err := NewECDSAKey(key)
		if err != nil {
			t.Fatal(err)
		}
		k.prepare()
		digest := cavpDigest(t, r, h)
		if !ecdsa.Verify(&key.PublicKey, digest, number(t, r["R"]), number(t, r["S"])) {
			t.Fatal("the vector's own signature does not verify")
		}
		all, points = append(all, &Request{Key: k, Random: rand.Reader, Digest: digest, Opts: h}), append(points, &key.PublicKey)
		b.Add(all[len(all)-1])
	}
	b.Run()
	for i, r := range all {
		if r.Err != nil || !ecdsa.VerifyASN1(points[i], r.Digest, r.Signature) {
			t.Errorf("%d: %x does not verify: %v", i, r.Signature, r.Err)
		}
	}
	if len(all) < 12 {
		t.Errorf("%d vectors", len(all))
	}
}
