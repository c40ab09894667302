package expression

import (
	"encoding/binary"
	"slices"
)

// before classifies the byte in front of a state, for conditions.
type before uint8

const (
	beforeOther before = iota
	beforeWord
	beforeNewline
	beforeNothing // the begin of the text
)

// ahead classifies the byte that a step reads, for conditions.
type ahead uint8

const (
	aheadOther ahead = iota
	aheadWord
	aheadNewline
	aheadEnd // of the text
	aheads
)

// state is a state of the automaton that is being built.
type state struct {
	threads []int32 // instructions where expressions go on, sorted; their begins are not listed, as every place is one
	before  before
	mask    uint32 // expressions that ended before the byte that led here
	next    []int32
	final   uint32
}

// builder makes the automaton of some patterns by the construction of subsets. Conditions are decided when the byte
// behind them is known, so that a state holds threads in front of their conditions and an expression is found with
// the byte behind its end, or with the end of the text.
type builder struct {
	prog   Program
	begins []int32
	bit    []uint8 // of the pattern that an instruction is of
	bound  int     // words of the table
	rules  []uint32

	begin, line, words bool // whether a condition asks for the begin, for lines, for words

	class  [256]uint8
	sample []byte // one of each class
	states []state
	ids    map[string]int32

	// Scratch of follow and step.
	seen  []uint32
	round uint32
	stack []int32
	reads []int32
	key   []byte
}

func newBuilder(patterns []Pattern, bound int) *builder {
	b := &builder{bound: bound, ids: map[string]int32{}}
	for i, p := range patterns {
		base := int32(len(b.prog))
		b.begins, b.rules = append(b.begins, base), append(b.rules, p.Rule)
		for _, in := range p.Program {
			in.X += base
			in.Y += base
			b.prog = append(b.prog, in)
			b.bit = append(b.bit, uint8(i))
			switch in.Op {
			case Begin:
				b.begin = true
			case LineBegin:
				b.begin, b.line = true, true
			case LineEnd:
				b.line = true
			case WordEdge, NoWordEdge:
				b.words = true
			}
		}
	}
	b.seen = make([]uint32, len(b.prog))
	b.classify()
	return b
}

// classify divides bytes into classes that no instruction tells apart.
func (b *builder) classify() {
	sets := map[ByteSet]bool{}
	var order []ByteSet
	add := func(s ByteSet) {
		if !sets[s] {
			sets[s] = true
			order = append(order, s)
		}
	}
	for i := range b.prog {
		if b.prog[i].Op == Byte {
			add(b.prog[i].Set)
		}
	}
	if b.line {
		add(newline)
	}
	if b.words {
		add(word)
	}
	var of [256]int
	n := 1
	for _, s := range order {
		split := map[int]int{} // the class of those of a class that s has
		for c := range 256 {
			if !s.Has(byte(c)) {
				continue
			}
			to, ok := split[of[c]]
			if !ok {
				to = n
				n++
				split[of[c]] = to
			}
			of[c] = to
		}
	}
	number := map[int]uint8{} // classes that are left, in the order of their first byte
	for c := range 256 {
		k, ok := number[of[c]]
		if !ok {
			k = uint8(len(b.sample))
			number[of[c]] = k
			b.sample = append(b.sample, byte(c))
		}
		b.class[c] = k
	}
}

// build returns the group, or errTooLarge.
func (b *builder) build() (group, error) {
	first := beforeOther
	if b.begin {
		first = beforeNothing
	}
	b.state(nil, first, 0)
	for _, c := range b.sample { // those to wake up in
		b.state(nil, b.beforeOf(c), 0)
	}
	for at := 0; at < len(b.states); at++ {
		if (1+len(b.states))*len(b.sample) > b.bound {
			return group{}, errTooLarge
		}
		b.expand(int32(at))
	}
	return b.group(), nil
}

// state returns the number of a state, which is added where it is new.
func (b *builder) state(threads []int32, before before, mask uint32) int32 {
	b.key = append(b.key[:0], byte(before))
	b.key = binary.LittleEndian.AppendUint32(b.key, mask)
	for _, t := range threads {
		b.key = binary.LittleEndian.AppendUint32(b.key, uint32(t))
	}
	if id, ok := b.ids[string(b.key)]; ok {
		return id
	}
	id := int32(len(b.states))
	b.ids[string(b.key)] = id
	b.states = append(b.states, state{threads: slices.Clone(threads), before: before, mask: mask})
	return id
}

// expand fills in where a state leads.
func (b *builder) expand(at int32) {
	s := b.states[at]
	s.next = make([]int32, len(b.sample))
	var reads [aheads][]int32
	var masks [aheads]uint32
	var known [aheads]bool
	for c, sample := range b.sample {
		a := b.aheadOf(sample)
		if !known[a] {
			known[a] = true
			reads[a], masks[a] = b.follow(&s, a)
			reads[a] = slices.Clone(reads[a])
		}
		s.next[c] = b.step(reads[a], sample, masks[a])
	}
	_, s.final = b.follow(&s, aheadEnd)
	b.states[at] = s
}

// aheadOf returns what conditions see of a byte.
func (b *builder) aheadOf(c byte) ahead {
	switch {
	case b.line && c == '\n':
		return aheadNewline
	case b.words && word.Has(c):
		return aheadWord
	}
	return aheadOther
}

// follow goes from the threads of a state, and from the begin of every expression, to the instructions that read a
// byte, and returns these and the expressions that end.
func (b *builder) follow(s *state, a ahead) (reads []int32, ended uint32) {
	b.round++
	b.reads = b.reads[:0]
	b.stack = append(append(b.stack[:0], s.threads...), b.begins...)
	for len(b.stack) > 0 {
		pc := b.stack[len(b.stack)-1]
		b.stack = b.stack[:len(b.stack)-1]
		if b.seen[pc] == b.round {
			continue
		}
		b.seen[pc] = b.round
		switch in := &b.prog[pc]; in.Op {
		case Byte:
			b.reads = append(b.reads, pc)
		case Match:
			ended |= 1 << b.bit[pc]
		case Split:
			b.stack = append(b.stack, in.X, in.Y)
		default:
			if holds(in.Op, s.before, a) {
				b.stack = append(b.stack, in.X)
			}
		}
	}
	return b.reads, ended
}

// holds reports whether a condition holds between two bytes.
func holds(op Op, p before, a ahead) bool {
	switch op {
	case Jump:
		return true
	case Begin:
		return p == beforeNothing
	case End:
		return a == aheadEnd
	case LineBegin:
		return p == beforeNothing || p == beforeNewline && a != aheadEnd
	case LineEnd:
		return a == aheadEnd || a == aheadNewline
	case WordEdge:
		return (p == beforeWord) != (a == aheadWord)
	case NoWordEdge:
		return (p == beforeWord) == (a == aheadWord)
	}
	return false
}

// step returns the state behind a byte.
func (b *builder) step(reads []int32, c byte, mask uint32) int32 {
	var threads []int32
	for _, pc := range reads {
		if in := &b.prog[pc]; in.Set.Has(c) {
			threads = append(threads, in.X)
		}
	}
	slices.Sort(threads)
	return b.state(slices.Compact(threads), b.beforeOf(c), mask)
}

// beforeOf returns what conditions see of a byte that has been read.
func (b *builder) beforeOf(c byte) before {
	switch b.aheadOf(c) {
	case aheadWord:
		return beforeWord
	case aheadNewline:
		return beforeNewline
	}
	return beforeOther
}
