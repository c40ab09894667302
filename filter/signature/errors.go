package signature

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/excerpt"
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

// Error implements error: the place, what is wrong, the part of the line and a caret below the place.
func (e *Error) Error() string {
	if e.Source == "" { // of the whole file
		return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s\n%s", e.Name, e.Line, e.Column, e.Msg, excerpt.Caret(e.Source, e.Column-1))
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
