package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Parts of expressions that RE2 lacks.
var (
	lookAround = regexp.MustCompile(`\(\?<?[=!](?:[^()\\]|\\.|\([^()]*\))*\)`)
	possessive = regexp.MustCompile(`([*+?}])\+`)
	backward   = regexp.MustCompile(`\\[1-9]`)
	literals   = regexp.MustCompile(`^\^(/[A-Za-z0-9/_-]*)`)
)

// wider returns an expression for all paths that one which RE2 lacks may match: without look-around, or those behind its first
// letters.
func wider(re string, anyCase bool) string {
	loose := lookAround.ReplaceAllString(re, "")
	loose = backward.ReplaceAllString(possessive.ReplaceAllString(strings.ReplaceAll(loose, "(?>", "(?:"), "$1"), ".*")
	if whole, ok := wholeRegexp(loose, anyCase); ok {
		return whole
	}
	m := literals.FindStringSubmatch(re)
	if m == nil || strings.Contains(re, "|") {
		return ".*"
	}
	prefix := strings.TrimRight(m[1][:max(len(m[1])-1, 1)], "/") // a quantifier may be for the last letter
	if whole, ok := wholeRegexp("^"+regexp.QuoteMeta(prefix), anyCase); ok {
		return whole
	}
	return ".*"
}

// widened returns the rule of a location whose expression is a wider one: what it refuses stays refused, and content is closed.
func (s *site) widened(l *loc, r *rule) *rule {
	const remedy = "write it without look-around and back references"
	if r.fixed != nil && r.fixed.status >= 400 {
		s.n.l.closed(l.at, "RE2 has no such regular expression: more paths get its answer", remedy)
		return r
	}
	s.rest(l, "its location is closed")
	return s.n.l.close(l.at, "RE2 has no such regular expression, and a wider one stands for it", remedy)
}

// encoded returns a path as requests have it: nginx compares paths decoded.
func encoded(path string) string {
	var out strings.Builder
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>%#?`, c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// encodedRegexp is wholeRegexp for paths, which expressions of nginx see decoded.
func encodedRegexp(re string, anyCase bool) (string, bool) {
	coded := strings.IndexFunc(re, func(r rune) bool { return r <= ' ' || r >= 0x7f }) >= 0
	if coded && strings.Contains(re, "[") { // one of several characters has three in its place
		return "", false
	}
	if coded {
		var out strings.Builder
		for i := range len(re) {
			if c := re[i]; c <= ' ' || c >= 0x7f {
				fmt.Fprintf(&out, "(?:%%%02X)", c)
			} else {
				out.WriteByte(c)
			}
		}
		re = out.String()
	}
	return wholeRegexp(re, anyCase)
}

// strict reports whether a location has something of its own that decides about requests.
func (l *loc) strict() bool {
	return slices.ContainsFunc(l.own(), func(d *directive) bool {
		switch d.name {
		case "if", "allow", "deny", "auth_basic", "auth_request", "limit_except", "internal", "limit_req", "limit_conn", "valid_referers":
			return true
		case "return":
			return atoi(d.arg(0)) >= 400
		}
		return !opens(d.name)
	})
}

// beyond adds the rule for paths that a location without a slash at its end has in nginx, and a prefix of the gateway has not: those
// with more letters in the last segment. Only locations that guard something have it.
func (s *site) beyond(b *builder, l *loc, gates []gate, content decision) {
	if strings.HasSuffix(l.path, "/") || !l.strict() {
		return
	}
	var others []string
	for _, o := range s.locs {
		if rest, ok := strings.CutPrefix(o.path, l.path); ok && rest != "" && rest[0] != '/' && o.kind == locPrefix {
			others = append(others, encoded(rest))
		}
	}
	slices.Sort(others)
	m := match{kind: pathRegexp, path: regexp.QuoteMeta(encoded(l.path)) + without(others, true)}
	if !validPath(m.kind, m.path) {
		m.path = regexp.QuoteMeta(encoded(l.path)) + "[^/].*"
		content.rule = s.refusal(l.at, 403)
	}
	if content.rule.rewrite != nil && content.rule.rewrite.kind == replacePrefix {
		content.rule = s.refusal(l.at, 403)
		s.n.l.changed(l.at, "", l.path+"x gets 403")
	}
	content.rule = content.rule.clone()
	content.rule.note = "with more letters in the last segment"
	b.decide(l, m, gates, content)
}

// without returns an expression for texts that begin with none of some others, which are sorted. At the start they are not empty and
// begin with no slash.
func without(others []string, start bool) string {
	letters, set := []string{}, ""
	for i := 0; i < len(others); {
		c := others[i][:1]
		var rest []string
		for ; i < len(others) && others[i][:1] == c; i++ {
			rest = append(rest, others[i][1:])
		}
		set += regexp.QuoteMeta(c)
		if !slices.Contains(rest, "") {
			letters = append(letters, regexp.QuoteMeta(c)+without(rest, false))
		}
	}
	if start {
		set += "/"
	}
	if set == "" {
		return ".*"
	}
	alternatives := append([]string{"[^" + strings.NewReplacer("-", `\-`).Replace(set) + "].*"}, letters...)
	if !start {
		alternatives = append(alternatives, "")
	}
	return "(?:" + strings.Join(alternatives, "|") + ")"
}
