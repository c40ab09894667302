package literal

import "encoding/binary"

// block is plain for 64 positions that have all their bytes.
func (f *pairFilter) block(text *[64 + 8]byte) (m uint64) {
	words, shift := f.words, (32-f.bits)&31
	for p := 62; p >= 0; p -= 2 {
		x := binary.LittleEndian.Uint64(text[p:p+8]) | lowerCase
		b := uint32(x >> 8)
		w := words[b*mulWord<<8>>shift]
		if w == 0 {
			m <<= 2
			continue
		}
		h4, h8 := hashes(x)
		m = m<<2 | uint64(has(w, h4)|has(w, h8)|has(w, oddHash(b))<<1)
	}
	return m
}
