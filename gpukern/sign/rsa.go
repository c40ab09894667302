package sign

import (
	"crypto"
	"crypto/rsa"
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// ErrUnsuited is the error of a key that batches do not take. crypto/rsa signs with it.
var ErrUnsuited = errors.New("sign: the key is signed with one at a time")

// Bounds of the modulus in bits. Shorter keys are refused everywhere (RFC 9325 4.5), longer ones are rare.
const (
	minRSA = 2048
	maxRSA = 4096
)

// RSAKey is a private key of RSA as a batch needs it: by the Chinese remainder theorem (RFC 8017 5.1.2), in digits.
// It is read only until Clear, and safe for concurrent use.
type RSAKey struct {
	public   *rsa.PublicKey
	n, p, q  *montgomery.Modulus
	dp, dq   []byte   // exponents modulo p-1 and q-1, as long as the primes
	qInverse []uint64 // 1/q modulo p, times R
	qDigits  []uint64
}

// Supported reports whether this CPU signs faster in batches than one at a time.
func Supported() bool { return montgomery.Supported() }

// NewRSAKey prepares a key. It returns ErrUnsuited for keys of more than two primes, of primes of different lengths, or
// beyond 4096 bits.
func NewRSAKey(key *rsa.PrivateKey) (*RSAKey, error) {
	bits := key.N.BitLen()
	switch {
	case len(key.Primes) != 2:
		return nil, fmt.Errorf("%w: it has %d primes", ErrUnsuited, len(key.Primes))
	case bits < minRSA || bits > maxRSA:
		return nil, fmt.Errorf("%w: it has %d bits, not %d to %d", ErrUnsuited, bits, minRSA, maxRSA)
	case key.E < 3 || key.E > math.MaxInt32:
		return nil, fmt.Errorf("%w: its public exponent is %d", ErrUnsuited, key.E)
	}
	if err := key.Validate(); err != nil {
		return nil, err
	}
	p, q := key.Primes[0], key.Primes[1]
	if p.BitLen() != q.BitLen() {
		return nil, fmt.Errorf("%w: its primes have %d and %d bits", ErrUnsuited, p.BitLen(), q.BitLen())
	}
	k := &RSAKey{public: &key.PublicKey}
	var err error
	for _, m := range []struct {
		to *(*montgomery.Modulus)
		n  *big.Int
	}{{&k.n, key.N}, {&k.p, p}, {&k.q, q}} {
		if *m.to, err = montgomery.NewModulus(m.n); err != nil {
			return nil, err
		}
	}
	k.dp, k.dq = exponent(key.D, p), exponent(key.D, q)
	k.qInverse = k.p.Residue(new(big.Int).ModInverse(q, p), p)
	k.qDigits = k.q.Digits(q)
	return k, nil
}

// exponent returns d modulo p-1, as long as p.
func exponent(d, p *big.Int) []byte {
	less := new(big.Int).Sub(p, big.NewInt(1))
	return less.Mod(d, less).FillBytes(make([]byte, (p.BitLen()+7)/8))
}

// size returns the length of a signature in bytes (RFC 8017 8.1.1).
func (k *RSAKey) size() int { return k.public.Size() }

func (k *RSAKey) shape() shape {
	return shape{atOnce: rsaAtOnce, primeBlocks: k.p.Blocks(), blocks: k.n.Blocks()}
}

func (k *RSAKey) takes(opts crypto.SignerOpts) bool { return Encodable(opts) }

// sign implements Key.
func (k *RSAKey) sign(b *Batch, requests []*Request) {
	b.counters.passes.Add(1)
	var s pass
	for _, r := range requests {
		own := r.Key.(*RSAKey) // they have one shape
		em := make([]byte, own.size())
		if r.Err = Encode(em, own.n.BitLen(), r.Random, r.Digest, r.Opts); r.Err == nil {
			s.add(r, own, em)
		}
	}
	if s.n > 0 {
		s.power(b.power(k.p.Blocks()))
		s.verify(b.power(k.n.Blocks()))
	}
}

// Clear overwrites the private key. It must not be used afterwards.
func (k *RSAKey) Clear() {
	k.p.Clear()
	k.q.Clear()
	clear(k.dp)
	clear(k.dq)
	clear(k.qInverse)
	clear(k.qDigits)
}
