package kernbench

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/gpukern/cuda/pubkey"
	"github.com/millrace/millrace/gpukern/cuda/symmetric"
	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/gpukern/x25519"
)

// KeyOp is a public-key operation, or one with symmetric keys.
type KeyOp struct {
	Name  string
	Title string // for people

	round int                                                // operations of a call that fills the GPU
	open  func(e *pubkey.Engine, n int) (*keyLoad, error)    // of a public-key operation
	text  func(e *symmetric.Engine, n int) (*keyLoad, error) // of a symmetric one
}

// TextOps returns all operations with symmetric keys, in the order of the table.
func TextOps() []KeyOp { return slices.Clone(textCatalogue) }

var keyCatalogue = []KeyOp{
	{Name: "x25519", Title: "key exchanges, RFC 7748", round: 1 << 19, open: openX25519},
	{Name: "mlkem768-encaps", Title: "ML-KEM-768 encapsulations", round: 1 << 18, open: openEncapsulations},
	{Name: "mlkem768-decaps", Title: "ML-KEM-768 decapsulations", round: 1 << 18, open: openDecapsulations},
	{Name: "p256-sign", Title: "ECDSA signatures on P-256", round: 1 << 18, open: ecdsaOf(elliptic.P256())},
	{Name: "p384-sign", Title: "ECDSA signatures on P-384", round: 1 << 16, open: ecdsaOf(elliptic.P384())},
	{Name: "ed25519-sign", Title: "Ed25519 signatures", round: 1 << 18, open: openEd25519Signatures},
	{Name: "ed25519-verify", Title: "Ed25519 verifications", round: 1 << 18, open: openEd25519Checks},
	{Name: "rsa2048-sign", Title: "RSA-2048 signatures, PSS", round: 1 << 17, open: rsaOf(2048)},
	{Name: "rsa3072-sign", Title: "RSA-3072 signatures, PSS", round: 1 << 15, open: rsaOf(3072)},
	{Name: "rsa4096-sign", Title: "RSA-4096 signatures, PSS", round: 1 << 14, open: rsaOf(4096)},
}

// KeyOps returns all public-key operations, in the order of the table.
func KeyOps() []KeyOp { return slices.Clone(keyCatalogue) }

// distinct are the inputs of a load that differ: the others repeat them. To make more takes longer than to measure.
const distinct = 4096

// nothing closes a load that has nothing to close.
func nothing() error { return nil }

func openX25519(e *pubkey.Engine, n int) (*keyLoad, error) {
	scalars, points, products := make([][32]byte, n), make([][32]byte, n), make([][32]byte, n)
	want := make([][32]byte, min(n, distinct))
	for i := range want {
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		peer, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		shared, err := private.ECDH(peer.PublicKey())
		if err != nil {
			return nil, err
		}
		copy(scalars[i][:], private.Bytes())
		copy(points[i][:], peer.PublicKey().Bytes())
		copy(want[i][:], shared)
	}
	for i := len(want); i < n; i++ {
		scalars[i], points[i] = scalars[i%len(want)], points[i%len(want)]
	}
	return &keyLoad{
		n: n, close: nothing,
		gpu:  func(n int) { e.X25519(products[:n], scalars[:n], points[:n]) },
		core: func(from, to int) { x25519.MultiplyAll(products[from:to], scalars[from:to], points[from:to]) },
		check: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				if products[i] == want[i%len(want)] {
					right++
				}
				products[i] = [32]byte{}
			}
			return right
		},
	}, nil
}

// signed makes signatures on one core, by the lanes of gpukern/sign where the CPU has them, eight at once.
func signed(key sign.Key, digests [][]byte, opts crypto.SignerOpts, to [][]byte) {
	var b sign.Batch
	for i := 0; i < len(digests); i += 8 {
		var r [8]sign.Request
		k := min(8, len(digests)-i)
		for j := range k {
			r[j] = sign.Request{Key: key, Random: rand.Reader, Digest: digests[i+j], Opts: opts}
			b.Add(&r[j])
		}
		b.Run()
		for j := range k {
			to[i+j] = r[j].Signature
		}
	}
}

// digestsOf returns n digests.
func digestsOf(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		d := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		all[i] = d[:]
	}
	return all
}

// checked counts the signatures that are right, and forgets all.
func checked(signatures [][]byte, from, to int, valid func(i int) bool) (right int) {
	for i := from; i < to; i++ {
		if signatures[i] != nil && valid(i) {
			right++
		}
		signatures[i] = nil
	}
	return right
}

func ecdsaOf(curve elliptic.Curve) func(e *pubkey.Engine, n int) (*keyLoad, error) {
	return func(e *pubkey.Engine, n int) (*keyLoad, error) {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return nil, err
		}
		onCore, err := sign.NewECDSAKey(key)
		if err != nil {
			return nil, err
		}
		onGPU, err := e.NewECDSAKey(key)
		if err != nil {
			return nil, err
		}
		digests, signatures := digestsOf(n), make([][]byte, n)
		requests := make([]*pubkey.ECDSARequest, n)
		for i := range requests {
			requests[i] = &pubkey.ECDSARequest{Key: onGPU, Digest: digests[i]}
		}
		return &keyLoad{
			n: n, close: onGPU.Close,
			gpu: func(n int) {
				e.SignECDSA(requests[:n], nil)
				for i, r := range requests[:n] {
					signatures[i] = r.Signature
				}
			},
			core: func(from, to int) { signed(onCore, digests[from:to], nil, signatures[from:to]) },
			check: func(from, to int) int {
				return checked(signatures, from, to, func(i int) bool { return ecdsa.VerifyASN1(&key.PublicKey, digests[i], signatures[i]) })
			},
		}, nil
	}
}

func rsaOf(bits int) func(e *pubkey.Engine, n int) (*keyLoad, error) {
	return func(e *pubkey.Engine, n int) (*keyLoad, error) {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return nil, err
		}
		onCore, err := sign.NewRSAKey(key)
		if err != nil {
			return nil, err
		}
		onGPU, err := e.NewRSAKey(key)
		if err != nil {
			return nil, err
		}
		opts := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		digests, signatures := digestsOf(n), make([][]byte, n)
		requests := make([]*pubkey.RSARequest, n)
		for i := range requests {
			requests[i] = &pubkey.RSARequest{Key: onGPU, Digest: digests[i], Opts: opts}
		}
		return &keyLoad{
			n: n, close: onGPU.Close,
			gpu: func(n int) {
				e.SignRSA(requests[:n], nil)
				for i, r := range requests[:n] {
					signatures[i] = r.Signature
				}
			},
			core: func(from, to int) { signed(onCore, digests[from:to], opts, signatures[from:to]) },
			check: func(from, to int) int {
				return checked(signatures, from, to, func(i int) bool {
					return rsa.VerifyPSS(&key.PublicKey, crypto.SHA256, digests[i], signatures[i], opts) == nil
				})
			},
		}, nil
	}
}

func openEd25519Signatures(e *pubkey.Engine, n int) (*keyLoad, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	onGPU, err := e.NewEd25519Key(private)
	if err != nil {
		return nil, err
	}
	messages, signatures := digestsOf(n), make([][]byte, n)
	requests := make([]*pubkey.Ed25519Request, n)
	for i := range requests {
		requests[i] = &pubkey.Ed25519Request{Key: onGPU, Message: messages[i]}
	}
	return &keyLoad{
		n: n, close: onGPU.Close,
		gpu: func(n int) {
			e.SignEd25519(requests[:n])
			for i, r := range requests[:n] {
				signatures[i] = r.Signature
			}
		},
		core: func(from, to int) {
			for i := from; i < to; i++ {
				signatures[i] = ed25519.Sign(private, messages[i])
			}
		},
		check: func(from, to int) int {
			return checked(signatures, from, to, func(i int) bool { return ed25519.Verify(public, messages[i], signatures[i]) })
		},
	}, nil
}

// openEd25519Checks has one forged signature in a hundred: those must be found.
func openEd25519Checks(e *pubkey.Engine, n int) (*keyLoad, error) {
	checks := make([]pubkey.Ed25519Check, n)
	forged := func(i int) bool { return i%min(n, distinct)%100 == 5 }
	for i := range checks {
		if i >= distinct {
			checks[i] = checks[i%distinct]
			continue
		}
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		message := binary.BigEndian.AppendUint64(nil, uint64(i))
		c := pubkey.Ed25519Check{Key: public, Message: message, Signature: ed25519.Sign(private, message)}
		if forged(i) {
			c.Signature[i%64] ^= 1
		}
		c.Valid = forged(i)
		checks[i] = c
	}
	return &keyLoad{
		n: n, close: nothing,
		gpu: func(n int) { e.VerifyEd25519(checks[:n]) },
		core: func(from, to int) {
			for i := from; i < to; i++ {
				c := &checks[i]
				c.Valid = ed25519.Verify(c.Key, c.Message, c.Signature)
			}
		},
		check: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				if checks[i].Valid != forged(i) {
					right++
				}
				checks[i].Valid = forged(i)
			}
			return right
		},
	}, nil
}

// kemKeys are the keys of a load.
const kemKeys = 64

func openEncapsulations(e *pubkey.Engine, n int) (*keyLoad, error) {
	private, err := newKEMKeys()
	if err != nil {
		return nil, err
	}
	all := make([]pubkey.Encapsulation, n)
	var encoded [kemKeys][]byte
	for i, k := range private {
		encoded[i] = k.EncapsulationKey().Bytes()
	}
	for i := range all {
		all[i].Key = encoded[i%kemKeys]
	}
	return &keyLoad{
		n: n, close: nothing,
		gpu: func(n int) { e.EncapsulateMLKEM768(all[:n], nil) },
		core: func(from, to int) { // with the key as it comes in a ClientHello
			for i := from; i < to; i++ {
				c := &all[i]
				public, err := mlkem.NewEncapsulationKey768(c.Key)
				if c.Err = err; err != nil {
					continue
				}
				shared, ciphertext := public.Encapsulate()
				copy(c.Shared[:], shared)
				copy(c.Ciphertext[:], ciphertext)
			}
		},
		check: func(from, to int) (right int) {
			for i := from; i < to; i++ {
				c := &all[i]
				shared, err := private[i%kemKeys].Decapsulate(c.Ciphertext[:])
				if err == nil && c.Err == nil && bytes.Equal(shared, c.Shared[:]) {
					right++
				}
				clear(c.Shared[:])
			}
			return right
		},
	}, nil
}

func newKEMKeys() (keys [kemKeys]*mlkem.DecapsulationKey768, err error) {
	for i := range keys {
		if keys[i], err = mlkem.GenerateKey768(); err != nil {
			return keys, err
		}
	}
	return keys, nil
}

func openDecapsulations(e *pubkey.Engine, n int) (*keyLoad, error) {
	private, err := newKEMKeys()
	if err != nil {
		return nil, err
	}
	l := &keyLoad{n: n}
	var onGPU [kemKeys]*pubkey.MLKEMKey
	l.close = func() (err error) {
		for _, k := range onGPU {
			if k != nil {
				err = errors.Join(err, k.Close())
			}
		}
		return err
	}
	for i, k := range private {
		if onGPU[i], err = e.NewMLKEMKey(k); err != nil {
			return nil, errors.Join(fmt.Errorf("key %d: %w", i, err), l.close())
		}
	}
	all, want := make([]pubkey.Decapsulation, n), make([][]byte, min(n, distinct))
	for i := range all {
		k := i % len(want)
		if i < len(want) {
			want[i], all[i].Ciphertext = private[i%kemKeys].EncapsulationKey().Encapsulate()
		}
		all[i].Key, all[i].Ciphertext = onGPU[k%kemKeys], all[k].Ciphertext
	}
	l.gpu = func(n int) { e.DecapsulateMLKEM768(all[:n]) }
	l.core = func(from, to int) {
		for i := from; i < to; i++ {
			shared, err := private[i%len(want)%kemKeys].Decapsulate(all[i].Ciphertext)
			all[i].Err = err
			copy(all[i].Shared[:], shared)
		}
	}
	l.check = func(from, to int) (right int) {
		for i := from; i < to; i++ {
			if all[i].Err == nil && bytes.Equal(all[i].Shared[:], want[i%len(want)]) {
				right++
			}
			clear(all[i].Shared[:])
		}
		return right
	}
	return l, nil
}
