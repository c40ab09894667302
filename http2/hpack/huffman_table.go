package hpack

// huffmanLengths has the bits of the code of every byte, and of EOS last (RFC 7541 Appendix B). The code is
// canonical: by length, then by symbol, each code is its predecessor plus one. So the lengths are all of it.
const huffmanLengths = "" +
	"\x0d\x17\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x18\x1e\x1c\x1c\x1e\x1c\x1c" +
	"\x1c\x1c\x1c\x1c\x1c\x1c\x1e\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c" +
	"\x06\x0a\x0a\x0c\x0d\x06\x08\x0b\x0a\x0a\x08\x0b\x08\x06\x06\x06" +
	"\x05\x05\x05\x06\x06\x06\x06\x06\x06\x06\x07\x08\x0f\x06\x0c\x0a" +
	"\x0d\x06\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07" +
	"\x07\x07\x07\x07\x07\x07\x07\x07\x08\x07\x08\x0d\x13\x0d\x0e\x06" +
	"\x0f\x05\x06\x05\x06\x05\x06\x06\x06\x05\x07\x07\x06\x06\x06\x05" +
	"\x06\x07\x06\x05\x05\x06\x07\x07\x07\x07\x07\x0f\x0b\x0e\x0d\x1c" +
	"\x14\x16\x14\x14\x16\x16\x16\x17\x16\x17\x17\x17\x17\x17\x18\x17" +
	"\x18\x18\x16\x17\x18\x17\x17\x17\x17\x15\x16\x17\x16\x17\x17\x18" +
	"\x16\x15\x14\x16\x16\x17\x17\x15\x17\x16\x16\x18\x15\x16\x17\x17" +
	"\x15\x15\x16\x15\x17\x16\x17\x17\x14\x16\x16\x16\x17\x16\x16\x17" +
	"\x1a\x1a\x14\x13\x16\x17\x16\x19\x1a\x1a\x1a\x1b\x1b\x1a\x18\x19" +
	"\x13\x15\x1a\x1b\x1b\x1a\x1b\x18\x15\x15\x1a\x1a\x1c\x1b\x1b\x1b" +
	"\x14\x18\x14\x15\x16\x15\x15\x17\x16\x16\x19\x19\x18\x18\x1a\x17" +
	"\x1a\x1b\x1a\x1a\x1b\x1b\x1b\x1b\x1b\x1c\x1b\x1b\x1b\x1b\x1b\x1a" +
	"\x1e"

// LongestCode is the bits of the LongestCode code.
const LongestCode = 30

const (
	shortest = 5 // bits of the shortest code
	eos      = 256
	peek     = 12 // bits that index the decoding table
)

// pair is an entry of the decoding table: what the next bits begin with.
//
//	bits 0-7   first symbol        bits 16-19  bits of the first symbol
//	bits 8-15  second symbol       bits 20-23  bits of both
//	                               bits 24-25  symbols: 0 (the code is longer), 1 or 2
type pair uint32

func (p pair) firstBits() uint { return uint(p>>16) & 15 }
func (p pair) bits() uint      { return uint(p>>20) & 15 }
func (p pair) symbols() int    { return int(p >> 24) }

// huffman has the tables of both directions, derived from the lengths.
var huffman = newHuffman()

type huffmanTables struct {
	codes [257]uint32
	pairs [1 << peek]pair
	// The codes of one length are consecutive: of length n they begin at first[n], and their symbols at
	// symbols[offset[n]]. end[n] is the first number of n bits that is no code of at most n bits.
	first, offset, end [LongestCode + 1]uint32
	symbols            [257]uint16
}

func newHuffman() *huffmanTables {
	h := &huffmanTables{}
	code, at := uint32(0), uint32(0)
	for n := shortest; n <= LongestCode; n++ {
		code <<= 1
		h.first[n], h.offset[n] = code, at
		for symbol := range 257 {
			if int(huffmanLengths[symbol]) == n {
				h.codes[symbol], h.symbols[at] = code, uint16(symbol)
				code, at = code+1, at+1
			}
		}
		h.end[n] = code
	}
	for i := range h.pairs {
		h.pairs[i] = h.pairAt(uint32(i))
	}
	return h
}

// pairAt returns the entry for the bits of i.
func (h *huffmanTables) pairAt(i uint32) pair {
	a, n := h.symbolAt(i, peek)
	if n == 0 {
		return 0
	}
	p := pair(a) | pair(n)<<16 | pair(n)<<20 | 1<<24
	if b, m := h.symbolAt(i<<n&(1<<peek-1), peek-n); m > 0 {
		p = pair(a) | pair(b)<<8 | pair(n)<<16 | pair(n+m)<<20 | 2<<24
	}
	return p
}

// symbolAt returns the symbol whose code the number i of peek bits begins with, and its length; 0 if that
// exceeds most.
func (h *huffmanTables) symbolAt(i uint32, most uint) (symbol uint16, bits uint) {
	for n := uint(shortest); n <= most; n++ {
		if v := i >> (peek - n); v < h.end[n] {
			return h.symbols[h.offset[n]+v-h.first[n]], n
		}
	}
	return 0, 0
}
