package expression

import "slices"

// gramSize is the length of the literals that wake automata.
const gramSize = 4

// Bounds of a factor.
const (
	maxFactorAt = 31   // bytes of a match in front of it
	maxGrams    = 64   // literals of an expression
	maxFactor   = 1e-3 // expected places of one in a text that may begin a match
)

// factor holds literals of four bytes, one of which every match of an expression has, at a fixed distance from
// where the match begins. Letters are folded (fold), so that a literal stands for all cases of itself.
type factor struct {
	at    int // bytes of the match in front of it
	grams []uint32
}

// fold makes letters of both cases equal, and some other bytes with them: a filter may find too much.
func fold(gram uint32) uint32 { return gram | 0x20202020 }

// anchored reports whether every match begins where the text does.
func (p Program) anchored() bool {
	for pc := range p.closure([]int32{0}, func(op Op) bool { return op != Begin }) {
		if op := p[pc].Op; op == Byte || op == Match {
			return false
		}
	}
	return true
}

// closure returns the instructions to which others lead without a byte, those included; conditions hold where passes
// lets them.
func (p Program) closure(from []int32, passes func(Op) bool) map[int32]bool {
	seen := map[int32]bool{}
	for stack := slices.Clone(from); len(stack) > 0; {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch in := &p[pc]; in.Op {
		case Byte, Match, Fail:
		case Split:
			stack = append(stack, in.X, in.Y)
		default:
			if passes(in.Op) {
				stack = append(stack, in.X)
			}
		}
	}
	return seen
}

// reads returns the instructions that read the next byte once some are reached, and whether the expression may have been
// read by then. All conditions are taken to hold: that finds too much, never too little.
func (p Program) reads(from []int32) (list []int32, matched bool) {
	for pc := range p.closure(from, func(Op) bool { return true }) {
		switch p[pc].Op {
		case Byte:
			list = append(list, pc)
		case Match:
			matched = true
		}
	}
	slices.Sort(list)
	return list, matched
}

// after returns the instructions that follow those of list which read c, in either case.
func (p Program) after(list []int32, c byte) (next []int32) {
	for _, pc := range list {
		in := &p[pc]
		if in.Set.Has(c) || in.Set.Has(c&^0x20) {
			next = append(next, in.X)
		}
	}
	slices.Sort(next)
	return slices.Compact(next)
}

// frequent estimates how often a folded byte stands in traffic: text, zeros, and bytes of any kind.
func frequent(c byte) float64 {
	switch {
	case c >= 'a' && c <= 'z':
		return 0.03
	case c == 0x20: // spaces and, folded, zeros
		return 0.1
	case c >= '0' && c <= '9', c == '/', c == '.', c == '-', c == '=', c == 0x2d, c == 0x2a, c == ':', c == '"':
		return 0.02
	case c == 0xff:
		return 0.03
	}
	return 2.0 / 256
}

// factor returns the literals that are rarest, and false where there are none: a match may be too short, anything may
// stand in it, or they are too many.
func (p Program) factor() (best factor, ok bool) {
	least := maxFactor
	from := []int32{0}
	for at := range maxFactorAt + 1 {
		list, matched := p.reads(from)
		if matched || len(list) == 0 {
			break
		}
		if grams, often, all := p.grams(list); all {
			if often *= 1 + float64(at)/8; often < least { // what is nearer costs less at the end of a piece
				best, least, ok = factor{at, grams}, often, true
			}
		}
		from = p.follow(list)
	}
	return best, ok
}

// follow returns where the expression goes on behind bytes that list reads.
func (p Program) follow(list []int32) (next []int32) {
	for _, pc := range list {
		next = append(next, p[pc].X)
	}
	slices.Sort(next)
	return slices.Compact(next)
}

// grams lists the literals that begin with what list reads, and how often one stands anywhere. It fails where there are too
// many of them, or a match may end within.
func (p Program) grams(list []int32) (all []uint32, often float64, ok bool) {
	var walk func(list []int32, gram uint32, depth int, share float64) bool
	walk = func(list []int32, gram uint32, depth int, share float64) bool {
		if depth == gramSize {
			all = append(all, gram)
			often += share
			return len(all) <= maxGrams
		}
		for c := range 256 {
			if c&0x20 == 0 {
				continue
			}
			next := p.after(list, byte(c))
			if len(next) == 0 {
				continue
			}
			reads, matched := p.reads(next)
			if matched && depth+1 < gramSize {
				return false
			}
			if !walk(reads, gram|uint32(c)<<(8*depth), depth+1, share*frequent(byte(c))) {
				return false
			}
		}
		return true
	}
	if !walk(list, 0, 0, 1) || len(all) == 0 {
		return nil, 0, false
	}
	slices.Sort(all)
	return slices.Compact(all), often, true
}
