package strictyaml

import (
	"strings"
	"testing"
)

// A binary file can hold any byte, and a terminal obeys escape sequences.
func TestExcerptIsShortAndPrintable(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, c := range []struct {
		line   string
		at     int
		want   string
		column int
	}{
		{"name: \x1b[2Jx", 6, "name: \ufffd[2Jx", 6},
		{"\tname: é", 7, "\tname: é", 7},
		{long[:120], 119, long[:120], 119},
		{long + "b", 300, long[:119] + "b", 119},
		{"b" + long, 0, "b" + long[:119], 0},
		{long[:150] + "b" + long, 150, long[:80] + "b" + long[:39], 80},
	} {
		if line, column := excerpt(c.line, c.at); line != c.want || column != c.column {
			t.Errorf("excerpt(%q, %d) = %q, %d", c.line, c.at, line, column)
		}
	}
}

func TestAProblemIsShownWithItsLine(t *testing.T) {
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{File: "f", Line: 1, Column: 8, Message: "no", Source: "\t\x1b[31mred"}, "f:1:8: no\n  \t\ufffd[31mred\n  \t      ^\n"},
		{Problem{File: "f", Line: 2, Column: 1, Message: "no", Hint: "yes", Source: "  "}, "f:2:1: no\n  yes\n"},
		{Problem{Message: "no", Hint: "yes"}, "no\n  yes\n"},
	} {
		if got := c.p.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
