package expression

// Piece is the next bytes of a stream.
type Piece struct {
	Bytes  []byte
	Stream *Stream
	Ends   bool // the stream ends with it; what follows in the stream has to be another stream
}

// ScanPieces searches pieces, those of a stream in their order, and appends what it finds to hits, sorted by pieces,
// ends and rules: Hit.Text is the index of the piece.
func (s *Set) ScanPieces(pieces []Piece, hits []Hit) []Hit {
	for i := range pieces {
		p, first := &pieces[i], len(hits)
		hits = s.Scan(p.Bytes, p.Stream, hits)
		if p.Ends {
			hits = s.Finish(p.Stream, len(p.Bytes), hits)
		}
		for k := first; k < len(hits); k++ {
			hits[k].Text = uint32(i)
		}
	}
	return hits
}
