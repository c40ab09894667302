package digest

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"hash"
	"sync/atomic"
)

// stateSize is the size of a state of crypto/sha256, as it encodes it.
const stateSize = 4 + 8*4 + 64 + 8

// Key is a key of HMAC-SHA-256, as the states of SHA-256 behind its first blocks. It is immutable but for Clear, and any number of
// loops may use it.
type Key struct {
	made, cleared atomic.Bool
	inner, outer  [stateSize]byte
}

// NewKey prepares a key of any length. It is copied.
func NewKey(key []byte) *Key {
	var block [sha256.BlockSize]byte
	if len(key) > len(block) {
		sum := sha256.Sum256(key)
		copy(block[:], sum[:])
		clear(sum[:])
	} else {
		copy(block[:], key)
	}
	k := &Key{}
	for i := range block {
		block[i] ^= 0x36 // RFC 2104 2: ipad
	}
	stateAfter(&k.inner, &block)
	for i := range block {
		block[i] ^= 0x36 ^ 0x5c // opad
	}
	stateAfter(&k.outer, &block)
	clear(block[:])
	k.made.Store(true)
	return k
}

func stateAfter(state *[stateSize]byte, block *[sha256.BlockSize]byte) {
	h := sha256.New()
	h.Write(block[:])
	_, _ = h.(encoding.BinaryAppender).AppendBinary(state[:0]) // of the package's own hash: no error, and stateSize bytes
	clearHash(h)
}

// zeros are only read.
var zeros [sha256.BlockSize]byte

// clearHash overwrites the state of a hash that has seen a secret.
func clearHash(h hash.Hash) {
	h.Reset()
	h.Write(zeros[:1]) // the buffer keeps its bytes through Reset
	h.Write(zeros[:])
	h.Reset()
}

// Clear overwrites the key. No loop may be using it; operations with it are refused from now on.
func (k *Key) Clear() {
	k.cleared.Store(true)
	k.inner, k.outer = [stateSize]byte{}, [stateSize]byte{}
}

// States returns the states of SHA-256 behind the first blocks of both hashes, for back ends that copy them to a device. They
// are secret.
func (k *Key) States() (inner, outer [8]uint32) {
	for i := range inner {
		inner[i] = binary.BigEndian.Uint32(k.inner[4+4*i:])
		outer[i] = binary.BigEndian.Uint32(k.outer[4+4*i:])
	}
	return inner, outer
}

func (k *Key) ready() bool { return k != nil && k.made.Load() && !k.cleared.Load() }

// standard computes the code of data with crypto/sha256.
func (k *Key) standard(h hash.Hash, sum *[64]byte, data []byte) {
	u := h.(encoding.BinaryUnmarshaler)
	_ = u.UnmarshalBinary(k.inner[:]) // made by stateAfter
	h.Write(data)
	h.Sum(sum[:0])
	_ = u.UnmarshalBinary(k.outer[:])
	h.Write(sum[:32])
	h.Sum(sum[:0])
}
