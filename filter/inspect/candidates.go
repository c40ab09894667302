package inspect

import (
	"slices"

	"github.com/millrace/millrace/filter/signature"
)

// candidate is a rule with a content that was found.
type candidate struct {
	q  *rule
	at uint64 // the end of that content in the stream; 0 where none was searched for
}

// begin starts another list of candidates.
func (e *Engine) begin() {
	e.cands = e.cands[:0]
	if e.round++; e.round == 0 {
		clear(e.marks)
		e.round = 1
	}
}

// add makes a rule a candidate, once.
func (e *Engine) add(q *rule, at uint64) {
	if e.marks[q.id] != e.round {
		e.marks[q.id] = e.round
		e.cands = append(e.cands, candidate{q, at})
	}
}

// The lists of rules that have nothing to search for.
const (
	inPackets = iota
	inStreams
	inSegments // of streams, in the segments alone: a position counts in these too
	lists      // how many there are
)

// unsearched makes the rules of a list candidates whose header may be that of p. A flow remembers them for each of its
// directions.
func (e *Engine) unsearched(list int, p *packet) {
	if p.flow == nil || !p.hasL4 {
		e.rules.unsearched[list].each(p, func(rules []*rule) {
			for _, q := range rules {
				e.add(q, 0)
			}
		})
		return
	}
	f, side := p.flow, signature.SideOf(p.dir)
	gen := e.rules.generation
	if f.emptyOf == gen && f.empty[side]>>list&1 != 0 {
		return
	}
	known := &f.sides[side].unsearched[list]
	if known.gen != gen {
		e.forgetHeaders(known)
		*known = headerRules{gen, e.headerList(list, p)}
	}
	if known.list == nil {
		if f.emptyOf != gen {
			f.emptyOf, f.empty = gen, [2]uint8{}
		}
		f.empty[side] |= 1 << list
		return
	}
	for _, id := range known.list.rules {
		q := e.rules.rules[id]
		if list != inSegments || q.mayMatch(p.payload) {
			e.add(q, 0)
		}
	}
}

// ordered returns the candidates in the order of the rules.
func (e *Engine) ordered() []candidate {
	slices.SortFunc(e.cands, func(a, b candidate) int { return int(a.q.id) - int(b.q.id) })
	return e.cands
}

// scan makes the rules candidates whose content ends in text; tail is what comes before it. The list of matches has no bound: decoys hide
// nothing.
func (e *Engine) scan(g *group, tail, text []byte) {
	e.found = g.set.Scan(tail, text, 0, e.found[:0])
	for _, m := range e.found {
		for _, q := range g.rules[m.Rule] {
			e.add(q, 0)
		}
	}
}
