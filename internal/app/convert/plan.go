package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// item is one decision of HAProxy or Caddy, in the order in which it is taken: the first whose condition holds counts.
type item struct {
	at    pos
	atom  atom
	rule  *rule
	guard guard
	last  bool // it holds for every request
}

// plain reports whether an item has no condition beside host and path.
func (it *item) plain() bool { return it.atom.match.bare() && len(it.atom.notFrom) == 0 }

// bare reports whether a match has no condition beside the path.
func (m *match) bare() bool {
	return m.method == "" && len(m.headers)+len(m.query)+len(m.clients) == 0
}

// planned is a rule of the gateway.
type planned struct {
	rule    *rule
	matches []match
	guard   guard
	at      pos
	prefix  match // the condition on the path in the source
}

// pending is a list of clients for a path, that items after it are for.
type pending struct {
	match   match
	sources *sources
	at      pos
	done    bool
}

// plan orders items for the gateway, which takes the most specific path first, and of rules with the same path that with more
// conditions: items that come first are repeated for the narrower paths of later ones.
func (l *ledger) plan(items []item) (out []planned) {
	var live []item
	for i := range items {
		if !shadowed(live, &items[i]) {
			live = append(live, items[i])
		}
	}
	paths := l.effective(live)
	var lists []*pending
	for i := range live {
		it := &live[i]
		m := paths[i]
		if len(it.atom.notFrom) > 0 {
			if p := l.pending(it); p != nil {
				lists = append(lists, p)
				continue
			}
		}
		g := it.guard
		for _, p := range lists {
			switch {
			case within(it.atom.match, p.match):
				g.sources = l.narrowed(g.sources, p)
			case within(p.match, it.atom.match) && !p.done:
				with := m
				with.kind, with.path = p.match.kind, p.match.path
				if m.kind == pathRegexp && p.match.kind == pathPrefix && it.atom.match.kind != pathRegexp {
					with = asRegexp(with)
				}
				gp := g
				gp.sources = l.narrowed(g.sources, p)
				out = append(out, planned{it.rule, []match{with}, gp, it.at, p.match})
				p.done = it.plain()
			}
		}
		matches := l.matches(live, paths, i)
		if n := len(out) - 1; n >= 0 && len(matches) > 0 && len(out[n].matches) > 0 && out[n].rule == it.rule && out[n].guard.key() == g.key() && it.rule.rewrite == nil &&
			len(out[n].matches)+len(matches) <= mostAtoms {
			out[n].matches = append(out[n].matches, matches...)
			continue
		}
		out = append(out, planned{it.rule, matches, g, it.at, it.atom.match})
	}
	return out
}

// narrowed returns the list of clients of a path, with one that holds already.
func (l *ledger) narrowed(s *sources, p *pending) *sources {
	if s != nil && fmt.Sprint(*s) != fmt.Sprint(*p.sources) {
		return l.closeSources(p.at, "a route has one list of clients, and two meet", "write routes[].sources")
	}
	return p.sources
}

// pending returns the list of clients that an item stands for: all but these are refused.
func (l *ledger) pending(it *item) *pending {
	refuses := it.rule.fixed != nil && it.rule.fixed.status >= 400
	switch {
	case !refuses && it.rule.redirect == nil || !it.atom.match.bare():
		it.atom.notFrom, it.rule = nil, l.close(it.at, "a rule has clients that it is for, and none that it is not for", "write routes[].sources")
		return nil
	case !refuses || it.rule.fixed.status != 403:
		l.changed(it.at, "routes[].sources", "other clients get 403")
	}
	return &pending{match: it.atom.match, sources: &sources{allow: it.atom.notFrom, denyOthers: true}, at: it.at}
}

// shadowed reports whether an earlier item takes all requests of an item.
func shadowed(before []item, it *item) bool {
	for i := range before {
		if b := &before[i]; b.plain() && within(it.atom.match, b.atom.match) {
			return true
		}
	}
	return false
}

// effective returns the match of each item. Where regular expressions follow, a prefix becomes one: those are tried in the order of
// the file, and before prefixes. A prefix that is replaced stays.
func (l *ledger) effective(items []item) []match {
	out := make([]match, len(items))
	for i := range items {
		it := &items[i]
		out[i] = it.atom.match
		if it.last || it.atom.match.kind == pathExact || it.atom.match.kind == pathRegexp {
			continue
		}
		k := slices.IndexFunc(items[i+1:], func(o item) bool { return o.atom.match.kind == pathRegexp })
		switch {
		case k < 0:
		case it.rule.rewrite != nil && it.rule.rewrite.kind == replacePrefix:
			l.changed(items[i+1+k].at, "routes[].rules[]", "its paths come before the prefix of an earlier line, which is replaced")
		default:
			out[i] = asRegexp(out[i])
		}
	}
	return out
}

// asRegexp returns a prefix as a regular expression.
func asRegexp(m match) match {
	prefix := strings.TrimSuffix(m.path, "/")
	m.kind, m.path = pathRegexp, regexp.QuoteMeta(prefix)+"(?:/.*)?"
	return m
}

// matches returns the conditions of an item, also for the narrower paths of later items.
func (l *ledger) matches(items []item, paths []match, i int) (list []match) {
	it, m := &items[i], paths[i]
	if m.kind != "" || !m.bare() {
		list = []match{m}
	}
	list = l.united(items, paths, i, list)
	if it.plain() { // later ones within it are left out, and wider ones are less specific
		return list
	}
	// A regular expression comes before prefixes, and with more conditions before others. Exact paths come before it.
	seen := map[string]bool{m.kind + m.path: true}
	for k := i + 1; k < len(items); k++ {
		o := &paths[k]
		if o.kind == "" || m.kind == pathRegexp && o.kind != pathExact || !within(items[k].atom.match, it.atom.match) || seen[o.kind+o.path] {
			continue
		}
		if len(list) >= mostAtoms {
			l.changed(items[k].at, "", "it comes before the line "+fmt.Sprint(it.at.line))
			return list
		}
		seen[o.kind+o.path] = true
		with := m
		with.kind, with.path = o.kind, o.path
		list = l.united(items, paths, i, append(list, with))
	}
	return list
}

// enterRoute puts a rule into the route of its guard. Rules with regular expressions keep their order.
func enterRoute(routes []*siteRoute, base *siteRoute, g guard, r *rule, m *model) []*siteRoute {
	for i := len(routes) - 1; i >= 0; i-- {
		if routes[i].guard.key() == g.key() && len(routes[i].rules) < 1000 {
			routes[i].rules = append(routes[i].rules, r)
			return routes
		}
		if len(r.matches) > 0 && r.matches[0].kind == pathRegexp {
			break
		}
	}
	n := *base
	n.guard, n.rules = g, []*rule{r}
	if len(routes) > 0 {
		n.name = m.unique("route", base.name)
	}
	return append(routes, &n)
}

// united adds to the last match of an item what it has in common with later ones of the same path that have other conditions, one by
// one and together: of rules with the same path the gateway takes that with more conditions, and of equal ones the first. Regular
// expressions are one path. A later item that cannot be joined with one that refuses is closed where it would come before.
func (l *ledger) united(items []item, paths []match, i int, list []match) []match {
	if len(list) == 0 {
		return list
	}
	begin := len(list) - 1
	own := list[begin]
	for k := i + 1; k < len(items); k++ {
		o := paths[k]
		if o.bare() || len(items[k].atom.notFrom) > 0 || o.kind != own.kind || o.kind != pathRegexp && o.path != own.path {
			continue
		}
		o.kind, o.path = "", ""
		for _, m := range list[begin:] {
			both, ok := atom{match: m}.and(atom{match: o})
			switch {
			case both.never:
			case !ok || len(list) >= mostAtoms:
				l.unjoined(&items[i], &items[k], compareRank(&o, &m))
			case !slices.ContainsFunc(list, func(m match) bool { return fmt.Sprint(m) == fmt.Sprint(both.match) }):
				list = append(list, both.match)
			}
		}
	}
	return list
}

// unjoined notes that two items cannot be joined, and closes the later one where it would go around a refusal.
func (l *ledger) unjoined(before, it *item, rank int) {
	switch {
	case rank >= 0: // the earlier one comes first anyway
	case before.rule.refuses() && !it.rule.refuses():
		it.rule = l.close(it.at, fmt.Sprintf("where its conditions and those of line %d hold, it would come first", before.at.line), "write the rules by hand")
	default:
		l.changed(it.at, "", "where both hold, it may come before the line "+fmt.Sprint(before.at.line))
	}
}
