package sign

import (
	"crypto"
	standard "crypto/ecdsa"
	"crypto/elliptic"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/gpukern/ecdsa"
)

// The fewest signatures for which a pass takes less time than crypto/ecdsa for them.
const (
	fewestP256 = 2
	fewestP384 = 1
)

// ECDSAKey is a private key on P-256 or P-384. From its ninth signature on it has a table for passes, which takes 0.3 ms to
// compute, or 1.2 ms on P-384. It is safe for concurrent use until Clear.
type ECDSAKey struct {
	key             *standard.PrivateKey
	private, public []byte
	curve           func() *ecdsa.Curve
	fewest          int
	keyTable[ecdsa.Key]
}

// NewECDSAKey prepares a key. It returns ErrUnsuited for other curves.
func NewECDSAKey(key *standard.PrivateKey) (*ECDSAKey, error) {
	k := &ECDSAKey{key: key}
	switch key.Curve {
	case elliptic.P256():
		k.curve, k.fewest = ecdsa.P256, fewestP256
	case elliptic.P384():
		k.curve, k.fewest = ecdsa.P384, fewestP384
	default:
		return nil, fmt.Errorf("%w: its curve is %s", ErrUnsuited, key.Params().Name)
	}
	private, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	// Clear overwrites this copy. Bytes can return the memory that crypto/ecdsa signs from meanwhile, in other goroutines.
	k.private = slices.Clone(private)
	if k.public, err = key.PublicKey.Bytes(); err != nil {
		return nil, err
	}
	return k, nil
}

// ready reports whether passes sign with the key. It counts a use.
func (k *ECDSAKey) ready() bool { return k.used(k.newTable) }

func (k *ECDSAKey) prepare() { k.compute(k.newTable) }

func (k *ECDSAKey) newTable() (*ecdsa.Key, error) {
	return ecdsa.NewKey(k.curve(), k.private, k.public) // never an error: the encodings have the lengths of the curve
}

func (k *ECDSAKey) shape() shape {
	return shape{atOnce: ecdsa.Lanes, bits: k.key.Params().BitSize}
}

// takes implements Key: any digest is a number.
func (k *ECDSAKey) takes(crypto.SignerOpts) bool { return true }

// sign implements Key. Requests without a source of randomness are for deterministic signatures (RFC 6979): crypto/ecdsa
// makes those.
func (k *ECDSAKey) sign(b *Batch, requests []*Request) {
	together := make([]*Request, 0, ecdsa.Lanes)
	for _, r := range requests {
		if r.Random != nil && r.Key.(*ECDSAKey).ready() {
			together = append(together, r)
		}
	}
	if len(together) < k.fewest {
		together = together[:0]
	}
	for _, r := range requests {
		if !slices.Contains(together, r) {
			r.alone = true
			r.Signature, r.Err = r.Key.(*ECDSAKey).key.Sign(r.Random, r.Digest, r.Opts)
		}
	}
	if len(together) > 0 {
		b.counters.passes.Add(1)
		signTogether(b.pass(k.curve()), together)
	}
}

// signTogether makes the signatures of one pass.
func signTogether(p *ecdsa.Pass, requests []*Request) {
	defer p.Clear()
	var nonce [2 * 48]byte
	defer clear(nonce[:])
	set := requests[:0]
	for _, r := range requests {
		k := r.Key.(*ECDSAKey)
		size := p.Curve().Size()
		if r.Err = k.nonce(nonce[:2*size], r.Random, r.Digest); r.Err == nil {
			p.Set(k.digits.Load(), r.Digest, nonce[:2*size])
			set = append(set, r)
		}
	}
	if len(set) == 0 {
		return
	}
	right := p.Run()
	for i, r := range set {
		if !right {
			r.Err = ErrFault
			continue
		}
		r.Signature = EncodeECDSA(p.Signature(i))
	}
}

// nonce sets to, twice the size of a number, to the nonce of a signature.
func (k *ECDSAKey) nonce(to []byte, random io.Reader, digest []byte) error {
	var fresh [32]byte
	defer clear(fresh[:])
	if _, err := io.ReadFull(random, fresh[:]); err != nil {
		return err
	}
	Nonce(to, &fresh, k.private, digest)
	return nil
}

// Clear overwrites the private key. It must not be used afterwards.
func (k *ECDSAKey) Clear() {
	clear(k.private)
	if d := k.digits.Load(); d != nil {
		d.Clear()
	}
}
