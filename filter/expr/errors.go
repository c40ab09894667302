package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/suggest"
)

// Error is a mistake in an expression.
type Error struct {
	Text   string // the whole expression
	Offset int    // of the first byte that is wrong; len(Text) where the text ends too early
	Length int    // in bytes, at least 1 but at the end of the text
	Reason string // what is wrong, and what was expected
}

// Error returns the reason with the column, which counts bytes from 1.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Offset+1, e.Reason) }

// Excerpt returns the expression and, below it, marks under the bytes that are wrong.
func (e *Error) Excerpt() string {
	// A tab in front of the mark has to stay one for the columns to agree.
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, e.Text[:e.Offset])
	return e.Text + "\n" + pad + strings.Repeat("^", max(e.Length, 1))
}

func errorAt(pos, length int, format string, args ...any) error {
	return &Error{Offset: pos, Length: length, Reason: fmt.Sprintf(format, args...)}
}

// describe says what l is, for texts of errors.
func (l lexeme) describe() string {
	if l.tok == tokEnd {
		return "the end of the expression"
	}
	return fmt.Sprintf("%q", l.text)
}

// unexpected reports l where want was expected. A name near to a keyword is taken for a misspelt one.
func unexpected(l lexeme, want string) error {
	hint := ""
	if l.tok == tokName {
		if s := nearestKeyword(l.text); s != "" {
			hint = fmt.Sprintf("; did you mean %q?", s)
		}
	}
	return errorAt(l.pos, len(l.text), "found %s, expected %s%s", l.describe(), want, hint)
}

// frequent are the keywords that are preferred among equally near ones.
var frequent = []string{"tcp", "udp", "ip", "ip6", "icmp", "arp", "ether", "host", "net", "port", "src", "dst", "and", "or", "not"}

func nearestKeyword(s string) string {
	words := append(make([]string, 0, len(keywords)+len(frequent)), frequent...)
	for w := range keywords {
		words = append(words, w)
	}
	slices.Sort(words[len(frequent):]) // of several at one distance always the same one is taken
	return suggest.Nearest(s, 1+len(s)/5, words...)
}
