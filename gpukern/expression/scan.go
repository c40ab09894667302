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
	var c scanner
	return c.scan(s, &Piece{Bytes: text, Stream: t}, hits)
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

// sortHits sorts the hits of one text.
func sortHits(hits []Hit) {
	slices.SortFunc(hits, func(a, b Hit) int {
		if a.End != b.End {
			return cmp.Compare(a.End, b.End)
		}
		return cmp.Compare(a.Rule, b.Rule)
	})
}

// scanner is the scratch memory of a search.
type scanner struct {
	marks []uint32
	alive []int32
}

// scan is Set.Scan; nothing has to be kept for what follows a piece that ends its stream.
func (c *scanner) scan(s *Set, p *Piece, hits []Hit) []Hit {
	first, text, t := len(hits), p.Bytes, p.Stream
	if n := words(len(text)); s.filtered > 0 {
		c.marks = append(c.marks[:0], make([]uint32, n*s.filtered)...)
		s.filter.mark(text, c.marks)
		for i := range s.filtered {
			until := len(text)
			if !p.Ends {
				until = tailOf(len(text), s.filter.tails[i])
			}
			hits = s.groups[i].scanMarked(text, c.marks[i*n:(i+1)*n], until, &t.Rows[i], &t.Found[i], hits)
		}
	}
	for at := 0; at < len(text); at += BlockBytes {
		hits = c.block(s, text[:min(len(text), at+BlockBytes)], at, t, hits)
	}
	if len(hits) > first+1 {
		sortHits(hits[first:])
	}
	return hits
}

// quad is the unit of texts on a GPU.
const quad = 16

// tailOf returns where an automaton has to wake up before the end of a piece.
func tailOf(size int, tail uint8) int { return max(0, size-int(tail)) &^ (quad - 1) }

// scanMarked searches the marked blocks of a text, what follows until the automaton sleeps again, and the text from
// until on.
func (g *group) scanMarked(text []byte, marks []uint32, until int, row *uint16, found *uint32, hits []Hit) []Hit {
	for at := 0; at < len(text) && *row != 0; {
		if uint32(*row) < g.rest {
			to := min(nextMarked(marks, at), until)
			if to > at {
				*row = g.idle[g.class[text[to-1]]]
				at = to
			}
			if at == len(text) {
				break
			}
		}
		end := min(len(text), (at|(BlockBytes-1))+1)
		hits = g.scan(text[:end], at, row, found, hits)
		at = end
	}
	return hits
}

// nextMarked returns the begin of the first marked block from at on, which lies in a block that is not over; the end of the words
// where there is none.
func nextMarked(marks []uint32, at int) int {
	for block := at >> blockShift; block>>5 < len(marks); block = (block | 31) + 1 {
		if m := marks[block>>5] >> (block & 31); m != 0 {
			for ; m&1 == 0; m >>= 1 {
				block++
			}
			return max(at, block<<blockShift)
		}
	}
	return len(marks) << (blockShift + 5)
}

// block searches the end of a text, from at on, with the automata that are never asleep and not dead.
func (c *scanner) block(s *Set, text []byte, at int, t *Stream, hits []Hit) []Hit {
	c.alive = c.alive[:0]
	for i := s.filtered; i < len(s.groups); i++ {
		if t.Rows[i] != 0 {
			c.alive = append(c.alive, int32(i))
		}
	}
	i := 0
	for ; i+4 <= len(c.alive); i += 4 { // a step waits for the one before: four automata take theirs meanwhile
		hits = s.scanFour((*[4]int32)(c.alive[i:]), text, at, t, hits)
	}
	for _, k := range c.alive[i:] {
		hits = s.groups[k].scan(text, at, &t.Rows[k], &t.Found[k], hits)
	}
	return hits
}

// scan searches a text from at on.
func (g *group) scan(text []byte, at int, to *uint16, found *uint32, hits []Hit) []Hit {
	row, next, accept := uint32(*to), g.next, g.accept
	for i := at; i < len(text); i++ {
		row = uint32(next[row+uint32(g.class[text[i]])])
		if row >= accept {
			if hits = g.note(g.maskOf(row), found, i, hits); *found == g.full {
				row = 0
				break
			}
		}
	}
	*to = uint16(row)
	return hits
}

// scanFour is scan for four automata.
func (s *Set) scanFour(which *[4]int32, text []byte, at int, t *Stream, hits []Hit) []Hit {
	var g [4]*group
	for k, i := range which {
		g[k] = &s.groups[i]
	}
	r0, r1, r2, r3 := uint32(t.Rows[which[0]]), uint32(t.Rows[which[1]]), uint32(t.Rows[which[2]]), uint32(t.Rows[which[3]])
	n0, n1, n2, n3 := g[0].next, g[1].next, g[2].next, g[3].next
	c0, c1, c2, c3 := &g[0].class, &g[1].class, &g[2].class, &g[3].class
	a0, a1, a2, a3 := g[0].accept, g[1].accept, g[2].accept, g[3].accept
	for i := at; i < len(text); i++ {
		c := text[i]
		r0 = uint32(n0[r0+uint32(c0[c])])
		r1 = uint32(n1[r1+uint32(c1[c])])
		r2 = uint32(n2[r2+uint32(c2[c])])
		r3 = uint32(n3[r3+uint32(c3[c])])
		if r0 >= a0 || r1 >= a1 || r2 >= a2 || r3 >= a3 {
			for k, row := range [4]*uint32{&r0, &r1, &r2, &r3} {
				if q := g[k]; *row >= q.accept {
					found := &t.Found[which[k]]
					if hits = q.note(q.maskOf(*row), found, i, hits); *found == q.full {
						*row = 0
					}
				}
			}
		}
	}
	for k, row := range [4]uint32{r0, r1, r2, r3} {
		t.Rows[which[k]] = uint16(row)
	}
	return hits
}

// maskOf returns the expressions that ended before the byte that led to a row.
func (g *group) maskOf(row uint32) uint32 {
	return g.masks[uint64(row-g.accept)*uint64(g.reciprocal)>>32]
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
