package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// handler translates the content of a location, and what its requests have to fulfil.
func (s *site) handler(l *loc) (*rule, guard) {
	led := s.n.l
	g := s.guard(l)
	if d := l.sc.own("internal"); l.d != nil && len(d) > 0 {
		led.changed(d[0].at, "FixedResponse", "clients get 404; the gateway has no redirects within it")
		return s.refusal(l.at, 404), guard{}
	}
	if r := s.locationAnswer(l); r != nil { // before clients and credentials are looked at
		return r, guard{bodyBytes: g.bodyBytes, errorPages: g.errorPages}
	}
	var r *rule
	switch {
	case len(l.sc.own("proxy_pass")) > 0:
		r = s.proxied(l, l.sc.own("proxy_pass")[0])
	case len(l.sc.own("grpc_pass")) > 0:
		r = s.proxied(l, l.sc.own("grpc_pass")[0])
	case passes(l.sc): // noted by the tables
		return s.refusal(l.at, 501), g
	case len(l.sc.own("stub_status"))+len(l.sc.own("content_by_lua_block"))+len(l.sc.own("content_by_lua"))+len(l.sc.own("js_content"))+len(l.sc.own("dav_methods"))+len(l.sc.own("flv"))+len(l.sc.own("mp4")) > 0:
		return s.refusal(l.at, 501), g
	case len(l.sc.own("empty_gif")) > 0:
		led.left(l.sc.own("empty_gif")[0].at, "the gateway has no such content", "serve a file")
		return s.refusal(l.at, 501), g
	default:
		r = s.files(l)
	}
	s.rewrites(l, r)
	s.responseFields(r, l.sc, false)
	return r, g
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
		url, ok = l.sc.plain(url)
	}
	scheme := "http"
	if d.name == "grpc_pass" {
		scheme = "grpc"
	}
	t, good := parseTarget(url, scheme)
	if !ok || !good {
		led.left(d.at, "the address has a variable that is no constant, or is none", "write a rule for each case")
		return s.refusal(d.at, 501)
	}
	name, ok := s.n.pool(l, &t, d)
	if !ok {
		return s.refusal(d.at, 501)
	}
	r.pools = []weighted{{name, 1}}
	led.ok(d.at, "backend_refs")
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

// requestFields translates the header that backends get.
func (s *site) requestFields(l *loc, d *directive, t *target, r *rule) {
	led := s.n.l
	own := "proxy_set_header"
	if d.name == "grpc_pass" {
		own = "grpc_set_header"
	}
	list := l.sc.find(own)
	host := ""
	for _, h := range list {
		name, value := strings.ToLower(h.arg(0)), h.arg(1)
		switch {
		case name == "host":
			host = value
			s.host(h, value, t, l.sc, r)
		case name == "upgrade" || name == "connection":
			led.ok(h.at, "")
			r.streaming = r.streaming || name == "upgrade"
		case name == "x-forwarded-for" && (value == "$proxy_add_x_forwarded_for" || value == "$remote_addr"):
			s.forwardedFor(h, value)
		case name == "x-forwarded-proto" && value == "$scheme" && !s.hidden():
			led.ok(h.at, "listeners[].forwarded")
		case slices.Contains(ownFields, name) || name == "accept-encoding" && value == "":
			if name == "accept-encoding" {
				r.request.without(name)
			}
			led.ok(h.at, "")
		default:
			s.requestField(h, name, value, l.sc, r)
		}
	}
	if host == "" {
		s.host(d, "$proxy_host", t, l.sc, r)
	}
	for _, name := range []string{"proxy_redirect"} {
		for _, d := range l.sc.find(name) {
			if d.arg(0) == "off" {
				led.ok(d.at, "")
			} else {
				led.changed(d.at, "", "Location of backends passes as it is")
			}
		}
	}
}

// hidden reports whether the listeners add no fields of the client.
func (s *site) hidden() bool {
	return slices.ContainsFunc(s.n.m.listeners, func(x *listener) bool { return x.noForwarded && slices.Contains(s.p.listeners, x.name) })
}

// forwardedFor notes what the gateway does by itself.
func (s *site) forwardedFor(d *directive, value string) {
	trusts := slices.ContainsFunc(s.n.m.listeners, func(x *listener) bool { return len(x.trusted) > 0 && slices.Contains(s.p.listeners, x.name) })
	if value == "$remote_addr" || trusts {
		s.n.l.ok(d.at, "listeners[].forwarded")
		return
	}
	s.n.l.changed(d.at, "listeners[].forwarded", "what clients claim is replaced and not continued, unless forwarded.trusted has them; X-Forwarded-Proto and -Host are sent too")
}

// host translates the field Host that backends get.
func (s *site) host(d *directive, value string, t *target, sc *scope, r *rule) {
	led := s.n.l
	if value == "$proxy_host" {
		value = t.host
	} else if plain, ok := sc.plain(strings.ReplaceAll(value, "$server_name", s.v.first)); ok {
		value = plain
	} else {
		switch value {
		case "$http_host", "${http_host}", "$host:$server_port":
			led.ok(d.at, "")
		case "$host", "${host}":
			if s.p.standard {
				led.ok(d.at, "")
			} else {
				led.changed(d.at, "", "backends get the port of Host, if the client sends it")
			}
		default:
			led.left(d.at, "the host has a variable", "write URLRewrite with a hostname")
		}
		return
	}
	name, port, hasPort := strings.Cut(value, ":")
	if strings.HasPrefix(value, "[") {
		end := strings.IndexByte(value, ']') + 1
		name, port, hasPort = value[:end], value[end:], end < len(value)
	}
	if name = strings.ToLower(name); !validHost(name) || strings.HasPrefix(name, "*") {
		led.changed(d.at, "", "backends get the client's Host: "+shorten(value)+" is no name of a host")
		return
	}
	r.hostname = name
	if hasPort {
		led.changed(d.at, "URLRewrite.hostname", "Host has no port: "+name+" in place of "+name+":"+strings.TrimPrefix(port, ":"))
		return
	}
	led.ok(d.at, "URLRewrite.hostname")
}

// requestField translates one field.
func (s *site) requestField(d *directive, name, value string, sc *scope, r *rule) {
	led := s.n.l
	if !validField(name) {
		led.left(d.at, "rules cannot edit the field", "")
		return
	}
	if value == "" {
		r.request.without(name)
		led.ok(d.at, "RequestHeaderModifier.remove")
		return
	}
	if same := strings.TrimPrefix(value, "$http_"); same != value && strings.ReplaceAll(same, "_", "-") == name && validToken(same) {
		led.ok(d.at, "") // as the client has sent it
		return
	}
	e := sc.expand(value, s.v.first)
	switch {
	case s.asked(sc, value):
		led.ok(d.at, "routes[].auth.forward.response_headers")
		return
	case strings.HasPrefix(value, "$ssl_client_"):
		led.left(d.at, "variables have nothing of a client's certificate", "see listeners[].tls.client_auth.forward")
		return
	case e.unknown != "":
		led.left(d.at, "the gateway has no variable "+e.unknown, "")
		return
	case !validValue(e.text) || e.text == "":
		led.left(d.at, "it is no value of a field", "")
		return
	case e.differs != "":
		led.changed(d.at, "RequestHeaderModifier", e.differs)
	case strings.Contains(value, "$proxy_add_x_forwarded_for"):
		led.changed(d.at, "RequestHeaderModifier", "what clients claim is replaced and not continued")
	default:
		led.ok(d.at, "RequestHeaderModifier.set")
	}
	r.request.put(name, e.text)
}

// responseFields translates add_header, expires and proxy_hide_header. Of a text that is returned Content-Type is its own.
func (s *site) responseFields(r *rule, sc *scope, text bool) {
	led := s.n.l
	for _, d := range sc.find("add_header") {
		name, e := strings.ToLower(d.arg(0)), sc.expand(d.arg(1), s.v.first)
		switch {
		case text && name == "content-type":
			led.ok(d.at, "FixedResponse")
		case d.arg(1) == "":
			led.ok(d.at, "") // nginx adds nothing
		case !validField(name) || !validValue(e.text) || e.text == "":
			led.left(d.at, "rules cannot add the field, or it is no value", "")
		case e.unknown != "":
			led.left(d.at, "the gateway has no variable "+e.unknown, "")
		case !r.response.more(name, e.text):
			led.left(d.at, "a field is added once", "put the values into one line, with commas")
		case d.arg(2) == "always" || d.arg(2) == "" && r.redirect != nil:
			led.ok(d.at, "ResponseHeaderModifier.add")
		default:
			led.changed(d.at, "ResponseHeaderModifier.add", "responses of all statuses get it, as with always")
		}
	}
	if d := sc.last("expires"); d != nil {
		s.expires(r, d)
	}
	for _, d := range sc.find("proxy_hide_header", "grpc_hide_header") {
		if name := strings.ToLower(d.arg(0)); validField(name) && !slices.ContainsFunc(r.response.add, func(h header) bool { return h.name == name }) {
			r.response.without(name)
			led.ok(d.at, "ResponseHeaderModifier.remove")
		} else if validField(name) { // added beside: in place of
			r.response.drop(name)
			e := s.added(sc, name)
			r.response.put(name, e)
			led.ok(d.at, "ResponseHeaderModifier.set")
		} else {
			led.ok(d.at, "")
		}
	}
}

// added returns the value that add_header gives a field.
func (s *site) added(sc *scope, name string) string {
	for _, d := range sc.find("add_header") {
		if strings.EqualFold(d.arg(0), name) {
			return sc.expand(d.arg(1), s.v.first).text
		}
	}
	return ""
}

// expires translates the lifetime of content.
func (s *site) expires(r *rule, d *directive) {
	value := ""
	arg := d.arg(len(d.args) - 1)
	t, ok := nginxTime(arg)
	switch {
	case arg == "off":
		s.n.l.ok(d.at, "")
		return
	case arg == "max":
		value = "max-age=315360000"
	case arg == "epoch", strings.HasPrefix(arg, "-"):
		value = "no-cache"
	case ok && d.arg(0) != "modified":
		value = fmt.Sprintf("max-age=%d", int64(t/time.Second))
	default:
		s.n.l.left(d.at, "the time depends on a variable or the file", "")
		return
	}
	if !r.response.more("cache-control", value) {
		s.n.l.left(d.at, "Cache-Control is added once", "put both into one add_header")
		return
	}
	s.n.l.changed(d.at, "ResponseHeaderModifier", "Cache-Control alone is sent, not Expires, with all statuses")
}
