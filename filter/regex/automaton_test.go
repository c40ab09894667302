package regex

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/gpukern/expression"
)

// automatonOf compiles an expression to an automaton; nil where there is none.
func automatonOf(t *testing.T, expr string, flags Flags) (*Regex, *expression.Set) {
	t.Helper()
	r, err := Compile(expr, flags)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	p, ok := r.Program()
	if !ok {
		return r, nil
	}
	s, err := expression.Compile([]expression.Pattern{{Program: p, Rule: 1}})
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	if len(s.Refused()) > 0 {
		return r, nil
	}
	return r, s
}

// agrees compares the automaton with the matcher on a text.
func agrees(t *testing.T, m *Machine, r *Regex, s *expression.Set, expr string, text []byte) bool {
	t.Helper()
	stream := s.NewStream()
	hits := s.Finish(stream, 0, s.Scan(text, stream, nil))
	found, err := m.Find(r, text, 0)
	if err != nil {
		return false
	}
	if (len(hits) > 0) != (found != nil) {
		t.Fatalf("/%s/ in %q: the automaton finds %v, the matcher %v", expr, text, hits, found)
	}
	return found != nil
}

// TestAutomataMatchWhatTheMatcherMatches generates expressions with everything that the matcher has, texts of any bytes.
func TestAutomataMatchWhatTheMatcherMatches(t *testing.T) {
	m, found, none := new(Machine), 0, 0
	for seed := range uint64(1500) {
		g := rand.New(rand.NewPCG(seed, 4))
		var make func(depth int) string
		make = func(depth int) string {
			atom := [...]string{"a", "b", `\x80`, "[^a]", ".", `\w`, `\s`, `[\x00-\x7f]`, "ab", `\d`}[g.IntN(10)]
			if depth == 0 {
				return atom
			}
			switch g.IntN(11) {
			case 0, 1:
				return make(depth-1) + make(depth-1)
			case 2:
				return "(" + make(depth-1) + "|" + make(depth-1) + ")"
			case 3:
				return "(?:" + make(depth-1) + ")" + [...]string{"*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?"}[g.IntN(7)]
			case 4:
				return atom + [...]string{"*", "+", "{3}", "{1,2}", "{2,}", "+?"}[g.IntN(6)]
			case 5:
				return [...]string{"^", `\b`, `\B`, `\A`}[g.IntN(4)] + make(depth-1)
			case 6:
				return make(depth-1) + [...]string{"$", `\z`, `\Z`, `\b`}[g.IntN(4)]
			case 7:
				return [...]string{"(?=a)", "(?!b)", "(?>a+)", `(a)\1`, "a++"}[g.IntN(5)] + make(depth-1)
			}
			return make(depth - 1)
		}
		expr, flags := make(4), Flags(g.IntN(int(Ungreedy)*2))&^Extended
		r, s := automatonOf(t, expr, flags)
		if s == nil {
			none++
			continue
		}
		for range 8 {
			text := []byte{}
			for range g.IntN(12) {
				text = append(text, "aab\n\x80 7B_\x00"[g.IntN(10)])
			}
			if agrees(t, m, r, s, fmt.Sprint(expr, " ", flags), text) {
				found++
			}
		}
	}
	if found < 2000 || none < 100 || none > 800 {
		t.Errorf("%d matches, %d expressions without an automaton", found, none)
	}
}

// TestALineBeginsBehindALineFeedThatEndsNoText: PCRE has no line behind the last line feed, unlike RE2.
func TestALineBeginsBehindALineFeedThatEndsNoText(t *testing.T) {
	r, s := automatonOf(t, `b\n^`, MultiLine)
	m := new(Machine)
	for text, want := range map[string]bool{"b\n": false, "b\nx": true, "ab\n\n": true, "b": false} {
		if got := agrees(t, m, r, s, "b\\n^", []byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestWhatHasNoAutomaton(t *testing.T) {
	for _, expr := range []string{`(a)\1`, "a(?=b)", "(?<!a)b", "(?>a|ab)c", "a++b", `\Ga`, "a{5000}"} {
		if r, err := Compile(expr, 0); err != nil {
			t.Errorf("%s: %v", expr, err)
		} else if _, ok := r.Program(); ok {
			t.Errorf("%s has an automaton", expr)
		}
	}
}
