package filter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/excerpt"
)

// notText returns the one error of a text that should have some kind of lines and is none; nil if it may have them.
func notText(name, text, kind string) *SyntaxError {
	line, column, found := excerpt.Binary(text)
	if !found {
		return nil
	}
	return &SyntaxError{Name: name, Line: line, Column: column, Msg: excerpt.NotText + kind}
}

// lines takes a text apart, line by line: each that is not empty without its comment goes to read, whose
// error is about the word that the parser read last. what names the entries of the text, uncomment takes the
// comment from a line.
//
// All mistakes are returned at once, joined, up to maxMistakes; each is a *SyntaxError.
func lines(name, text, what string, uncomment func(string) string, read func(p *parser, line int, source string) error) error {
	if len(text) > MaxText {
		return fmt.Errorf("%s: %w: %d bytes of %s, at most %d are read", name, ErrSyntax, len(text), what, MaxText)
	}
	if e := notText(name, text, what); e != nil {
		return e
	}
	var wrong []error
	line := 0
	for source := range strings.Lines(text) {
		line++
		source = strings.TrimRight(source, "\r\n")
		code := uncomment(source)
		if strings.TrimSpace(code) == "" {
			continue
		}
		p := &parser{rest: code, size: len(code)}
		if err := read(p, line, source); err != nil {
			wrong = append(wrong, &SyntaxError{Name: name, Line: line, Column: p.at + 1, Source: source, Msg: err.Error()})
			if len(wrong) == maxMistakes {
				break
			}
		}
	}
	return errors.Join(wrong...)
}
