package kernbench

import (
	"slices"

	"github.com/millrace/millrace/gpukern/literal"
)

// payload returns what writes the payload of packet i: random text, no two packets alike; of the
// adversarial size what nearly matches patterns, and sometimes does.
func payload(seed uint64, size string, patterns []literal.Pattern) func(i int, p []byte) {
	g := newGenerator(seed, "text"+size)
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(' ' + g.IntN(95))
	}
	if size == SizeHostile && len(patterns) > 0 {
		block = slices.Concat(NearMisses(seed, patterns, len(block), 4*len(block))...)
	}
	return func(_ int, p []byte) {
		at := g.IntN(len(block) - len(p))
		copy(p, block[at:])
	}
}
