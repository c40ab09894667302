// Package litref searches for literals in the most obvious way there is: at every end, every pattern, byte by
// byte. Package literal and the kernels are compared with it. It imports none of them, so that their own
// tests can use it.
package litref

import "slices"

// longest is the number of bytes before the text at which a literal may begin: one less than the longest has.
const longest = 63

// Scan appends to out what literal.Set.Scan finds in text, behind before, with the patterns: matches in the order of
// their ends, then of their rules, at most limit and one of rule 0 where there are more. A limit of 0 is none.
func Scan[P ~struct {
	Bytes  []byte
	NoCase bool
	Rule   uint32
}, M ~struct{ End, Rule uint32 }](patterns []P, before, text []byte, limit int, out []M,
) []M {
	before = before[max(0, len(before)-longest):]
	all := slices.Concat(before, text)
	base := len(out)
	for end := len(before) + 1; end <= len(all); end++ {
		var rules []uint32
		for _, p := range patterns {
			p := pattern(p)
			if at := end - len(p.Bytes); at >= 0 && p.equals(all[at:end]) {
				rules = append(rules, p.Rule)
			}
		}
		slices.Sort(rules)
		for _, rule := range slices.Compact(rules) {
			m := match{uint32(end - len(before)), rule}
			if limit > 0 && len(out)-base == limit {
				m.Rule = 0
				return append(out, M(m))
			}
			out = append(out, M(m))
		}
	}
	return out
}

type match struct{ End, Rule uint32 }

type pattern struct {
	Bytes  []byte
	NoCase bool
	Rule   uint32
}

// equals reports whether text, which is as long as p, is an occurrence of it.
func (p *pattern) equals(text []byte) bool {
	for i, c := range p.Bytes {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if text[i] != c && !(p.NoCase && letter && text[i]^0x20 == c) {
			return false
		}
	}
	return true
}
