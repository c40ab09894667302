package filter

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/tuple"
)

// What callers need that decide single packets, without batches and an engine. It costs more for a packet than Apply.

// Find returns the rule that decides a packet, as Desc.Rule after Filter.Apply: Rules()[n-1]. 0 is none.
func (l *List) Find(t tuple.Tuple, v4 bool) int {
	compiled, first := l.acl, 0
	for compiled != nil {
		var found [1]uint16
		compiled.Match([]tuple.Tuple{t}, v4, found[:])
		if found[0] == 0 {
			return 0
		}
		rule := int(found[0]) + first
		if l.rest == nil {
			return rule
		}
		r := &l.rest[l.line[rule-1]]
		if r.acl == nil || (r.src == nil || r.src.Contains(t.SrcHi, t.SrcLo, v4)) && (r.dst == nil || r.dst.Contains(t.DstHi, t.DstLo, v4)) {
			return rule
		}
		compiled, first = r.acl, r.first
	}
	return 0
}

// Within takes the tokens of one packet that a rule with a rate decides, and reports whether they were there. The packet
// has bytes; now does not go back.
func (f *Filter) Within(rule int, t tuple.Tuple, v4 bool, bytes int, now clock.Time) bool {
	if !f.started {
		f.fill(now)
	}
	return f.take(rule, t.SrcHi, t.SrcLo, v4, bytes, now)
}

// Next returns a filter for another list, with the buckets and counters of lines that are the same text, as after Swap.
// f stays as it is, and may be used on.
func (f *Filter) Next(l *List) *Filter {
	next := *f
	next.Swap(l)
	return &next
}
