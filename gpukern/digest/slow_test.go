package digest

import (
	"crypto/sha512"
	"encoding/binary"
	"math/bits"
)

// slowHash is SHA-512 by crypto/sha512 in pieces, or BLAKE2s as RFC 7693 3 writes it.
func slowHash(a Algorithm, data []byte) []byte {
	if a == SHA512 {
		h := sha512.New()
		for i := range data {
			h.Write(data[i : i+1])
		}
		return h.Sum(nil)
	}
	iv := [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
	h := iv
	h[0] ^= 0x01010020
	for at := 0; ; at += 64 {
		var block [64]byte
		n := copy(block[:], data[at:])
		last := at+64 >= len(data)
		blakeSlow(&h, &iv, &block, uint32(at+n), last)
		if last {
			break
		}
	}
	var out []byte
	for _, w := range h {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

var blakeSchedule = [10]string{
	"0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
	"2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
}

func blakeSlow(h, iv *[8]uint32, block *[64]byte, counter uint32, last bool) {
	var m, v [16]uint32
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(block[4*i:])
	}
	copy(v[:], h[:])
	copy(v[8:], iv[:])
	v[12] ^= counter
	if last {
		v[14] = ^v[14]
	}
	mix := func(a, b, c, d int, x, y uint32) {
		v[a] += v[b] + x
		v[d] = bits.RotateLeft32(v[d]^v[a], -16)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -12)
		v[a] += v[b] + y
		v[d] = bits.RotateLeft32(v[d]^v[a], -8)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -7)
	}
	for _, s := range blakeSchedule {
		word := func(i int) uint32 {
			if s[i] >= 'a' {
				return m[s[i]-'a'+10]
			}
			return m[s[i]-'0']
		}
		for i := range 4 {
			mix(i, 4+i, 8+i, 12+i, word(2*i), word(2*i+1))
		}
		for i := range 4 {
			mix(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4, word(8+2*i), word(9+2*i))
		}
	}
	for i := range h {
		h[i] ^= v[i] ^ v[8+i]
	}
}
