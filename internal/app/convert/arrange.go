package convert

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
)

// decision is one line of a list in which the first whose condition holds decides. The condition has no path: all decisions of a
// list are for the same one.
type decision struct {
	cond  match
	rule  *rule
	guard guard
}

// mostDecisions bounds a list of decisions with those that arrange adds.
const mostDecisions = 64

// conjunction is the outcome of joining two conditions.
type conjunction uint8

const (
	joins     conjunction = iota
	excludes              // no request fulfils both
	unsayable             // a rule cannot have both: it has one condition for each name
)

// conjoin returns the condition that both hold, for matches without a path.
func conjoin(a, b match) (match, conjunction) {
	out := match{method: cmp.Or(a.method, b.method)}
	if a.method != "" && b.method != "" && a.method != b.method {
		return match{}, excludes
	}
	var how, also conjunction
	out.headers, how = conditionsOf(a.headers, b.headers)
	out.query, also = conditionsOf(a.query, b.query)
	switch {
	case how == excludes || also == excludes:
		return match{}, excludes
	case how != joins || also != joins:
		return match{}, unsayable
	}
	switch {
	case len(a.clients) == 0:
		out.clients = b.clients
	case len(b.clients) == 0:
		out.clients = a.clients
	default:
		if out.clients = common(a.clients, b.clients); len(out.clients) == 0 {
			return match{}, excludes
		}
	}
	return out, joins
}

// conditionsOf joins conditions on values, where each name has one: the narrower, if an exact value is one of an expression. A request
// with several lines that lead to different rules is none, so that two exact values exclude each other.
func conditionsOf(a, b []condition) ([]condition, conjunction) {
	out, how := slices.Clone(a), joins
	for _, c := range b {
		i := slices.IndexFunc(out, func(o condition) bool { return o.name == c.name })
		switch {
		case i < 0:
			out = append(out, c)
		case out[i] == c:
		case c.regexp && out[i].regexp:
			how = unsayable
		case !c.regexp && !out[i].has(c.value), c.regexp && !c.has(out[i].value):
			return nil, excludes
		case !c.regexp:
			out[i] = c
		}
	}
	return out, how
}

// has reports whether a value fulfils a condition.
func (c condition) has(value string) bool {
	if !c.regexp {
		return c.value == value
	}
	re, err := regexp.Compile(`\A(?:` + c.value + `)\z`)
	return err != nil || re.MatchString(value)
}

// common returns the prefixes that are in both lists.
func common(a, b []string) (out []string) {
	for _, x := range a {
		for _, y := range b {
			switch {
			case inPrefix(x, y) && !slices.Contains(out, x):
				out = append(out, x)
			case inPrefix(y, x) && !slices.Contains(out, y):
				out = append(out, y)
			}
		}
	}
	return out
}

// inPrefix reports whether the addresses of a prefix are those of another, or some of them.
func inPrefix(inner, outer string) bool {
	a, b := parsePrefix(inner), parsePrefix(outer)
	return a.IsValid() && b.IsValid() && b.Bits() <= a.Bits() && b.Contains(a.Addr())
}

// implies reports whether a condition holds wherever another, which has all of its parts, does.
func (m *match) implies(weaker *match) bool {
	if !implied(m.headers, weaker.headers) || !implied(m.query, weaker.query) {
		return false
	}
	if len(weaker.clients) > 0 && (len(m.clients) == 0 || slices.ContainsFunc(m.clients, func(p string) bool {
		return !slices.ContainsFunc(weaker.clients, func(o string) bool { return inPrefix(p, o) })
	})) {
		return false
	}
	return weaker.method == "" || weaker.method == m.method
}

// implied reports whether each of some conditions holds by one of a list.
func implied(list, weaker []condition) bool {
	return !slices.ContainsFunc(weaker, func(w condition) bool {
		return !slices.ContainsFunc(list, func(c condition) bool { return c == w || c.name == w.name && !c.regexp && w.has(c.value) })
	})
}

// compareRank orders conditions as the gateway does for one path: what it tries first comes first.
func compareRank(a, b *match) int {
	has := func(n int) int { return min(n, 1) }
	return cmp.Or(
		cmp.Compare(has(len(b.method)), has(len(a.method))), cmp.Compare(len(b.headers), len(a.headers)),
		cmp.Compare(len(b.query), len(a.query)), cmp.Compare(has(len(b.clients)), has(len(a.clients))),
	)
}

// refuses reports whether a rule gives a client nothing of what the source guards: an error, or a redirect.
func (r *rule) refuses() bool { return r.redirect != nil || r.fixed != nil && r.fixed.status >= 400 }

// chosen is a condition of the arranged list and the number of the decision that counts where it holds.
type chosen struct {
	cond match
	by   int
}

// arrange returns rules that the gateway takes in the order of a list of decisions, although it tries those with more conditions
// first: where several hold, a rule with all of their conditions has the answer of the first. Where a rule cannot have them all,
// and one that refuses would come too late, the later one is closed. The last result is false for a list that is too long.
func (l *ledger) arrange(list []decision) ([]decision, bool) {
	var sets []chosen
	first := func(m match) int {
		return slices.IndexFunc(list, func(d decision) bool { return m.implies(&d.cond) })
	}
	enter := func(m match) {
		if !slices.ContainsFunc(sets, func(c chosen) bool { return c.cond.implies(&m) && m.implies(&c.cond) }) {
			sets = append(sets, chosen{m, first(m)})
		}
	}
	for i := range list {
		if first(list[i].cond) == i {
			enter(list[i].cond)
		}
	}
	own := len(sets)
	for i := 0; i < len(sets); i++ {
		for k := range own {
			if both, how := conjoin(sets[i].cond, sets[k].cond); how == joins {
				enter(both)
			}
			if len(sets) > mostDecisions {
				return nil, false
			}
		}
	}
	sets = needed(sets, own)
	slices.SortStableFunc(sets, func(a, b chosen) int { return cmp.Compare(a.by, b.by) })
	out := make([]decision, len(sets))
	for i, c := range sets {
		out[i] = list[c.by]
		out[i].cond = c.cond
	}
	l.closeLate(list, sets, out)
	return out, true
}

// needed takes out combinations that change nothing: all rules that would come in their place have the same answer.
func needed(sets []chosen, own int) []chosen {
	keep := slices.Clone(sets[:own])
	rest := slices.Clone(sets[own:])
	slices.SortStableFunc(rest, func(a, b chosen) int { return compareRank(&b.cond, &a.cond) })
	for _, c := range rest {
		for _, k := range keep {
			largest := c.cond.implies(&k.cond) && !slices.ContainsFunc(keep, func(o chosen) bool {
				return c.cond.implies(&o.cond) && o.cond.implies(&k.cond) && !k.cond.implies(&o.cond)
			})
			if largest && k.by != c.by {
				keep = append(keep, c)
				break
			}
		}
	}
	return keep
}

// closeLate finds pairs of conditions that no rule can have together, and closes the one that the gateway takes where the source
// refuses.
func (l *ledger) closeLate(list []decision, sets []chosen, out []decision) {
	for i := range out {
		for k := i + 1; k < len(out); k++ {
			if _, how := conjoin(out[i].cond, out[k].cond); how != unsayable {
				continue
			}
			all := match{
				method: cmp.Or(out[i].cond.method, out[k].cond.method), headers: slices.Concat(out[i].cond.headers, out[k].cond.headers),
				query: slices.Concat(out[i].cond.query, out[k].cond.query), clients: out[i].cond.clients,
			}
			if len(all.clients) == 0 {
				all.clients = out[k].cond.clients
			}
			right := slices.IndexFunc(list, func(d decision) bool { return all.implies(&d.cond) })
			taken := taken(out, &all)
			if right < 0 || sets[taken].by == right || !list[right].rule.refuses() || out[taken].rule.refuses() {
				continue
			}
			out[taken].rule = l.close(out[taken].rule.at, "a rule has one condition for each name, and another line refuses some of its requests", "write the rules by hand")
		}
	}
}

// taken returns the number of the decision that the gateway takes where some conditions hold.
func taken(out []decision, all *match) int {
	best := -1
	for i := range out {
		if all.implies(&out[i].cond) && (best < 0 || compareRank(&out[i].cond, &out[best].cond) < 0) {
			best = i
		}
	}
	return best
}

// gate is a condition of the source at which a request is answered or goes on: the first step that holds decides.
type gate struct {
	steps     []step
	otherwise bool // answers where no step holds
	rule      *rule
	guard     guard
}

// step is a condition, and whether the gate answers where it holds.
type step struct {
	cond    match
	answers bool
}

// decisions returns the list of decisions of gates one after the other, with content behind them. It is false where a rule cannot
// have the conditions.
func decisions(under match, gates []gate, content decision) (list []decision, ok bool) {
	if len(gates) == 0 {
		content.cond = under
		return []decision{content}, true
	}
	g := &gates[0]
	follow := func(m match, answers bool) bool {
		if answers {
			list = append(list, decision{m, g.rule, g.guard})
			return true
		}
		more, ok := decisions(m, gates[1:], content)
		list = append(list, more...)
		return ok && len(list) <= mostDecisions
	}
	for _, s := range g.steps {
		both, how := conjoin(under, s.cond)
		switch {
		case how == excludes:
		case how == unsayable:
			return nil, false
		case !follow(both, s.answers):
			return nil, false
		}
	}
	return list, follow(under, g.otherwise) && len(list) <= mostDecisions
}

// validPrefix reports whether a text is an address or a prefix.
func validPrefix(s string) bool {
	_, err := netip.ParsePrefix(s)
	_, other := netip.ParseAddr(s)
	return err == nil || other == nil
}
