package appid

import "math/bits"

// setWords is the number of words that a set of recognisers has: one bit for each of them, so that a longer table needs no
// change here.
const setWords = (len(recognisers) + 63) / 64

// set is a set of recognisers, by their number.
type set [setWords]uint64

func (s *set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) without(o *set) set {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

func (s set) and(o *set) set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// next returns the lowest number from i on, or -1.
func (s *set) next(i int) int {
	for w := i / 64; w < setWords; w++ {
		word := s[w]
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}
