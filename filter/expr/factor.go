package expr

import "slices"

// factor returns a tree with the same meaning that makes common tests once: "port 1 or port 2" looks for
// the ports of one list, and is not two times the walk to the ports.
//
// A test that was made gives the same result when it is made again, and what it loads was there. So
// (a and x) or (a and y) is a and (x or y), also where x rejects the packet. Terms between the two
// stay behind them if their first test excludes a, as other values of the EtherType do.
func factor(c *cond) *cond {
	c = foldCond(c)
	if stores(c) {
		return c // their order matters
	}
	return factorPure(c)
}

// foldCond computes what is constant in values: "tcp-syn|tcp-fin" becomes a number.
func foldCond(c *cond) *cond {
	if c == nil {
		return nil
	}
	folded := *c
	folded.l, folded.r, folded.a, folded.b = foldCond(c.l), foldCond(c.r), foldValue(c.a), foldValue(c.b)
	return &folded
}

func foldValue(v *value) *value {
	if v == nil {
		return nil
	}
	folded := *v
	folded.x, folded.y, folded.c = foldValue(v.x), foldValue(v.y), foldCond(v.c)
	if v.op > valueNeg && folded.x.op == valueConst && folded.y.op == valueConst {
		if k, ok := calculate(v.op, folded.x.k, folded.y.k); ok { // what divides by 0 rejects the packet
			return num(k)
		}
	}
	return &folded
}

func stores(c *cond) bool { return c != nil && (c.op == condSet || stores(c.l) || stores(c.r)) }

func factorPure(c *cond) *cond {
	switch c.op {
	case condNot:
		return not(factorPure(c.l))
	case condAnd:
		return factorAnd(flatten(c, condAnd, nil))
	case condOr:
		return factorOr(flatten(c, condOr, nil))
	}
	return c
}

// flatten appends the operands of a chain of and or or to list.
func flatten(c *cond, op condOp, list []*cond) []*cond {
	if c.op != op {
		return append(list, c)
	}
	return flatten(c.r, op, flatten(c.l, op, list))
}

// factorAnd joins terms; not x and not y is not (x or y), whose terms can be factored.
func factorAnd(terms []*cond) *cond {
	result := constant(true)
	for i := 0; i < len(terms); {
		n := i
		var none []*cond
		for ; n < len(terms) && terms[n].op == condNot; n++ {
			none = flatten(terms[n].l, condOr, none)
		}
		if n > i {
			result = and(result, not(factorOr(none)))
			i = n
			continue
		}
		result = and(result, factorPure(terms[i]))
		i++
	}
	return result
}

// alternative is first and any of some lists of further tests.
type alternative struct {
	first *cond
	more  [][]*cond // joined by and; an empty one is the only one
}

func factorOr(terms []*cond) *cond {
	var all []alternative
	for _, t := range terms {
		list := flatten(t, condAnd, nil)
		if i := home(all, list); i >= 0 {
			all[i].more = append(all[i].more, list[1:])
			continue
		}
		all = append(all, alternative{list[0], [][]*cond{list[1:]}})
	}
	result := constant(false)
	for _, a := range all {
		result = or(result, a.join())
	}
	return result
}

// home returns the alternative to which a list of tests belongs, or none.
func home(all []alternative, list []*cond) int {
	if len(list) == 1 {
		return none
	}
	for i, a := range slices.Backward(all) {
		if equalCond(a.first, list[0]) && len(a.more[0]) > 0 {
			return i
		}
		if !exclude(a.first, list[0]) {
			return none
		}
	}
	return none
}

func (a *alternative) join() *cond {
	if len(a.more) == 1 {
		return factorAnd(append([]*cond{a.first}, a.more[0]...))
	}
	terms := make([]*cond, len(a.more))
	for i, list := range a.more {
		terms[i] = ands(list[0], list[1:]...)
	}
	return and(factorPure(a.first), factorOr(terms))
}

// exclude reports whether two conditions test one value for different constants.
func exclude(a, b *cond) bool {
	is := func(c *cond) bool { return c.op == condTest && c.cmp == cmpEQ && c.b.op == valueConst }
	return is(a) && is(b) && a.b.k != b.b.k && equalValue(a.a, b.a)
}

func equalCond(a, b *cond) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.op != b.op || a.cmp != b.cmp || a.slot != b.slot {
		return false
	}
	if a.walk != b.walk && (a.walk == nil || b.walk == nil || *a.walk != *b.walk) {
		return false
	}
	return equalCond(a.l, b.l) && equalCond(a.r, b.r) && equalValue(a.a, b.a) && equalValue(a.b, b.b)
}

func equalValue(a, b *value) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.op != b.op || a.k != b.k || a.size != b.size || a.slot != b.slot {
		return false
	}
	return equalValue(a.x, b.x) && equalValue(a.y, b.y) && equalCond(a.c, b.c)
}
