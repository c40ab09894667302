package aead

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"
)

// Errors of keys.
var (
	ErrAlgorithm = errors.New("aead: unknown algorithm")
	ErrKeySize   = errors.New("aead: the key has the wrong size")
)

// Image is an expanded key without pointers, in one layout for the CPU and a GPU.
type Image struct {
	Algorithm uint32
	Rounds    uint32        // of AES: 10 or 14
	_         [2]uint32     // Round is aligned
	Round     [15 * 16]byte // the round keys of AES (FIPS 197 5.2)
	Hash      [16]byte      // H of GCM, the cipher of zeros (SP 800-38D 6.4)
	ChaCha    [32]byte      // the key of ChaCha20
	Powers    [20 * 16]byte // GCM in FormAVX512: see setPowers
	MAC       [32]byte      // the key of HMAC-SHA-256
}

// Key is an expanded key. It is immutable but for Clear, and any number of loops may use it.
type Key struct {
	image     Image // first: the allocator aligns it to cache lines
	algorithm Algorithm
	id        uint64 // of all keys of the process
	cleared   atomic.Bool

	// What FormStandard needs. Where there is another form, it is made on first use.
	once   sync.Once
	err    error // in FIPS 140-only mode
	aead   cipher.AEAD
	block  cipher.Block
	hashes sync.Pool
}

// keys counts the keys of the process.
var keys atomic.Uint64

// NewKey expands a key. The bytes are copied. In FIPS 140-only mode it returns the errors of crypto/cipher for algorithms that
// the mode excludes.
func NewKey(a Algorithm, key []byte) (*Key, error) {
	if a == 0 || a >= algorithms {
		return nil, ErrAlgorithm
	}
	if len(key) != a.KeySize() {
		return nil, ErrKeySize
	}
	k := &Key{algorithm: a, id: keys.Add(1)}
	k.image.Algorithm = uint32(a)
	switch {
	case a == ChaCha20Poly1305:
		copy(k.image.ChaCha[:], key)
	case a.cbc():
		n := len(key) - sha256.Size
		k.expandAES(key[:n])
		copy(k.image.MAC[:], key[n:])
	default:
		k.expandAES(key)
		k.expandGCM()
	}
	if !has(FormAVX512, a) {
		k.prepare()
	}
	return k, k.err
}

// Algorithm returns the algorithm of the key.
func (k *Key) Algorithm() Algorithm { return k.algorithm }

// Image borrows the expanded key, for back ends that copy it to a device. It is secret.
func (k *Key) Image() *Image { return &k.image }

// Clear overwrites the key. No loop may be using it; operations with it are refused from now on. Copies in
// crypto/aes, which FormStandard makes, are left to the garbage collector.
func (k *Key) Clear() {
	k.cleared.Store(true)
	k.image = Image{}
	k.aead, k.block = nil, nil
}

func (k *Key) ready() bool { return k != nil && k.algorithm != 0 && !k.cleared.Load() }

// prepare makes the standard library's form of the key.
func (k *Key) prepare() {
	k.once.Do(func() {
		image := &k.image
		if k.algorithm == ChaCha20Poly1305 {
			k.aead, k.err = chacha20poly1305.New(image.ChaCha[:])
			return
		}
		size := 16
		if image.Rounds == 14 {
			size = 32
		}
		k.block, _ = aes.NewCipher(image.Round[:size]) // the first round keys are the key, which has a right size
		if k.algorithm.cbc() {
			k.hashes.New = func() any { return hmac.New(sha256.New, image.MAC[:]) }
			return
		}
		k.aead, k.err = cipher.NewGCM(k.block)
	})
}

// hmac borrows a hash, which release takes back.
func (k *Key) hmac() hash.Hash { return k.hashes.Get().(hash.Hash) }

func (k *Key) release(h hash.Hash) {
	h.Reset()
	k.hashes.Put(h)
}

// expandAES computes the round keys (FIPS 197 5.2). It has no table, whose addresses would depend on the key.
func (k *Key) expandAES(key []byte) {
	words := len(key) / 4
	k.image.Rounds = uint32(words + 6)
	round := k.image.Round[:16*(words+7)]
	copy(round, key)
	constant := uint32(1)
	for i := words; 4*i < len(round); i++ {
		w := binary.BigEndian.Uint32(round[4*i-4:])
		switch {
		case i%words == 0:
			w = substitute(bits.RotateLeft32(w, 8)) ^ constant<<24
			constant = double(constant)
		case words > 6 && i%words == 4:
			w = substitute(w)
		}
		binary.BigEndian.PutUint32(round[4*i:], w^binary.BigEndian.Uint32(round[4*(i-words):]))
	}
}

// expandGCM computes the key of GHASH.
func (k *Key) expandGCM() {
	if has(FormAVX512, k.algorithm) {
		encryptBlock(&k.image, &k.image.Hash)
		k.image.setPowers()
		return
	}
	k.prepare()
	k.block.Encrypt(k.image.Hash[:], k.image.Hash[:])
}

// setPowers stores 17 descending powers of the key of GHASH, and zeros behind them. Their bytes are reversed, and they are
// multiplied by x, for POLYVAL's product (RFC 8452, appendix A).
func (m *Image) setPowers() {
	hi, lo := binary.BigEndian.Uint64(m.Hash[:8]), binary.BigEndian.Uint64(m.Hash[8:])
	carry := -(hi >> 63)
	hi = hi<<1 | lo>>63 ^ carry&(0xc2<<56)
	lo = lo<<1 ^ carry&1
	binary.LittleEndian.PutUint64(m.Powers[16*16:], lo)
	binary.LittleEndian.PutUint64(m.Powers[16*16+8:], hi)
	multiplyPowers(m)
}

// double multiplies four elements of GF(2^8), the bytes of a word, by x (FIPS 197 4.2).
func double(a uint32) uint32 {
	return a<<1&0xfefefefe ^ (a>>7&0x01010101)*0x1b
}

// multiply multiplies the bytes of two words.
func multiply(a, b uint32) (product uint32) {
	for range 8 {
		product ^= a & ((b & 0x01010101) * 0xff)
		a, b = double(a), b>>1&0x7f7f7f7f
	}
	return product
}

// substitute applies the S-box to the bytes of a word (FIPS 197 5.1.1).
func substitute(w uint32) uint32 {
	if has(FormAVX512, AES128GCM) {
		return substituteWord(w)
	}
	return substitutePlain(w)
}

// substitutePlain is substitute by definition: the inverse, which is the power 254, and an affine map.
func substitutePlain(w uint32) uint32 {
	square := func(a uint32, times int) uint32 {
		for range times {
			a = multiply(a, a)
		}
		return a
	}
	w3 := multiply(w, square(w, 1))
	w15 := multiply(w3, square(w3, 2))
	w63 := multiply(w3, square(w15, 2))
	inverse := square(multiply(w, square(w63, 1)), 1) // 254 = 2 * (1 + 2*63)
	rotate := func(n int) uint32 {                    // each byte, to the left
		low := uint32(0x01010101) * (1<<n - 1)
		return inverse<<n&^low | inverse>>(8-n)&low
	}
	return inverse ^ rotate(1) ^ rotate(2) ^ rotate(3) ^ rotate(4) ^ 0x63636363
}
