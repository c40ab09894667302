package literal

import "slices"

// list collects matches in order and keeps the first ones. Anchors are found in the order of their
// windows, which is nearly that of their ends: a match goes in from the back.
type list struct {
	m     []Occurrence
	base  int // of m: what lies before is the caller's
	limit int // 0 is none
}

// add puts m in its place, unless it is there already or comes behind all that will be told.
func (l *list) add(m Occurrence) {
	if len(l.m) == l.base || l.m[len(l.m)-1].before(m) {
		if !l.over() {
			l.m = append(l.m, m)
		}
		return
	}
	at := len(l.m)
	for at > l.base && m.before(l.m[at-1]) {
		at--
	}
	if at > l.base && l.m[at-1] == m {
		return
	}
	if l.over() {
		l.m = l.m[:len(l.m)-1]
	}
	l.m = slices.Insert(l.m, at, m)
}

// over reports whether there are more matches than the limit.
func (l *list) over() bool { return l.limit > 0 && len(l.m)-l.base > l.limit }

// complete reports whether no match that ends at end or later changes the list.
func (l *list) complete(end int) bool { return l.over() && int(l.m[len(l.m)-1].End) < end }

// result returns the matches, the one too many without its rule.
func (l *list) result() []Occurrence {
	if l.over() {
		l.m[len(l.m)-1].Rule = 0
	}
	return l.m
}
