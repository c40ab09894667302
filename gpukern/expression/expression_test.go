package expression

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// programOf compiles an expression of RE2's syntax for texts of ASCII: package regexp/syntax parses it, so that the oracle and
// the automaton agree on what the expression is.
func programOf(t testing.TB, expr string) Program {
	t.Helper()
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	p := Program{{Op: Jump, X: int32(prog.Start) + 1}}
	for i := range prog.Inst {
		in := &prog.Inst[i]
		to := Inst{Op: Jump, X: int32(in.Out) + 1}
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			to.Op, to.Y = Split, int32(in.Arg)+1
		case syntax.InstMatch:
			to = Inst{Op: Match}
		case syntax.InstFail:
			to = Inst{Op: Fail}
		case syntax.InstEmptyWidth:
			to.Op = map[syntax.EmptyOp]Op{
				syntax.EmptyBeginText: Begin, syntax.EmptyEndText: End, syntax.EmptyBeginLine: LineBegin, syntax.EmptyEndLine: LineEnd,
				syntax.EmptyWordBoundary: WordEdge, syntax.EmptyNoWordBoundary: NoWordEdge,
			}[syntax.EmptyOp(in.Arg)]
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			to.Op = Byte
			for c := range rune(0x80) {
				if in.MatchRune(c) {
					to.Set.Add(byte(c))
				}
			}
		}
		p = append(p, to)
	}
	return p
}

func compile(t testing.TB, exprs ...string) *Set {
	t.Helper()
	var list []Pattern
	for i, e := range exprs {
		list = append(list, Pattern{programOf(t, e), uint32(i + 1)})
	}
	s, err := Compile(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oracle returns where each expression first ends in a text, by package regexp: the shortest beginning of the text that has a
// match. What the bytes behind it mean to \b, $ and ^ is seen by a search of the whole text for an expression with a mark there.
func oracle(t testing.TB, exprs []string, text []byte) (hits []Hit) {
	for i, e := range exprs {
		for end := range len(text) + 1 {
			if endsAt(t, e, text, end) {
				hits = append(hits, Hit{End: uint32(end), Rule: uint32(i + 1)})
				break
			}
		}
	}
	sortHits(hits)
	return hits
}

// endsAt reports whether a match of e ends at a place of text: e and then exactly the rest.
func endsAt(t testing.TB, e string, text []byte, end int) bool {
	rest := len(text) - end
	re, err := regexp.Compile(fmt.Sprintf(`(?:%s)(?s:.{%d})\z`, e, rest))
	if err != nil {
		t.Fatal(err)
	}
	return re.Match(text)
}

// maker makes expressions and texts of few letters, so that they meet.
type maker struct{ *rand.Rand }

func (g maker) expr(depth int) string {
	atom := func() string {
		return [...]string{"a", "b", "c", "ab", "[ab]", "[^a]", ".", `\w`, `\W`, " ", `\n`, "(?i:B)", "_"}[g.IntN(13)]
	}
	if depth == 0 {
		return atom()
	}
	switch g.IntN(12) {
	case 0, 1, 2:
		return g.expr(depth-1) + g.expr(depth-1)
	case 3:
		return "(?:" + g.expr(depth-1) + "|" + g.expr(depth-1) + ")"
	case 4:
		return "(?:" + g.expr(depth-1) + ")" + [...]string{"*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"}[g.IntN(7)]
	case 5:
		return atom() + [...]string{"*", "+", "{3}", "{0,2}"}[g.IntN(4)]
	case 6:
		return [...]string{"^", `\A`, "(?m:^)", `\b`, `\B`}[g.IntN(5)] + g.expr(depth-1)
	case 7:
		return g.expr(depth-1) + [...]string{`\z`, "(?m:$)", `\b`, `\B`}[g.IntN(4)]
	}
	return g.expr(depth - 1)
}

func (g maker) text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "aaabbbc \n_B-"[g.IntN(12)]
	}
	return b
}

// whole searches a text in one piece.
func whole(s *Set, text []byte) []Hit {
	t := s.NewStream()
	hits := s.Scan(text, t, nil)
	return append(hits, s.Finish(t, len(text), nil)...)
}

func TestAutomataFindWhatRegexpFinds(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		g := maker{rand.New(rand.NewPCG(seed, 1))}
		var exprs []string
		for range 1 + g.IntN(9) {
			exprs = append(exprs, g.expr(3))
		}
		s := compile(t, exprs...)
		for range 6 {
			text := g.text(g.IntN(14))
			got, want := whole(s, text), oracle(t, exprs, text)
			got = slices.DeleteFunc(got, func(h Hit) bool { return slices.Contains(s.Refused(), h.Rule) })
			want = slices.DeleteFunc(want, func(h Hit) bool { return slices.Contains(s.Refused(), h.Rule) })
			if !slices.Equal(got, want) {
				t.Fatalf("%q in %q: %v, want %v", exprs, text, got, want)
			}
			found += len(got)
		}
	}
	if found < 3000 {
		t.Errorf("only %d matches", found)
	}
}

// TestCutsChangeNothing: pieces of any length, also none, find what one text finds.
func TestCutsChangeNothing(t *testing.T) {
	for seed := range uint64(200) {
		g := maker{rand.New(rand.NewPCG(seed, 2))}
		var exprs []string
		for range 9 {
			exprs = append(exprs, g.expr(3))
		}
		s := compile(t, exprs...)
		text := g.text(40)
		want := whole(s, text)
		stream := s.NewStream()
		var got []Hit
		at, size := 0, 0
		for at < len(text) {
			size = g.IntN(min(7, len(text)-at+1))
			for _, h := range s.Scan(text[at:at+size], stream, nil) {
				got = append(got, Hit{End: h.End + uint32(at), Rule: h.Rule})
			}
			at += size
		}
		for _, h := range s.Finish(stream, size, nil) {
			got = append(got, Hit{End: h.End + uint32(at-size), Rule: h.Rule})
		}
		sortHits(got)
		if sortHits(want); !slices.Equal(got, want) {
			t.Fatalf("%q in %q: %v in pieces, %v in one", exprs, text, got, want)
		}
	}
}

// sparse returns a long text of one byte and some words.
func (g maker) sparse(words []string) []byte {
	b := bytes.Repeat([]byte{"--a\n"[g.IntN(4)]}, g.IntN([...]int{1200, 12000}[g.IntN(2)]))
	for range g.IntN(9) {
		w := words[g.IntN(len(words))]
		copy(b[g.IntN(len(b)+1):], w[:1+g.IntN(len(w))]+[...]string{"", " ", "a", "\n"}[g.IntN(4)])
	}
	return b
}

// TestSleepingChangesNothing compares filtered automata with the same that see everything, on streams of long pieces with few
// beginnings of matches, cut anywhere.
func TestSleepingChangesNothing(t *testing.T) {
	words := []string{"kqkq", "zkqabab", "xKQzxkq", "qzqz--kkkq", "zzzzq", "kqa", "jjjj.jjjj", "wwwwa\nwwww"}
	found, asleep := 0, 0
	for seed := range uint64(300) {
		g := maker{rand.New(rand.NewPCG(seed, 3))}
		exprs := []string{"kqkq", "..kqab", `\bkqab`, "(?m:^wwww)", "(?i:xkqzx).*q", "zzzz.*kq", "[ab]?.{3}qzqz", `kq\w+b`, "(?:jjjj|wwww)+a", "a.*kqkq", `qzqz(?m:$)`, "zkq+ab*a"}
		g.Shuffle(len(exprs), func(i, j int) { exprs[i], exprs[j] = exprs[j], exprs[i] })
		exprs = exprs[:1+g.IntN(len(exprs))]
		var list []Pattern
		for i, e := range exprs {
			list = append(list, Pattern{programOf(t, e), uint32(i + 1)})
		}
		s, awake := compile(t, exprs...), must(CompileUnfiltered(list))(t)
		asleep += s.Filtered()
		mine, theirs := s.NewStream(), awake.NewStream()
		for last := false; !last; {
			text := g.sparse(words)
			last = g.IntN(4) == 0
			got := s.ScanPieces([]Piece{{Bytes: text, Stream: mine, Ends: last}}, nil)
			want := awake.ScanPieces([]Piece{{Bytes: text, Stream: theirs, Ends: last}}, nil)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q in %q: %v, want %v", seed, exprs, text, got, want)
			}
			found += len(got)
		}
	}
	if found < 400 || asleep < 250 {
		t.Errorf("%d matches, %d filtered automata", found, asleep)
	}
}

// TestSleepersWakeAtTheEndOfAPiece cuts a match anywhere, behind pieces of all lengths.
func TestSleepersWakeAtTheEndOfAPiece(t *testing.T) {
	const match = "abkqab"
	s := compile(t, "..kqab")
	if s.Filtered() != 1 {
		t.Fatal("the automaton is not filtered")
	}
	for size := range 300 {
		for cut := 1; cut < len(match); cut++ {
			stream := s.NewStream()
			first := s.ScanPieces([]Piece{{Bytes: append(bytes.Repeat([]byte{'-'}, size), match[:cut]...), Stream: stream}}, nil)
			hits := s.ScanPieces([]Piece{{Bytes: []byte(match[cut:]), Stream: stream, Ends: true}}, first)
			if want := (Hit{End: uint32(len(match) - cut), Rule: 1}); len(hits) != 1 || hits[0] != want {
				t.Fatalf("cut behind %d dashes and %q: %v, want %v", size, match[:cut], hits, want)
			}
		}
	}
}

// TestSleepersKnowTheByteBefore: what stands in front of the block that an automaton wakes up in decides on the edge of a word.
func TestSleepersKnowTheByteBefore(t *testing.T) {
	s := compile(t, `\bkqab`)
	for size := BlockBytes; size < 4*BlockBytes; size += BlockBytes / 2 {
		for before, want := range map[byte]int{'-': 1, 'a': 0} {
			text := append(bytes.Repeat([]byte{before}, size), "kqab"...)
			if hits := s.ScanPieces([]Piece{{Bytes: text, Stream: s.NewStream(), Ends: true}}, nil); len(hits) != want {
				t.Errorf("behind %d times %q: %v", size, before, hits)
			}
		}
	}
}

// must returns what f returned without an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestFactors names the literals that each match of an expression has, and where.
func TestFactors(t *testing.T) {
	gram := func(s string) uint32 {
		return fold(uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24)
	}
	for expr, want := range map[string]factor{
		"abcd":               {0, []uint32{gram("abcd")}},
		"abcdkqzx":           {0, []uint32{gram("abcd")}},
		".kqzx":              {1, []uint32{gram("kqzx")}},
		"(?:kqzx|jqzx)a":     {1, []uint32{gram("qzxa")}},
		"(?:kqzx|jqzy)":      {0, []uint32{gram("jqzy"), gram("kqzx")}},
		"a*kqzx":             {0, []uint32{gram("aaaa"), gram("aaak"), gram("aakq"), gram("akqz"), gram("kqzx")}},
		"KQ[zx]{2}":          {0, []uint32{gram("kqxx"), gram("kqzx"), gram("kqxz"), gram("kqzz")}},
		`\bkq\x00\x7f`:       {0, []uint32{gram("kq\x20\x7f")}},
		"[^a]{3}(?i:kqzx)b*": {3, []uint32{gram("kqzx")}},
	} {
		f, ok := programOf(t, expr).factor()
		if slices.Sort(want.grams); !ok || f.at != want.at || !slices.Equal(f.grams, want.grams) {
			t.Errorf("%s: %+v, %v; want %+v", expr, f, ok, want)
		}
	}
	for _, expr := range []string{"abc", "ab.*d", "(?:abcd)?", "[a-z]{4}", "abc|kqzxy", ".{36}kqzx", ".*kqzx", ""} {
		if f, ok := programOf(t, expr).factor(); ok {
			t.Errorf("%s: %+v", expr, f)
		}
	}
	for expr, want := range map[string]bool{"^a": true, "(?:^a|^b)": true, "^": true, "(?:^a|b)": false, "(?m:^a)": false, "a^": false, `\b^a`: true} {
		if got := programOf(t, expr).anchored(); got != want {
			t.Errorf("%s is anchored: %v", expr, got)
		}
	}
}

// TestWhatCannotBeFoundIsDead: an automaton whose expressions were found, or can no longer be, reads no further.
func TestWhatCannotBeFoundIsDead(t *testing.T) {
	for expr, text := range map[string]string{"^ab": "b", "^a.c": "abb", "ab": "-ab-", "^a|b": "b-", "[^-]{3}": "ab"} {
		s := compile(t, expr)
		stream := s.NewStream()
		s.Scan([]byte(text), stream, nil)
		if dead, want := stream.Rows[0] == 0, expr != "[^-]{3}"; dead != want {
			t.Errorf("%s behind %q: row %d", expr, text, stream.Rows[0])
		}
	}
}

func TestHitsAreSorted(t *testing.T) {
	for _, scale := range []uint32{1, 1 << 20} { // those that are far apart are compared, not counted
		g := rand.New(rand.NewPCG(9, 9))
		var list []Hit
		for range 500 {
			list = append(list, Hit{Text: uint32(g.IntN(9)), End: scale * uint32(g.IntN(5)), Rule: uint32(g.IntN(5))})
		}
		want := slices.Clone(list)
		slices.SortFunc(want, func(a, b Hit) int {
			return cmp.Or(cmp.Compare(a.Text, b.Text), cmp.Compare(a.End, b.End), cmp.Compare(a.Rule, b.Rule))
		})
		if SortHits(list, 9); !slices.Equal(list, want) {
			t.Errorf("%v, want %v", list, want)
		}
	}
}

// TestWhatExplodesIsRefused: an automaton that remembers which of the last 20 bytes were an "a" has 2^20 states.
func TestWhatExplodesIsRefused(t *testing.T) {
	s := compile(t, "abc", "a.{20}b", "b[^b]{2}c")
	if !slices.Equal(s.Refused(), []uint32{2}) || s.Len() != 2 {
		t.Fatalf("%d expressions, refused %v", s.Len(), s.Refused())
	}
	if got := whole(s, []byte("..abc.")); !slices.Equal(got, []Hit{{End: 5, Rule: 1}}) {
		t.Errorf("%v", got)
	}
}

// TestExpressionsShareAnAutomatonWhileItIsSmall: a hundred words have few groups, and those that multiply have their own.
func TestExpressionsShareAnAutomatonWhileItIsSmall(t *testing.T) {
	var words, dots []string
	for i := range 100 {
		words = append(words, fmt.Sprintf("w%03d", i))
		dots = append(dots, fmt.Sprintf("%c%c.*%c", 'a'+i%26, 'a'+i/26, 'a'+i%7))
	}
	if s := compile(t, words...); s.Groups() > 4 || s.Len() != 100 {
		t.Errorf("%d words have %d automata", s.Len(), s.Groups())
	}
	s := compile(t, dots...)
	if s.Groups() < 12 || s.Len() != 100 || s.Size() > 100*2*MaxTable {
		t.Errorf("%d expressions have %d automata of %d bytes", s.Len(), s.Groups(), s.Size())
	}
	for i := range s.groups {
		if g := &s.groups[i]; len(g.rules) > 1 && len(g.next) > groupTable {
			t.Errorf("%d expressions share a table of %d words", len(g.rules), len(g.next))
		}
	}
}

// TestTheLastLineFeed is about "$" as PCRE has it: at the end, or before a line feed that ends the text.
func TestTheLastLineFeed(t *testing.T) {
	ab := Program{{Op: Byte, Set: single('a'), X: 1}, {Op: FinalNewline, X: 2}, {Op: Match}}
	s, err := Compile([]Pattern{{ab, 7}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]Hit{
		"ba": {{End: 2, Rule: 7}}, "ba\n": {{End: 3, Rule: 7}}, "ba\n\n": nil, "ba\nb": nil, "ab": nil, "": nil,
	} {
		if got := whole(s, []byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	more := append(slices.Clone(ab[:2]), Inst{Op: Byte, Set: newline, X: 3}, Inst{Op: Match})
	more[1].X = 2
	if s, err := Compile([]Pattern{{more, 8}}); err != nil || !slices.Equal(s.Refused(), []uint32{8}) {
		t.Errorf("what reads behind a last line feed is not refused: %v, %v", s, err)
	}
}

func single(c byte) (s ByteSet) { s.Add(c); return s }

func TestProgramsThatAreNoneAreRefused(t *testing.T) {
	for _, p := range []Program{nil, {{Op: ops}}, {{Op: Jump, X: 1}}, {{Op: Split, X: 0, Y: -1}}} {
		if _, err := Compile([]Pattern{{p, 1}}); err == nil {
			t.Errorf("%v compiles", p)
		}
	}
	if _, err := Compile(make([]Pattern, MaxPatterns+1)); err == nil {
		t.Error("too many expressions compile")
	}
	var none *Set
	if none.Groups() != 0 || none.Len() != 0 || none.Size() != 0 || len(none.Image().Parts) != 0 {
		t.Error("no set has something")
	}
}

// FuzzScan compares with package regexp, texts of any ASCII.
func FuzzScan(f *testing.F) {
	f.Add("a(b|c)*d", "xacbd", uint8(2))
	f.Add(`\bfoo\B`, "food foo", uint8(3))
	f.Add("(?m:^a$)", "b\na\nb", uint8(1))
	f.Fuzz(func(t *testing.T, expr, text string, cut uint8) {
		if len(expr) > 40 || len(text) > 40 || strings.ContainsFunc(expr+text, func(r rune) bool { return r >= 0x80 }) {
			return
		}
		if re, err := syntax.Parse(expr, syntax.Perl); err != nil || re.MaxCap() > 20 {
			return
		}
		if _, err := regexp.Compile(fmt.Sprintf(`(?:%s)(?s:.{%d})\z`, expr, len(text))); err != nil {
			return
		}
		if strings.Contains(expr, "(?") && strings.Contains(expr, "i") || strings.ContainsAny(expr, `\p`) {
			return // folds to letters beyond ASCII; classes of Unicode
		}
		if strings.Contains(expr, "m") && strings.Contains(expr, "^") && strings.HasSuffix(text, "\n") {
			return // RE2 has a line behind the last line feed, PCRE has none
		}
		s, err := Compile([]Pattern{{programOf(t, expr), 1}})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Refused()) > 0 {
			return
		}
		at := min(int(cut), len(text))
		stream := s.NewStream()
		got := s.Scan([]byte(text[:at]), stream, nil)
		for _, h := range append(s.Scan([]byte(text[at:]), stream, nil), s.Finish(stream, len(text)-at, nil)...) {
			got = append(got, Hit{End: h.End + uint32(at), Rule: h.Rule})
		}
		if want := oracle(t, []string{expr}, []byte(text)); !slices.Equal(got, want) {
			t.Fatalf("%q in %q, cut at %d: %v, want %v", expr, text, at, got, want)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	g := maker{rand.New(rand.NewPCG(1, 1))}
	text := bytes.Repeat(g.text(1024), 4)
	for _, n := range []int{10, 100, 1000} {
		var exprs []string
		for i := range n {
			exprs = append(exprs, fmt.Sprintf("user%03d=[a-z]+&x%d", i, i%10))
		}
		s := compile(b, exprs...)
		b.Run(fmt.Sprintf("%d/groups=%d", n, s.Groups()), func(b *testing.B) {
			stream := s.NewStream()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s.Scan(text, stream, nil)
			}
		})
	}
}
