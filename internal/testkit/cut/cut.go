// Package cut feeds protocol machines input in pieces, for tests: a machine must report the same, however its input is cut.
package cut

import "math/rand/v2"

// Size returns how many of the bytes that are left come next, at least 1.
type Size func(left int) int

// Whole cuts nothing.
func Whole(left int) int { return left }

// Bytewise cuts everywhere.
func Bytewise(int) int { return 1 }

// Random cuts at random places, which the seed decides.
func Random(seed uint64) Size {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(left int) int { return 1 + r.IntN(left) }
}

// Feed calls input with pieces of in until all are there or it returns false. A piece begins with what input has left of the one
// before; last says that no other follows. Each lies in memory of its own, which is overwritten afterwards.
func Feed(in []byte, size Size, input func(p []byte, last bool) (rest []byte, more bool)) {
	var held []byte
	for {
		n := 0
		if len(in) > 0 {
			n = size(len(in))
		}
		held = append(held, in[:n]...)
		in = in[n:]
		piece := append([]byte(nil), held...)
		rest, more := input(piece, len(in) == 0)
		held = append(held[:0], rest...)
		for i := range piece {
			piece[i] = '?'
		}
		if !more || len(in) == 0 {
			return
		}
	}
}
