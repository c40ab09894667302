package script

import (
	"fmt"
	"strings"
)

// kind of a token.
type kind uint8

const (
	tokEnd     kind = iota
	tokWord         // letters, digits, _ and . that begin with a letter
	tokNumber       // digits, with . or 0x
	tokString       // without its quotes
	tokCommand      // between backquotes
	tokCode         // between %{ and }%
	tokMark         // anything else: one character, or "..." or "--"
)

// token is a word of a script.
type token struct {
	kind  kind
	text  string
	pos   Pos
	first bool // of its line
	glued bool // follows the token before without space
}

// lexer cuts a script into tokens.
type lexer struct {
	name string
	text string
	at   int
	pos  Pos
	line int // of the last token
}

func (x *lexer) fail(pos Pos, format string, args ...any) *Error {
	return &Error{x.name, pos, fmt.Sprintf(format, args...)}
}

// move passes over n bytes.
func (x *lexer) move(n int) {
	for _, c := range []byte(x.text[x.at : x.at+n]) {
		x.pos.Column++
		if c == '\n' {
			x.pos = Pos{x.pos.Line + 1, 1}
		}
	}
	x.at += n
}

// blank passes over white space and comments.
func (x *lexer) blank() error {
	for x.at < len(x.text) {
		rest := x.text[x.at:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || rest[0] == '\n':
			x.move(1)
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			x.move(n)
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest, "*/")
			if n < 0 {
				return x.fail(x.pos, "comment without end")
			}
			x.move(n + 2)
		default:
			return nil
		}
	}
	return nil
}

// next returns the next token.
func (x *lexer) next() (token, error) {
	before := x.at
	if err := x.blank(); err != nil {
		return token{}, err
	}
	t := token{pos: x.pos, first: x.pos.Line != x.line, glued: x.at == before}
	x.line = x.pos.Line
	if x.at == len(x.text) {
		return t, nil
	}
	rest := x.text[x.at:]
	var skip, n int
	switch c := rest[0]; {
	case c == '"':
		t.kind, skip, n = tokString, 1, strings.IndexByte(rest[1:], '"')
	case c == '`':
		t.kind, skip, n = tokCommand, 1, strings.IndexByte(rest[1:], '`')
	case strings.HasPrefix(rest, "%{"):
		t.kind, skip, n = tokCode, 2, strings.Index(rest[2:], "}%")
	case strings.HasPrefix(rest, "..."):
		t.kind, n = tokMark, 3
	case strings.HasPrefix(rest, "--"):
		t.kind, n = tokMark, 2
	case number(rest):
		t.kind, n = tokNumber, span(rest, digit)
	case letter(c):
		t.kind, n = tokWord, span(rest, func(c byte) bool { return letter(c) || c >= '0' && c <= '9' })
	default:
		t.kind, n = tokMark, 1
	}
	if n < 0 {
		return t, x.fail(t.pos, "%q without end", rest[:skip])
	}
	t.text = rest[skip : skip+n]
	x.move(n + 2*skip)
	return t, nil
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// digit is a character of a number; letters are those of 0x1f.
func digit(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == 'x'
}

func number(s string) bool {
	if s[0] == '.' {
		return len(s) > 1 && s[1] >= '0' && s[1] <= '9'
	}
	return s[0] >= '0' && s[0] <= '9'
}

// span returns how many bytes of s are of the kind; "..." ends a number.
func span(s string, is func(byte) bool) int {
	for i := range len(s) {
		if !is(s[i]) || strings.HasPrefix(s[i:], "...") {
			return i
		}
	}
	return len(s)
}
