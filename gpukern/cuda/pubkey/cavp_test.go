package pubkey

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

func cavpDigest(t *testing.T, r cavp.Record, h crypto.Hash) []byte {
	t.Helper()
	d := h.New()
	d.Write(r.Bytes(t, "Msg"))
	return d.Sum(nil)
}

func cavpNumber(t *testing.T, r cavp.Record, field string) *big.Int {
	t.Helper()
	return new(big.Int).SetBytes(r.Bytes(t, field))
}

// cavpRSA returns the key of a vector: crypto/rsa finds the primes of a modulus by its exponents for no caller, so that they are
// found here (NIST SP 800-56B, appendix C).
func cavpRSA(t *testing.T, r cavp.Record) *rsa.PrivateKey {
	t.Helper()
	key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: cavpNumber(t, r, "n"), E: int(cavpNumber(t, r, "e").Int64())}, D: cavpNumber(t, r, "d")}
	one := big.NewInt(1)
	m := new(big.Int).Mul(key.D, big.NewInt(int64(key.E)))
	m.Sub(m, one)
	s := m.TrailingZeroBits()
	m.Rsh(m, s)
	minus := new(big.Int).Sub(key.N, one)
	for a := int64(2); ; a++ {
		x := new(big.Int).Exp(big.NewInt(a), m, key.N)
		for range s {
			y := new(big.Int).Exp(x, big.NewInt(2), key.N)
			if y.Cmp(one) == 0 && x.Cmp(one) != 0 && x.Cmp(minus) != 0 {
				p := new(big.Int).GCD(nil, nil, new(big.Int).Sub(x, one), key.N)
				key.Primes = []*big.Int{p, new(big.Int).Div(key.N, p)}
				key.Precompute()
				return key
			}
			x = y
		}
	}
}

// TestCAVPOfRSA signs NIST's vectors of RSASSA-PKCS1-v1_5, whose signatures are the only right ones.
func TestCAVPOfRSA(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		keys, want := map[string]*RSAKey{}, [][]byte{}
		var all []*RSARequest
		for _, r := range cavp.Records(t, "SigGen15_186-3.txt") {
			h, known := cavpHashes[r["SHAAlg"]]
			if !known || r["mod"] != "2048" && r["mod"] != "3072" {
				continue
			}
			if keys[r["n"]] == nil {
				keys[r["n"]] = rsaKey(t, b.Engine, cavpRSA(t, r))
			}
			all, want = append(all, &RSARequest{Key: keys[r["n"]], Digest: cavpDigest(t, r, h), Opts: h}), append(want, r.Bytes(t, "S"))
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

// TestCAVPOfECDSA signs the messages of NIST's vectors with their keys, and verifies by the points that NIST says are theirs.
func TestCAVPOfECDSA(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		var all []*ECDSARequest
		var points []*ecdsa.PublicKey
		for _, r := range cavp.Records(t, "SigGen.txt") {
			name, hash, _ := strings.Cut(r["section"], ",")
			c := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384()}[name]
			h, known := cavpHashes[strings.ReplaceAll(hash, "-", "")]
			if c == nil || !known {
				continue
			}
			key := &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: c, X: cavpNumber(t, r, "Qx"), Y: cavpNumber(t, r, "Qy")}, D: cavpNumber(t, r, "d")}
			k, err := b.NewECDSAKey(key)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			all, points = append(all, &ECDSARequest{Key: k, Digest: cavpDigest(t, r, h)}), append(points, &key.PublicKey)
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
