package websocket

import (
	"encoding/binary"
	"math/bits"
)

// xorKey writes src XOR the repeated key to dst, which has the same length and is src or does not
// overlap it (RFC 6455 5.3). The key is a little-endian word: its low byte is for src[0]. It returns
// the key for the byte after src.
func xorKey(dst, src []byte, key uint32) uint32 {
	dst = dst[:len(src)]
	if len(src) < shortMask {
		xorKeyGeneric(dst, src, key)
	} else {
		xorKeyLong(dst, src, key)
	}
	return bits.RotateLeft32(key, -8*(len(src)&3))
}

// shortMask is the length from which a call of the vector form pays.
const shortMask = 128

// xorKeyGeneric is xorKey by 8-byte words.
func xorKeyGeneric(dst, src []byte, key uint32) {
	wide := uint64(key)<<32 | uint64(key)
	for len(src) >= 64 {
		s, d := (*[64]byte)(src), (*[64]byte)(dst)
		a := binary.LittleEndian.Uint64(s[0:]) ^ wide
		b := binary.LittleEndian.Uint64(s[8:]) ^ wide
		c := binary.LittleEndian.Uint64(s[16:]) ^ wide
		e := binary.LittleEndian.Uint64(s[24:]) ^ wide
		binary.LittleEndian.PutUint64(d[0:], a)
		binary.LittleEndian.PutUint64(d[8:], b)
		binary.LittleEndian.PutUint64(d[16:], c)
		binary.LittleEndian.PutUint64(d[24:], e)
		a = binary.LittleEndian.Uint64(s[32:]) ^ wide
		b = binary.LittleEndian.Uint64(s[40:]) ^ wide
		c = binary.LittleEndian.Uint64(s[48:]) ^ wide
		e = binary.LittleEndian.Uint64(s[56:]) ^ wide
		binary.LittleEndian.PutUint64(d[32:], a)
		binary.LittleEndian.PutUint64(d[40:], b)
		binary.LittleEndian.PutUint64(d[48:], c)
		binary.LittleEndian.PutUint64(d[56:], e)
		src, dst = src[64:], dst[64:]
	}
	for len(src) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src)^wide)
		src, dst = src[8:], dst[8:]
	}
	for i, b := range src {
		dst[i] = b ^ byte(wide)
		wide >>= 8
	}
}
