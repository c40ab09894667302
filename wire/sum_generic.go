package wire

import (
	"encoding/binary"
	"math/bits"
)

// sumGeneric is Sum by 64 bits at a time. The ones' complement sum does not depend on the byte order
// (RFC 1071 2 (B)), nor on the width of the words that are added as long as carries come back in (2 (C)),
// so it adds little-endian words and swaps the 16 bits that are left at the end.
func sumGeneric(b []byte, acc uint32) uint32 {
	var s, c uint64
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[24:]), c)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		b = b[8:]
	}
	s, c = bits.Add64(s, tail64(b), c)
	return finish(s+c, acc)
}

// tail64 returns fewer than 8 bytes as a little-endian word: three loads that do not overlap.
func tail64(b []byte) (v uint64) {
	i := 0
	if len(b)&4 != 0 {
		v, i = uint64(binary.LittleEndian.Uint32(b)), 4
	}
	if len(b)&2 != 0 {
		v |= uint64(binary.LittleEndian.Uint16(b[i:])) << (8 * i & 63)
		i += 2
	}
	if len(b)&1 != 0 {
		v |= uint64(b[i]) << (8 * i & 63)
	}
	return v
}

// finish folds a little-endian sum, swaps it, and adds acc. A number that is added to itself with its
// halves exchanged has their ones' complement sum, end-around carry included, in its upper half. Callers
// add the last carry to s beforehand: after an addend below 1<<63 it cannot overflow again.
func finish(s uint64, acc uint32) uint32 {
	s += bits.RotateLeft64(s, 32)
	t := uint32(s >> 32)
	t += bits.RotateLeft32(t, 16)
	return fold16(uint32(bits.ReverseBytes16(uint16(t>>16))) + acc>>16 + acc&0xffff)
}

// sum20 is Sum of 20 bytes.
func sum20(b *[20]byte) uint32 {
	s, c := bits.Add64(binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), 0)
	s, c = bits.Add64(s, uint64(binary.LittleEndian.Uint32(b[16:])), c)
	return finish(s+c, 0)
}
