package literal

import (
	"math/bits"
	"sync/atomic"
)

// Each pattern is found by a window of it, its anchor, somewhere inside: 3 bytes of a pattern of 3, 4 of one
// of up to 8, 8 of a longer one. A search takes every position p of a text for the start of a window:
//
//	lo, hi = the bytes p to p+3 and p+4 to p+7, little-endian, each byte with bit 0x20 set
//	h4     = lo * mul4                hash of a window of 4
//	h3     = h4 << 8                  of 3: the low 24 bits of a product know nothing of the 4th byte
//	h8     = h4 + hi * mul8           of 8
//
// 1. The filter, words of 32 bits (kernels have this one, the CPU that of pairs.go). The window's first three bytes choose the word, the rest two bits in
// it, which an anchor of 8 or of 4 bytes has set; one of 3 bytes has set all 32:
//
//	w = filter[h4 << 8 >> (32 - bits)]
//	may be an anchor of 8: bits h8 >> 27 and h8 >> 22 & 31 of w are set
//	may be an anchor of 4: bits h4 >> 27 and h4 >> 24 & 31 of w are set
//	may be an anchor of 3: w is all ones
//
// 2. The slots, a hash table with linear probing, at most half full. tag is a mix of the hash and of the
// window's length (see mix), whose top bits choose the slot:
//
//	+-----------+-----------+
//	| tag    32 | at     32 |   at 0: the slot is empty and the search over
//	+-----------+-----------+
//
// 3. The records of the patterns that have this anchor, one after the other, from quad at (16 bytes each):
//
//	 0          4     5        6      7       8
//	+----------+-----+--------+------+-------+-----------------+
//	| rule  32 | len | before | more | quads | fold         64 |
//	+----------+-----+--------+------+-------+-----------------+
//	| the pattern's bytes, zeros up to the next quad           |
//	+----------------------------------------------------------+
//
// The pattern begins at p - before; bit i of fold says that its byte i, a lower-case letter, also matches
// with 0x20 cleared. With more set, another record follows, quads further on.
//
// Patterns of 9 bytes and more have two anchors, at an even and at an odd offset, and a record for each: the
// CPU's filter looks for windows of 8 at every second position only. This filter knows one of the two; who
// finds the pattern by both finds it twice.
//
// Setting bit 0x20 everywhere is coarser than folding letters; the comparison with the record is exact.

// slot leads from an anchor to its records.
type slot struct {
	tag uint32
	at  uint32 // first quad; 0 in an empty slot
}

// Set is a compiled set of patterns. It is immutable and may be shared.
type Set struct {
	pairs   pairFilter
	filter  []uint32 // 1 << imageBits words or fewer, for kernels
	threes  *bitmap  // of the anchors of three bytes; nil if there are none
	slots   []slot   // a power of two
	records []uint64 // two a quad; the first quad is not used

	slotShift uint32 // of a tag, to its slot
	classes   uint32 // bit c: there are anchors of window[c] bytes
	patterns  int
	id        uint64
}

// ids counts the sets that Compile has made.
var ids atomic.Uint64

// ID names s among all sets of the process, from 1. It is 0 for nil.
func (s *Set) ID() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

// The lengths of windows. The class of a pattern is the index of its anchor's.
const (
	class3 = iota
	class4
	class8
	classes
)

var window = [classes]int{3, 4, 8}

// classOf returns the class of patterns of n bytes.
func classOf(n int) int {
	switch {
	case n > 8:
		return class8
	case n >= 4:
		return class4
	}
	return class3
}

// Multipliers: odd, without pattern. salt keeps the classes apart.
const (
	mul4   = 0x9e3b24c5
	mul8   = 0x85ebca6b
	mulTag = 0xc2b2ae35
)

var salt = [classes]uint32{0x3c6ef372, 0, 0xa54ff53a}

// bitmap has a bit for the upper half of each hash. It spares the slots what the CPU's filter cannot exclude.
type bitmap [1 << 16 / 64]uint64

func (b *bitmap) set(h uint32) { b[h>>22] |= 1 << (h >> 16 & 63) }

// has returns 1 where h may have been set, else 0. A nil bitmap is empty.
func (b *bitmap) has(h uint32) uint32 {
	if b == nil {
		return 0
	}
	return uint32(b[h>>22]>>(h>>16&63)) & 1
}

// lowerCase has bit 0x20 of eight bytes.
const lowerCase = 0x2020202020202020

// hashes returns h4 and h8 of the window of eight bytes w, little-endian.
func hashes(w uint64) (h4, h8 uint32) {
	w |= lowerCase
	h4 = uint32(w) * mul4
	return h4, h4 + uint32(w>>32)*mul8
}

// mix returns the tag of an anchor. Of one class, equal tags are equal hashes.
func mix(class int, h uint32) uint32 {
	h ^= salt[class]
	h ^= h >> 15
	h *= mulTag
	return h ^ h>>16
}

// bits8 returns the bits of an anchor of eight bytes.
func bits8(h8 uint32) uint32 { return 1<<(h8>>27) | 1<<(h8>>22&31) }

// bits4 returns those of an anchor of four bytes.
func bits4(h4 uint32) uint32 { return 1<<(h4>>27) | 1<<(h4>>24&31) }

// word returns the index of the filter's word for a window, where the filter has 1 << bits words.
func word(h4, bits uint32) uint32 { return h4 << 8 >> (32 - bits) }

// bits returns the size of the filter for kernels.
func (s *Set) bits() uint32 { return uint32(bits.Len(uint(len(s.filter) - 1))) }

// Patterns returns how many patterns the set has, without repetitions.
func (s *Set) Patterns() int { return s.patterns }

// Size returns how many bytes the tables have.
func (s *Set) Size() int {
	return 4*len(s.pairs.words) + 4*len(s.filter) + 8*len(s.slots) + 8*len(s.records)
}
