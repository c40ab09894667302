// Package literal searches texts for a set of literals, thousands at once: what rules about payloads
// name by content. A pattern has 3 to 64 bytes, exact or without regard to the case of ASCII letters,
// and belongs to a rule. A match is its rule and the offset where it ends.
//
// A text comes in pieces, as the payloads of one flow do: with a piece come the last bytes of what was
// before it, and what begins there is found. Texts are bytes; nothing is decoded.
//
// Compile builds tables once, for the CPU (Set.Scan) and for kernels (Set.Image) alike: a filter that
// sorts out nearly all positions of a text, a hash table that leads from a position to candidates, and
// the candidates' bytes, which are compared. See tables.go for how they lie.
package literal

import (
	"errors"
	"fmt"
)

// Limits of a Set.
const (
	MinLen       = 3       // bytes of the shortest pattern
	MaxLen       = 64      // bytes of the longest
	MaxPatterns  = 1 << 16 // in one set
	CarryOverLen = MaxLen - 1
)

// Pattern is a literal to search for.
type Pattern struct {
	Bytes  []byte // MinLen to MaxLen; borrowed while it is compiled
	NoCase bool   // ASCII letters match in either case; other bytes match themselves
	Rule   uint32 // from 1; several patterns may have one rule
}

// Occurrence reports that a pattern of Rule ends at End, an offset in the text: behind its last byte. Rule 0
// means that more matches follow than were asked for, the first of them at End.
type Occurrence struct {
	End  uint32
	Rule uint32
}

// before reports whether m comes before o: by End, then by Rule.
func (m Occurrence) before(o Occurrence) bool {
	return m.End < o.End || m.End == o.End && m.Rule < o.Rule
}

// ErrPattern is matched by the errors of Compile.
var ErrPattern = errors.New("wrong pattern")

// PatternError reports which pattern cannot be compiled, and why.
type PatternError struct {
	N      int // which, counted from 1
	Reason string
}

// Error implements error.
func (e *PatternError) Error() string { return fmt.Sprintf("pattern %d: %s", e.N, e.Reason) }

// Is reports whether target is ErrPattern.
func (e *PatternError) Is(target error) bool { return target == ErrPattern }

// check returns why p cannot be compiled, or nothing.
func (p *Pattern) check() string {
	switch n := len(p.Bytes); {
	case n < MinLen:
		return fmt.Sprintf("%d bytes; the shortest has %d", n, MinLen)
	case n > MaxLen:
		return fmt.Sprintf("%d bytes; the longest has %d", n, MaxLen)
	case p.Rule == 0:
		return "rule 0 means none; count from 1"
	}
	return ""
}

func isLetter(c byte) bool { c |= 0x20; return 'a' <= c && c <= 'z' }
