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

// always returns the rule of a server that answers everything itself, and the directive that does; nil for another. An `if` is one
// where its condition holds for all requests.
func (s *site) always() (*rule, *directive) {
	root := &loc{at: s.v.d.at, sc: s.v.sc, path: "/"}
	for i, d := range s.v.sc.list {
		switch d.name {
		case "return":
			return s.returned(d, s.v.sc), d
		case "rewrite":
			if r := s.rewriteAll(d, s.v.sc); r != nil {
				return r, d
			}
		case "if":
			s.before, s.in = s.v.sc.list[:i], s.v.sc
			o, known := (conditional{s}).outcomeOf(d)
			if !known || len(o.steps) > 0 || !o.otherwise {
				continue
			}
			if r, _ := (conditional{s}).answerOf(d, root); r != nil {
				s.n.l.ok(d.at, "routes[]")
				return r, d
			}
		}
	}
	return nil, nil
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
		case leadsToGuard(s.locs, d):
			root := &loc{at: d.at, sc: s.v.sc}
			re, whole := encodedRegexp(d.arg(0), false)
			if !whole {
				re = wider(d.arg(0), false)
			}
			b.decide(root, match{kind: pathRegexp, path: re}, (conditional{s}).gates(root, d, true), decision{rule: s.n.l.closeRewrite(d)})
			continue
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
		root := &loc{at: d.at, sc: s.v.sc}
		b.decide(root, m, (conditional{s}).gates(root, d, true), decision{rule: r})
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

// leadsToGuard reports whether nginx looks for a location again behind a `rewrite`, and may find one that keeps clients out.
func leadsToGuard(locs []*loc, d *directive) bool {
	to, flag := d.arg(1), d.arg(2)
	if flag == "break" || flag == "redirect" || flag == "permanent" || strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "$scheme") {
		return false
	}
	start, _, _ := strings.Cut(to, "$")
	start, _, _ = strings.Cut(start, "?")
	return slices.ContainsFunc(locs, func(l *loc) bool {
		strict := l.strict()
		for w := l.within; w != nil && !strict; w = w.within {
			strict = w.strict()
		}
		switch {
		case !strict || l.kind == locNamed:
			return false
		case l.kind == locRegexp && start == to: // a path that is known
			re, ok := wholeRegexp(l.path, l.anyCase)
			if !ok {
				return true
			}
			m, err := regexp.MatchString(`\A(?:`+re+`)\z`, start)
			return err != nil || m
		case l.kind == locRegexp:
			return true
		}
		return strings.HasPrefix(start, l.path) || start != to && strings.HasPrefix(l.path, start)
	})
}

// closeRewrite returns the rule for the requests of such a `rewrite`.
func (l *ledger) closeRewrite(d *directive) *rule {
	return l.close(d.at, "the gateway does not look for a rule again behind a rewrite, and the location that nginx finds keeps clients out", "write a rule for the path, with the guard, URLRewrite and the pool")
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
