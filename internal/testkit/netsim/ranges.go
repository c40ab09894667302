package netsim

import "slices"

// ranges is a set of numbers: ranges [from, to) in order, none touching the next.
type ranges []span

type span struct{ from, to uint64 }

// add adds [from, to).
func (r *ranges) add(from, to uint64) {
	if from >= to {
		return
	}
	s := *r
	i := len(s) // first range that [from, to) touches or precedes; nearly always the last
	for i > 0 && s[i-1].to >= from {
		i--
	}
	j := i
	for j < len(s) && s[j].from <= to {
		from, to = min(from, s[j].from), max(to, s[j].to)
		j++
	}
	*r = slices.Replace(s, i, j, span{from, to})
}

// has reports whether all of [from, to) is in the set.
func (r ranges) has(from, to uint64) bool {
	for _, s := range r {
		if s.from <= from && to <= s.to {
			return true
		}
	}
	return false
}

// prefix returns the end of the range that begins with 0; 0 where there is none.
func (r ranges) prefix() uint64 {
	if len(r) == 0 || r[0].from != 0 {
		return 0
	}
	return r[0].to
}
