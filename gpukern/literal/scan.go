package literal

// Scan appends to out the matches that end in text, by End and then by Rule, each once, and returns it.
// tail is what came before text, of which only the last TailLen bytes matter: patterns may begin there.
// Ends count from the first byte of text.
//
// At most limit matches are told; where there are more, an entry with Rule 0 follows, whose End is that
// of the next one. A limit below 1 is none.
func (s *Set) Scan(tail, text []byte, limit int, out []Match) []Match {
	if s.patterns == 0 || len(text) == 0 {
		return out
	}
	l := list{out, len(out), max(limit, 0)}
	from := 0
	if len(tail) > 0 {
		from = s.scanEdge(tail, text, &l)
	}
	s.windows(text, from, len(text), 0, &l)
	return l.done()
}

// scanEdge searches the windows in tail and the first of text, as many as the longest pattern may begin
// before the text, and returns how many those are. A copy makes one of both: up to MaxLen-1 bytes of the
// tail, as many windows in text, and what patterns reach behind those.
//
//	| tail, 63 | windows, 63 | 63 more |
func (s *Set) scanEdge(tail, text []byte, l *list) int {
	var buf [3 * TailLen]byte
	n := copy(buf[:], tail[max(0, len(tail)-TailLen):])
	from := min(len(text), TailLen)
	all := buf[:n+copy(buf[n:], text[:min(len(text), 2*TailLen)])]
	s.windows(all, 0, n+from, n, l)
	return from
}

// chunk is how many positions are filtered before candidates are looked at.
const chunk = 2048

// windows searches the patterns with anchors that begin in text[from:to]. The first skip bytes of text
// are a tail: matches end behind it, and ends count from there.
func (s *Set) windows(text []byte, from, to, skip int, l *list) {
	var masks [chunk / 64]uint64
	for ; from < to && !l.settled(from+MinLen-skip); from += chunk {
		end := min(from+chunk, to)
		some := masks[:(end-from+63)/64]
		s.candidates(text, from, end, some)
		s.search(text, from, skip, some, l)
	}
}
