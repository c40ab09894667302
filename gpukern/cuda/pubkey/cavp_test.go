package pubkey

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
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		keys, want := map[string]*RSAKey{}, [][]byte{}
		var all []*RSARequest
		for _, r := range cavp.Records(t, "SigGen15_186-3.txt") {
			h, known := cavp.Hashes[r["SHAAlg"]]
			if !known || r["mod"] != "2048" && r["mod"] != "3072" {
				continue
			}
			if keys[r["n"]] == nil {
				keys[r["n"]] = rsaKey(t, b.Engine, cavp.RSAKey(r.Number(t, "n"), r.Number(t, "e"), r.Number(t, "d")))
			}
			all, want = append(all, &RSARequest{Key: keys[r["n"]], Digest: r.Digest(t, h), Opts: h}), append(want, r.Bytes(t, "S"))
		}
		b.SignRSA(all, rand.Reader)
		for i, r := range all {
			if r.Err != nil || !bytes.Equal(r.Signature, want[i]) {
				t.Errorf("%d: %x, want %x: %v", i, r.Signature, want[i], r.Err)
			}
		}
		if len(all) < 12 || len(keys) < 2 {
			t.Errorf("%d vectors of %d keys", len(all), len(keys))
		}
		b.onDevice(t, len(all))
	})
}

// TestCAVPOfPSS signs NIST's vectors of RSASSA-PSS, a call for each salt.
func TestCAVPOfPSS(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		keys, want := map[string]*RSAKey{}, map[*RSARequest][]byte{}
		calls := map[string][]*RSARequest{} // by salt
		for _, r := range cavp.Records(t, "SigGenPSS_186-3.txt") {
			h, known := cavp.Hashes[r["SHAAlg"]]
			if !known || r["mod"] != "2048" && r["mod"] != "3072" {
				continue
			}
			if keys[r["n"]] == nil {
				keys[r["n"]] = rsaKey(t, b.Engine, cavp.RSAKey(r.Number(t, "n"), r.Number(t, "e"), r.Number(t, "d")))
			}
			salt := r.Bytes(t, "SaltVal")
			q := &RSARequest{Key: keys[r["n"]], Digest: r.Digest(t, h), Opts: &rsa.PSSOptions{SaltLength: len(salt), Hash: h}}
			calls[string(salt)], want[q] = append(calls[string(salt)], q), r.Bytes(t, "S")
		}
		for salt, all := range calls {
			b.SignRSA(all, cavp.Salt(salt))
		}
		for r, s := range want {
			if r.Err != nil || !bytes.Equal(r.Signature, s) {
				t.Errorf("%x, want %x: %v", r.Signature, s, r.Err)
			}
		}
		if len(want) < 12 || len(keys) < 2 {
			t.Errorf("%d vectors of %d keys", len(want), len(keys))
		}
		b.onDevice(t, len(want))
	})
}

// TestCAVPOfECDSA signs the messages of NIST's vectors with their keys, and verifies by the points that NIST says are theirs.
func TestCAVPOfECDSA(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		var all []*ECDSARequest
		var points []*ecdsa.PublicKey
		for _, r := range cavp.Records(t, "SigGen.txt") {
			name, hash, _ := strings.Cut(r["section"], ",")
			c := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384()}[name]
			h, known := cavp.Hashes[strings.ReplaceAll(hash, "-", "")]
			if c == nil || !known {
				continue
			}
			key := &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: c, X: r.Number(t, "Qx"), Y: r.Number(t, "Qy")}, D: r.Number(t, "d")}
			k, err := b.NewECDSAKey(key)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			all, points = append(all, &ECDSARequest{Key: k, Digest: r.Digest(t, h)}), append(points, &key.PublicKey)
		}
		b.SignECDSA(all, rand.Reader)
		for i, r := range all {
			if r.Err != nil || !ecdsa.VerifyASN1(points[i], r.Digest, r.Signature) {
				t.Errorf("%d: %x does not verify: %v", i, r.Signature, r.Err)
			}
		}
		if len(all) < 12 {
			t.Errorf("%d vectors", len(all))
		}
		b.onDevice(t, len(all))
	})
}
