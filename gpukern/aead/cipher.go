package aead

import (
	"crypto/cipher"
	"errors"
	"unsafe"
)

// ErrOpen is the error of a text whose tag does not verify.
var ErrOpen = errors.New("aead: message authentication failed")

// New returns a cipher.AEAD, for callers that have one text at a time: records of TLS, messages of the state sync. AES-GCM has
// FormAVX512 where the machine does, as that is the fastest for texts of any length. ChaCha20-Poly1305 has FormStandard,
// since a pass of 16 blocks pays for several texts. The CBC pairs are no AEAD (ErrAlgorithm).
func New(a Algorithm, key []byte) (cipher.AEAD, error) {
	if a.cbc() {
		return nil, ErrAlgorithm
	}
	k, err := NewKey(a, key)
	if err != nil {
		return nil, err
	}
	if a != ChaCha20Poly1305 && has(FormAVX512, a) {
		return (*gcm)(k), nil
	}
	k.prepare()
	return k.aead, nil
}

// gcm is a key as a cipher.AEAD of FormAVX512.
type gcm Key

func (*gcm) NonceSize() int { return 12 }
func (*gcm) Overhead() int  { return TagSize }

// Seal has the rules of cipher.AEAD for arguments: it panics where crypto/cipher does.
func (g *gcm) Seal(dst, nonce, text, aad []byte) []byte {
	all, out := extend(dst, len(text)+TagSize)
	iv := checked(out, nonce, text, aad)
	copy(out, text)
	n := len(text)
	sealGCM(&g.image, &iv, unsafe.SliceData(aad), len(aad), &out[0], n, &out[n])
	return all
}

// Open is like Seal.
func (g *gcm) Open(dst, nonce, sealed, aad []byte) ([]byte, error) {
	n := len(sealed) - TagSize
	if n < 0 {
		checked(nil, nonce, nil, nil)
		return nil, ErrOpen
	}
	all, out := extend(dst, n)
	iv := checked(out, nonce, sealed, aad)
	theirs := [TagSize]byte(sealed[n:])
	copy(out, sealed[:n])
	var tag [TagSize]byte
	openGCM(&g.image, &iv, unsafe.SliceData(aad), len(aad), unsafe.SliceData(out), n, &tag[0])
	if !equalTags(&tag, theirs[:]) {
		clear(out)
		clear(tag[:])
		return nil, ErrOpen
	}
	return all, nil
}

// extend appends n bytes to dst, which are out.
func extend(dst []byte, n int) (all, out []byte) {
	if total := len(dst) + n; cap(dst) >= total {
		all = dst[:total]
	} else {
		all = make([]byte, total)
		copy(all, dst)
	}
	return all, all[len(dst):]
}

// checked returns the nonce, and panics if slices overlap in a way that cipher.AEAD excludes: in may begin where out does.
func checked(out, nonce, in, aad []byte) (iv [16]byte) {
	if len(nonce) != 12 {
		panic("aead: incorrect nonce length")
	}
	if overlap(out, in) && unsafe.SliceData(out) != unsafe.SliceData(in) || overlap(out, aad) {
		panic("aead: invalid buffer overlap")
	}
	copy(iv[:], nonce)
	return iv
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	p, q := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}
