package tcp

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/wire"
)

// sipKey keys SipHash (Aumasson and Bernstein, 2012), a short-input pseudorandom function: who does not
// know the key can neither predict a hash nor find inputs that collide.
type sipKey struct{ k0, k1 uint64 }

// deriveKey returns the key for one use of a secret; label names the use.
func deriveKey(secret *[32]byte, label string) sipKey {
	h := sha256.New()
	h.Write(secret[:])
	h.Write([]byte(label))
	s := h.Sum(nil)
	return sipKey{binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])}
}

// sipState is SipHash-2-4 over whole words.
type sipState struct{ v0, v1, v2, v3 uint64 }

func (k sipKey) start() sipState {
	return sipState{
		k.k0 ^ 0x736f6d6570736575,
		k.k1 ^ 0x646f72616e646f6d,
		k.k0 ^ 0x6c7967656e657261,
		k.k1 ^ 0x7465646279746573,
	}
}

func (s *sipState) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *sipState) word(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

// sum ends a message of n bytes, whose last word, shorter than eight bytes, is rest.
func (s *sipState) sum(n int, rest uint64) uint64 {
	s.word(rest | uint64(n)<<56)
	s.v2 ^= 0xff
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

func (s *sipState) addr(a *wire.Addr) {
	s.word(binary.LittleEndian.Uint64(a[:8]))
	s.word(binary.LittleEndian.Uint64(a[8:]))
}

// tuple hashes the flow and one word more.
func (k sipKey) tuple(t *wire.Tuple, extra uint64) uint64 {
	s := k.start()
	s.addr(&t.Local)
	s.addr(&t.Remote)
	s.word(extra)
	return s.sum(44, uint64(t.LocalPort)<<16|uint64(t.RemotePort))
}

// addrs hashes two addresses and one word.
func (k sipKey) addrs(a, b *wire.Addr, extra uint64) uint64 {
	s := k.start()
	s.addr(a)
	s.addr(b)
	s.word(extra)
	return s.sum(40, 0)
}
