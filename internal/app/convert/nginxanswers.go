package convert

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// returned translates `return`; nil for one that cannot be.
func (s *site) returned(d *directive, sc *scope) *rule {
	led, r := s.n.l, newRule(d.at)
	code, text := atoi(d.arg(0)), d.arg(1)
	if code == 0 && len(d.args) == 1 { // the URL alone
		code, text = 302, d.arg(0)
	}
	if u, ok := s.redirectTo(text, sc); len(d.args) > 0 && slices.Contains([]int{301, 302, 303, 307, 308}, code) {
		if !ok {
			led.left(d.at, "the gateway lacks a variable of the URL, or it may lead to another host", "write the URL with the variables of docs/http-gateway.md")
			return s.refusal(d.at, 501)
		}
		r.redirect = &redirect{status: code, location: u}
		led.ok(d.at, "RequestRedirect")
		return r
	}
	switch {
	case code == 444:
		led.changed(d.at, "FixedResponse", "the request is answered 403; nginx closes the connection")
		return s.refusal(d.at, 403)
	case code < 200 || code > 599:
		led.left(d.at, "it is no status of a response", "")
		return s.refusal(d.at, 501)
	}
	r.fixed = &fixed{status: code, body: text, kind: s.typeOf(sc)}
	switch plain, ok := sc.plain(text); {
	case !ok || !printable(plain):
		led.changed(d.at, "FixedResponse", "the text has no variables")
		r.fixed.body = ""
	case code == 204 || code == 205 || code == 304:
		r.fixed.body = ""
		led.ok(d.at, "FixedResponse")
	case len(plain) > 64<<10:
		led.left(d.at, "the text is longer than 64 KiB", "serve it as a file")
		r.fixed.body = ""
	default:
		r.fixed.body = plain
		led.ok(d.at, "FixedResponse")
	}
	s.responseFields(r, sc, true)
	return r
}

// typeOf returns the media type of a text that is returned.
func (s *site) typeOf(sc *scope) string {
	for _, d := range sc.find("add_header") {
		if strings.EqualFold(d.arg(0), "content-type") && validValue(literal(d.arg(1))) && d.arg(1) != "" {
			return literal(d.arg(1))
		}
	}
	if t := sc.value("default_type"); t != "" && validValue(literal(t)) {
		return literal(t)
	}
	return "text/plain"
}

// refusal is the answer in the place of what cannot be expressed.
func (s *site) refusal(at pos, status int) *rule {
	r := newRule(at)
	r.fixed = &fixed{status: status}
	if status == 501 {
		r.note = "not translated, see the report"
	}
	return r
}

// redirectTo translates the URL of a redirect.
func (s *site) redirectTo(text string, sc *scope) (string, bool) {
	e := sc.expand(text, s.v.first)
	if strings.HasPrefix(e.text, "/") && sc.value("absolute_redirect") != "off" { // nginx adds the rest
		origin := "${scheme}://${hostname}"
		if !s.p.standard {
			origin += ":${listener_port}"
		}
		e.text = origin + e.text
	}
	return e.text, e.unknown == "" && validLocation(e.text)
}

// validLocation reports whether the gateway takes a URL with variables: its host must not come from the path of a request.
func validLocation(u string) bool {
	if u == "" || !validValue(u) || strings.ContainsAny(u, " \"<>\\^`|") {
		return false
	}
	for _, scheme := range []string{"https://", "http://", "${scheme}://"} {
		if rest, ok := strings.CutPrefix(u, scheme); ok {
			return rest != "" && (strings.HasPrefix(rest, "${host}") || strings.HasPrefix(rest, "${hostname}") || !strings.ContainsAny(rest[:1], "/\\$?#@"))
		}
	}
	return u == "/" || len(u) > 1 && u[0] == '/' && !strings.ContainsAny(u[1:2], "/\\$")
}

// always returns the rule of a server that answers everything itself; nil for another.
func (s *site) always() *rule {
	for _, d := range s.v.sc.list {
		switch d.name {
		case "return":
			return s.returned(d, s.v.sc)
		case "rewrite":
			if r := s.rewriteAll(d, s.v.sc); r != nil {
				return r
			}
		case "if":
			c := parseCondition(d)
			if c.scheme == "" || !c.known {
				continue
			}
			s.n.l.ok(d.at, "routes[].listeners")
			if (c.scheme == "http") != s.p.plain {
				s.answerOf(d) // for the report
				continue
			}
			if r := s.answerOf(d); r != nil {
				return r
			}
		}
	}
	return nil
}

// answerOf returns the rule of a block that returns, or redirects everything; nil for another, which is left out.
func (s *site) answerOf(d *directive) *rule {
	for _, inner := range d.block {
		switch inner.name {
		case "return":
			return s.returned(inner, newScope(s.v.sc, d.block))
		case "rewrite":
			if r := s.rewriteAll(inner, s.v.sc); r != nil {
				return r
			}
		}
	}
	return nil
}

// hostAnswers translates `if ($host = name)` of a server, as certbot writes it: each name gets a route of its own. It returns the
// names that are left.
func (s *site) hostAnswers(hosts []string) []string {
	for _, d := range s.v.sc.own("if") {
		c := parseCondition(d)
		if !c.known || c.host == "" {
			continue
		}
		if !validHost(c.host) || strings.HasPrefix(c.host, "*") {
			s.n.l.left(d.at, "it is no name of a host", "")
			continue
		}
		if !s.p.fallback && !slices.Contains(hosts, c.host) {
			s.n.l.ok(d.at, "routes[].hostnames") // no request has it here
			s.answerOf(d)
			continue
		}
		r := s.answerOf(d)
		if r == nil {
			s.leftCondition(d)
			continue
		}
		s.n.l.ok(d.at, "routes[].hostnames")
		s.n.m.routes = append(s.n.m.routes, &siteRoute{
			at: d.at, name: s.n.m.unique("route", c.host), listeners: s.p.listeners, hosts: []string{c.host}, rules: []*rule{r},
		})
		hosts = slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == c.host })
	}
	return hosts
}

// test is the condition of an `if`, of the kinds that have a counterpart.
type test struct {
	known   bool
	host    string
	scheme  string
	methods []string
	header  condition
	query   condition
}

var methodList = regexp.MustCompile(`^\^?\(?([A-Z]+(?:\|[A-Z]+)*)\)?\$?$`)

// parseCondition reads the condition of an `if`.
func parseCondition(d *directive) (c test) {
	words := d.texts()
	if len(words) == 0 {
		return c
	}
	words[0] = strings.TrimPrefix(words[0], "(")
	last := len(words) - 1
	words[last] = strings.TrimSuffix(words[last], ")")
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	if len(words) == 2 && words[1] == "=" || len(words) == 2 && words[1] == "!=" {
		words = append(words, "") // quotes with nothing
	}
	if len(words) != 3 {
		return c
	}
	name, op, value := words[0], words[1], words[2]
	switch {
	case (name == "$host" || name == "$http_host") && op == "=":
		c.host, c.known = strings.ToLower(value), true
	case name == "$scheme" && (op == "=" && value == "http" || op == "!=" && value == "https") || name == "$https" && (op == "=" && value == "" || op == "!=" && value == "on"):
		c.scheme, c.known = "http", true
	case name == "$scheme" && op == "=" && value == "https" || name == "$https" && op == "=" && value == "on":
		c.scheme, c.known = "https", true
	case name == "$request_method" && (op == "=" || op == "~"):
		if m := methodList.FindStringSubmatch(value); m != nil && (op == "~" || !strings.Contains(value, "|")) {
			c.methods, c.known = strings.Split(m[1], "|"), len(m[1]) < 200
		}
	case strings.HasPrefix(name, "$http_") && validField(strings.ReplaceAll(name[6:], "_", "-")):
		c.header, c.known = valueCondition(strings.ReplaceAll(name[6:], "_", "-"), op, value)
	case strings.HasPrefix(name, "$arg_") && validToken(name[5:]):
		c.query, c.known = valueCondition(name[5:], op, value)
	}
	return c
}

func valueCondition(name, op, value string) (c condition, ok bool) {
	c = condition{name: strings.ToLower(name), value: value}
	switch op {
	case "=":
		return c, value != "" && printable(value)
	case "~", "~*":
		c.value, ok = wholeRegexp(value, op == "~*")
		c.regexp = true
		return c, ok
	}
	return c, false
}

// conditions adds the rules of `if` blocks: those of the server, which come before every location, and those of the location. Of the
// server those behind a directive do not count, unless it is nil.
func (s *site) conditions(b *builder, l *loc, m match, g guard, until *directive) {
	lists := [][]*directive{s.v.sc.own("if")}
	if l.d != nil {
		lists = append(lists, l.sc.own("if"))
	}
	for i, list := range lists {
		for _, d := range list {
			if until != nil && slices.Index(s.v.sc.list, d) > slices.Index(s.v.sc.list, until) {
				break
			}
			c := parseCondition(d)
			if c.host != "" && i == 0 || c.scheme != "" && i == 0 {
				continue
			}
			if c.scheme != "" && c.known {
				s.n.l.ok(d.at, "routes[].listeners")
				if r := s.answerOf(d); r != nil && (c.scheme == "http") == s.p.plain {
					r.note = "all requests of these listeners"
					b.add(r, guard{}, m)
				}
				continue
			}
			r := s.answerOf(d)
			if c.known && c.host == "" && r == nil {
				s.n.l.left(d.at, "rules with a condition answer, or lead to a pool: they do not change others", "write the rule twice, with the condition as a match")
				for _, inner := range d.block {
					s.n.l.left(inner.at, "its condition is left out", "")
				}
				continue
			}
			if !c.known || c.host != "" {
				if (scripting{s}).checked(l, d) {
					continue
				}
				s.leftCondition(d)
				continue
			}
			s.n.l.ok(d.at, "routes[].rules[].matches[]")
			if len(c.methods) == 0 {
				c.methods = []string{""}
			}
			for _, method := range c.methods {
				with := m
				if with.kind == "" {
					with.kind, with.path = pathPrefix, "/"
				}
				with.method = method
				if c.header.name != "" {
					with.headers = []condition{c.header}
				}
				if c.query.name != "" {
					with.query = []condition{c.query}
				}
				b.add(r, guard{sources: g.sources}, with)
			}
		}
	}
}

// leftCondition notes an `if` that cannot be expressed, and what is in it.
func (s *site) leftCondition(d *directive) {
	why, remedy := "the gateway has no such condition", "write rules with matches by host, path, method, header, query or client"
	if d.has("(-f") || d.has("(!-f") || d.has("(-e") || d.has("(!-e") || d.has("(-d") || d.has("(!-d") {
		why, remedy = "files are looked for by try_files alone", "write static.try_files"
	}
	s.n.l.left(d.at, why, remedy)
	for _, inner := range d.block {
		s.n.l.left(inner.at, "its condition is left out", "")
	}
}

// rewriteForm is a `rewrite` whose expression is one of the forms that rules have.
type rewriteForm struct {
	all     bool   // every path
	exact   bool   // the path itself
	prefix  string // or paths below a prefix, whose rest is kept
	to      string // the path, or the URL, in its place
	url     bool
	rest    bool // the rest is appended
	code    int  // of a redirect; 0 is none
	flag    string
	restCut bool // the rest begins behind the slash
	bare    bool // the query is left out
}

var (
	rewriteExact  = regexp.MustCompile(`^\^(/[A-Za-z0-9/_%~.\\-]*?)/?\??\$$`)
	rewritePrefix = regexp.MustCompile(`^\^?(/[A-Za-z0-9/_~.\\-]*?)(/?)\(([/]?)\.\*\)\$?$`)
)

// parseRewrite reads the forms of `rewrite` that have a counterpart.
func parseRewrite(d *directive) (f rewriteForm, ok bool) {
	re, to := d.arg(0), d.arg(1)
	f.flag = d.arg(2)
	switch f.flag {
	case "permanent":
		f.code = 301
	case "redirect":
		f.code = 302
	}
	f.url = strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "$scheme://")
	if f.url && f.code == 0 {
		f.code = 302
	}
	to, f.bare = strings.CutSuffix(to, "?")
	plain := func(s string) bool { return !strings.ContainsAny(strings.ReplaceAll(s, `\.`, ""), `\*+?()[]{}|`) }
	switch re {
	case "^", "^/", "^.*$", "^.*", ".*", "^/.*$", "^/.*":
		f.all, f.to = true, to
		return f, !strings.Contains(to, "$1")
	case "^(.*)$", "^(.*)", "(.*)", "^/(.*)$", "^/(.*)", "/(.*)":
		rest, found := strings.CutSuffix(to, "$1")
		f.all, f.to, f.rest = true, rest, found
		f.restCut = strings.Contains(re, "/(")
		return f, !strings.Contains(rest, "$1")
	}
	if m := rewriteExact.FindStringSubmatch(re); m != nil && plain(m[1]) {
		f.exact, f.prefix, f.to = true, strings.ReplaceAll(m[1], `\.`, "."), to
		if strings.HasSuffix(re, "/$") {
			f.prefix += "/"
		}
		return f, !strings.Contains(to, "$1")
	}
	if m := rewritePrefix.FindStringSubmatch(re); m != nil && plain(m[1]) && strings.HasPrefix(re, "^") {
		rest, found := strings.CutSuffix(to, "$1")
		f.prefix, f.to, f.rest, f.restCut = strings.ReplaceAll(m[1], `\.`, "."), rest, found, m[2] == "/"
		return f, !strings.Contains(rest, "$1") && (m[2] == "/" || m[3] == "/")
	}
	return f, false
}

// rewriteAll translates a `rewrite` that redirects every path; nil for another.
func (s *site) rewriteAll(d *directive, sc *scope) *rule {
	f, ok := parseRewrite(d)
	if !ok || !f.all || f.code == 0 {
		return nil
	}
	to := f.to
	if f.rest {
		to = strings.TrimSuffix(to, "/") + "$request_uri"
	}
	u, ok := s.redirectTo(to, sc)
	if !ok {
		return nil
	}
	r := newRule(d.at)
	r.redirect = &redirect{status: f.code, location: u}
	s.n.l.ok(d.at, "RequestRedirect")
	s.responseFields(r, sc, true)
	return r
}

// serverRewrites translates `rewrite` of a server that redirect one path, or what is below a prefix.
func (s *site) serverRewrites(b *builder) {
	for _, d := range s.v.sc.own("rewrite") {
		f, ok := parseRewrite(d)
		r := newRule(d.at)
		switch {
		case !ok || f.all && f.code == 0:
			s.leftRewrite(d)
			continue
		case f.all:
			s.leftRewrite(d) // rewriteAll has refused it
			continue
		case f.code == 0:
			s.n.l.left(d.at, "the gateway does not look for a rule again behind a rewrite", "write a rule for the path, with URLRewrite and the pool")
			continue
		}
		m := match{kind: pathExact, path: f.prefix}
		if r.redirect = s.redirectOf(&f, d); r.redirect == nil {
			continue
		}
		if !f.exact {
			m.kind = pathPrefix
		}
		if !validPath(m.kind, m.path) {
			s.leftRewrite(d)
			continue
		}
		s.n.l.ok(d.at, "RequestRedirect")
		s.responseFields(r, s.v.sc, true)
		s.conditions(b, &loc{at: d.at, sc: s.v.sc}, m, guard{}, d)
		b.add(r, guard{}, m)
	}
}

// redirectOf returns the redirect of a form, nil where there is none.
func (s *site) redirectOf(f *rewriteForm, d *directive) *redirect {
	to, sc := f.to, s.v.sc
	switch {
	case (f.exact || !f.rest) && !f.bare && !strings.ContainsAny(to, "$?"):
		if r := wholeRedirect(to, f.code); r != nil {
			return r
		}
		s.leftRewrite(d)
		return nil
	case f.exact, !f.rest:
		u, ok := s.redirectTo(to, sc)
		if !ok {
			s.leftRewrite(d)
			return nil
		}
		return &redirect{status: f.code, location: u}
	case f.url:
		r := wholeRedirect(to, f.code)
		if r == nil || strings.Contains(to, "$") {
			s.leftRewrite(d)
			return nil
		}
		r.path.kind = replacePrefix
		return r
	}
	if to == "" {
		to = "/"
	}
	if !validReplacement(to) || strings.Contains(to, "$") {
		s.leftRewrite(d)
		return nil
	}
	return &redirect{status: f.code, path: &modifier{replacePrefix, to}}
}

func (s *site) leftRewrite(d *directive) {
	s.n.l.left(d.at, "rules replace a whole path, or a prefix, and not by captures", "write a rule with URLRewrite or RequestRedirect for each case")
}

// wholeRedirect returns the redirect to a URL, or to a path of the same host, that keeps the query of the request; nil where the
// gateway cannot.
func wholeRedirect(to string, code int) *redirect {
	u, err := url.Parse(to)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Port() != "" && atoi(u.Port()) == 0 {
		return nil
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	if !validReplacement(path) {
		return nil
	}
	r := &redirect{status: code, path: &modifier{replaceFull, path}}
	if u.Host == "" && u.Scheme == "" {
		return r
	}
	host := strings.ToLower(u.Hostname())
	if !validHost(host) || strings.HasPrefix(host, "*") || u.Scheme != "http" && u.Scheme != "https" || atoi(u.Port()) > 65535 {
		return nil
	}
	r.scheme, r.hostname, r.port = u.Scheme, host, uint16(atoi(u.Port()))
	return r
}
