package literal

// Scan appends to out the matches that end in text, by End and then by Rule, each once, and returns it.
// tail is what came before text, of which only the last CarryOverLen bytes matter: patterns may begin there.
// Ends count from the first byte of text.
//
// At most limit matches are reported; where there are more, an entry with Rule 0 follows, whose End is that
// of the next one. A limit below 1 is none.
func (s *Set) Scan(tail, text []byte, limit int, out []Occurrence) []Occurrence {
	if s.patterns == 0 || len(text) == 0 {
		return out
	}
	l := list{out, len(out), max(limit, 0)}
	from := 0
	if len(tail) > 0 {
		from = s.scanEdge(tail, text, &l)
	}
	s.windows(&view{text: text}, from, len(text), &l)
	return l.result()
}

// edge is the number of a text's windows that belong to patterns which may begin before it: no anchor begins further
// inside of its pattern. It is even.
const edge = MaxLen - 8

// scanEdge searches the windows in tail and the first of text, and returns how many of text those are. A
// copy makes one of both: the tail, as many windows in text, and what patterns reach behind those.
//
//	| tail, 63 | windows, 56 | 63 more |
//
// Every second position is one for windows of eight, here as in the rest of the text: where the tail is
// odd, a byte that is no one's comes before it.
func (s *Set) scanEdge(tail, text []byte, l *list) int {
	var buf [1 + CarryOverLen + edge + CarryOverLen]byte
	tail = tail[max(0, len(tail)-CarryOverLen):]
	pad := len(tail) % 2
	n := pad + copy(buf[pad:], tail)
	from := min(len(text), edge)
	all := buf[:n+copy(buf[n:], text)]
	v := view{text: all, first: pad, skip: n}
	s.windows(&v, 0, n+from, l)
	return from
}

// view is a text to search windows in.
type view struct {
	text  []byte
	first int // where patterns may begin
	skip  int // behind which they end; ends count from there
}

// chunk is the number of positions that are filtered before candidates are looked at.
const chunk = 2048

// windows searches the patterns with anchors that begin in v.text[from:to]. from is even.
func (s *Set) windows(v *view, from, to int, l *list) {
	var masks [chunk / 64]uint64
	for ; from < to && !l.complete(from+MinLen-v.skip); from += chunk {
		end := min(from+chunk, to)
		some := masks[:(end-from+63)/64]
		s.pairs.candidates(v.text, from, end, some)
		s.search(v, from, some, l)
	}
}
