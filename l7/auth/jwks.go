package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Algorithm is an algorithm of signatures (RFC 7518 3.1).
type Algorithm string

// The values of Algorithm. There is none with a shared secret, so that no public key can be taken for one (RFC 8725 2.1, 3.1).
const (
	RS256 Algorithm = "RS256"
	ES256 Algorithm = "ES256"
	EdDSA Algorithm = "EdDSA" // Ed25519
)

// Bounds of a JWKS.
const (
	maxJWKS     = 1 << 20
	maxKeys     = 256
	leastRSA    = 2048 // bits (RFC 7518 3.3)
	mostRSA     = 8192
	mostRSAExpo = 1<<31 - 1
)

// Key is a public key of a JWKS. It is for one algorithm, whatever a token claims.
type Key struct {
	ID        string // "kid", "" if it has none
	Algorithm Algorithm
	Public    crypto.PublicKey // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// jwk is a key as it is written (RFC 7517 4).
type jwk struct {
	Kty    string   `json:"kty"`
	Kid    string   `json:"kid"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	D      *string  `json:"d"`
}

// ParseJWKS reads a set of keys. Keys of other kinds and uses are passed over (RFC 7517 5); a set without one that can verify is an
// error, and so is one with a private key.
func ParseJWKS(text []byte) ([]Key, error) {
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("more than %d bytes", maxJWKS)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("not a set of keys (JWKS): %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	var keys []Key
	for i := range set.Keys {
		k, err := set.Keys[i].public()
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if k != nil {
			keys = append(keys, *k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no key for RS256, ES256 or EdDSA")
	}
	return keys, nil
}

// public returns the key; nil for one of another kind or use.
func (j *jwk) public() (*Key, error) {
	if j.D != nil {
		return nil, errors.New("it is a private key: take its public part")
	}
	if j.Use != "" && j.Use != "sig" || len(j.KeyOps) > 0 && !contains(j.KeyOps, "verify") {
		return nil, nil
	}
	k := &Key{ID: j.Kid}
	var err error
	switch {
	case j.Kty == "RSA":
		k.Algorithm = RS256
		k.Public, err = j.rsa()
	case j.Kty == "EC" && j.Crv == "P-256":
		k.Algorithm = ES256
		k.Public, err = j.p256()
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		k.Algorithm = EdDSA
		k.Public, err = j.ed25519()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if j.Alg != "" && j.Alg != string(k.Algorithm) && !(k.Algorithm == EdDSA && j.Alg == "Ed25519") {
		return nil, nil // such as PS256 with a key of RSA
	}
	return k, nil
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}

// octets decodes a number or a point; most is its length, exactly where exact is set.
func octets(what, s string, most int, exact bool) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || len(b) > most || exact && len(b) != most {
		return nil, fmt.Errorf("%s is wrong", what)
	}
	return b, nil
}

func (j *jwk) rsa() (crypto.PublicKey, error) {
	n, err := octets("n", j.N, mostRSA/8+1, false)
	if err != nil {
		return nil, err
	}
	e, err := octets("e", j.E, 4, false)
	if err != nil {
		return nil, err
	}
	k := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if bits := k.N.BitLen(); bits < leastRSA || bits > mostRSA || k.N.Bit(0) == 0 {
		return nil, fmt.Errorf("a modulus of %d bits: at least %d are required", bits, leastRSA)
	}
	if k.E < 3 || k.E > mostRSAExpo || k.E%2 == 0 {
		return nil, fmt.Errorf("the exponent is %d", k.E)
	}
	return k, nil
}

func (j *jwk) p256() (crypto.PublicKey, error) {
	x, err := octets("x", j.X, 32, true)
	if err != nil {
		return nil, err
	}
	y, err := octets("y", j.Y, 32, true)
	if err != nil {
		return nil, err
	}
	k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	if err != nil {
		return nil, errors.New("x and y are no point of P-256")
	}
	return k, nil
}

func (j *jwk) ed25519() (crypto.PublicKey, error) {
	x, err := octets("x", j.X, ed25519.PublicKeySize, true)
	return ed25519.PublicKey(x), err
}
