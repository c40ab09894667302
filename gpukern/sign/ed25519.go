package sign

import (
	"crypto"
	standard "crypto/ed25519"
	"fmt"
	"slices"

	"github.com/millrace/millrace/gpukern/ed25519"
)

// The fewest signatures of Ed25519 for which a pass takes less time than crypto/ed25519 for them, though it verifies them too: of eight
// lanes, and of four.
const (
	fewestEd25519Eight = 2
	fewestEd25519Four  = 4
)

// Ed25519Key is a private key of Ed25519. From its ninth signature on it has a table for passes, which takes as long to compute as
// 30 signatures. It is safe for concurrent use until Clear.
type Ed25519Key struct {
	key standard.PrivateKey // Clear overwrites this copy
	keyTable[ed25519.Key]
}

// NewEd25519Key prepares a key. It returns ErrUnsuited for one of another length.
func NewEd25519Key(key standard.PrivateKey) (*Ed25519Key, error) {
	if len(key) != standard.PrivateKeySize {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrUnsuited, len(key))
	}
	return &Ed25519Key{key: slices.Clone(key)}, nil
}

func (k *Ed25519Key) prepare() { k.compute(k.newTable) }

func (k *Ed25519Key) newTable() (*ed25519.Key, error) { return ed25519.NewKey(k.key) }

func (k *Ed25519Key) shape() shape {
	return shape{atOnce: min(ed25519.AtOnce(), mostAtOnce), bits: 255}
}

// takes implements Key: messages that are neither hashed before nor have a context, as those of TLS (RFC 8446 4.2.3).
func (k *Ed25519Key) takes(opts crypto.SignerOpts) bool {
	o, special := opts.(*standard.Options)
	return opts.HashFunc() == crypto.Hash(0) && (!special || o.Context == "")
}

// sign implements Key.
func (k *Ed25519Key) sign(b *Batch, requests []*Request) {
	together := make([]*Request, 0, mostAtOnce)
	for _, r := range requests {
		if r.Key.(*Ed25519Key).used(r.Key.(*Ed25519Key).newTable) {
			together = append(together, r)
		}
	}
	fewest := fewestEd25519Eight
	if ed25519.AtOnce() < mostAtOnce {
		fewest = fewestEd25519Four
	}
	if len(together) < fewest {
		together = together[:0]
	}
	for _, r := range requests {
		if !slices.Contains(together, r) {
			r.alone = true
			r.Signature = standard.Sign(r.Key.(*Ed25519Key).key, r.Digest)
		}
	}
	if len(together) == 0 {
		return
	}
	b.counters.passes.Add(1)
	if b.ed25519 == nil {
		b.ed25519 = ed25519.NewPass()
	}
	var work [mostAtOnce]ed25519.Request
	for i, r := range together {
		work[i] = ed25519.Request{Key: r.Key.(*Ed25519Key).digits.Load(), Message: r.Digest}
	}
	b.ed25519.Sign(work[:len(together)])
	for i, r := range together {
		if !work[i].Right {
			r.Err = ErrFault
			continue
		}
		r.Signature = slices.Clone(work[i].Signature[:])
	}
}

// Clear overwrites the private key. It must not be used afterwards.
func (k *Ed25519Key) Clear() {
	clear(k.key)
	if d := k.digits.Load(); d != nil {
		d.Clear()
	}
}
