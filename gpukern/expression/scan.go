package expression

import (
	"cmp"
	"slices"
)

// Hit is an expression that was found.
type Hit struct {
	Text uint32 // the index of the text in a call of several
	End  uint32 // offset behind its last byte in the text; 0 where it ended with the piece before
	Rule uint32
}

// Stream holds the state of a search between two pieces of a stream: the state of each automaton, and which expressions were
// found.
type Stream struct {
	Rows  []uint16
	Found []uint32
}

// NewStream returns the begin of a stream.
func (s *Set) NewStream() *Stream {
	t := &Stream{make([]uint16, s.Groups()), make([]uint32, s.Groups())}
	s.Reset(t)
	return t
}

// Reset makes t the begin of a stream.
func (s *Set) Reset(t *Stream) {
	for i := range s.Groups() {
		t.Rows[i], t.Found[i] = s.groups[i].start, 0
	}
}

// Scan searches the next piece of a stream and appends what it finds to hits, sorted by ends and then by rules, with
// Hit.Text 0. An expression that ends with the piece is found with the next one, or by Finish.
func (s *Set) Scan(text []byte, t *Stream, hits []Hit) []Hit {
	first := len(hits)
	i := 0
	for ; i+4 <= s.Groups(); i += 4 { // a step waits for the one before: four automata take theirs meanwhile
		hits = scanFour((*[4]group)(s.groups[i:]), text, (*[4]uint16)(t.Rows[i:]), (*[4]uint32)(t.Found[i:]), hits)
	}
	for ; i < s.Groups(); i++ {
		hits = s.groups[i].scan(text, &t.Rows[i], &t.Found[i], hits)
	}
	sortHits(hits[first:])
	return hits
}

// Finish ends a stream and appends what ends with it, as Scan does; size is the length of the last piece, where the ends are.
func (s *Set) Finish(t *Stream, size int, hits []Hit) []Hit {
	first := len(hits)
	for i := range s.Groups() {
		g := &s.groups[i]
		hits = g.note(g.final[uint32(t.Rows[i])/g.stride], &t.Found[i], size, hits)
	}
	sortHits(hits[first:])
	return hits
}

func sortHits(hits []Hit) {
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule)) })
}

// scan is Set.Scan for one group.
func (g *group) scan(text []byte, at *uint16, found *uint32, hits []Hit) []Hit {
	row, next, accept := uint32(*at), g.next, g.accept
	for i, c := range text {
		row = uint32(next[row+uint32(g.class[c])])
		if row >= accept {
			hits = g.note(g.masks[(row-accept)/g.stride], found, i, hits)
		}
	}
	*at = uint16(row)
	return hits
}

// scanFour is scan for four groups.
func scanFour(g *[4]group, text []byte, at *[4]uint16, found *[4]uint32, hits []Hit) []Hit {
	r0, r1, r2, r3 := uint32(at[0]), uint32(at[1]), uint32(at[2]), uint32(at[3])
	n0, n1, n2, n3 := g[0].next, g[1].next, g[2].next, g[3].next
	a0, a1, a2, a3 := g[0].accept, g[1].accept, g[2].accept, g[3].accept
	for i, c := range text {
		r0 = uint32(n0[r0+uint32(g[0].class[c])])
		r1 = uint32(n1[r1+uint32(g[1].class[c])])
		r2 = uint32(n2[r2+uint32(g[2].class[c])])
		r3 = uint32(n3[r3+uint32(g[3].class[c])])
		if r0 >= a0 || r1 >= a1 || r2 >= a2 || r3 >= a3 {
			for k, row := range [4]uint32{r0, r1, r2, r3} {
				if q := &g[k]; row >= q.accept {
					hits = q.note(q.masks[(row-q.accept)/q.stride], &found[k], i, hits)
				}
			}
		}
	}
	at[0], at[1], at[2], at[3] = uint16(r0), uint16(r1), uint16(r2), uint16(r3)
	return hits
}

// note appends the expressions of a mask that are new.
func (g *group) note(mask uint32, found *uint32, end int, hits []Hit) []Hit {
	mask &^= *found
	*found |= mask
	for bit := 0; mask != 0; bit, mask = bit+1, mask>>1 {
		if mask&1 != 0 {
			hits = append(hits, Hit{End: uint32(end), Rule: g.rules[bit]})
		}
	}
	return hits
}
