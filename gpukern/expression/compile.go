package expression

import (
	"errors"
	"fmt"
	"slices"
)

// Pattern is an expression, and the number by which matches name it.
type Pattern struct {
	Program Program
	Rule    uint32
}

// Bounds of a group. A word of a table is the place of a row in it, so that a table has at most 64 Ki of them.
const (
	MaxGroup   = 32      // expressions of a group: a mask has a bit for each
	MaxTable   = 1 << 16 // words of a table
	groupTable = 1 << 14 // words up to which expressions share a table: 32 KiB, which the first cache of a core holds
)

// MaxPatterns is the largest number of expressions of a Set.
const MaxPatterns = 1 << 16

// Set is compiled expressions.
type Set struct {
	groups  []group
	refused []uint32 // rules, in the order of the patterns
	rules   int
}

// group is the automaton of some expressions. A state is the place of its row in next: with it a step is one
// addition and one load.
//
//	row = next[row + class[c]]
//
// Rows from accept on are states in which expressions end: masks[(row-accept)/stride] says which.
type group struct {
	next   []uint16
	class  [256]uint8
	masks  []uint32 // expressions that ended before the byte that led here, of the last states
	final  []uint32 // expressions that end where the text does, of all states
	rules  []uint32 // by bit
	stride uint32   // words of a row: the classes
	accept uint32   // place of the first row with a mask
	start  uint16   // row
}

// errTooLarge reports an automaton beyond its bound.
var errTooLarge = errors.New("automaton too large")

// Compile compiles expressions. Those whose automaton would pass MaxTable, or that ask for something behind the end
// of a line that may be the last, are refused: Refused lists them. Rules need not be different; equal ones are
// found once each.
func Compile(patterns []Pattern) (*Set, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("a set has at most %d expressions", MaxPatterns)
	}
	s := new(Set)
	var ready []Pattern
	for i, p := range patterns {
		if err := p.Program.check(); err != nil {
			return nil, fmt.Errorf("expression %d: %w", i, err)
		}
		q, ok := p.Program.resolved()
		if !ok {
			s.refused = append(s.refused, p.Rule)
			continue
		}
		ready = append(ready, Pattern{q, p.Rule})
	}
	for part := range slices.Chunk(ready, MaxGroup) {
		s.add(part)
	}
	return s, nil
}

// add makes groups of some patterns: one, or those of each half.
func (s *Set) add(part []Pattern) {
	bound := groupTable
	if len(part) == 1 {
		bound = MaxTable
	}
	b := newBuilder(part, bound)
	if g, err := b.build(); err == nil {
		s.groups = append(s.groups, g)
		s.rules += len(part)
		return
	}
	if len(part) == 1 {
		s.refused = append(s.refused, part[0].Rule)
		return
	}
	s.add(part[:len(part)/2])
	s.add(part[len(part)/2:])
}

// Refused borrows the rules of the expressions that are in no group.
func (s *Set) Refused() []uint32 { return s.refused }

// Groups returns how many automata there are: a search takes a step in each for every byte.
func (s *Set) Groups() int {
	if s == nil {
		return 0
	}
	return len(s.groups)
}

// Len returns how many expressions are searched for.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.rules
}

// Size returns the memory of the tables, in bytes.
func (s *Set) Size() (n int) {
	if s == nil {
		return 0
	}
	for i := range s.groups {
		g := &s.groups[i]
		n += 2*len(g.next) + 256 + 4*(len(g.masks)+len(g.final)+len(g.rules))
	}
	return n
}
