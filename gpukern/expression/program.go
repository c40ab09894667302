package expression

import (
	"errors"
	"fmt"
)

// Op is an operation of a Program.
type Op uint8

// The operations. A condition is about a place between two bytes of the text.
const (
	Fail         Op = iota // ends here
	Byte                   // reads a byte of Set and goes on at X
	Jump                   // goes on at X
	Split                  // goes on at X and at Y
	Match                  // the expression has been read
	Begin                  // goes on at X at the begin of the text
	End                    // at its end
	FinalNewline           // at its end, or before a line feed that ends it
	LineBegin              // at the begin of the text, or behind a line feed that does not end it
	LineEnd                // at the end of the text, or before a line feed
	WordEdge               // between a word's byte and another one, or an end of the text
	NoWordEdge             // elsewhere
	ops
)

// Inst is an instruction of a Program.
type Inst struct {
	Op   Op
	X, Y int32
	Set  ByteSet // of Byte
}

// ByteSet is a set of bytes: bit c&63 of word c>>6.
type ByteSet [4]uint64

// Has reports whether the set has a byte.
func (s *ByteSet) Has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }

// Add adds a byte.
func (s *ByteSet) Add(c byte) { s[c>>6] |= 1 << (c & 63) }

// Program is an expression as a nondeterministic automaton, which begins at instruction 0. Every byte is a
// character. Which of several ways through it is preferred does not matter here: whether there is a match, and
// where the first one ends, is the same.
type Program []Inst

// ErrProgram reports a program that no expression compiles to.
var ErrProgram = errors.New("not a program of an expression")

// check returns an error where an instruction leads out of the program.
func (p Program) check() error {
	if len(p) == 0 {
		return fmt.Errorf("%w: it is empty", ErrProgram)
	}
	for at, i := range p {
		if i.Op >= ops || uint32(i.X) >= uint32(len(p)) || uint32(i.Y) >= uint32(len(p)) {
			return fmt.Errorf("%w: instruction %d leads out of it", ErrProgram, at)
		}
	}
	return nil
}

// word is the bytes of words, as PCRE and RE2 have them.
var word = func() (s ByteSet) {
	for c := range 256 {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' {
			s.Add(byte(c))
		}
	}
	return s
}()

// newline has the line feed alone.
var newline = func() (s ByteSet) { s.Add('\n'); return s }()

// resolved returns a copy of p in which FinalNewline is spelled out: the end, or a line feed and then the end. A
// step knows one byte ahead, and the condition is about two. It fails where more of the expression could be read
// behind the line feed.
func (p Program) resolved() (Program, bool) {
	q := append(Program(nil), p...)
	for at := range p {
		if p[at].Op != FinalNewline {
			continue
		}
		if !p.onlyMatches(p[at].X) {
			return nil, false
		}
		n := int32(len(q))
		q = append(q, Inst{Op: End, X: p[at].X}, Inst{Op: Byte, Set: newline, X: n + 2}, Inst{Op: End, X: n + 3}, Inst{Op: Match})
		q[at] = Inst{Op: Split, X: n, Y: n + 1}
	}
	return q, true
}

// onlyMatches reports whether nothing but jumps leads from an instruction to Match.
func (p Program) onlyMatches(at int32) bool {
	for range p {
		switch p[at].Op {
		case Match:
			return true
		case Jump, FinalNewline, End:
			at = p[at].X
		default:
			return false
		}
	}
	return false
}
