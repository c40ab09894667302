package convert

import (
	"regexp"
	"slices"
	"strings"
)

// atom is one alternative of a test: what has to hold for a request.
type atom struct {
	hosts   []string // any of them
	tls     int      // 1: with TLS, -1: without
	never   bool
	match   match
	notFrom []string // clients that it does not hold for
	except  []atom   // requests that it does not hold for, in other words than clients
}

// verdict is a condition in disjunctive form: any of the atoms. Where known is false it cannot be expressed.
type verdict struct {
	atoms  []atom
	known  bool
	coarse string // a difference
}

// always is the condition of what has none.
var always = verdict{atoms: []atom{{}}, known: true}

// mostAtoms bounds a condition.
const mostAtoms = 64

// condition translates what stands behind if or unless.
func (h *haproxy) condition(p *proxy, words []string) verdict {
	h.acls, h.edited = nil, h.editedBefore(p, words)
	v := h.conditionOf(p, words)
	h.aclsUsed(v.known)
	return v
}

// aclsUsed notes the lines of ACLs that a condition is made of, if it is in the output.
func (h *haproxy) aclsUsed(used bool) {
	for _, at := range h.acls {
		if used {
			h.l.ok(at, "routes[].rules[].matches[]")
		}
	}
	h.acls = nil
}

func (h *haproxy) conditionOf(p *proxy, words []string) verdict {
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i < 0 {
		return always
	}
	negative := words[i] == "unless"
	out := verdict{known: true}
	for _, part := range splitWords(words[i+1:], "or", "||") {
		v := always
		for _, term := range terms(part) {
			v = both(v, h.term(p, term))
		}
		out = either(out, v)
	}
	if negative {
		return negated(out)
	}
	return out
}

// splitWords splits a list at words.
func splitWords(words []string, at ...string) (parts [][]string) {
	part := []string{}
	depth := 0
	for _, w := range words {
		switch {
		case w == "{" || w == "!{":
			depth++
		case w == "}":
			depth--
		case depth == 0 && slices.Contains(at, w):
			parts, part = append(parts, part), []string{}
			continue
		}
		part = append(part, w)
	}
	return append(parts, part)
}

// conditionTerms returns the terms of the condition of a line, of all its conjunctions; none where it has no condition.
func conditionTerms(words []string) (list [][]string) {
	i := slices.IndexFunc(words, func(w string) bool { return w == "if" || w == "unless" })
	if i < 0 {
		return nil
	}
	for _, part := range splitWords(words[i+1:], "or", "||") {
		list = append(list, terms(part)...)
	}
	return list
}

// testsOf returns the tests that a term is about: its own in braces, or those of the lines of an ACL.
func (p *proxy) testsOf(term []string) (tests [][]string) {
	if term[1] == "{" {
		return [][]string{term[min(2, len(term)):]}
	}
	for _, l := range p.lines {
		if l.words[0] == "acl" && l.arg(1) == term[1] {
			tests = append(tests, l.words[2:])
		}
	}
	return tests
}

// terms splits a conjunction into names of ACLs and tests in braces, each with its negation.
func terms(words []string) (list [][]string) {
	for i := 0; i < len(words); i++ {
		not := false
		w := words[i]
		for strings.HasPrefix(w, "!") {
			not, w = !not, w[1:]
			if w == "" && i+1 < len(words) {
				i++
				w = words[i]
			}
		}
		term := []string{map[bool]string{true: "!", false: ""}[not]}
		if w != "{" {
			list = append(list, append(term, w))
			continue
		}
		end := i + 1
		for end < len(words) && words[end] != "}" {
			end++
		}
		list = append(list, append(append(term, "{"), words[i+1:end]...))
		i = end
	}
	return list
}

// term translates one test. Its first word is its negation.
func (h *haproxy) term(p *proxy, words []string) verdict {
	var v verdict
	switch {
	case len(words) > 1 && words[1] == "{":
		v = h.test(p, words[2:])
	case len(words) > 1:
		v = h.named(p, words[1])
	}
	if words[0] == "!" {
		return negated(v)
	}
	return v
}

// named returns the condition of an ACL: any of the lines with its name.
func (h *haproxy) named(p *proxy, name string) verdict {
	out, found := verdict{known: true}, false
	for _, l := range p.lines {
		if l.words[0] == "acl" && l.arg(1) == name && len(l.words) > 2 {
			v := h.test(p, l.words[2:])
			if v.known {
				h.acls = append(h.acls, l.at)
			}
			out, found = either(out, v), true
		}
	}
	if found {
		return out
	}
	switch name {
	case "TRUE", "HTTP":
		return always
	case "FALSE":
		return verdict{atoms: []atom{{never: true}}, known: true}
	case "LOCALHOST":
		return verdict{atoms: []atom{{match: match{clients: []string{"127.0.0.1/8"}}}}, known: true}
	case "METH_GET", "METH_HEAD", "METH_POST", "METH_OPTIONS", "METH_CONNECT", "METH_TRACE":
		v := verdict{atoms: []atom{{match: match{method: name[5:]}}}, known: true}
		if name == "METH_GET" {
			v.atoms = append(v.atoms, atom{match: match{method: "HEAD"}})
		}
		return v
	}
	return verdict{}
}

// both returns the conjunction.
func both(a, b verdict) verdict {
	out := verdict{known: a.known && b.known, coarse: joined(a.coarse, b.coarse)}
	if len(a.atoms)*len(b.atoms) > mostAtoms {
		return verdict{}
	}
	for _, x := range a.atoms {
		for _, y := range b.atoms {
			z, ok := x.and(y)
			if !ok {
				return verdict{}
			}
			if !z.never {
				out.atoms = append(out.atoms, z)
			}
		}
	}
	return out
}

func either(a, b verdict) verdict {
	out := verdict{atoms: slices.Concat(a.atoms, b.atoms), known: a.known && b.known, coarse: joined(a.coarse, b.coarse)}
	if len(out.atoms) > mostAtoms {
		return verdict{}
	}
	return out
}

// negated returns the negation: of TLS, of the client's address, and of other conditions as an exception.
func negated(v verdict) verdict {
	if !v.known {
		return verdict{}
	}
	if never(v) {
		return always
	}
	var clients []string
	for _, a := range v.atoms {
		only := len(a.hosts) == 0 && a.match.kind == "" && a.match.method == "" && len(a.match.headers)+len(a.match.query) == 0 && len(a.notFrom) == 0
		switch {
		case a.never && len(v.atoms) == 1:
			return always
		case a.tls != 0 && only && len(v.atoms) == 1 && len(a.match.clients) == 0 && len(a.except) == 0:
			return verdict{atoms: []atom{{tls: -a.tls}}, known: true}
		case !only || a.tls != 0 || len(a.match.clients) == 0 || len(a.except) > 0:
			return excepted(v)
		}
		clients = append(clients, a.match.clients...)
	}
	return verdict{atoms: []atom{{notFrom: clients}}, known: true}
}

// excepted returns the condition that none of some atoms holds.
func excepted(v verdict) verdict {
	if len(v.atoms) == 1 && v.atoms[0].bare() && len(v.atoms[0].except) == 1 { // not not
		return verdict{atoms: v.atoms[0].except, known: true}
	}
	var list []atom
	for _, a := range v.atoms {
		if len(a.except)+len(a.notFrom) > 0 {
			return verdict{}
		}
		if a.match.kind == "" && a.match.bare() && a.tls == 0 && len(a.hosts) == 0 && !a.never { // everything
			return verdict{atoms: []atom{{never: true}}, known: true}
		}
		if m := &a.match; m.kind == pathPrefix { // not for the path without its slash
			m.kind, m.path = pathRegexp, quoted(m.path)+".*"
		}
		if !a.never {
			list = append(list, a)
		}
	}
	return verdict{atoms: []atom{{except: list}}, known: true}
}

// bare reports whether an atom has no condition but exceptions.
func (a atom) bare() bool {
	return a.match.kind == "" && a.match.bare() && a.tls == 0 && len(a.hosts)+len(a.notFrom) == 0 && !a.never
}

// and returns the conjunction of two atoms, if there is one; never where they exclude each other.
func (a atom) and(b atom) (atom, bool) {
	out := a
	switch {
	case a.never || b.never || a.tls*b.tls < 0:
		return atom{never: true}, true
	case a.tls == 0:
		out.tls = b.tls
	}
	switch {
	case len(a.hosts) == 0:
		out.hosts = b.hosts
	case len(b.hosts) > 0:
		out.hosts = nil
		for _, x := range a.hosts {
			for _, y := range b.hosts {
				switch {
				case covers(x, y) && !slices.Contains(out.hosts, y):
					out.hosts = append(out.hosts, y)
				case covers(y, x) && !slices.Contains(out.hosts, x):
					out.hosts = append(out.hosts, x)
				}
			}
		}
		if len(out.hosts) == 0 {
			return atom{never: true}, true
		}
	}
	switch {
	case a.match.kind == "":
		out.match.kind, out.match.path = b.match.kind, b.match.path
	case b.match.kind != "":
		k, p, ok := narrower(a.match, b.match)
		if apart(a.match, b.match) {
			return atom{never: true}, true
		}
		if !ok {
			return atom{}, false
		}
		out.match.kind, out.match.path = k, p
	}
	switch {
	case a.match.method == "":
		out.match.method = b.match.method
	case b.match.method != "" && a.match.method != b.match.method:
		return atom{never: true}, true
	}
	if len(a.match.clients) > 0 && len(b.match.clients) > 0 {
		if out.match.clients = common(a.match.clients, b.match.clients); len(out.match.clients) == 0 {
			return atom{never: true}, true
		}
	} else {
		out.match.clients = slices.Concat(a.match.clients, b.match.clients)
	}
	headers, how := conditionsOf(a.match.headers, b.match.headers)
	query, also := conditionsOf(a.match.query, b.match.query)
	switch {
	case how == excludes || also == excludes:
		return atom{never: true}, true
	case how != joins || also != joins || len(a.notFrom) > 0 && len(b.notFrom) > 0:
		return atom{}, false
	}
	out.match.headers, out.match.query = headers, query
	out.notFrom = slices.Concat(a.notFrom, b.notFrom)
	out.except = slices.Concat(a.except, b.except)
	return out, true
}

// narrower returns the narrower one of two paths, if one is within the other.
func narrower(a, b match) (kind, path string, ok bool) {
	switch {
	case within(a, b):
		return a.kind, a.path, true
	case within(b, a):
		return b.kind, b.path, true
	}
	return "", "", false
}

// start is the text that all paths of a condition begin with, in any case of its letters if fold is set. Where all is set these are all
// paths that do.
type start struct {
	text      string
	fold, all bool
}

// startOf returns the start of the paths of a condition. Of an expression that has none known the text is empty.
func startOf(m match) start {
	if m.kind != pathRegexp {
		return start{text: strings.TrimSuffix(m.path, "/")}
	}
	text, fold := strings.CutPrefix(m.path, "(?i:")
	if fold {
		text = strings.TrimSuffix(text, ")")
	}
	text, ok := strings.CutSuffix(text, ".*")
	if plain := strings.ReplaceAll(text, `\`, ""); ok && quoted(plain) == text {
		return start{plain, fold, true}
	}
	return start{}
}

// begins reports whether a text begins with another, in any case of letters if fold is set.
func begins(s, with string, fold bool) bool {
	return len(s) >= len(with) && (s[:len(with)] == with || fold && strings.EqualFold(s[:len(with)], with))
}

// apart reports whether no path is of both conditions.
func apart(a, b match) bool {
	x, y := startOf(a), startOf(b)
	if a.kind != pathRegexp && b.kind != pathRegexp {
		return !within(a, b) && !within(b, a)
	}
	n := min(len(x.text), len(y.text))
	return !begins(x.text[:n], y.text[:n], x.fold || y.fold)
}

// within reports whether all paths of a are paths of b.
func within(a, b match) bool {
	if b.kind == "" || b.kind == pathPrefix && b.path == "/" {
		return true
	}
	if a.kind == "" {
		return false
	}
	switch b.kind {
	case pathPrefix:
		prefix := strings.TrimSuffix(b.path, "/")
		if x := startOf(a); x.all {
			return !x.fold && strings.HasPrefix(x.text, prefix+"/")
		}
		return (a.kind == pathPrefix || a.kind == pathExact) && (strings.TrimSuffix(a.path, "/") == prefix || strings.HasPrefix(a.path, prefix+"/"))
	case pathRegexp:
		if x, y := startOf(a), startOf(b); y.all && (x.all || a.kind == pathPrefix) {
			return begins(x.text, y.text, y.fold) && (y.fold || !x.fold)
		}
		if a.kind == pathExact {
			re, err := regexp.Compile(`\A(?:` + b.path + `)\z`)
			return err == nil && re.MatchString(a.path)
		}
	}
	return a.kind == b.kind && a.path == b.path
}
