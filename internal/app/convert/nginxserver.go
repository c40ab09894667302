package convert

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// locKind is the way in which a location is found.
type locKind uint8

const (
	locPrefix locKind = iota
	locExact
	locRegexp
	locNamed
)

// loc is a location, with those around it left out: its scope inherits from them.
type loc struct {
	d       *directive // nil: of the server itself
	at      pos
	sc      *scope
	kind    locKind
	path    string
	anyCase bool // ~*
	stop    bool // ^~: no regular expression is tried
	within  *loc // the location around it
	exactly bool // the regular expression is the source's, and no wider one
}

// site is the translation of one server at some listeners.
type site struct {
	n     *nginx
	v     *server
	p     *part
	locs  []*loc
	regex bool   // some location is a regular expression
	only  string // the host that all requests have; "" is any other than those with sites of their own
	depth int    // of locations that lead to others
	named *guard // of the named location that try_files has led to

	before []*directive // before the `if` that is translated
	in     *scope       // which it stands in
}

// routesOf makes the routes of a server, for each part of its listeners.
func (n *nginx) routesOf(v *server) {
	locs := n.locations(v.d.block, v.sc, nil)
	root := &loc{at: v.d.at, sc: v.sc, path: "/"}
	if !slices.ContainsFunc(locs, func(l *loc) bool { return l.kind == locPrefix && l.path == "/" }) {
		locs = append(locs, root)
	}
	for i := range v.parts {
		p := &v.parts[i]
		if !p.fallback && len(p.names) == 0 {
			n.l.changed(v.d.at, "", "no request reaches it: no name of its own is left, and another server is the default")
			continue
		}
		regex := slices.ContainsFunc(locs, func(l *loc) bool { return l.kind == locRegexp })
		names, tested := p.names, n.testedHosts(v, p)
		for _, h := range tested {
			(&site{n: n, v: v, p: p, locs: locs, regex: regex, only: h}).build([]string{h})
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == h })
		}
		if p.fallback || len(names) > 0 {
			(&site{n: n, v: v, p: p, locs: locs, regex: regex}).build(names)
		}
	}
	for _, l := range locs {
		if l.kind == locNamed {
			for _, d := range l.d.block {
				if line := n.l.lines[d.at]; line != nil && line.Result == "" {
					n.l.unneeded(d.at, "no location leads to it")
				}
			}
		}
	}
	for s := v.sc; s != nil; s = s.outer {
		for _, d := range s.list {
			line := n.l.lines[d.at]
			switch {
			case line == nil || line.Result != "" || !opens(d.name):
			case strings.HasPrefix(d.name, "ssl_"):
				n.l.unneeded(d.at, "no address has TLS")
			case strings.HasPrefix(d.name, "proxy_cache") || d.name == "proxy_no_cache" || d.name == "proxy_ignore_headers":
				n.l.unneeded(d.at, "no location has a cache by it")
			case strings.HasPrefix(d.name, "fastcgi_"):
				n.l.unneeded(d.at, "no location without its own uses it")
			}
		}
	}
}

// locations reads the locations of a block, and those within them.
func (n *nginx) locations(list []*directive, sc *scope, within *loc) (out []*loc) {
	for _, d := range list {
		if d.name != "location" {
			continue
		}
		l := &loc{d: d, at: d.at, sc: newScope(sc, d.block), within: within}
		kind, path := "", d.arg(0)
		if len(d.args) > 1 {
			kind, path = d.arg(0), d.arg(1)
		} else {
			for _, k := range []string{"^~", "~*", "~", "="} {
				if rest, ok := strings.CutPrefix(path, k); ok {
					kind, path = k, rest
					break
				}
			}
		}
		l.path = path
		switch kind {
		case "=":
			l.kind = locExact
		case "~", "~*":
			l.kind, l.anyCase = locRegexp, kind == "~*"
		case "^~":
			l.stop = true
		case "":
			if strings.HasPrefix(path, "@") {
				l.kind = locNamed
			}
		}
		n.l.ok(d.at, "routes[].rules[]")
		inner := n.locations(d.block, l.sc, l)
		if l.kind == locRegexp { // nginx tries those within it before it answers
			out = append(append(out, inner...), l)
		} else {
			out = append(append(out, l), inner...)
		}
	}
	return out
}

// build makes the routes of some hosts. The gateway tries exact paths first, then regular expressions in their order, then the longest
// prefix; nginx does the same but for ^~, which becomes a regular expression where there are others.
func (s *site) build(hosts []string) {
	b := &builder{site: s}
	if s.p.fallback && s.only == "" {
		hosts = nil
	}
	root := &loc{at: s.v.d.at, sc: s.v.sc, path: "/"}
	rule, by := s.always()
	if s.v.guard != nil { // before everything else
		rule, by = s.closeFor(s.v.guard, root), s.v.guard
	}
	if rule != nil {
		b.decide(root, match{}, (conditional{s}).gates(root, by, rule.refuses()), decision{rule: rule})
		for _, d := range s.v.d.block {
			if d.name == "location" {
				s.n.unreached(d)
			}
		}
		b.finish(hosts)
		return
	}
	s.serverRewrites(b)
	ordered := slices.Clone(s.locs)
	slices.SortStableFunc(ordered, func(a, b *loc) int {
		return cmp.Or(cmp.Compare(s.rank(a), s.rank(b)), s.longer(a, b))
	})
	for _, l := range ordered {
		if l.kind != locNamed {
			s.location(b, l)
		}
	}
	b.finish(hosts)
}

// testedHosts returns the hosts that conditions of a server name, each of which gets routes of its own: in these the conditions are
// constant.
func (n *nginx) testedHosts(v *server, p *part) (list []string) {
	inBlocks([]*directive{v.d}, func(d *directive) {
		t, ok := test{}, d.name == "if"
		if ok {
			t, ok = parseTest(d)
		}
		if !ok || t.name != "host" && t.name != "http_host" {
			return
		}
		names := []string{strings.ToLower(t.value)}
		if strings.Contains(t.op, "~") {
			names = p.names // each is compared with the expression
		}
		for _, h := range names {
			ours := slices.ContainsFunc(p.names, func(name string) bool { return covers(name, h) }) || p.fallback && !n.owned(v, p, h)
			if validHost(h) && !strings.HasPrefix(h, "*") && ours && !slices.Contains(list, h) && len(list) < mostItems {
				list = append(list, h)
			}
		}
	})
	return list
}

// owned reports whether another server has a host at the listeners of a part.
func (n *nginx) owned(v *server, p *part, host string) bool {
	return slices.ContainsFunc(n.servers, func(o *server) bool {
		return o != v && slices.ContainsFunc(o.parts, func(op part) bool {
			return slices.ContainsFunc(op.listeners, func(x string) bool { return slices.Contains(p.listeners, x) }) &&
				slices.ContainsFunc(op.names, func(name string) bool { return covers(name, host) })
		})
	})
}

// rank orders locations as the gateway tries them.
func (s *site) rank(l *loc) int {
	switch {
	case l.kind == locExact:
		return 0
	case l.kind == locPrefix && l.stop && s.regex, l.kind == locRegexp && l.around() != nil:
		return 1
	case l.kind == locRegexp:
		return 2
	}
	return 3
}

// longer orders prefixes that stand as regular expressions: the longest first, behind the expressions within them.
func (s *site) longer(a, b *loc) int {
	if s.rank(a) != 1 || s.rank(b) != 1 {
		return 0
	}
	prefix := func(l *loc) string {
		if w := l.around(); l.kind == locRegexp {
			return w.path
		}
		return l.path
	}
	return cmp.Or(cmp.Compare(len(prefix(b)), len(prefix(a))), cmp.Compare(b.kind, a.kind))
}

// unreached notes directives of a location that no request reaches.
func (n *nginx) unreached(d *directive) {
	n.l.unneeded(d.at, "no request reaches it: the server answers all")
	for _, inner := range d.block {
		n.unreached(inner)
	}
}

// location adds the rules of a location.
func (s *site) location(b *builder, l *loc) {
	defer s.unused(l)
	m, ok := s.match(l)
	if !ok {
		return
	}
	rule, g := s.handler(l)
	if l.kind == locRegexp && !l.exactly {
		rule = s.widened(l, rule)
	}
	gates := (conditional{s}).gates(l, nil, rule.refuses())
	if rule.rewrite != nil && rule.rewrite.kind == replacePrefix && m.kind != pathPrefix {
		s.n.l.changed(l.at, "", "the prefix cannot be replaced: the location stands as a regular expression, since there are others")
		rule.rewrite = nil
	}
	gates = append(gates, s.except(l, g)...)
	b.decide(l, m, gates, decision{rule: rule, guard: g})
	if m.kind == pathPrefix {
		s.beyond(b, l, gates, decision{rule: rule, guard: g})
	}
	if l.kind == locPrefix && len(l.path) > 1 && (m.kind == pathPrefix || passes(l.sc)) {
		s.slash(b, l, rule, g)
	}
}

// unused notes directives of a location that are for requests that are passed on, where it passes none on by itself.
func (s *site) unused(l *loc) {
	if l.d == nil || passes(l.sc) {
		return
	}
	for _, d := range l.d.block {
		if line := s.n.l.lines[d.at]; line != nil && line.Result == "" && opens(d.name) && (strings.HasPrefix(d.name, "proxy_") || strings.HasPrefix(d.name, "grpc_")) {
			s.n.l.unneeded(d.at, "the location passes nothing on by itself")
		}
	}
}

// match returns the condition on the path of a location.
func (s *site) match(l *loc) (match, bool) {
	led, path := s.n.l, encoded(l.path)
	switch {
	case l.kind == locExact && validPath(pathExact, path):
		return match{kind: pathExact, path: path}, true
	case l.kind == locRegexp:
		path, joined := l.expression()
		re, ok := encodedRegexp(path, l.anyCase)
		if !ok {
			re = wider(path, l.anyCase)
		}
		l.exactly = !overlapped(led, s.locs, l) && ok && joined
		return match{kind: pathRegexp, path: re}, true
	case l.kind == locPrefix && l.stop && s.regex:
		re := regexp.QuoteMeta(path) + ".*"
		if !validPath(pathRegexp, re) {
			break
		}
		for _, o := range s.locs {
			if o.kind == locPrefix && !o.stop && len(o.path) > len(l.path) && strings.HasPrefix(o.path, l.path) {
				led.changed(o.at, "", "requests go to the location ^~ "+l.path+" before")
			}
		}
		return match{kind: pathRegexp, path: re}, true
	case l.kind == locPrefix && validPath(pathPrefix, path):
		if !strings.HasSuffix(l.path, "/") {
			led.changed(l.at, "routes[].rules[]", "a prefix ends with a segment: "+l.path+" does not have "+l.path+"x")
		}
		return match{kind: pathPrefix, path: path}, true
	}
	led.left(l.at, "requests do not have such a path", "write it without encoding, dots and repeated slashes")
	return match{}, false
}

// slash adds the rule for the path of a location without the slash at its end: nginx redirects it where the location passes requests
// on, and looks for another location elsewhere.
func (s *site) slash(b *builder, l *loc, rule *rule, g guard) {
	bare, ok := strings.CutSuffix(l.path, "/")
	if !ok || slices.ContainsFunc(s.locs, func(o *loc) bool { return (o.kind == locExact || o.kind == locPrefix) && o.path == bare }) {
		return
	}
	m := match{kind: pathExact, path: encoded(bare)}
	if passes(l.sc) {
		to := newRule(l.at)
		to.note = "without the slash"
		to.redirect = &redirect{status: 301, path: &modifier{replaceFull, l.path}}
		s.responseFields(to, l.sc, true)
		b.add(to, guard{bodyBytes: g.bodyBytes, errorPages: g.errorPages}, m)
		return
	}
	other := s.find(bare, l)
	if other == nil || other == l || s.depth > 0 {
		return
	}
	s.depth++
	defer func() { s.depth-- }()
	of, og := s.handler(other)
	if of.static != nil && rule.static != nil && of.static.root == rule.static.root && og.key() == g.key() && of.rewrite == nil && rule.rewrite == nil {
		return // the same answer
	}
	if of.rewrite != nil && of.rewrite.kind == replacePrefix {
		s.n.l.changed(l.at, "", bare+" is served here too")
		return
	}
	of = of.clone()
	of.note = "without the slash"
	b.decide(other, m, append((conditional{s}).gates(other, nil, of.refuses()), s.except(other, og)...), decision{rule: of, guard: og})
}

// passes reports whether the location passes requests on.
func passes(sc *scope) bool {
	for _, name := range []string{"proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"} {
		if len(sc.own(name)) > 0 {
			return true
		}
	}
	return false
}

// builder collects rules in routes: rules with different guards are in different routes.
type builder struct {
	*site
	routes  []*siteRoute
	regexps []placed // rules with regular expressions, in their order
	last    *rule    // that was added last, before it was cloned
}

// placed is a rule with its match.
type placed struct {
	match match
	decision
}

// decide adds the rules of a path: gates in their order, and content behind them.
func (b *builder) decide(l *loc, m match, gates []gate, content decision) {
	list, ok := decisions(match{}, gates, content)
	if ok {
		list, ok = b.n.l.arrange(list)
	}
	if !ok {
		r := b.n.l.close(l.at, "rules cannot have all of its conditions", "")
		list = []decision{{rule: r}}
	}
	for _, d := range list {
		with := d.cond
		with.kind, with.path = m.kind, m.path
		if m.kind == pathRegexp {
			b.before(with, &d)
		}
		b.add(d.rule, d.guard, with)
	}
}

// before keeps a rule with a regular expression behind those of locations before it: the gateway tries those with more conditions first,
// whatever their expressions are. They are repeated with the conditions of the rule.
func (b *builder) before(m match, d *decision) {
	bare := m
	bare.kind, bare.path = "", ""
	for _, e := range b.regexps {
		if d.rule.refuses() || e.match.path == m.path || compareRank(&bare, &e.cond) >= 0 {
			continue
		}
		both, how := conjoin(e.cond, bare)
		switch {
		case how == joins && len(b.regexps) < mostDecisions:
			both.kind, both.path = pathRegexp, e.match.path
			b.add(e.rule, e.guard, both)
		case how != excludes:
			d.rule = b.n.l.close(d.rule.at, "its condition comes before the regular expressions of other locations", "write the rules by hand")
		}
	}
	b.regexps = append(b.regexps, placed{m, decision{bare, d.rule, d.guard}})
}

// add puts a rule into the route of its guard. Rules with regular expressions keep their order over routes, since the gateway tries
// them in the order of the file.
func (b *builder) add(r *rule, g guard, m match) {
	if n := len(b.routes) - 1; b.last == r && m.kind != "" && b.routes[n].guard.key() == g.key() {
		if same := b.routes[n].rules[len(b.routes[n].rules)-1]; same.matches != nil && len(same.matches) < mostDecisions {
			same.matches = append(same.matches, m)
			return
		}
	}
	b.last = r
	r = r.clone()
	if m.kind != "" || len(m.headers)+len(m.query)+len(m.clients) > 0 || m.method != "" {
		r.matches = []match{m}
	}
	key := g.key()
	for i := len(b.routes) - 1; i >= 0; i-- {
		if o := b.routes[i]; o.guard.key() == key && len(o.rules) < 1000 {
			if o.rules = append(o.rules, r); i < len(b.routes)-1 {
				b.last = nil
			}
			return
		}
		if m.kind == pathRegexp || !m.bare() { // of equal ones the first counts
			break
		}
	}
	b.routes = append(b.routes, &siteRoute{at: b.v.d.at, guard: g, rules: []*rule{r}})
}

// mostHosts bounds the names of a route of the gateway.
const mostHosts = 1024

// finish enters the routes. The default server has all hosts, and its names as well where names with * of others would come before.
func (b *builder) finish(hosts []string) {
	lists := [][]string{hosts}
	if b.only == "" && b.p.fallback && b.p.wildcards && len(b.p.names) > 0 {
		lists = append(lists, b.p.names)
	}
	wish := cmp.Or(b.only, b.v.first, "default")
	for _, list := range lists {
		for first := true; first || len(list) > 0; first = false {
			some := list[:min(len(list), mostHosts)]
			list = list[len(some):]
			for _, r := range b.routes {
				r := *r
				r.name, r.listeners, r.hosts = b.n.m.unique("route", wish), b.p.listeners, some
				b.n.m.routes = append(b.n.m.routes, &r)
			}
		}
	}
}
