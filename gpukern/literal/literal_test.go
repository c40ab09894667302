package literal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomSet makes patterns over a small alphabet, so that they overlap.
func randomSet(r *rand.Rand, n int, alphabet string) []Pattern {
	set := make([]Pattern, n)
	for i := range set {
		size := 3 + r.IntN(8)
		if r.IntN(3) == 0 {
			size = 3 + r.IntN(62)
		}
		set[i] = Pattern{randomText(r, size, alphabet), r.IntN(2) == 0, 1 + r.Uint32N(20)}
	}
	return set
}

func randomText(r *rand.Rand, n int, alphabet string) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return b
}

func compile(t testing.TB, set []Pattern) *Set {
	t.Helper()
	s, err := Compile(set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agree fails the test unless s finds in text what the patterns' reference finds.
func agree(t testing.TB, s *Set, set []Pattern, tail, text []byte, limit int) (matches int) {
	t.Helper()
	got := s.Scan(tail, text, limit, nil)
	want := Reference(set).Scan(tail, text, limit, nil)
	if !slices.Equal(got, want) {
		t.Fatalf("%v in %q|%q, limit %d:\ngot  %v\nwant %v", set, tail, text, limit, got, want)
	}
	return len(want)
}

var alphabets = []string{"ab", "aA", "aAbB@`", "\x00 \x20a", "aB01\xff\xdf"}

func TestScanAsReference(t *testing.T) { forms(t, scanAsReference) }

func scanAsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for i := range 1000 {
		alphabet := alphabets[i%len(alphabets)]
		set := randomSet(r, 1+r.IntN(30), alphabet)
		text := randomText(r, r.IntN(400), alphabet)
		for range 3 { // some of the longer patterns, which chance would not bring
			p := set[r.IntN(len(set))].Bytes
			if r.IntN(2) == 0 {
				p = bytes.ToUpper(p)
			}
			text = slices.Insert(text, r.IntN(len(text)+1), p...)
		}
		cut := r.IntN(len(text) + 1)
		found += agree(t, compile(t, set), set, text[:cut], text[cut:], r.IntN(40))
	}
	if found < 3000 {
		t.Errorf("only %d matches: the test shows little", found)
	}
}

// TestReference pins the oracle itself on what can be seen by eye.
func TestReference(t *testing.T) {
	set := []Pattern{
		{[]byte("abc"), false, 2}, {[]byte("bc"), false, 9}, {[]byte("ABC"), true, 1}, {[]byte("zabc"), false, 2}, {[]byte("c@d"), true, 3},
	}
	for _, c := range []struct {
		tail, text string
		limit      int
		want       []Occurrence
	}{
		{"", "abc", 0, []Occurrence{{3, 1}, {3, 2}, {3, 9}}},
		{"", "abc", 3, []Occurrence{{3, 1}, {3, 2}, {3, 9}}},
		{"", "abc", 2, []Occurrence{{3, 1}, {3, 2}, {3, 0}}},
		{"", "Abc abc", 1, []Occurrence{{3, 1}, {3, 0}}},
		{"", "ABC abc", 1, []Occurrence{{3, 1}, {7, 0}}},
		{"ab", "c", 0, []Occurrence{{1, 1}, {1, 2}, {1, 9}}},
		{"abc", "", 0, nil},
		{"abc", "d", 0, nil},
		{"", "zabc", 0, []Occurrence{{4, 1}, {4, 2}, {4, 9}}},
		{"", "C@D c`d", 0, []Occurrence{{3, 3}}},
	} {
		if got := Reference(set).Scan([]byte(c.tail), []byte(c.text), c.limit, nil); !slices.Equal(got, c.want) {
			t.Errorf("%q|%q, limit %d: %v, want %v", c.tail, c.text, c.limit, got, c.want)
		}
	}
}

// TestPieces cuts texts in two at every place, and in pieces of one size: together they have what the whole
// text has.
func TestPieces(t *testing.T) { forms(t, piecesForm) }

func piecesForm(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 30 {
		set := randomSet(r, 20, alphabets[i%len(alphabets)])
		text := slices.Concat(randomText(r, 60, "ab"), set[0].Bytes, set[1].Bytes, set[2].Bytes, randomText(r, 120, alphabets[i%len(alphabets)]))
		s := compile(t, set)
		want := Reference(set).Scan(nil, text, 0, nil)
		for cut := range len(text) {
			if got := pieces(s, text, cut, len(text)); !slices.Equal(got, want) {
				t.Fatalf("%v in %q cut at %d:\ngot  %v\nwant %v", set, text, cut, got, want)
			}
			if size := cut%70 + 1; !slices.Equal(pieces(s, text, size, size), want) {
				t.Fatalf("%v in %q in pieces of %d", set, text, size)
			}
		}
	}
}

// pieces searches text in pieces, the first of which has its own size, and returns the matches in all.
func pieces(s *Set, text []byte, first, size int) (all []Occurrence) {
	for from, to := 0, first; from < len(text); from, to = to, min(to+size, len(text)) {
		base := len(all)
		all = s.Scan(text[:from], text[from:to], 0, all)
		for i := range all[base:] {
			all[base+i].End += uint32(from)
		}
	}
	return all
}

func TestScanAppends(t *testing.T) {
	s := compile(t, []Pattern{{[]byte("abc"), false, 7}})
	first := Occurrence{99, 99} // it would come behind
	got := s.Scan(nil, []byte("abcabcabc"), 2, []Occurrence{first})
	if want := []Occurrence{first, {3, 7}, {6, 7}, {9, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestScanOfNothing(t *testing.T) {
	empty := compile(t, nil)
	if got := empty.Scan(nil, []byte("abc"), 0, nil); got != nil || empty.Patterns() != 0 {
		t.Errorf("an empty set has %d patterns and finds %v", empty.Patterns(), got)
	}
	s := compile(t, []Pattern{{[]byte("abc"), false, 7}})
	if got := s.Scan([]byte("abc"), nil, 0, nil); got != nil {
		t.Errorf("an empty text has %v", got)
	}
	// What ends in the tail was told before, and a tail is not read beyond the longest pattern.
	if got := s.Scan([]byte(strings.Repeat("abc", 50)), []byte("x"), 0, nil); got != nil {
		t.Errorf("a tail has %v", got)
	}
}

func TestCompileRefuses(t *testing.T) {
	good := Pattern{[]byte("abc"), false, 1}
	for _, c := range []struct {
		set  []Pattern
		want string
	}{
		{[]Pattern{good, {[]byte("ab"), false, 1}}, "pattern 2: 2 bytes; the shortest has 3"},
		{[]Pattern{{make([]byte, 65), false, 1}}, "pattern 1: 65 bytes; the longest has 64"},
		{[]Pattern{good, good, {[]byte("abc"), false, 0}}, "pattern 3: rule 0 means none; count from 1"},
		{slices.Repeat([]Pattern{good}, MaxPatterns+1), "pattern 65537: a set has at most 65536 patterns"},
	} {
		s, err := Compile(c.set)
		if s != nil || err == nil || err.Error() != c.want || !errors.Is(err, ErrPattern) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if s := compile(t, slices.Repeat([]Pattern{good}, MaxPatterns)); s.Patterns() != 1 {
		t.Errorf("%d patterns, want 1: repetitions are dropped", s.Patterns())
	}
}

// TestRepetitions: only what is equal in all is dropped.
func TestRepetitions(t *testing.T) {
	set := []Pattern{
		{[]byte("abc"), false, 1},
		{[]byte("abc"), true, 1},
		{[]byte("ABC"), true, 1},
		{[]byte("abc"), false, 2},
		{[]byte("123"), false, 3},
		{[]byte("123"), true, 3},
	}
	s := compile(t, set)
	if s.Patterns() != 4 {
		t.Errorf("%d patterns, want 4", s.Patterns())
	}
	agree(t, s, set, nil, []byte("abc ABC aBc 123"), 0)
	slices.Reverse(set)
	agree(t, compile(t, set), set, nil, []byte("abc ABC aBc 123"), 0)
}

// TestCompileBorrows changes the patterns after Compile.
func TestCompileBorrows(t *testing.T) {
	b := []byte("abcabcabcabc")
	s := compile(t, []Pattern{{b, false, 1}})
	clear(b)
	if got := s.Scan(nil, []byte("abcabcabcabc"), 0, nil); !slices.Equal(got, []Occurrence{{12, 1}}) {
		t.Errorf("%v", got)
	}
}

func TestScanAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	s := compile(t, randomSet(r, 50, "ab"))
	text := randomText(r, 3000, "ab")
	out := make([]Occurrence, 0, 100)
	if n := testing.AllocsPerRun(10, func() { out = s.Scan(text[:70], text[70:], 50, out[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
