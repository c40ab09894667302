package convert

import (
	"regexp"
	"slices"
	"strings"
)

// backendRules translates what a backend does with each of its requests.
func (h *haproxy) backendRules(p *proxy) *backendEdits {
	e := &backendEdits{attempts: -1, of: p}
	if x := p.last("retries"); x != nil && !p.tcp() {
		e.attempts = min(atoi(x.arg(1)), 10)
		h.l.ok(x.at, "routes[].rules[].retry.attempts")
	}
	if x := p.last("retry-on"); x != nil {
		for _, w := range x.words[1:] {
			if n := atoi(w); n >= 400 && n < 600 {
				e.codes = append(e.codes, n)
			}
		}
		h.l.ok(x.at, "routes[].rules[].retry.codes")
	}
	h.backendGuards(p, e)
	if p.kind == "listen" { // its rules are those of a frontend
		for _, x := range p.lines {
			h.rewrite(p, e, x)
		}
		return e
	}
	for _, x := range p.lines {
		name := x.name()
		switch {
		case fieldEdit(name):
			v := h.condition(p, x.words)
			switch {
			case !v.known || len(v.atoms) != 1 || !onlyTLS(v.atoms[0]) || v.atoms[0].tls < 0:
				h.l.left(x.at, "its condition is left out, and with it the field", "set the field in rules with the condition as their match")
			case v.atoms[0].tls > 0:
				h.edit(x, &e.tls, &edits{}, 1)
			default:
				h.edit(x, &e.request, &e.response, 0)
			}
		default:
			h.rewrite(p, e, x)
		}
	}
	return e
}

// backendGuard is a line of a backend that answers some of its requests.
type backendGuard struct {
	at   pos
	cond verdict
	rule *rule
}

// backendGuards reads the lines of a backend that answer requests, which come before its servers in each rule that leads to it.
func (h *haproxy) backendGuards(p *proxy, e *backendEdits) {
	f := &frontend{h: h, p: p}
	for _, x := range p.lines {
		switch {
		case f.closeEdited(x):
		case x.name() == "http-request redirect" || x.words[0] == "redirect":
			if !h.backendRedirect(f, e, x) {
				f.guard(x)
			}
		case x.refuses():
			f.guard(x)
		}
	}
	for _, it := range f.items {
		e.guards = append(e.guards, backendGuard{it.at, verdict{atoms: []atom{it.atom}, known: true}, it.rule})
	}
	if s := f.sources; s != nil { // of tcp-request
		r := newRule(p.at)
		r.note, r.fixed = "clients of the backend", &fixed{status: 403}
		deny := verdict{known: true}
		switch {
		case s.denyOthers && len(s.allow) > 0:
			deny.atoms = append(deny.atoms, atom{notFrom: s.allow})
		case s.denyOthers:
			deny = always
		}
		if len(s.deny) > 0 {
			deny.atoms = append(deny.atoms, atom{match: match{clients: s.deny}})
		}
		if slices.ContainsFunc(slices.Concat(s.deny, s.allow), func(c string) bool { return !validPrefix(c) }) { // files
			deny, r = always, h.l.close(p.at, "lists of clients in files are of routes", "write routes[].sources")
		}
		e.guards = append(e.guards, backendGuard{p.at, deny, r})
	}
}

// guard reads one such line.
func (f *frontend) guard(x *line) {
	switch {
	case x.words[0] == "tcp-request":
		f.refuse(x)
	case x.name() == "http-request use-service":
		f.service(x)
	case x.guards():
		f.closeLine(x)
	case x.words[0] == "redirect":
		f.decide(x, x.words)
	default:
		f.decide(x, x.words[1:])
	}
}

// backendRedirect translates the redirect to HTTPS of a backend.
func (h *haproxy) backendRedirect(f *frontend, e *backendEdits, x *line) bool {
	v := h.condition(f.p, x.words)
	if !v.known || len(v.atoms) != 1 || !onlyTLS(v.atoms[0]) || v.atoms[0].tls != -1 {
		return false
	}
	words := x.words
	if words[0] == "http-request" {
		words = words[1:]
	}
	r, ok := f.redirect(x, words)
	if ok {
		e.toTLS = r.redirect
		h.l.ok(x.at, "RequestRedirect")
	}
	return true
}

// The forms of paths that are replaced: a prefix is taken off, or another is put in its place.
var (
	replacePath = regexp.MustCompile(`^\^?(/[A-Za-z0-9/_~.-]*?)/?\(?(?:\[/\]|/)?\)?[?*]?\(?(?:/?\.\*|\.\*)\)?\$?$`)
	regsub      = regexp.MustCompile(`^%\[path,regsub\(\^?(/[A-Za-z0-9/_~.-]*?)/?,([A-Za-z0-9/_~.-]*)\)\]$`)
)

// rewrite translates set-path, replace-path and replace-uri that change a prefix.
func (h *haproxy) rewrite(p *proxy, e *backendEdits, x *line) {
	prefix, to, known := "", "", false
	switch x.name() {
	case "http-request set-path":
		if m := regsub.FindStringSubmatch(x.arg(2)); m != nil {
			prefix, to, known = m[1], m[2], true
		}
	case "http-request replace-path", "http-request replace-uri", "http-request replace-pathq":
		if m := replacePath.FindStringSubmatch(x.arg(2)); m != nil && strings.Contains(x.arg(2), "(") {
			rest := x.arg(3)
			for _, group := range []string{`\1`, `\2`, "%[path]"} {
				rest = strings.TrimSuffix(rest, group)
			}
			prefix, to, known = m[1], rest, !strings.ContainsAny(rest, `\%`)
		}
	default:
		return
	}
	if to == "" {
		to = "/"
	}
	prefix = strings.TrimSuffix(prefix, "/")
	conditional := slices.Contains(x.words, "if") || slices.Contains(x.words, "unless")
	if !known || e.rewrite != nil || !validReplacement(to) || prefix != "" && !validPath(pathPrefix, prefix) || conditional && !h.samePrefix(p, x, prefix) {
		h.l.left(x.at, "rules replace a whole path, or a prefix", "write URLRewrite in a rule for the prefix")
		return
	}
	e.rewrite, e.rewriteAt, e.prefix = &modifier{replacePrefix, to}, x.at, prefix
	h.l.ok(x.at, "URLRewrite")
}

// samePrefix reports whether the condition of a rewrite is the prefix that it replaces.
func (h *haproxy) samePrefix(p *proxy, x *line, prefix string) bool {
	v := h.condition(p, x.words)
	return v.known && len(v.atoms) == 1 && v.atoms[0].match.kind == pathPrefix && strings.TrimSuffix(v.atoms[0].match.path, "/") == prefix
}

// tcpFront translates a frontend of TCP. Where it looks at server names, TLS is passed through by them.
func (h *haproxy) tcpFront(p *proxy) {
	listeners := h.bind(p)
	if len(listeners) == 0 {
		return
	}
	var names []string
	byName := false
	f := &frontend{h: h, p: p}
	f.connections(p, listeners)
	for _, x := range p.lines {
		switch x.words[0] {
		case "mode":
			h.l.ok(x.at, "listeners[].protocol")
		case "use_backend":
			byName = true
			f.connections(h.backends[x.arg(1)], listeners)
		case "default_backend":
			f.connections(h.backends[x.arg(1)], listeners)
		}
	}
	for _, v := range listeners {
		names = append(names, v.name)
		if byName {
			v.protocol = protoTLS
		}
	}
	h.serverNames(p, names, listeners)
	fallback := ""
	x := p.last("default_backend")
	switch {
	case x != nil:
		if fallback = h.tcpPool(x, x.arg(1)); fallback != "" {
			h.l.ok(x.at, "tcp_routes[]")
		}
	case p.kind == "listen":
		x = &line{words: []string{"listen"}, at: p.at}
		fallback = h.tcpPool(x, p.name)
	}
	if fallback == "" {
		if !byName {
			h.m.listeners = slices.DeleteFunc(h.m.listeners, func(v *listener) bool { return slices.Contains(names, v.name) })
			h.l.left(p.at, "it leads to no backend", "")
		}
		return
	}
	r := &streamRoute{at: x.at, name: h.m.unique("route", p.name), listeners: names, pools: []weighted{{fallback, 1}}}
	if byName {
		h.m.tlsRoutes = append(h.m.tlsRoutes, r)
	} else {
		h.m.tcpRoutes = append(h.m.tcpRoutes, r)
	}
}

// serverNames makes the routes of server names, in the order of use_backend.
func (h *haproxy) serverNames(p *proxy, names []string, listeners []*listener) {
	taken := map[string]bool{}
	for _, x := range p.all("use_backend") {
		v, pool := h.condition(p, x.words), h.tcpPool(x, x.arg(1))
		if h.closeConnections(p, x, v, pool, listeners) {
			continue
		}
		if !v.known || pool == "" {
			h.l.left(x.at, "its condition is none on the server name or the client", "write tls_routes")
			continue
		}
		h.l.ok(x.at, "tls_routes[]")
		for _, a := range v.atoms {
			hosts := slices.DeleteFunc(slices.Clone(a.hosts), func(s string) bool { return taken[s] && len(a.match.clients) == 0 })
			other := a.match
			other.clients = nil
			if other.kind != "" || !other.bare() || len(a.notFrom)+len(a.except) > 0 || len(a.hosts) > 0 && len(hosts) == 0 || a.never {
				h.l.changed(x.at, "tls_routes[]", "what is no server name or client is left out")
				continue
			}
			for _, s := range hosts {
				taken[s] = true
			}
			h.m.tlsRoutes = append(h.m.tlsRoutes, &streamRoute{
				at: x.at, name: h.m.unique("route", x.arg(1)), listeners: names, hosts: hosts, clients: a.match.clients, pools: []weighted{{pool, 1}},
			})
		}
	}
}

// closeConnections closes the connections of a use_backend that may keep clients from the backends behind it, and that routes cannot
// have: those of its clients, where it is for some that lead nowhere, and else all.
func (h *haproxy) closeConnections(p *proxy, x *line, v verdict, pool string, listeners []*listener) bool {
	only := func(a atom) bool {
		other := a.match
		other.clients = nil
		return len(a.match.clients) > 0 && len(a.hosts)+len(a.notFrom)+len(a.except) == 0 && a.tls == 0 && other.kind == "" && other.bare()
	}
	all := &sources{denyOthers: true}
	switch {
	case never(v):
		return false
	case v.known && pool == "" && !slices.ContainsFunc(v.atoms, func(a atom) bool { return !only(a) }):
		h.l.changed(x.at, "listeners[].sources", "the backend has no server: connections of these clients are refused")
		for _, s := range listeners {
			with := sources{}
			if s.sources != nil {
				with = *s.sources
			}
			with.deny = slices.Clone(with.deny)
			for _, a := range v.atoms {
				with.deny = append(with.deny, a.match.clients...)
			}
			s.sources = &with
		}
		return true
	case v.known && pool != "" && !slices.ContainsFunc(v.atoms, func(a atom) bool { return len(a.notFrom)+len(a.except) > 0 }), !v.known && pool != "" && h.routing(p, x.words):
		return false
	}
	h.l.closeSources(x.at, "routes of connections are by the server name and the client alone", "write tls_routes")
	for _, s := range listeners {
		s.sources = all
	}
	return true
}

// connections translates the rules of a section on connections, as lists of clients of listeners.
func (f *frontend) connections(p *proxy, listeners []*listener) {
	if p == nil {
		return
	}
	of := *f
	of.p = p
	for _, x := range p.lines {
		switch {
		case x.words[0] == "tcp-request" && x.arg(1) != "inspect-delay" && x != of.listed:
			of.refuse(x)
		case x.words[0] != "tcp-request" && x.words[0] != "http-request" && x.guards():
			of.closeLine(x)
		}
	}
	if f.sources = of.sources; len(of.items) > 0 { // of requests, which are not seen here
		f.sources = &sources{denyOthers: true}
	}
	if s := f.sources; s != nil && (s.denyOthers || len(s.deny) > 0) {
		for _, v := range listeners {
			v.sources = s
		}
	}
}

// tcpPool returns the name of the pool of a backend of TCP, "" where there is none.
func (h *haproxy) tcpPool(x *line, name string) string {
	p := h.backends[name]
	if p == nil {
		h.l.left(x.at, "there is no backend "+shorten(name), "")
		return ""
	}
	l := h.pool(p)
	if l == nil || !l.tcp() {
		h.l.left(x.at, "the backend has no server of TCP", "")
		return ""
	}
	return l.name
}
