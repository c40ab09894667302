package strictyaml

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/excerpt"
)

// Problem is one error in a file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0 without a file
	Column  int    `json:"column"` // from 1, in characters
	Message string `json:"message"`
	Hint    string `json:"hint"`   // what is allowed; may be empty
	Source  string `json:"source"` // the line of the file
}

// String renders the problem as file:line:column: message, the line, a caret and the hint.
func (p Problem) String() string {
	var s strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&s, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	s.WriteString(p.Message + "\n")
	if strings.TrimSpace(p.Source) != "" {
		line, column := excerpt.Around(p.Source, p.Column-1, excerptWidth)
		fmt.Fprintf(&s, "  %s\n  %s^\n", line, excerpt.Margin(line, column))
	}
	if p.Hint != "" {
		fmt.Fprintf(&s, "  %s\n", p.Hint)
	}
	return s.String()
}

// excerptWidth is the shown length of a line, in characters.
const excerptWidth = 120

// MaxShown bounds the problems that Error.Error renders: a generated file may have as many as lines.
const MaxShown = 20

// Error holds the problems of a file, in the order of the file.
type Error struct {
	Problems []Problem
	More     int    // problems that are counted and not kept
	ShowAll  string // the command that shows all of them; "" is none
}

// Error renders the first MaxShown problems, and how many there are more.
func (e *Error) Error() string { return e.Text(MaxShown) }

// Text renders the first n problems, and how many there are more.
func (e *Error) Text(n int) string {
	var s strings.Builder
	n = min(n, len(e.Problems))
	for _, p := range e.Problems[:n] {
		s.WriteString(p.String())
	}
	switch left := len(e.Problems) - n; {
	case left > 0 && e.ShowAll != "":
		fmt.Fprintf(&s, "and %d more errors (%s shows all)\n", left+e.More, e.ShowAll)
	case left+e.More > 0:
		fmt.Fprintf(&s, "and %d more errors\n", left+e.More)
	}
	return strings.TrimSuffix(s.String(), "\n")
}
