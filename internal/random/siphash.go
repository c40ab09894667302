package random

import (
	"encoding/binary"
	"math/bits"
)

// Key keys SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012). Without the key no attacker can
// predict a hash or find inputs that collide, which tables of flows, initial sequence numbers (RFC 6528 3), cookies and
// identifications (RFC 7739 5.3) rely on.
type Key [2]uint64

// KeyFrom returns the key in the first 16 bytes of b.
func KeyFrom(b []byte) Key {
	return Key{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// Sum returns the hash of b.
func (k Key) Sum(b []byte) uint64 {
	h := k.Start()
	n := len(b)
	for ; len(b) >= 8; b = b[8:] {
		h.Word(binary.LittleEndian.Uint64(b))
	}
	var rest uint64
	for i, c := range b {
		rest |= uint64(c) << (8 * i)
	}
	return h.Sum(n, rest)
}

// Hash is a SipHash in progress. It takes whole words, for callers whose input has a fixed layout: they save the loop
// over bytes that Key.Sum needs.
type Hash struct{ v0, v1, v2, v3 uint64 }

// Start returns a hash without input.
func (k Key) Start() Hash {
	return Hash{
		k[0] ^ 0x736f6d6570736575, // "somepseudorandomlygeneratedbytes"
		k[1] ^ 0x646f72616e646f6d,
		k[0] ^ 0x6c7967656e657261,
		k[1] ^ 0x7465646279746573,
	}
}

// Word adds eight bytes, the first of them lowest.
func (h *Hash) Word(m uint64) {
	h.v3 ^= m
	h.round()
	h.round()
	h.v0 ^= m
}

// Sum ends an input of n bytes. rest holds its last n%8 bytes, which no Word has.
func (h *Hash) Sum(n int, rest uint64) uint64 {
	h.Word(rest | uint64(n)<<56)
	h.v2 ^= 0xff
	for range 4 {
		h.round()
	}
	return h.v0 ^ h.v1 ^ h.v2 ^ h.v3
}

func (h *Hash) round() {
	h.v0 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 13) ^ h.v0
	h.v0 = bits.RotateLeft64(h.v0, 32)
	h.v2 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 16) ^ h.v2
	h.v0 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 21) ^ h.v0
	h.v2 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 17) ^ h.v2
	h.v2 = bits.RotateLeft64(h.v2, 32)
}
