package signature

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSyntax is matched by the errors of a rule that is wrong, ErrUnsupported by those of a rule that uses what
// this package does not implement.
var (
	ErrSyntax      = errors.New("wrong rule")
	ErrUnsupported = errors.New("unsupported rule")
)

// Error is one error in the text of rules.
type Error struct {
	Name         string // of the text: a file
	Line, Column int    // from 1; columns in bytes
	SID          uint32 // of the rule; 0 where it has none
	Source       string // the line
	Msg          string
	Option       string // the keyword that is not supported; "" for an error of syntax
}

// excerpt is how much of a line an error shows: rules are long.
const excerpt = 76

// Error implements error: the place, what is wrong, the part of the line and a caret below the place.
func (e *Error) Error() string {
	at := min(max(e.Column-1, 0), len(e.Source))
	from := 0
	if len(e.Source) > excerpt {
		from = max(0, min(at-excerpt/2, len(e.Source)-excerpt))
	}
	shown := strings.Map(printable, e.Source[from:min(len(e.Source), from+excerpt)])
	return fmt.Sprintf("%s:%d:%d: %s\n    %s\n    %s^", e.Name, e.Line, e.Column, e.Msg, shown, strings.Repeat(" ", at-from))
}

// printable keeps the caret in its place: tabs and control characters become blanks, and bytes that are no
// UTF-8 one question mark each.
func printable(r rune) rune {
	if r < ' ' {
		return ' '
	}
	if r > '~' {
		return '?'
	}
	return r
}

// Is reports whether target is the sentinel of e's kind.
func (e *Error) Is(target error) bool {
	if e.Option != "" {
		return target == ErrUnsupported
	}
	return target == ErrSyntax
}

// unsupported is the error of what the package does not implement: of an option, or of one of its values.
type unsupported struct{ what string }

func (u unsupported) Error() string { return u.what + " is not supported" }

// located is an error about the bytes of a value from at on.
type located struct {
	at  int
	err error
}

func (l located) Error() string { return l.err.Error() }
func (l located) Unwrap() error { return l.err }

func wrongAt(at int, format string, args ...any) error {
	return located{at, fmt.Errorf(format, args...)}
}
