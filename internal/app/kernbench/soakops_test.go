package kernbench

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"slices"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda/pubkey"
	"github.com/millrace/millrace/gpukern/digest"
)

// soakFalsifies changes each result of the device before it is compared: the comparison has to see it.
var soakFalsifies bool

// falsify changes what a device has computed, where a test asks for it.
func falsify(b []byte) {
	if soakFalsifies && len(b) > 0 {
		b[len(b)-1] ^= 1
	}
}

var soakOps = []soakOp{
	{"x25519", 2_000_000, 1 << 18, "crypto/ecdh", soakX25519},
	{"mlkem768-encaps", 500_000, 1 << 17, "decapsulation by crypto/mlkem", soakEncapsulations},
	{"mlkem768-decaps", 500_000, 1 << 17, "crypto/mlkem, one in four forged", soakDecapsulations},
	{"p256-sign", 1_000_000, 1 << 18, "verification by crypto/ecdsa", soakECDSA(elliptic.P256())},
	{"p384-sign", 100_000, 1 << 16, "verification by crypto/ecdsa", soakECDSA(elliptic.P384())},
	{"ed25519-sign", 1_000_000, 1 << 18, "crypto/ed25519", soakEd25519Signatures},
	{"ed25519-verify", 600_000, 1 << 18, "crypto/ed25519, one in four forged", soakEd25519Checks},
	{"rsa2048-pkcs1", 100_000, 1 << 15, "crypto/rsa", soakRSA(2048, false)},
	{"rsa2048-pss", 300_000, 1 << 17, "verification by crypto/rsa", soakRSA(2048, true)},
	{"rsa3072-pss", 30_000, 1 << 15, "verification by crypto/rsa", soakRSA(3072, true)},
	{"rsa4096-pss", 10_000, 1 << 14, "verification by crypto/rsa", soakRSA(4096, true)},
	{"chacha20-poly1305", 500_000, 1 << 16, "golang.org/x/crypto", soakSeals(aead.ChaCha20Poly1305)},
	{"aes128-gcm", 500_000, 1 << 16, "crypto/cipher", soakSeals(aead.AES128GCM)},
	{"aes256-gcm", 500_000, 1 << 16, "crypto/cipher", soakSeals(aead.AES256GCM)},
	{"chacha20-poly1305-open", 500_000, 1 << 16, "golang.org/x/crypto, one in four forged", soakOpens(aead.ChaCha20Poly1305)},
	{"aes128-gcm-open", 500_000, 1 << 16, "crypto/cipher, one in four forged", soakOpens(aead.AES128GCM)},
	{"aes256-gcm-open", 500_000, 1 << 16, "crypto/cipher, one in four forged", soakOpens(aead.AES256GCM)},
	{"sha256", 800_000, 1 << 16, "crypto/sha256", soakSums(digest.SHA256)},
	{"hmac-sha256", 800_000, 1 << 16, "crypto/hmac", soakSums(digest.HMACSHA256)},
}

// soakX25519 has one point in a thousand of low order, whose product is zero: crypto/ecdh reports an error.
func soakX25519(s *soak, first, n int) (int, error) {
	scalars, points, products := make([][32]byte, n), make([][32]byte, n), make([][32]byte, n)
	for i := range n {
		g := s.source(first + i)
		fill(g, scalars[i][:])
		if fill(g, points[i][:]); (first+i)%1000 == 7 {
			points[i] = [32]byte{byte(i & 1)}
		}
	}
	s.keys.X25519(products, scalars, points)
	return onAllCores(n, func(i int) bool {
		falsify(products[i][:])
		private, err := ecdh.X25519().NewPrivateKey(scalars[i][:])
		if err != nil {
			return true
		}
		point, err := ecdh.X25519().NewPublicKey(points[i][:])
		if err != nil {
			return true
		}
		want, err := private.ECDH(point)
		if err != nil {
			return products[i] != [32]byte{}
		}
		return !bytes.Equal(want, products[i][:])
	}), nil
}

func soakEncapsulations(s *soak, _, n int) (int, error) {
	private, err := newKEMKeys()
	if err != nil {
		return 0, err
	}
	all := make([]pubkey.Encapsulation, n)
	for i := range all {
		all[i].Key = private[i%kemKeys].EncapsulationKey().Bytes()
	}
	s.keys.EncapsulateMLKEM768(all, nil)
	return onAllCores(n, func(i int) bool {
		falsify(all[i].Shared[:])
		shared, err := private[i%kemKeys].Decapsulate(all[i].Ciphertext[:])
		return err != nil || all[i].Err != nil || !bytes.Equal(shared, all[i].Shared[:])
	}), nil
}

func soakDecapsulations(s *soak, first, n int) (int, error) {
	private, err := newKEMKeys()
	if err != nil {
		return 0, err
	}
	var onGPU [kemKeys]*pubkey.MLKEMKey
	for i, k := range private {
		if onGPU[i], err = s.keys.NewMLKEMKey(k); err != nil {
			return 0, err
		}
		defer onGPU[i].Close()
	}
	all := make([]pubkey.Decapsulation, n)
	onAllCores(n, func(i int) bool {
		_, c := private[i%kemKeys].EncapsulationKey().Encapsulate()
		if g := s.source(first + i); i%4 == 3 { // rejected implicitly: the secret is another one, and no error
			c[g.IntN(len(c))] ^= 1 << g.IntN(8)
		}
		all[i].Key, all[i].Ciphertext = onGPU[i%kemKeys], c
		return false
	})
	s.keys.DecapsulateMLKEM768(all)
	return onAllCores(n, func(i int) bool {
		falsify(all[i].Shared[:])
		shared, err := private[i%kemKeys].Decapsulate(all[i].Ciphertext)
		return err != nil || all[i].Err != nil || !bytes.Equal(shared, all[i].Shared[:])
	}), nil
}

func soakECDSA(curve elliptic.Curve) func(s *soak, first, n int) (int, error) {
	return func(s *soak, first, n int) (int, error) {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return 0, err
		}
		onGPU, err := s.keys.NewECDSAKey(key)
		if err != nil {
			return 0, err
		}
		defer onGPU.Close()
		requests := make([]*pubkey.ECDSARequest, n)
		for i := range requests {
			digest := make([]byte, 32+16*((first+i)%3))
			fill(s.source(first+i), digest)
			requests[i] = &pubkey.ECDSARequest{Key: onGPU, Digest: digest}
		}
		s.keys.SignECDSA(requests, nil)
		return onAllCores(n, func(i int) bool {
			r := requests[i]
			falsify(r.Signature)
			return r.Err != nil || !ecdsa.VerifyASN1(&key.PublicKey, r.Digest, r.Signature)
		}), nil
	}
}

func soakEd25519Signatures(s *soak, first, n int) (int, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return 0, err
	}
	onGPU, err := s.keys.NewEd25519Key(private)
	if err != nil {
		return 0, err
	}
	defer onGPU.Close()
	requests := make([]*pubkey.Ed25519Request, n)
	for i := range requests {
		g := s.source(first + i)
		message := make([]byte, g.IntN(300))
		fill(g, message)
		requests[i] = &pubkey.Ed25519Request{Key: onGPU, Message: message}
	}
	s.keys.SignEd25519(requests)
	return onAllCores(n, func(i int) bool {
		falsify(requests[i].Signature)
		return !bytes.Equal(requests[i].Signature, ed25519.Sign(private, requests[i].Message))
	}), nil
}

func soakEd25519Checks(s *soak, first, n int) (int, error) {
	checks := make([]pubkey.Ed25519Check, n)
	onAllCores(n, func(i int) bool {
		g := s.source(first + i)
		seed, message := make([]byte, ed25519.SeedSize), make([]byte, 1+g.IntN(300))
		fill(g, seed)
		fill(g, message)
		private := ed25519.NewKeyFromSeed(seed)
		c := pubkey.Ed25519Check{Key: private.Public().(ed25519.PublicKey), Message: message, Signature: ed25519.Sign(private, message)}
		if i%4 == 3 {
			b := [][]byte{c.Key, c.Message, c.Signature}[g.IntN(3)]
			b[g.IntN(len(b))] ^= 1 << g.IntN(8)
		}
		checks[i] = c
		return false
	})
	s.keys.VerifyEd25519(checks)
	return onAllCores(n, func(i int) bool {
		c := &checks[i]
		return (c.Valid != soakFalsifies) != ed25519.Verify(c.Key, c.Message, c.Signature)
	}), nil
}

// soakRSA signs with PSS, whose signatures are verified, or with PKCS #1 v1.5, whose signatures are compared.
func soakRSA(bits int, pss bool) func(s *soak, first, n int) (int, error) {
	return func(s *soak, first, n int) (int, error) {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return 0, err
		}
		onGPU, err := s.keys.NewRSAKey(key)
		if err != nil {
			return 0, err
		}
		defer onGPU.Close()
		opts := crypto.SignerOpts(crypto.SHA256)
		if pss {
			opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
		}
		requests := make([]*pubkey.RSARequest, n)
		for i := range requests {
			digest := make([]byte, 32)
			fill(s.source(first+i), digest)
			requests[i] = &pubkey.RSARequest{Key: onGPU, Digest: digest, Opts: opts}
		}
		s.keys.SignRSA(requests, nil)
		return onAllCores(n, func(i int) bool {
			r := requests[i]
			falsify(r.Signature)
			if pss {
				return r.Err != nil || rsa.VerifyPSS(&key.PublicKey, crypto.SHA256, r.Digest, r.Signature, nil) != nil
			}
			want, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, r.Digest)
			return err != nil || r.Err != nil || !bytes.Equal(want, r.Signature)
		}), nil
	}
}

// soakTexts are texts of any length up to that of a packet, with associated data.
type soakTexts struct {
	aead.Batch
	keys  [textKeys][]byte
	plain []byte // Mem as it was
}

// textsOf makes n of them.
func (s *soak) textsOf(a aead.Algorithm, first, n int) (*soakTexts, error) {
	const frame = 64 + textSize + aead.TagSize
	t := &soakTexts{Batch: aead.Batch{Mem: make([]byte, n*frame), Ops: make([]aead.Op, n)}}
	for i := range t.keys {
		t.keys[i] = make([]byte, a.KeySize())
		fill(s.source(-1-i-first*textKeys), t.keys[i])
		k, err := aead.NewKey(a, t.keys[i])
		if err != nil {
			return nil, err
		}
		t.Keys = append(t.Keys, k)
	}
	onAllCores(n, func(i int) bool {
		g, at := s.source(first+i), i*frame
		op := aead.Op{AAD: uint32(at), AADLen: uint16(g.IntN(65)), Text: uint32(at + 64), Len: uint32(g.IntN(textSize + 1)), Key: uint32(i % textKeys)}
		fill(g, op.Nonce[:a.NonceSize()])
		fill(g, t.Mem[at:][:64+op.Len])
		t.Ops[i] = op
		return false
	})
	t.plain = bytes.Clone(t.Mem)
	return t, nil
}

// sealed returns what crypto/* makes of a text.
func (t *soakTexts) sealed(a aead.Algorithm, op *aead.Op) ([]byte, error) {
	c, err := aead.New(a, t.keys[op.Key])
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, op.Nonce[:a.NonceSize()], t.plain[op.Text:][:op.Len], t.plain[op.AAD:][:op.AADLen]), nil
}

func soakSeals(a aead.Algorithm) func(s *soak, first, n int) (int, error) {
	return func(s *soak, first, n int) (int, error) {
		t, err := s.textsOf(a, first, n)
		if err != nil {
			return 0, err
		}
		s.texts.Seal(&t.Batch)
		return onAllCores(n, func(i int) bool {
			op := &t.Ops[i]
			got := t.Mem[op.Text:][:op.Len+aead.TagSize]
			falsify(got)
			want, err := t.sealed(a, op)
			return err != nil || op.Result != aead.Done || !bytes.Equal(got, want)
		}), nil
	}
}

// soakOpens forges one text in four, which has to be refused and overwritten.
func soakOpens(a aead.Algorithm) func(s *soak, first, n int) (int, error) {
	return func(s *soak, first, n int) (int, error) {
		t, err := s.textsOf(a, first, n)
		if err != nil {
			return 0, err
		}
		failed := onAllCores(n, func(i int) bool {
			op := &t.Ops[i]
			sealed, err := t.sealed(a, op)
			if g := s.source(first + i); err == nil && i%4 == 3 {
				sealed[g.IntN(len(sealed))] ^= 1 << g.IntN(8)
			}
			copy(t.Mem[op.Text:], sealed)
			return err != nil
		})
		s.texts.Open(&t.Batch)
		return failed + onAllCores(n, func(i int) bool {
			op, forged := &t.Ops[i], i%4 == 3
			want := slices.Clone(t.plain[op.Text:][:op.Len])
			if forged {
				clear(want)
			}
			return ((op.Result == aead.Done) != soakFalsifies) == forged || !bytes.Equal(t.Mem[op.Text:][:op.Len], want)
		}), nil
	}
}

func soakSums(a digest.Algorithm) func(s *soak, first, n int) (int, error) {
	return func(s *soak, first, n int) (int, error) {
		const most = textSize
		b := digest.Batch{Algorithm: a, Mem: make([]byte, n*(most+sha256.Size)), Ops: make([]digest.Op, n)}
		var keys [textKeys][]byte
		for i := range keys {
			keys[i] = make([]byte, 1+i*2) // shorter and longer than a block
			fill(s.source(-1-i), keys[i])
			if a == digest.HMACSHA256 {
				b.Keys = append(b.Keys, digest.NewKey(keys[i]))
			}
		}
		onAllCores(n, func(i int) bool {
			g, at := s.source(first+i), i*(most+sha256.Size)
			op := digest.Op{Data: uint32(at), Len: uint32(g.IntN(most + 1)), Sum: uint32(at + most)}
			if a == digest.HMACSHA256 {
				op.Key = uint32(i % textKeys)
			}
			fill(g, b.Mem[at:][:op.Len])
			b.Ops[i] = op
			return false
		})
		s.texts.Sum(&b)
		return onAllCores(n, func(i int) bool {
			op := &b.Ops[i]
			h := sha256.New()
			if a == digest.HMACSHA256 {
				h = hmac.New(sha256.New, keys[op.Key])
			}
			h.Write(b.Mem[op.Data:][:op.Len])
			got := b.Mem[op.Sum:][:sha256.Size]
			falsify(got)
			return op.Result != digest.Done || !bytes.Equal(h.Sum(nil), got)
		}), nil
	}
}
