// Package regex matches the regular expressions of inspection rules, which are Perl's, on bytes.
//
// It has what rules use of PCRE: groups, captures and back-references, greedy, lazy and possessive repetition,
// atomic groups, looking ahead and behind, and options inside of an expression. A byte is a character; the case
// of ASCII letters only is folded. It has no Unicode, recursion, conditions and callouts: those are an
// UnsupportedError.
//
// The matcher backtracks and prefers what PCRE prefers. Input of an attacker can make a backtracking search take
// exponential time, so steps are counted. Behind a bound the search starts again and remembers each pair of
// instruction and position that has failed, which makes it linear in their product and changes no result. Only
// an expression with back-references, look-arounds or atomic groups cannot be searched so: there Find returns
// ErrSteps.
//
// The package is pure. A Regex is immutable, a Machine belongs to one caller at a time.
package regex

import (
	"errors"
	"fmt"
)

// Flags are options of an expression.
type Flags uint8

// The options, with PCRE's letters.
const (
	NoCase    Flags = 1 << iota // i
	MultiLine                   // m: ^ and $ match at every line
	DotAll                      // s: . matches a line feed too
	Extended                    // x: white space and comments are not part of the expression
	Anchored                    // A: a match begins where the search does
	DollarEnd                   // E: $ matches at the very end only
	Ungreedy                    // G: repetitions are lazy, and greedy with "?"
)

// FlagOf returns the option with a letter, 0 for another letter.
func FlagOf(c byte) Flags {
	switch c {
	case 'i':
		return NoCase
	case 'm':
		return MultiLine
	case 's':
		return DotAll
	case 'x':
		return Extended
	case 'A':
		return Anchored
	case 'E':
		return DollarEnd
	case 'G':
		return Ungreedy
	}
	return 0
}

// ErrSteps reports that a search took more than Machine.Steps and could not be done in linear time.
var ErrSteps = errors.New("regular expression takes too many steps")

// SyntaxError describes an error in an expression.
type SyntaxError struct {
	At  int // offset in the expression
	Msg string
}

// Error implements error.
func (e *SyntaxError) Error() string { return "regular expression: " + e.Msg }

// UnsupportedError names what the package does not implement.
type UnsupportedError struct {
	At   int
	What string
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("regular expression: %s is not supported", e.What)
}

// Regex is a compiled expression.
type Regex struct {
	prog     []inst
	slots    int    // of captures and of loops
	groups   int    // captures, the whole match included
	anchored bool   // it begins where the search does
	linear   bool   // whether a pair of instruction and position always has the same outcome
	first    *set   // bytes that a match begins with; nil if it may be empty
	prefix   []byte // exact bytes that every match begins with
}

// Groups returns the number of captures, the match as a whole included.
func (r *Regex) Groups() int { return r.groups }

// Compile parses an expression, without slashes around it.
func Compile(expr string, flags Flags) (*Regex, error) {
	p := &parser{s: expr, flags: flags, names: map[string]int{}}
	n, err := p.parse()
	if err != nil {
		return nil, err
	}
	c := &compiler{slots: 2 * (p.groups + 1), linear: true}
	c.emit(inst{op: opSave, n: 0})
	if err := c.node(n); err != nil {
		return nil, err
	}
	c.emit(inst{op: opSave, n: 1})
	c.emit(inst{op: opMatch})
	r := &Regex{prog: c.prog, slots: c.slots, groups: p.groups + 1, linear: c.linear}
	r.anchored = flags&Anchored != 0 || beginsAnchored(n)
	var first set
	if may := firstOf(n, &first); !may {
		r.first = &first
	}
	r.prefix = prefixOf(n)
	return r, nil
}

// set is a set of bytes.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }
func (s *set) merge(o *set)    { s[0] |= o[0]; s[1] |= o[1]; s[2] |= o[2]; s[3] |= o[3] }
func (s *set) invert()         { s[0], s[1], s[2], s[3] = ^s[0], ^s[1], ^s[2], ^s[3] }
func (s *set) addRange(a, b int) {
	for c := a; c <= b; c++ {
		s.add(byte(c))
	}
}

// fold adds the other case of each letter.
func (s *set) fold() {
	for c := byte('a'); c <= 'z'; c++ {
		if s.has(c) || s.has(c-32) {
			s.add(c)
			s.add(c - 32)
		}
	}
}

// single returns the only byte of s.
func (s *set) single() (c byte, ok bool) {
	n := 0
	for i := range 256 {
		if s.has(byte(i)) {
			c = byte(i)
			n++
		}
	}
	return c, n == 1
}
