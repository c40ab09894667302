package regex

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func find(t *testing.T, expr string, flags Flags, text string) string {
	t.Helper()
	r, err := Compile(expr, flags)
	if err != nil {
		return err.Error()
	}
	var m Machine
	at, err := m.Find(r, []byte(text), 0)
	switch {
	case err != nil:
		return err.Error()
	case at == nil:
		return "-"
	}
	var s []string
	for i := 0; i < len(at); i += 2 {
		if at[i] < 0 {
			s = append(s, "?")
		} else {
			s = append(s, text[at[i]:at[i+1]])
		}
	}
	return strings.Join(s, ",")
}

// TestFindMatchesAsPCRE has facts of pcrepattern(3).
func TestFindMatchesAsPCRE(t *testing.T) {
	for _, c := range []struct {
		expr  string
		flags Flags
		text  string
		want  string // the match and its groups
	}{
		{"abc", 0, "xxabcabc", "abc"},
		{"ABC", NoCase, "xxaBc", "aBc"},
		{"a.c", 0, "a\nc abc", "abc"},
		{"a.c", DotAll, "a\nc abc", "a\nc"},
		{`a\Nc`, DotAll, "a\nc abc", "abc"},
		{"^b", 0, "a\nb", "-"},
		{"^b", MultiLine, "a\nb", "b"},
		{"a$", 0, "a\n", "a"},
		{"a$", DollarEnd, "a\n", "-"},
		{"a$", MultiLine, "a\nb", "a"},
		{`a\Z`, 0, "a\n", "a"},
		{`a\z`, 0, "a\n", "-"},
		{"a b # comment\n c", Extended, "abc", "abc"},
		{`a\ b[ ]c`, Extended, "a b c", "a b c"},
		{"b", Anchored, "ab", "-"},
		{"a+", Ungreedy, "aaa", "a"},
		{"a+?", Ungreedy, "aaa", "aaa"},
		{"<.+>", 0, "<a><b>", "<a><b>"},
		{"<.+?>", 0, "<a><b>", "<a>"},
		{"a*+a", 0, "aaaa", "-"},
		{"(?>a+)b", 0, "aaab", "aaab"},
		{"(?>a|ab)c", 0, "abc", "-"},
		{"(a|ab)(c|bcd)(d*)", 0, "abcd", "abcd,a,bcd,"},
		{`(sens|respons)e and \1ibility`, 0, "sense and responsibility, response and responsibility", "response and responsibility,respons"},
		{`(?i)(a)\1`, 0, "aA", "aA,a"},
		{`(a)(?-i)\1`, NoCase, "aA", "-"},
		{`(?P<q>['"]).*?(?P=q)`, 0, `say "it's"`, `"it's","`},
		{`(?<q>a)\k<q>\k{q}`, 0, "aaa", "aaa,a"},
		{`(a)(b)\g{-1}\g1`, 0, "abba", "abba,a,b"},
		{`\w+(?=;)`, 0, "a foo;", "foo"},
		{`foo(?!bar)`, 0, "foobar foobaz", "foo"},
		{`(?<=\d{3})foo`, 0, "12foo 999foo", "foo"},
		{`(?<!bar)foo`, 0, "barfoo bazfoo", "foo"},
		{`(?<=a|bcd)x`, 0, "cdx bcdx", "x"},
		{`(?<!a|bcd)x`, 0, "ax bcdx yx", "x"},
		{`(?=(a+))a*b\1`, 0, "baaabac", "aba,a"},
		{`\bfoo\b`, 0, "food foo", "foo"},
		{`\Bo`, 0, "o fo", "o"},
		{`[^a-c\d]+`, 0, "a1xyz2", "xyz"},
		{`[]a]+`, 0, "x]a]", "]a]"},
		{`[^]a]`, 0, "]ab", "b"},
		{`[a\-z]+`, 0, "b-az", "-az"},
		{`[\w-]+`, 0, "!a-b", "a-b"},
		{`[[:alpha:]]+[[:^digit:]]`, 0, "1ab2c!", "ab"},
		{`\x41\x{42}\103\t`, 0, "ABC\t", "ABC\t"},
		{`\xff`, 0, "\xc3\xbf\xff", "\xff"},
		{`\xe9`, NoCase, "\xc9", "-"}, // only ASCII has cases
		{`^.{2}$`, 0, "\xc3\xa9", "\xc3\xa9"},
		{`\Qa.b\E+`, 0, "a.bb", "a.bb"},
		{`a{2,3}`, 0, "aaaa", "aaa"},
		{`a{,3}`, 0, "a{,3}", "a{,3}"},
		{`(ab){2}`, 0, "ababab", "abab,ab"},
		{`(a|b)*?c`, 0, "abc", "abc,b"},
		{`(?:a(?i)b|c)d`, 0, "aBd Cd", "aBd"},
		{`(?i:a)b`, 0, "Ab AB", "Ab"},
		{`a(?#comment)b`, 0, "ab", "ab"},
		{`a\Rb`, 0, "a\r\nb", "a\r\nb"},
		{`|a`, 0, "a", ""},
		{`x?`, 0, "", ""},
	} {
		if got := find(t, c.expr, c.flags, c.text); got != c.want {
			t.Errorf("/%s/ on %q: %q, want %q", c.expr, c.text, got, c.want)
		}
	}
}

func TestCompileReportsWhatIsWrong(t *testing.T) {
	for _, expr := range []string{"(", "a)", "[a", "*a", "a{2,1}", `\`, `\1`, "(?<n>a", "[z-a]", "[[:nope:]]", `\q`, "a**+?{99999}"} {
		_, err := Compile(expr, 0)
		if s := new(SyntaxError); !errors.As(err, &s) {
			t.Errorf("/%s/: %v, want a SyntaxError", expr, err)
		}
	}
	for _, expr := range []string{"(?R)", "(?1)", "(?(1)a|b)", `\p{L}`, `\x{100}`, "(*UTF8)a", "(?<=a+)b", `\Ka`, "((((a{999}){999}){999}){999})"} {
		_, err := Compile(expr, 0)
		if u := new(UnsupportedError); !errors.As(err, &u) {
			t.Errorf("/%s/: %v, want an UnsupportedError", expr, err)
		}
	}
}

// TestFindIsBounded searches what takes a backtracking matcher exponential time.
func TestFindIsBounded(t *testing.T) {
	text := strings.Repeat("a", 5000) + "b"
	for _, expr := range []string{`(a+)+$`, `(a|aa)+$`, `^(([a-z])+.)+[A-Z]([a-z])+$`, `.*.*.*x`, `(\w+\s?)+$!`} {
		if got := find(t, expr, 0, text); got != "-" {
			t.Errorf("/%s/: %.20q, want no match", expr, got)
		}
	}
	if got := find(t, `(a+)+b`, 0, text); !strings.HasSuffix(strings.Split(got, ",")[0], "ab") {
		t.Errorf("a match that is there was not found: %.20q", got)
	}
	if got := find(t, `(a+)+\1c$`, 0, text); got != ErrSteps.Error() {
		t.Errorf("with a back-reference: %.20q, want ErrSteps", got)
	}
}

// TestFindAgreesWithRegexp compares with Go's regexp, which prefers the same match, on random expressions.
func TestFindAgreesWithRegexp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var plain, linear Machine
	linear.Steps = 1 // every search becomes linear
	compared := 0
	for range 20000 {
		expr := randomExpr(rng, 3)
		want, err := regexp.Compile(expr)
		if err != nil {
			continue
		}
		r, err := Compile(expr, 0)
		if err != nil {
			t.Fatalf("/%s/: %v", expr, err)
		}
		text := make([]byte, rng.IntN(12))
		for i := range text {
			text[i] = "abc\n"[rng.IntN(4)]
		}
		loc := want.FindIndex(text)
		for name, m := range map[string]*Machine{"plain": &plain, "linear": &linear} {
			got, err := m.Find(r, text, 0)
			if err != nil && !r.linear {
				continue
			}
			same := (got == nil) == (loc == nil)
			if same && got != nil && !emptyRepeats(t, expr) {
				same = got[0] == loc[0] && got[1] == loc[1]
			}
			if err != nil || !same {
				t.Fatalf("%s: /%s/ on %q: %v %v, want %v", name, expr, text, got, err, loc)
			}
			compared++
		}
	}
	if compared < 20000 {
		t.Errorf("compared only %d", compared)
	}
}

// emptyRepeats reports whether expr repeats what may be empty: there PCRE ends the repetition, and Go's regexp
// tries what is not empty first.
func emptyRepeats(t *testing.T, expr string) bool {
	p := &parser{s: expr, names: map[string]int{}}
	n, err := p.parse()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n *node) bool
	walk = func(n *node) bool {
		if n.kind == nodeRepeat && firstOf(n.kids[0], &set{}) {
			return true
		}
		return slices.ContainsFunc(n.kids, walk)
	}
	return walk(n)
}

func randomExpr(rng *rand.Rand, depth int) string {
	var s strings.Builder
	for range 1 + rng.IntN(3) {
		switch n := rng.IntN(9); {
		case n < 3 || depth == 0:
			s.WriteString([]string{"a", "b", "c", ".", "[ab]", "[^a]", "[a-b]", `\s`, `\n`}[rng.IntN(9)])
		case n == 3:
			s.WriteString([]string{"^", "(?m:$)", `\b`, `\B`, `\z`, "(?m:^a)"}[rng.IntN(6)])
			continue
		case n < 6:
			fmt.Fprintf(&s, "(%s)", randomExpr(rng, depth-1))
		case n == 6:
			fmt.Fprintf(&s, "(?:%s|%s)", randomExpr(rng, depth-1), randomExpr(rng, depth-1))
		default:
			fmt.Fprintf(&s, "(?:%s)", randomExpr(rng, depth-1))
		}
		s.WriteString([]string{"", "", "", "*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{0,2}?"}[rng.IntN(11)])
	}
	return s.String()
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{`a(b|c)*\1(?=x)[^\d]{2,5}+`, `(?i)\x41[[:alpha:]-z](?<=a|bc)(?>x)`, `\Qa\E(?P<n>.)\k<n>`, "(a*)*$"} {
		f.Add(s, "aaabbb\n", byte(0))
	}
	f.Fuzz(func(t *testing.T, expr, text string, flags byte) {
		r, err := Compile(expr, Flags(flags))
		if err != nil {
			return
		}
		m := Machine{Steps: 2000}
		if len(text) > 300 {
			text = text[:300]
		}
		at, err := m.Find(r, []byte(text), 0)
		if err == nil && at != nil && (at[0] < 0 || at[1] < at[0] || at[1] > len(text)) {
			t.Fatalf("match %v in %d bytes", at, len(text))
		}
		if r.linear && err == nil { // the linear search finds the same
			was := append([]int(nil), at...)
			again := Machine{Steps: 1}
			got, err := again.Find(r, []byte(text), 0)
			if err == nil && ((got == nil) != (at == nil) || got != nil && (got[0] != was[0] || got[1] != was[1])) {
				t.Fatalf("/%s/ on %q: %v, linear %v", expr, text, was, got)
			}
		}
	})
}
