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
}

// site is the translation of one server at some listeners.
type site struct {
	n     *nginx
	v     *server
	p     *part
	locs  []*loc
	regex bool   // some location is a regular expression
	depth int    // of locations that lead to others
	named *guard // of the named location that try_files has led to
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
		s := &site{n: n, v: v, p: p, locs: locs}
		s.regex = slices.ContainsFunc(locs, func(l *loc) bool { return l.kind == locRegexp })
		if !p.fallback && len(p.names) == 0 {
			n.l.changed(v.d.at, "", "no request reaches it: no name of its own is left, and another server is the default")
			continue
		}
		s.build()
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
			case line == nil || line.Result != "":
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
		out = append(append(out, l), n.locations(d.block, l.sc, l)...)
	}
	return out
}

// find returns the location of a path, as nginx finds it; without is left out.
func (s *site) find(path string, without *loc) *loc {
	var best *loc
	for _, l := range s.locs {
		switch {
		case l == without:
		case l.kind == locExact && l.path == path:
			return l
		case l.kind == locPrefix && strings.HasPrefix(path, l.path) && (best == nil || len(l.path) > len(best.path)):
			best = l
		}
	}
	if best != nil && best.stop {
		return best
	}
	for _, l := range s.locs {
		if l.kind != locRegexp || l == without {
			continue
		}
		if re, ok := wholeRegexp(l.path, l.anyCase); ok {
			if m, err := regexp.MatchString(`\A(?:`+re+`)\z`, path); err == nil && m {
				return l
			}
		}
	}
	return best
}

// build makes the routes. The gateway tries exact paths first, then regular expressions in their order, then the longest prefix;
// nginx does the same but for ^~, which becomes a regular expression where there are others.
func (s *site) build() {
	b := &builder{site: s}
	hosts := s.p.names
	if s.p.fallback {
		hosts = nil
	}
	if hosts = s.hostAnswers(hosts); len(hosts) == 0 && !s.p.fallback {
		return // all names are answered
	}
	if rule := s.always(); rule != nil {
		b.add(rule, guard{}, match{})
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

// rank orders locations as the gateway tries them.
func (s *site) rank(l *loc) int {
	switch {
	case l.kind == locExact:
		return 0
	case l.kind == locPrefix && l.stop && s.regex:
		return 1
	case l.kind == locRegexp:
		return 2
	}
	return 3
}

// longer orders prefixes that stand as regular expressions: the longest first.
func (s *site) longer(a, b *loc) int {
	if s.rank(a) != 1 {
		return 0
	}
	return cmp.Compare(len(b.path), len(a.path))
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
	s.conditions(b, l, m, g, nil)
	if rule.rewrite != nil && rule.rewrite.kind == replacePrefix && m.kind != pathPrefix {
		s.n.l.changed(l.at, "", "the prefix cannot be replaced: the location stands as a regular expression, since there are others")
		rule.rewrite = nil
	}
	s.except(b, l, rule, g, m)
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
		if line := s.n.l.lines[d.at]; line != nil && line.Result == "" && (strings.HasPrefix(d.name, "proxy_") || strings.HasPrefix(d.name, "grpc_")) {
			s.n.l.unneeded(d.at, "the location passes nothing on by itself")
		}
	}
}

// match returns the condition on the path of a location.
func (s *site) match(l *loc) (match, bool) {
	led := s.n.l
	switch {
	case l.kind == locExact && validPath(pathExact, l.path):
		return match{kind: pathExact, path: l.path}, true
	case l.kind == locRegexp:
		path := l.path
		if w := l.within; w != nil && w.kind == locPrefix && !strings.HasPrefix(path, "^") && !strings.Contains(path, "|") {
			path = "^" + regexp.QuoteMeta(w.path) + ".*" + path
		}
		re, ok := wholeRegexp(path, l.anyCase)
		if !ok {
			led.left(l.at, "RE2 has no such regular expression", "write it without look-around and back references")
			return match{}, false
		}
		return match{kind: pathRegexp, path: re}, true
	case l.kind == locPrefix && l.stop && s.regex:
		re := regexp.QuoteMeta(l.path) + ".*"
		if !validPath(pathRegexp, re) {
			break
		}
		for _, o := range s.locs {
			if o.kind == locPrefix && !o.stop && len(o.path) > len(l.path) && strings.HasPrefix(o.path, l.path) {
				led.changed(o.at, "", "requests go to the location ^~ "+l.path+" before")
			}
		}
		return match{kind: pathRegexp, path: re}, true
	case l.kind == locPrefix && validPath(pathPrefix, l.path):
		if !strings.HasSuffix(l.path, "/") {
			led.changed(l.at, "routes[].rules[]", "a prefix ends with a segment: "+l.path+" does not have "+l.path+"x")
		}
		return match{kind: pathPrefix, path: l.path}, true
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
	m := match{kind: pathExact, path: bare}
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
	b.add(of, og, m)
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
	routes []*siteRoute
}

// add puts a rule into the route of its guard. Rules with regular expressions keep their order over routes, since the gateway tries
// them in the order of the file.
func (b *builder) add(r *rule, g guard, m match) {
	r = r.clone()
	if m.kind != "" || len(m.headers)+len(m.query)+len(m.clients) > 0 || m.method != "" {
		r.matches = []match{m}
	}
	key := g.key()
	for i := len(b.routes) - 1; i >= 0; i-- {
		if o := b.routes[i]; o.guard.key() == key && len(o.rules) < 1000 {
			o.rules = append(o.rules, r)
			return
		}
		if m.kind == pathRegexp {
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
	if b.p.fallback && b.p.wildcards && len(b.p.names) > 0 {
		lists = append(lists, b.p.names)
	}
	wish := b.v.first
	if wish == "" {
		wish = "default"
	}
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
