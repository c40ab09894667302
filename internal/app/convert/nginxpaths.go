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
	why, remedy := "RE2 has no such regular expression", "write it without look-around and back references"
	if l.within != nil {
		why, remedy = "rules cannot have its expression and the path of the location around it", "write one expression for both"
	}
	if r.fixed != nil && r.fixed.status >= 400 {
		s.n.l.closed(l.at, why+": more paths get its answer", remedy)
		return r
	}
	s.rest(l, "its location is closed")
	return s.n.l.close(l.at, why+", and a wider one stands for it", remedy)
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

// around returns the prefix that a location is within, nil for none.
func (l *loc) around() *loc {
	for w := l.within; w != nil; w = w.within {
		if w.kind == locPrefix {
			return w
		}
	}
	return nil
}

// expression returns the regular expression of a location, joined with the paths of those around it. Where joined is false it has more
// paths than the location.
func (l *loc) expression() (path string, joined bool) {
	path, joined = l.path, true
	for w := l.within; w != nil; w = w.within {
		start := regexp.QuoteMeta(w.path)
		if w.kind == locRegexp {
			m := literals.FindStringSubmatch(w.path)
			if m == nil || strings.Contains(w.path, "|") {
				joined = false
				continue
			}
			joined = joined && (w.path == m[0] || w.path == m[0]+".*") && !w.anyCase
			if start = m[1]; w.path != m[0] && len(start) > 1 { // a quantifier may be for the last letter
				start = start[:len(start)-1]
			}
		}
		switch {
		case strings.HasPrefix(path, "^"+start) && (start == "/" || !branches(path)):
		case strings.HasPrefix(path, "^"):
			joined = false
		case strings.Contains(path, "|"):
			path = "^" + start + ".*(?:" + path + ")"
		default:
			path = "^" + start + ".*" + path
		}
		if w.kind == locPrefix { // those around it are shorter
			break
		}
	}
	return path, joined
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
	for w := best; w != nil; w = w.within { // expressions within the prefix come before others
		if l := matching(s.locs, path, w, without); l != nil {
			return l
		}
	}
	if best != nil && best.stop {
		return best
	}
	if l := matching(s.locs, path, nil, without); l != nil {
		return l
	}
	return best
}

// matching returns the first regular expression for a path among those within a prefix, or within none.
func matching(locs []*loc, path string, around, without *loc) *loc {
	for _, l := range locs {
		if l.kind != locRegexp || l == without || l.around() != around {
			continue
		}
		of, _ := l.expression()
		if re, ok := wholeRegexp(of, l.anyCase); ok {
			if m, err := regexp.MatchString(`\A(?:`+re+`)\z`, path); err == nil && m {
				return l
			}
		}
	}
	return nil
}
