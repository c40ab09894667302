// Package excerpt shows the part of a line that an error is about, for files that may have anything in them.
package excerpt

import (
	"strings"
	"unicode"
)

// Around returns the part of a line around its character at, of width characters at most, and where that character
// is in it: a file may be one long line. Two thirds of the part lie before the character. Characters that a terminal
// could interpret, and bytes that are not UTF-8, are replaced.
func Around(line string, at, width int) (string, int) {
	rs := []rune(line)
	for i, r := range rs {
		if r != '\t' && !unicode.IsPrint(r) {
			rs[i] = unicode.ReplacementChar
		}
	}
	if len(rs) <= width {
		return string(rs), at
	}
	first := min(max(at-width*2/3, 0), len(rs)-width)
	return string(rs[first : first+width]), at - first
}

// Margin returns the white space as wide as the first n characters of line: tabs stay tabs.
func Margin(line string, n int) string {
	var s strings.Builder
	for i, r := range []rune(line) {
		if i >= n {
			break
		}
		if r != '\t' {
			r = ' '
		}
		s.WriteRune(r)
	}
	return s.String()
}

// Width is the shown length of a line of rules, in characters: with a margin of four it fits a terminal of 80.
const Width = 76

// Caret returns the part of a line around its byte at, and below it a caret under the character of that byte. Both
// are indented by four blanks.
func Caret(line string, at int) string {
	shown, column := Around(line, len([]rune(line[:min(max(at, 0), len(line))])), Width)
	return "    " + shown + "\n    " + Margin(shown, column) + "^"
}

// NotText begins the error of a file that is Binary, before what it should have been.
const NotText = "a NUL byte: this is a binary file, not "

// Binary returns the line and the column, from 1, of the first byte of a text that no text has, NUL, and whether there
// is one: a capture, an archive, a program or UTF-16 that was named in the place of a file of rules.
func Binary(text string) (line, column int, found bool) {
	at := strings.IndexByte(text, 0)
	if at < 0 {
		return 0, 0, false
	}
	return 1 + strings.Count(text[:at], "\n"), at - strings.LastIndexByte(text[:at], '\n'), true
}
