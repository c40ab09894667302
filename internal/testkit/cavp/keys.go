package cavp

import (
	"crypto"
	"crypto/rsa"
	"fmt"
	"math/big"
	"testing"
)

// Hashes are those that the vectors of signatures name and that crypto/rsa and crypto/ecdsa sign with here.
var Hashes = map[string]crypto.Hash{"SHA256": crypto.SHA256, "SHA384": crypto.SHA384, "SHA512": crypto.SHA512}

// Digest returns the digest of the message of a vector.
func (r Record) Digest(t testing.TB, h crypto.Hash) []byte {
	t.Helper()
	d := h.New()
	d.Write(r.Bytes(t, "Msg"))
	return d.Sum(nil)
}

// Number returns a field that is a number.
func (r Record) Number(t testing.TB, field string) *big.Int {
	t.Helper()
	return new(big.Int).SetBytes(r.Bytes(t, field))
}

// RSAKey returns a private key by its exponents, which is all that vectors have: the modulus is factored into two numbers.
func RSAKey(n, e, d *big.Int) *rsa.PrivateKey {
	key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: n, E: int(e.Int64())}, D: d}
	p := factor(key)
	key.Primes = []*big.Int{p, new(big.Int).Div(n, p)}
	key.Precompute()
	return key
}

// factor returns a prime of a key whose exponents are known: of e*d-1 = 2^s*m, some a^(2^i*m) is a root of 1 that is neither
// 1 nor -1 modulo n (NIST SP 800-56B, appendix C).
func factor(key *rsa.PrivateKey) *big.Int {
	one := big.NewInt(1)
	m := new(big.Int).Mul(key.D, big.NewInt(int64(key.E)))
	m.Sub(m, one)
	s := m.TrailingZeroBits()
	m.Rsh(m, s)
	minus := new(big.Int).Sub(key.N, one)
	for a := int64(2); ; a++ {
		x := new(big.Int).Exp(big.NewInt(a), m, key.N)
		for range s {
			square := new(big.Int).Mul(x, x)
			square.Mod(square, key.N)
			if square.Cmp(one) == 0 && x.Cmp(one) != 0 && x.Cmp(minus) != 0 {
				return x.GCD(nil, nil, x.Sub(x, one), key.N)
			}
			x = square
		}
	}
}

// Salt is random for signatures by PSS: the salt of a vector, again for each signature. It is safe for concurrent use.
type Salt []byte

// Read fills b, which has the length of the salt.
func (s Salt) Read(b []byte) (int, error) {
	if len(b) != len(s) {
		return 0, fmt.Errorf("%d random bytes are asked for, the salt has %d", len(b), len(s))
	}
	return copy(b, s), nil
}
