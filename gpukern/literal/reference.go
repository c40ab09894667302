package literal

import "slices"

// Reference are patterns that are not compiled. Every other form is compared with it; nothing else
// should use it.
type Reference []Pattern

// Scan finds what Set.Scan finds, in the most obvious way there is: at every end, every pattern, byte by
// byte.
func (r Reference) Scan(tail, text []byte, limit int, out []Match) []Match {
	tail = tail[max(0, len(tail)-TailLen):]
	all := slices.Concat(tail, text)
	base := len(out)
	for end := len(tail) + 1; end <= len(all); end++ {
		var rules []uint32
		for _, p := range r {
			if at := end - len(p.Bytes); at >= 0 && p.equals(all[at:end]) {
				rules = append(rules, p.Rule)
			}
		}
		slices.Sort(rules)
		for _, rule := range slices.Compact(rules) {
			m := Match{uint32(end - len(tail)), rule}
			if limit > 0 && len(out)-base == limit {
				return append(out, Match{End: m.End})
			}
			out = append(out, m)
		}
	}
	return out
}

// equals reports whether t, which is as long as p, is an occurrence of it.
func (p *Pattern) equals(t []byte) bool {
	for i, c := range p.Bytes {
		if t[i] == c {
			continue
		}
		if !p.NoCase || !isLetter(c) || t[i]^0x20 != c {
			return false
		}
	}
	return true
}
