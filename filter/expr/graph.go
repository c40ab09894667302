package expr

import "slices"

// step is a node of the decision graph that a match tree becomes: a test with two successors, or a
// store with one. Successors are steps with smaller indices, accept or reject. A load outside the
// packet rejects at once.
type step struct {
	op     condOp // condTest, condSet or condChain
	cmp    cmpOp
	a, b   *value
	slot   int
	walk   *chain
	jt, jf int        // of condSet only jt
	fused  *rangeTest // two tests of a as one; the others are those of the first
}

const (
	accept = -1
	reject = -2
)

// graph is a decision graph. Steps are in reverse order: entry is the greatest index in use, or accept
// or reject.
type graph struct {
	steps []step
	entry int
	ids   map[valueForm]int // equal values have one number
	id    map[*value]int
}

// newGraph flattens a tree and removes tests whose result an earlier test implies.
func newGraph(tree *cond) *graph {
	g := &graph{ids: map[valueForm]int{}, id: map[*value]int{}}
	g.entry = g.add(tree, accept, reject)
	g.thread()
	return g
}

// add appends the steps of c, which go on to t where it is true and to f where it is not, and returns
// the first of them.
func (g *graph) add(c *cond, t, f int) int {
	switch c.op {
	case condTrue:
		return t
	case condFalse:
		return f
	case condNot:
		return g.add(c.l, f, t)
	case condAnd:
		return g.add(c.l, g.add(c.r, t, f), f)
	case condOr:
		return g.add(c.l, t, g.add(c.r, t, f))
	case condSet:
		f = t
	}
	g.steps = append(g.steps, step{op: c.op, cmp: c.cmp, a: c.a, b: c.b, slot: c.slot, walk: c.walk, jt: t, jf: f})
	return len(g.steps) - 1
}

// fact is the known result of a test of a value against a constant.
type fact struct {
	value int // its number
	cmp   cmpOp
	k     uint32
	holds bool
	slots bool // the value depends on slots
}

// maxFacts bounds the memory of the path: enough for headers, not for lists of a thousand ports.
const maxFacts = 24

// thread redirects edges past tests whose result the facts on the way decide. A test is passed by only
// when its value has been loaded before, so that no packet is accepted for which the load would have
// been out of bounds.
func (g *graph) thread() {
	if g.entry < 0 {
		return
	}
	known := make([][]fact, len(g.steps))
	seen := make([]bool, len(g.steps))
	seen[g.entry] = true
	for i := g.entry; i >= 0; i-- {
		if !seen[i] {
			continue
		}
		s := &g.steps[i]
		if s.op == condSet {
			kept := dropSlots(known[i])
			s.jt = g.follow(s.jt, kept)
			s.jf = s.jt
			reach(known, seen, s.jt, kept)
			continue
		}
		t, f := known[i], known[i]
		if n, ok := g.testFact(s); ok {
			n.holds = true
			t = withFact(t, n)
			n.holds = false
			f = withFact(f, n)
		}
		s.jt, s.jf = g.follow(s.jt, t), g.follow(s.jf, f)
		reach(known, seen, s.jt, t)
		reach(known, seen, s.jf, f)
	}
}

// testFact returns the fact that s establishes.
func (g *graph) testFact(s *step) (fact, bool) {
	if s.op != condTest || s.b.op != valueConst {
		return fact{}, false
	}
	return fact{value: g.number(s.a), cmp: s.cmp, k: s.b.k, slots: dependsOnSlots(s.a)}, true
}

// withFact returns a copy of facts with one more. When there are too many, the oldest leaves that says what a value is
// not: a long list has many of them, and none decides more than a test of the same.
func withFact(facts []fact, f fact) []fact {
	leaves := len(facts)
	if len(facts) >= maxFacts {
		leaves = max(0, slices.IndexFunc(facts, func(f fact) bool { return f.cmp == cmpEQ && !f.holds }))
	}
	out := append(make([]fact, 0, len(facts)+1), facts[:leaves]...)
	if leaves < len(facts) {
		out = append(out, facts[leaves+1:]...)
	}
	return append(out, f)
}

func dropSlots(facts []fact) []fact {
	kept := make([]fact, 0, len(facts))
	for _, f := range facts {
		if !f.slots {
			kept = append(kept, f)
		}
	}
	return kept
}

// reach records that step i can be reached with facts: what is known there is what all ways share.
func reach(known [][]fact, seen []bool, i int, facts []fact) {
	if i < 0 {
		return
	}
	if !seen[i] {
		seen[i], known[i] = true, facts
		return
	}
	shared := make([]fact, 0, len(known[i]))
	for _, f := range known[i] {
		for _, o := range facts {
			if f == o {
				shared = append(shared, f)
				break
			}
		}
	}
	known[i] = shared
}

// follow returns the first step from i on that facts do not decide.
func (g *graph) follow(i int, facts []fact) int {
	for i >= 0 {
		s := &g.steps[i]
		want, ok := g.testFact(s)
		if !ok {
			return i
		}
		result, decided := decide(want, facts)
		if !decided {
			return i
		}
		i = s.jf
		if result {
			i = s.jt
		}
	}
	return i
}

// decide returns the result of a test under facts, if they imply one.
func decide(t fact, facts []fact) (result, decided bool) {
	for _, f := range facts {
		if f.value != t.value {
			continue
		}
		if f.cmp == t.cmp && f.k == t.k {
			return f.holds, true
		}
		if f.cmp == cmpEQ && f.holds {
			return compare(t.cmp, f.k, t.k), true
		}
	}
	return false, false
}

func compare(op cmpOp, a, b uint32) bool {
	switch op {
	case cmpEQ:
		return a == b
	case cmpGT:
		return a > b
	case cmpGE:
		return a >= b
	}
	return a&b != 0
}

// fuse makes one step of two that bound a value from both sides, as those of a port range do. The forms for
// batches test ranges; eBPF and classic BPF do not.
func (g *graph) fuse() {
	entered := g.entered()
	for i := g.entry; i >= 0; i-- {
		for g.fuseStep(&g.steps[i], entered) {
		}
	}
}

// entered counts the edges that lead to each step in use.
func (g *graph) entered() []int {
	n, used := make([]int, len(g.steps)), g.used()
	for i, s := range g.steps {
		for _, to := range []int{s.jt, s.jf} {
			if used[i] && to >= 0 {
				n[to]++
			}
		}
	}
	return n
}

// fuseStep joins s with the step behind it that only s leads to.
func (g *graph) fuseStep(s *step, entered []int) bool {
	v, r, inverted, ok := rangeOf(s)
	if !ok || inverted || s.jt < 0 || entered[s.jt] != 1 {
		return false
	}
	next := &g.steps[s.jt]
	v2, r2, inverted, ok := rangeOf(next)
	if !ok || inverted || r.mask != r2.mask || !equalValue(v, v2) {
		return false
	}
	pass := next.jt
	switch s.jf {
	case next.jf:
	case next.jt:
		pass = next.jf
		if r2, ok = r2.outside(); !ok {
			return false
		}
	default:
		return false
	}
	both, ok := r.and(r2)
	if ok {
		s.fused, s.jt = &both, pass
	}
	return ok
}

func dependsOnSlots(v *value) bool {
	if v == nil {
		return false
	}
	return v.op == valueSlot || dependsOnSlots(v.x) || dependsOnSlots(v.y) || condDependsOnSlots(v.c)
}

func condDependsOnSlots(c *cond) bool {
	if c == nil {
		return false
	}
	return dependsOnSlots(c.a) || dependsOnSlots(c.b) || condDependsOnSlots(c.l) || condDependsOnSlots(c.r)
}

// valueForm is a value with its operands by number.
type valueForm struct {
	op   valueOp
	size uint8
	k    uint32
	slot int
	x, y int
	c    *cond // conditions are compared by identity
}

// number returns the same number for values of the same form.
func (g *graph) number(v *value) int {
	if v == nil {
		return -1
	}
	if n, ok := g.id[v]; ok {
		return n
	}
	key := valueForm{v.op, v.size, v.k, v.slot, g.number(v.x), g.number(v.y), v.c}
	n, ok := g.ids[key]
	if !ok {
		n = len(g.ids)
		g.ids[key] = n
	}
	g.id[v] = n
	return n
}
