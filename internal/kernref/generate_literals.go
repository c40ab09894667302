package kernref

import (
	"bytes"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// Patterns returns n patterns, half of them short and of few letters, so that they overlap.
func (g Generator) Patterns(n int) Patterns {
	var all Patterns
	for range n {
		p := literal.Pattern{NoCase: g.Chance(40), Rule: uint32(1 + g.IntN(2*n))}
		switch g.IntN(3) {
		case 0:
			p.Bytes = g.Bytes(3 + g.IntN(62))
		case 1:
			p.Bytes = g.Letters(3 + g.IntN(3))
		case 2:
			p.Bytes = g.Letters(3 + g.IntN(62))
		}
		all = append(all, p)
	}
	return all
}

// Letters returns n letters of four.
func (g Generator) Letters(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abAB"[g.IntN(4)]
	}
	return b
}

// Near returns the bytes of a pattern, sometimes one of them changed or the case of all.
func (g Generator) Near(all Patterns) []byte {
	p := bytes.Clone(all[g.IntN(len(all))].Bytes)
	switch g.IntN(4) {
	case 0:
		p[g.IntN(len(p))] ^= 1 << g.IntN(8)
	case 1:
		p = bytes.ToUpper(p)
	}
	return p
}

// Plant writes patterns and what looks like them into the packets of b, behind their headers and across
// the ends of pieces.
func (g Generator) Plant(b *packet.Batch, all Patterns) {
	for i := 0; i < len(b.D) && len(all) > 0; i++ {
		for range g.IntN(4) {
			p := g.Near(all)
			at := 34 + g.IntN(100)
			for d := i; d < len(b.D) && len(p) > 0; d++ {
				mem := b.Bytes(d)
				p = p[copy(mem[min(at, len(mem)):], p):]
				if at = max(at-len(mem), 0); b.D[d].Flags&packet.FlagMore == 0 {
					break
				}
			}
		}
	}
}
