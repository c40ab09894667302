package expression

import (
	"cmp"
	"slices"
)

// Piece is the next bytes of a stream.
type Piece struct {
	Bytes  []byte
	Stream *Stream
	Ends   bool // the stream ends with it; what follows in the stream has to be another stream
}

// ScanPieces searches pieces, those of a stream in their order, and appends what it finds to hits, sorted by pieces,
// ends and rules: Hit.Text is the index of the piece.
func (s *Set) ScanPieces(pieces []Piece, hits []Hit) []Hit {
	var c scanner
	for i := range pieces {
		p, first := &pieces[i], len(hits)
		hits = c.scan(s, p, hits)
		if p.Ends {
			hits = s.Finish(p.Stream, len(p.Bytes), hits)
		}
		for k := first; k < len(hits); k++ {
			hits[k].Text = uint32(i)
		}
	}
	return hits
}

// SortHits sorts the hits of texts 0 to texts-1 by texts, ends and rules.
func SortHits(hits []Hit, texts int) {
	if len(hits) < 2 {
		return
	}
	ends, rules := uint32(0), uint32(0)
	for i := range hits {
		ends, rules = max(ends, hits[i].End), max(rules, hits[i].Rule)
	}
	if most := max(int(ends), int(rules), texts); most > 4*len(hits)+1024 { // counting would take longer than comparing
		slices.SortFunc(hits, func(a, b Hit) int {
			return cmp.Or(cmp.Compare(a.Text, b.Text), cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule))
		})
		return
	}
	spare := make([]Hit, len(hits))
	count(spare, hits, int(rules), func(h *Hit) uint32 { return h.Rule })
	count(hits, spare, int(ends), func(h *Hit) uint32 { return h.End })
	count(spare, hits, texts, func(h *Hit) uint32 { return h.Text })
	copy(hits, spare)
}

// count sorts hits by a key of at most most, into to; equal ones stay in order.
func count(to, hits []Hit, most int, key func(h *Hit) uint32) {
	next := make([]uint32, most+2) // where the hits of each key begin
	for i := range hits {
		next[key(&hits[i])+1]++
	}
	for i := range most {
		next[i+1] += next[i]
	}
	for i := range hits {
		k := key(&hits[i])
		to[next[k]] = hits[i]
		next[k]++
	}
}
