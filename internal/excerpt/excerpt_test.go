package excerpt

import (
	"strings"
	"testing"
)

// A binary file can hold any byte, and a terminal obeys escape sequences.
func TestAroundIsShortAndPrintable(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, c := range []struct {
		line   string
		at     int
		want   string
		column int
	}{
		{"name: \x1b[2Jx", 6, "name: \ufffd[2Jx", 6},
		{"\tname: é", 7, "\tname: é", 7},
		{"a\xe9b", 2, "a\ufffdb", 2},
		{long[:120], 119, long[:120], 119},
		{long + "b", 300, long[:119] + "b", 119},
		{"b" + long, 0, "b" + long[:119], 0},
		{long[:150] + "b" + long, 150, long[:80] + "b" + long[:39], 80},
	} {
		if line, column := Around(c.line, c.at, 120); line != c.want || column != c.column {
			t.Errorf("Around(%q, %d) = %q, %d", c.line, c.at, line, column)
		}
	}
}

// The caret counts characters, the column of an error bytes.
func TestCaretStandsBelowTheCharacter(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, c := range []struct {
		line string
		at   int
		want string
	}{
		{"deny tpc", 5, "    deny tpc\n         ^"},
		{"\té x", 4, "    \té x\n    \t  ^"},
		{"é", 2, "    é\n     ^"},
		{"é", 9, "    é\n     ^"},
		{"", 0, "    \n    ^"},
		{"", -1, "    \n    ^"},
		{long + "x", 200, "    " + long[:2*(Width-1)] + "x\n    " + strings.Repeat(" ", Width-1) + "^"},
		{"\x1b[31mred", 5, "    \ufffd[31mred\n         ^"},
	} {
		if got := Caret(c.line, c.at); got != c.want {
			t.Errorf("%q, %d:\n%q, want\n%q", c.line, c.at, got, c.want)
		}
	}
}

func TestBinaryFindsNUL(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int
	}{{"", 0, 0}, {"deny tcp\n\x01\xff", 0, 0}, {"\x00", 1, 1}, {"a\n\nbc\x00\x00", 3, 3}, {"a\x00\n\x00", 1, 2}} {
		line, column, found := Binary(c.text)
		if line != c.line || column != c.column || found != (c.line > 0) {
			t.Errorf("%q: %d:%d, %v", c.text, line, column, found)
		}
	}
}
