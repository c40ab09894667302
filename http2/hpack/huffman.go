package hpack

import (
	"encoding/binary"
	"slices"
)

// HuffmanLength returns the bytes of s in the Huffman code.
func HuffmanLength(s string) int {
	bits := 0
	for i := range len(s) {
		bits += int(huffmanLengths[s[i]])
	}
	return (bits + 7) / 8
}

// AppendHuffman appends s in the Huffman code, padded by ones (RFC 7541 5.2).
func AppendHuffman(dst []byte, s string) []byte {
	var acc uint64 // the last n bits are not written yet
	var n uint
	for i := range len(s) {
		c := s[i]
		bits := uint(huffmanLengths[c])
		acc = acc<<bits | uint64(huffman.codes[c])
		if n += bits; n >= 32 {
			n -= 32
			dst = binary.BigEndian.AppendUint32(dst, uint32(acc>>n))
		}
	}
	if pad := -n & 7; pad > 0 {
		acc = acc<<pad | (1<<pad - 1)
		n += pad
	}
	for ; n > 0; n -= 8 {
		dst = append(dst, byte(acc>>(n-8)))
	}
	return dst
}

// MaxDecoded bounds the bytes that n bytes of Huffman code decode to.
func MaxDecoded(n int) int { return n*8/shortest + 1 }

// AppendDecoded appends what src decodes to. It is not valid with a code of EOS, with padding of more than 7
// bits, or with padding other than ones (RFC 7541 5.2).
func AppendDecoded(dst, src []byte) (out []byte, valid bool) {
	i := len(dst)
	dst = slices.Grow(dst, MaxDecoded(len(src))+1) // one byte beyond: the second symbol of a pair
	dst = dst[:cap(dst)]
	h := huffman
	var acc uint64 // the next n bits, from the top
	var n uint
	for {
		if len(src) >= 4 {
			if n <= 32 {
				acc |= uint64(binary.BigEndian.Uint32(src)) << (32 - n)
				src = src[4:]
				n += 32
			}
		} else {
			for ; len(src) > 0 && n <= 56; src = src[1:] {
				acc |= uint64(src[0]) << (56 - n)
				n += 8
			}
		}
		for n >= peek {
			p := h.pairs[acc>>(64-peek)]
			if p == 0 {
				break
			}
			// Both are stored; the second counts if it is there.
			dst[i], dst[i+1] = byte(p), byte(p>>8)
			i += p.symbols()
			acc <<= p.bits()
			n -= p.bits()
		}
		if n >= 32 || len(src) == 0 { // at a code that is longer than the table's, or at the end
			symbol, bits := h.next(acc, n)
			if bits == 0 {
				return dst[:i], n < 8 && acc == ^(^uint64(0)>>n)
			}
			if symbol == eos {
				return dst[:i], false
			}
			dst[i] = byte(symbol)
			i++
			acc <<= bits
			n -= bits
		}
	}
}

// next returns the symbol at the top of acc, of which n bits are input, and its length; 0 if it is not complete.
func (h *huffmanTables) next(acc uint64, n uint) (symbol uint16, bits uint) {
	if p := h.pairs[acc>>(64-peek)]; p != 0 {
		if p.firstBits() > n {
			return 0, 0
		}
		return uint16(p & 0xFF), p.firstBits()
	}
	for bits = peek + 1; bits <= min(n, LongestCode); bits++ {
		if v := uint32(acc >> (64 - bits)); v < h.end[bits] {
			return h.symbols[h.offset[bits]+v-h.first[bits]], bits
		}
	}
	return 0, 0
}
