package convert

import (
	"regexp"
	"slices"
	"strings"
)

// backendRules translates what a backend does with each of its requests.
func (h *haproxy) backendRules(p *proxy) *backendEdits {
	e := &backendEdits{attempts: -1}
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
		case name == "http-request deny" || name == "http-request reject":
			if h.condition(p, x.words).known && !slices.Contains(x.words, "if") && !slices.Contains(x.words, "unless") {
				e.fixed = &fixed{status: 403}
				h.l.ok(x.at, "FixedResponse")
				continue
			}
			h.l.left(x.at, "rules of a backend with a condition are not translated", "write them in the frontend, and convert again")
		case name == "http-request redirect" || x.words[0] == "redirect":
			h.backendRedirect(p, e, x)
		case name == "http-request auth":
			h.l.left(x.at, "passwords are in a file of htpasswd: no client is served", "write one with htpasswd -B, and name it in routes[].auth.basic")
			e.fixed = &fixed{status: 403}
		default:
			h.rewrite(p, e, x)
		}
	}
	return e
}

// backendRedirect translates the redirect to HTTPS of a backend.
func (h *haproxy) backendRedirect(p *proxy, e *backendEdits, x *line) {
	words := x.words
	if words[0] == "http-request" {
		words = words[1:]
	}
	v := h.condition(p, x.words)
	r, ok := (&frontend{h: h, p: p}).redirect(x, words)
	switch {
	case !ok:
	case v.known && len(v.atoms) == 1 && onlyTLS(v.atoms[0]) && v.atoms[0].tls == -1:
		e.toTLS = r.redirect
		h.l.ok(x.at, "RequestRedirect")
	default:
		h.l.left(x.at, "rules of a backend with a condition are not translated", "write them in the frontend, and convert again")
	}
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
	for _, x := range p.lines {
		switch {
		case x.words[0] == "mode":
			h.l.ok(x.at, "listeners[].protocol")
		case x.words[0] == "use_backend":
			byName = true
		case x.words[0] == "tcp-request" || x.words[0] == "http-request":
			h.tcpRule(p, x, listeners)
		}
	}
	for _, v := range listeners {
		names = append(names, v.name)
		if byName {
			v.protocol = protoTLS
		}
	}
	h.serverNames(p, names)
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
func (h *haproxy) serverNames(p *proxy, listeners []string) {
	taken := map[string]bool{}
	for _, x := range p.all("use_backend") {
		v, pool := h.condition(p, x.words), h.tcpPool(x, x.arg(1))
		if !v.known || pool == "" {
			h.l.left(x.at, "its condition is none on the server name or the client", "write tls_routes")
			continue
		}
		h.l.ok(x.at, "tls_routes[]")
		for _, a := range v.atoms {
			hosts := slices.DeleteFunc(slices.Clone(a.hosts), func(s string) bool { return taken[s] && len(a.match.clients) == 0 })
			other := a.match
			other.clients = nil
			if other.kind != "" || !other.bare() || len(a.notFrom) > 0 || len(a.hosts) > 0 && len(hosts) == 0 || a.never {
				h.l.changed(x.at, "tls_routes[]", "what is no server name or client is left out")
				continue
			}
			for _, s := range hosts {
				taken[s] = true
			}
			h.m.tlsRoutes = append(h.m.tlsRoutes, &streamRoute{
				at: x.at, name: h.m.unique("route", x.arg(1)), listeners: listeners, hosts: hosts, clients: a.match.clients, pools: []weighted{{pool, 1}},
			})
		}
	}
}

// tcpRule translates rules on connections.
func (h *haproxy) tcpRule(p *proxy, x *line, listeners []*listener) {
	f := &frontend{h: h, p: p}
	if x.words[0] == "tcp-request" && x.arg(1) != "inspect-delay" {
		if f.refuse(x); f.sources != nil {
			h.l.ok(x.at, "listeners[].sources")
			for _, v := range listeners {
				v.sources = f.sources
			}
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
