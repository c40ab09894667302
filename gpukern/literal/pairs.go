package literal

import "encoding/binary"

// pairFilter is the filter of the CPU's forms. One word answers for two positions, so that half as many are
// read: for an even position p
//
//	a, b, c = the bytes from p, from p+1 and from p+4 on, four each, little-endian, bit 0x20 set in each byte
//	w = words[b * mulWord << 8 >> (32 - bits)]      chosen by the bytes p+1 to p+3
//
//	p may be an anchor of 8 if w has the two bits of a*mul4 + c*mul8     (h8 of tables.go)
//	p may be an anchor of 3 or 4               those of a*mul4           (h4)
//	p+1 may be an anchor of 3 or 4             those of (b>>8)*mulOdd
//
// and the two bits of a hash h are h>>24&31 and h>>16&31. Each hash has what the word's index does not know:
// byte p, bytes p and p+4 to p+7, byte p+4. An anchor of three bytes is entered as the windows of four that
// begin with it.
type pairFilter struct {
	words []uint32 // 1 << bits
	bits  uint32   // below 24
}

const (
	mulWord = 0x7feb352d
	mulOdd  = 0x846ca68b
)

// wordOf returns the index of the word chosen by the first three bytes of b, bit 0x20 set in each.
func (f *pairFilter) wordOf(b uint32) uint32 { return b * mulWord << 8 >> ((32 - f.bits) & 31) }

// oddHash returns the hash of a window of four bytes at an odd position, bit 0x20 set in each.
func oddHash(b uint32) uint32 { return (b >> 8) * mulOdd }

// has returns 1 where w has the bits of h, else 0.
func has(w, h uint32) uint32 { return w >> (h >> 24 & 31) & (w >> (h >> 16 & 31)) & 1 }

// bitsOf returns the bits of h.
func bitsOf(h uint32) uint32 { return 1<<(h>>24&31) | 1<<(h>>16&31) }

// at returns 1 for each kind of anchor that may begin at position p, of which w has the eight bytes with bit
// 0x20 set and h4 and h8 are the hashes. It takes no branch: no one foresees where candidates lie.
func (f *pairFilter) at(p int, w uint64, h4, h8 uint32) (may8, may4 uint32) {
	odd := uint32(p) & 1
	v := f.words[f.wordOf(uint32(w>>((8-8*odd)&63)))]
	h4 ^= (h4 ^ oddHash(uint32(w))) & -odd
	return has(v, h8) &^ odd, has(v, h4)
}

// mark holds the bits that an anchor sets in a word.
type mark struct{ word, bits uint32 }

// marks calls set for each mark of the window w, of which the class says how many bytes count.
func (f *pairFilter) marks(class int, w uint64, set func(mark)) {
	w |= lowerCase
	h4, h8 := hashes(w)
	even := f.wordOf(uint32(w >> 8))
	switch class {
	case class8:
		set(mark{even, bitsOf(h8)})
	case class4:
		set(mark{even, bitsOf(h4)})
		set(mark{f.wordOf(uint32(w)), bitsOf(oddHash(uint32(w)))})
	case class3:
		for c := range uint64(256) {
			if c&0x20 != 0 {
				f.marks(class4, w&0xffffff|c<<24, set)
			}
		}
	}
}

// plain sets bit i of masks, counted through, where position from+i, up to end, may be an anchor's. from is
// even.
func (f *pairFilter) plain(text []byte, from, end int, masks []uint64) {
	for i := range masks {
		at := from + 64*i
		if at+64+8 <= len(text) && at+64 <= end {
			masks[i] = f.block((*[64 + 8]byte)(text[at:]))
			continue
		}
		var m uint64
		for p := at; p < min(at+64, end); p++ {
			w := load(text, p) | lowerCase
			h4, h8 := hashes(w)
			may8, may4 := f.at(p, w, h4, h8)
			m |= uint64(may8|may4) << (p - at)
		}
		masks[i] = m
	}
}

// block is plain for 64 positions that have all their bytes.
func (f *pairFilter) block(text *[64 + 8]byte) (m uint64) {
	words, shift := f.words, (32-f.bits)&31
	for p := 0; p < 64; p += 2 {
		w := binary.LittleEndian.Uint64(text[p:p+8]) | lowerCase
		b := uint32(w >> 8)
		v := words[b*mulWord<<8>>shift]
		h4, h8 := hashes(w)
		m = m>>2 | uint64(has(v, h4)|has(v, h8)|has(v, oddHash(b))<<1)<<62
	}
	return m
}
