package expression

import (
	"errors"
	"fmt"
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
	groups   []group // by kind
	filtered int     // how many of them wait for the literals of filter
	filter   filter
	refused  []uint32 // rules, in the order of the patterns
	rules    int
}

// group is the automaton of some expressions. A state is the place of its row in next: with it a step is one
// addition and one load.
//
//	row = next[row + class[c]]
//
//	| 0    | below rest             | below accept | from accept on                             |
//	| dead | nothing of a match yet |              | masks[(row-accept)/stride] say what ended |
type group struct {
	next   []uint16
	class  [256]uint8
	masks  []uint32 // expressions that ended before the byte that led here, of the last states
	final  []uint32 // expressions that end where the text does, of all states
	idle   []uint16 // by class: the row behind a byte, where nothing of a match has been read
	rules  []uint32 // by bit
	stride uint32   // words of a row: the classes
	rest   uint32   // place of the first row with something of a match
	accept uint32   // place of the first row with a mask
	full   uint32   // the mask of all expressions
	start  uint16   // row

	reciprocal uint32 // of stride, in 32 bits, rounded up: exact for places
}

// errTooLarge reports an automaton beyond its bound.
var errTooLarge = errors.New("automaton too large")

// Compile compiles expressions. Those whose automaton would pass MaxTable, or that ask for something behind the end
// of a line that may be the last, are refused: Refused lists them. Rules need not be different; equal ones are
// found once each.
func Compile(patterns []Pattern) (*Set, error) { return newSet(patterns, true) }

// CompileUnfiltered is Compile without the filter: all automata see all of a text, whatever it is. It shows what the filter
// is worth.
func CompileUnfiltered(patterns []Pattern) (*Set, error) { return newSet(patterns, false) }

func newSet(patterns []Pattern, filter bool) (*Set, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("a set has at most %d expressions", MaxPatterns)
	}
	s := new(Set)
	refused := make([]bool, len(patterns))
	var list []candidate
	for i, p := range patterns {
		if err := p.Program.check(); err != nil {
			return nil, fmt.Errorf("expression %d: %w", i, err)
		}
		q, ok := p.Program.resolved()
		if refused[i] = !ok; ok {
			list = append(list, newCandidate(i, Pattern{q, p.Rule}, filter))
		}
	}
	sortCandidates(list)
	var waits [][]factor
	for guess := 4; len(list) > 0; {
		g, n := largest(list, guess)
		if guess = n; n == 0 {
			refused[list[0].index] = true
			list, guess = list[1:], 1
			continue
		}
		s.groups, s.rules = append(s.groups, g), s.rules+n
		if list[0].kind == filtered {
			waits = append(waits, factors(list[:n]))
		}
		list = list[n:]
	}
	s.filtered, s.filter = len(waits), newFilter(waits)
	for i := range refused {
		if refused[i] {
			s.refused = append(s.refused, patterns[i].Rule)
		}
	}
	return s, nil
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

// Filtered returns how many of the automata, the first, are awake only behind a literal that their matches begin with.
func (s *Set) Filtered() int {
	if s == nil {
		return 0
	}
	return s.filtered
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
		n += 2*(len(g.next)+len(g.idle)) + 256 + 4*(len(g.masks)+len(g.final)+len(g.rules))
	}
	return n + 4*len(s.filter.bloom) + 16*len(s.filter.slots) + 4*len(s.filter.uses)
}
