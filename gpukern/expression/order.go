package expression

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// kind names the part of a text that an automaton has to see.
type kind uint8

const (
	filtered kind = iota // what follows a literal (factor)
	begins               // what follows the begin of a text, until no match can come any more
	always               // everything
)

// candidate is an expression that is not yet in a group.
type candidate struct {
	Pattern
	index  int // in the list of patterns
	kind   kind
	factor factor
	least  int    // bytes of the shortest match, at most mostLeast
	key    []byte // expressions that begin alike share states
}

func newCandidate(index int, p Pattern, filter bool) candidate {
	c := candidate{Pattern: p, index: index, kind: always, least: p.Program.shortest(), key: p.Program.key()}
	if p.Program.anchored() {
		c.kind = begins
	} else if filter {
		if f, ok := p.Program.factor(); ok {
			c.kind, c.factor = filtered, f
		}
	}
	return c
}

// factors returns the factors of some candidates.
func factors(list []candidate) (all []factor) {
	for i := range list {
		all = append(all, list[i].factor)
	}
	return all
}

// mostLeast is the length of matches from which on they are rare alike.
const mostLeast = 4

// shortest returns the bytes of the shortest match, or mostLeast if that has more.
func (p Program) shortest() int {
	from := []int32{0}
	for n := range mostLeast {
		list, matched := p.reads(from)
		if matched {
			return n
		}
		from = p.follow(list)
	}
	return mostLeast
}

// keyLen bounds the instructions that order expressions.
const keyLen = 60

// key is the byte sets along the first way through a program.
func (p Program) key() (k []byte) {
	pc := int32(0)
	for range min(keyLen, len(p)) {
		in := &p[pc]
		k = append(k, byte(in.Op))
		if in.Op == Match || in.Op == Fail {
			break
		}
		for _, w := range in.Set {
			k = binary.BigEndian.AppendUint64(k, w)
		}
		pc = in.X
	}
	return k
}

// sortCandidates brings together those that may share an automaton, by kind, and then those that begin alike.
func sortCandidates(list []candidate) {
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.least, b.least), bytes.Compare(a.key, b.key))
	})
}

// largest makes the automaton of as many of the first candidates as fit, trying guess of them at first, and returns how many
// they are; 0 where not even the first one has an automaton.
func largest(list []candidate, guess int) (best group, n int) {
	limit := min(len(list), MaxGroup)
	for i := range list[:limit] {
		if list[i].kind != list[0].kind {
			limit = i
			break
		}
	}
	failed := false
	for low, high, try := 0, limit, min(guess, limit); low < high; {
		bound := groupTable
		if try == 1 {
			bound = MaxTable
		}
		patterns := make([]Pattern, try)
		for i := range patterns {
			patterns[i] = list[i].Pattern
		}
		g, err := newBuilder(patterns, bound).build()
		if err == nil {
			best, n, low = g, try, try
		} else {
			high, failed = try-1, true
		}
		if try = min(high, 2*try); failed {
			try = (low + high + 1) / 2
		}
	}
	return best, n
}
