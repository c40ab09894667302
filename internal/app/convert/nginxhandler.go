package convert

import (
	"fmt"
	"slices"
	"strings"
)

// handler translates the content of a location, and what its requests have to fulfil.
func (s *site) handler(l *loc) (*rule, guard) {
	led := s.n.l
	g := s.guard(l)
	if d := l.sc.own("internal"); l.d != nil && len(d) > 0 {
		if len(l.sc.own("alias"))+len(l.sc.own("root")) > 0 {
			led.left(d[0].at, "X-Accel-Redirect of backends is not followed", "have the application send the files, or serve them by a rule")
			s.rest(l, "its location is left out")
		} else {
			led.changed(d[0].at, "FixedResponse", "clients get 404; the gateway has no redirects within it")
		}
		return s.refusal(l.at, 404), guard{}
	}
	if r, og, ok := s.ledOn(l); ok {
		og.bodyBytes, og.errorPages = g.bodyBytes, g.errorPages
		return r, og
	}
	if r := s.locationAnswer(l); r != nil { // before clients and credentials are looked at
		return r, guard{bodyBytes: g.bodyBytes, errorPages: g.errorPages}
	}
	if d := s.unexpressed(l); d != nil {
		return s.closeFor(d, l), guard{bodyBytes: g.bodyBytes, errorPages: g.errorPages}
	}
	var r *rule
	switch {
	case len(l.sc.own("proxy_pass")) > 0:
		r = s.proxied(l, l.sc.own("proxy_pass")[0])
	case len(l.sc.own("grpc_pass")) > 0:
		r = s.proxied(l, l.sc.own("grpc_pass")[0])
	case len(l.sc.own("fastcgi_pass")) > 0:
		r = scripting{s}.scripted(l, l.sc.own("fastcgi_pass")[0])
	case passes(l.sc): // noted by the tables
		s.rest(l, "its location is left out")
		return s.refusal(l.at, 501), g
	case slices.ContainsFunc(nginxContent, func(name string) bool { return len(l.sc.own(name)) > 0 }):
		for _, name := range nginxContent {
			for _, d := range l.sc.own(name) {
				led.left(d.at, "the gateway has no such content", "serve a file, or name a backend")
			}
		}
		return s.refusal(l.at, 501), g
	default:
		s.named = nil
		r = s.files(l)
		scripting{s}.indexScript(l, r)
		if s.named != nil {
			s.both(l, &g, s.named)
		}
	}
	s.rewrites(l, r)
	s.responseFields(r, l.sc, false)
	return r, g
}

// nginxContent are directives whose content cannot be expressed.
var nginxContent = []string{
	"stub_status", "content_by_lua", "content_by_lua_block", "content_by_lua_file", "js_content", "perl", "dav_methods", "flv", "mp4", "empty_gif", "echo", "echo_exec",
	"echo_location", "random_index", "passenger_enabled", "nchan_publisher", "nchan_subscriber", "push_stream_publisher", "vhost_traffic_status_display",
}

// locationAnswer returns the rule of a location that returns, or redirects all of its paths; nil for another.
func (s *site) locationAnswer(l *loc) *rule {
	if l.d == nil {
		return nil // of the server: always has looked at it
	}
	for _, d := range l.sc.list {
		switch d.name {
		case "return":
			return s.returned(d, l.sc)
		case "rewrite":
			if r := s.rewriteAll(d, l.sc); r != nil {
				return r
			}
			f, ok := parseRewrite(d)
			if !ok || f.code == 0 || f.all {
				continue
			}
			if f.exact && l.kind == locExact && f.prefix == l.path || !f.exact && l.kind == locPrefix && strings.TrimSuffix(l.path, "/") == strings.TrimSuffix(f.prefix, "/") {
				r := newRule(d.at)
				if r.redirect = s.redirectOf(&f, d); r.redirect != nil {
					s.n.l.ok(d.at, "RequestRedirect")
					return r
				}
			}
		}
	}
	return nil
}

// rewrites translates the `rewrite` of a location that change the path for its content.
func (s *site) rewrites(l *loc, r *rule) {
	if l.d == nil {
		return
	}
	for _, d := range l.sc.own("rewrite") {
		f, ok := parseRewrite(d)
		to := f.to
		if to == "" {
			to = "/"
		}
		switch {
		case !r.refuses() && leadsToGuard(s.locs, d):
			*r = *s.n.l.closeRewrite(d)
		case !ok || f.flag != "break" || f.url || f.all || strings.Contains(to, "$") || !validReplacement(to) || r.answers() && r.static == nil || r.rewrite != nil:
			s.leftRewrite(d)
		case f.exact && l.kind == locExact && f.prefix == l.path:
			r.rewrite = &modifier{replaceFull, to}
			s.n.l.ok(d.at, "URLRewrite")
		case f.rest && l.kind == locPrefix && strings.TrimSuffix(l.path, "/") == strings.TrimSuffix(f.prefix, "/"):
			r.rewrite = &modifier{replacePrefix, to}
			s.n.l.ok(d.at, "URLRewrite")
		default:
			s.leftRewrite(d)
		}
	}
}

// target is where a directive passes requests on.
type target struct {
	scheme string // http, https, grpc, grpcs
	addr   string // host and port, a name of an upstream, or unix:path
	uri    string // what follows; "" is none
	host   string // $proxy_host
}

// parseTarget splits the URL of proxy_pass.
func parseTarget(s, scheme string) (t target, ok bool) {
	t.scheme, t.addr, ok = strings.Cut(s, "://")
	if !ok {
		t.scheme, t.addr = scheme, s
	}
	t.scheme = strings.ToLower(t.scheme)
	if t.scheme != "http" && t.scheme != "https" && t.scheme != "grpc" && t.scheme != "grpcs" {
		return t, false
	}
	if strings.HasPrefix(t.addr, "unix:") {
		path, uri, _ := strings.Cut(t.addr[5:], ":")
		t.addr, t.uri, t.host = "unix:"+path, uri, "localhost"
		return t, path != ""
	}
	if i := strings.IndexAny(t.addr, "/?"); i >= 0 {
		t.addr, t.uri = t.addr[:i], t.addr[i:]
	}
	t.host = t.addr
	if p := defaultPort(t.scheme); strings.HasSuffix(t.host, ":"+p) {
		t.host = strings.TrimSuffix(t.host, ":"+p)
	}
	return t, t.addr != ""
}

func defaultPort(scheme string) string {
	if scheme == "https" || scheme == "grpcs" {
		return "443"
	}
	return "80"
}

// proxied translates proxy_pass and grpc_pass.
func (s *site) proxied(l *loc, d *directive) *rule {
	led, r := s.n.l, newRule(d.at)
	url, ok := d.arg(0), true
	variables := strings.Contains(url, "$")
	if variables {
		url = strings.TrimSuffix(url, "$request_uri")
		if url, ok = l.sc.plain(url); !ok {
			url, ok = s.withoutQuery(l, d)
		}
	}
	scheme := "http"
	if d.name == "grpc_pass" {
		scheme = "grpc"
	}
	t, good := parseTarget(url, scheme)
	if !ok || !good {
		led.left(d.at, "the address has a variable that is no constant, or is none", "write a rule for each case")
		s.rest(l, "its location is left out")
		return s.refusal(d.at, 501)
	}
	name, ok := s.n.pool(l, &t, d)
	if !ok {
		return s.refusal(d.at, 501)
	}
	r.pools = []weighted{{name, 1}}
	led.ok(d.at, "backend_refs")
	if d.name == "proxy_pass" {
		r.cache = s.cached(l, "proxy")
	}
	s.replace(l, d, &t, variables, r)
	s.requestFields(l, d, &t, r)
	s.retries(l, r)
	if t := l.sc.last("proxy_read_timeout"); t != nil && r.streaming {
		if v, ok := nginxTime(t.arg(0)); ok {
			s.n.streamTimeout(s.p.listeners, v)
		}
	}
	return r
}

// withoutQuery returns the URL of proxy_pass without the query, where only that has variables.
func (s *site) withoutQuery(l *loc, d *directive) (string, bool) {
	base, _, found := strings.Cut(strings.Replace(d.arg(0), "$is_args$args", "?", 1), "?")
	url, ok := l.sc.plain(base)
	if ok && found {
		s.n.l.changed(d.at, "backend_refs", "the query passes as the client has sent it")
	}
	return url, ok && found
}

// replace translates the URI of proxy_pass, which replaces the text that the location has matched.
func (s *site) replace(l *loc, d *directive, t *target, variables bool, r *rule) {
	led := s.n.l
	uri, query, hasQuery := strings.Cut(t.uri, "?")
	if hasQuery && query != "" {
		led.changed(d.at, "URLRewrite", "the query of the URL is left out")
	}
	if uri == "" {
		return
	}
	if !validReplacement(uri) {
		led.left(d.at, "requests cannot have the path of the URL", "write it without encoding, dots and repeated slashes")
		return
	}
	switch {
	case variables, l.kind == locExact:
		r.rewrite = &modifier{replaceFull, uri}
	case l.kind != locPrefix:
		led.changed(d.at, "", "the path of the URL is left out: it is for prefixes")
	case l.path == "/" && uri == "/":
	case strings.HasSuffix(l.path, "/") != strings.HasSuffix(uri, "/"):
		led.changed(d.at, "URLRewrite", fmt.Sprintf("segments are replaced: nginx would put %s in the place of the bytes %s", shorten(uri), shorten(l.path)))
		fallthrough
	default:
		r.rewrite = &modifier{replacePrefix, uri}
	}
}

// retries translates proxy_next_upstream.
func (s *site) retries(l *loc, r *rule) {
	if d := l.sc.last("proxy_next_upstream_tries"); d != nil {
		if n := atoi(d.arg(0)); n > 0 {
			r.attempts = min(n-1, 10)
		}
		s.n.l.ok(d.at, "routes[].rules[].retry.attempts")
	}
	d := l.sc.last("proxy_next_upstream")
	if d == nil {
		return
	}
	s.n.l.ok(d.at, "routes[].rules[].retry")
	for _, a := range d.texts() {
		switch code := atoi(strings.TrimPrefix(a, "http_")); {
		case a == "off":
			r.attempts, r.codes = 0, nil
			return
		case a == "non_idempotent":
			s.n.l.changed(d.at, "routes[].rules[].retry", "methods that are not idempotent are not sent again")
		case strings.HasPrefix(a, "http_") && code >= 400 && code < 600:
			r.codes = append(r.codes, code)
		}
	}
}

// ledOn returns the rule of the named location that error_page leads a returned status to, as in `error_page 418 = @app; return 418;`.
func (s *site) ledOn(l *loc) (*rule, guard, bool) {
	p := s.leads(l)
	if p == nil || s.depth > 2 {
		return nil, guard{}, false
	}
	i := slices.IndexFunc(s.locs, func(o *loc) bool { return o.kind == locNamed && o.path == p.arg(len(p.args)-1) })
	s.depth++
	r, g := s.handler(s.locs[i])
	s.depth--
	s.n.l.ok(p.at, "backend_refs")
	s.n.l.ok(l.sc.own("return")[0].at, "backend_refs")
	r = r.clone()
	r.at = l.at
	return r, g, true
}

// leads returns the error_page that leads the returned status of a location to a named one, nil for none.
func (s *site) leads(l *loc) *directive {
	returned := l.sc.own("return")
	if l.d == nil || len(returned) == 0 {
		return nil
	}
	for _, p := range l.sc.own("error_page") {
		name := p.arg(len(p.args) - 1)
		named := slices.ContainsFunc(s.locs, func(o *loc) bool { return o.kind == locNamed && o.path == name })
		if named && p.has(returned[0].arg(0)) && p.has("=") {
			return p
		}
	}
	return nil
}

// both joins what a location and the named one that it leads to ask of requests: nginx asks it of those that reach the second, and
// the gateway of all of the rule.
func (s *site) both(l *loc, g, named *guard) {
	switch {
	case named.sources == nil:
	case g.sources == nil || fmt.Sprint(*g.sources) == fmt.Sprint(*named.sources):
		g.sources = named.sources
	default:
		g.sources = s.n.l.closeSources(l.at, "a route has one list of clients, and two meet", "write routes[].sources")
	}
	for _, name := range named.rateLimits {
		if !slices.Contains(g.rateLimits, name) {
			g.rateLimits = append(g.rateLimits, name)
		}
	}
	switch asks := g.users != "" || g.askPool != ""; {
	case named.users == "" && named.askPool == "":
	case asks && (g.users != named.users || g.askPool != named.askPool):
		g.sources = s.n.l.closeSources(l.at, "a route asks for credentials in one way, and two meet", "write routes[].auth")
	default:
		g.users, g.realm, g.askPool, g.askPath, g.askFields = named.users, named.realm, named.askPool, named.askPath, named.askFields
	}
}

// rest notes the directives of a location that no other result has reached.
func (s *site) rest(l *loc, why string) {
	if l.d == nil {
		return
	}
	for _, d := range l.d.block {
		if line := s.n.l.lines[d.at]; line != nil && line.Result == "" && d.name != "location" {
			s.n.l.left(d.at, why, "")
		}
	}
}
