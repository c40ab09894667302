package sign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVPOfRSA signs NIST's vectors of RSASSA-PKCS1-v1_5, whose signatures are the only right ones.
func TestCAVPOfRSA(t *testing.T) {
	var b Batch
	var all []*Request
	var want [][]byte
	keys := map[string]*RSAKey{}
	for _, r := range cavp.Records(t, "SigGen15_186-3.txt") {
		h, known := cavp.Hashes[r["SHAAlg"]]
		if !known || r["mod"] == "1024" || r["mod"] == "1536" {
			continue
		}
		if keys[r["n"]] == nil {
			k, err := NewRSAKey(cavp.RSAKey(r.Number(t, "n"), r.Number(t, "e"), r.Number(t, "d")))
			if err != nil {
				t.Fatal(err)
			}
			keys[r["n"]] = k
		}
		all = append(all, &Request{Key: keys[r["n"]], Random: rand.Reader, Digest: r.Digest(t, h), Opts: h})
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

// TestCAVPOfPSS signs NIST's vectors of RSASSA-PSS with the salts that they name.
func TestCAVPOfPSS(t *testing.T) {
	var b Batch
	var all []*Request
	var want [][]byte
	keys := map[string]*RSAKey{}
	for _, r := range cavp.Records(t, "SigGenPSS_186-3.txt") {
		h, known := cavp.Hashes[r["SHAAlg"]]
		if !known || r["mod"] == "1024" || r["mod"] == "1536" {
			continue
		}
		if keys[r["n"]] == nil {
			k, err := NewRSAKey(cavp.RSAKey(r.Number(t, "n"), r.Number(t, "e"), r.Number(t, "d")))
			if err != nil {
				t.Fatal(err)
			}
			keys[r["n"]] = k
		}
		salt := cavp.Salt(r.Bytes(t, "SaltVal"))
		opts := &rsa.PSSOptions{SaltLength: len(salt), Hash: h}
		all = append(all, &Request{Key: keys[r["n"]], Random: salt, Digest: r.Digest(t, h), Opts: opts})
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
		h, known := cavp.Hashes[strings.ReplaceAll(hash, "-", "")]
		if c == nil || !known {
			continue
		}
		key := &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: c, X: r.Number(t, "Qx"), Y: r.Number(t, "Qy")}, D: r.Number(t, "d")}
		k, err := NewECDSAKey(key)
		if err != nil {
			t.Fatal(err)
		}
		k.prepare()
		digest := r.Digest(t, h)
		if !ecdsa.Verify(&key.PublicKey, digest, r.Number(t, "R"), r.Number(t, "S")) {
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
