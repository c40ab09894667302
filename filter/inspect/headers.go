package inspect

import "slices"

// headerList is the rules of a list of Rules.unsearched that a header admits. Most flows of a service have the same, which may
// be hundreds, so they share it.
type headerList struct {
	hash  uint64
	rules []uint32 // their places in the rules of a generation
	flows int      // directions that have it
}

// headerListSize is the memory of a list beside its rules: the list and its place in the table.
const headerListSize = 80

func (l *headerList) size() int { return headerListSize + 4*cap(l.rules) }

// headerList returns the rules of a list that the header of p admits; nil for none.
func (e *Engine) headerList(list int, p *packet) *headerList {
	ids, hash := e.ids[:0], uint64(14695981039346656037)
	e.rules.unsearched[list].each(p, func(rules []*rule) {
		for _, q := range rules {
			if q.dir&p.dir != 0 && e.header(q, p) {
				ids, hash = append(ids, q.id), (hash^uint64(q.id))*1099511628211
			}
		}
	})
	if e.ids = ids; len(ids) == 0 {
		return nil
	}
	l := e.headers[hash]
	if l == nil || !slices.Equal(l.rules, ids) {
		l = &headerList{hash: hash, rules: slices.Clip(slices.Clone(ids))}
		e.headers[hash] = l
		e.budget.Charge(l.size())
	}
	l.flows++
	return l
}

// forgetHeaders abandons the lists of a direction.
func (e *Engine) forgetHeaders(h *headerRules) {
	if l := h.list; l != nil {
		if l.flows--; l.flows == 0 {
			e.budget.Charge(-l.size())
			if e.headers[l.hash] == l {
				delete(e.headers, l.hash)
			}
		}
	}
	*h = headerRules{}
}
