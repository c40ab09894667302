package stackd

import (
	"fmt"
	"strings"
	"unicode"
)

// Problem is one mistake in a configuration file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0 where no file is to blame
	Column  int    `json:"column"` // from 1, in characters
	Message string `json:"message"`
	Hint    string `json:"hint"`   // what would be right; may be empty
	Source  string `json:"source"` // the line of the file
}

// String renders the problem as file:line:column: message, the line, a caret and the hint.
func (p Problem) String() string {
	var s strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&s, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	s.WriteString(p.Message + "\n")
	if source := printable(p.Source); strings.TrimSpace(source) != "" && p.Column-1 <= len([]rune(source)) {
		fmt.Fprintf(&s, "  %s\n  %s^\n", source, blank(source, p.Column-1))
	}
	if p.Hint != "" {
		s.WriteString("  " + p.Hint + "\n")
	}
	return s.String()
}

// shown is how much of a line is shown.
const shown = 120

// printable returns the start of a line without what a terminal could take for a command.
func printable(line string) string {
	rs := []rune(line)
	for i, r := range rs {
		if r != '\t' && !unicode.IsPrint(r) {
			rs[i] = unicode.ReplacementChar
		}
	}
	return string(rs[:min(len(rs), shown)])
}

// blank returns the white space as wide as the first n characters of line: tabs stay tabs.
func blank(line string, n int) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string([]rune(line)[:n]))
}

// ConfigError holds every mistake of a configuration, in the order of the file.
type ConfigError struct{ Problems []Problem }

// Error renders all problems.
func (e *ConfigError) Error() string {
	var s strings.Builder
	for _, p := range e.Problems {
		s.WriteString(p.String())
	}
	return strings.TrimSuffix(s.String(), "\n")
}
