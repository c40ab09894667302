package convert

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// mostPattern bounds an expression that several are joined in.
const mostPattern = 900

// valued is a variable that a client sends: a field, a cookie or a parameter of the query.
type valued struct {
	name   string
	query  bool
	cookie string // of the field cookie
}

// valueSource returns what a variable has its value from.
func valueSource(variable string) (v valued, ok bool) {
	switch kind, name, _ := strings.Cut(variable, "_"); {
	case kind == "http" && validField(strings.ReplaceAll(name, "_", "-")):
		return valued{name: strings.ToLower(strings.ReplaceAll(name, "_", "-"))}, true
	case kind == "cookie" && validToken(name):
		return valued{name: "cookie", cookie: name}, true
	case kind == "arg" && validToken(name):
		return valued{name: name, query: true}, true
	}
	return v, false
}

// match returns the condition that the value is one, or that an expression for all of it matches.
func (v valued) match(c condition) match {
	c.name = v.name
	if v.query {
		return match{query: []condition{c}}
	}
	return match{headers: []condition{c}}
}

// is returns the condition of an exact value.
func (v valued) is(value string) match {
	if v.cookie != "" {
		return v.inCookie(regexp.QuoteMeta(value))
	}
	return v.match(condition{value: value})
}

// some returns the condition that the value is not empty.
func (v valued) some() match {
	if v.cookie != "" {
		return v.inCookie(`[^;\s][^;]*`)
	}
	return v.match(condition{value: ".+", regexp: true})
}

// inCookie returns the condition that a cookie has a value. Its name is compared without case, as nginx does.
func (v valued) inCookie(re string) match {
	return v.match(condition{value: `(?:.*;\s*)?(?i:` + regexp.QuoteMeta(v.cookie) + `)=(?:` + re + `)\s*(?:;.*)?`, regexp: true})
}

// simple is an expression that matches no semicolon, so that it stays within one cookie.
var simple = regexp.MustCompile(`^\^?[A-Za-z0-9_|()\-]*\$?$`)

// found returns the condition that an expression is found in the value.
func (v valued) found(re string, anyCase bool) (match, bool) {
	if v.cookie != "" {
		if !simple.MatchString(re) || strings.Contains(re, "|") && strings.ContainsAny(re, "^$") {
			return match{}, false
		}
		before, after := `[^;]*`, `[^;]*`
		if strings.HasPrefix(re, "^") {
			re, before = re[1:], ""
		}
		if strings.HasSuffix(re, "$") {
			re, after = strings.TrimSuffix(re, "$"), ""
		}
		if _, ok := wholeRegexp(re, false); !ok {
			return match{}, false
		}
		return v.inCookie(before + map[bool]string{true: "(?i:", false: "(?:"}[anyCase] + re + ")" + after), true
	}
	whole, ok := wholeRegexp(re, anyCase)
	return v.match(condition{value: whole, regexp: true}), ok && len(whole) <= mostPattern
}

// outcome translates a test of the value.
func (v valued) outcome(t test) (o outcome, ok bool) {
	positive, negated := t.negative()
	switch {
	case positive.op == "": // neither empty nor 0
		o, ok = outcome{steps: []step{{v.is("0"), false}, {v.some(), true}}}, true
	case positive.op == "=" && t.value == "":
		o, ok = outcome{steps: []step{{v.some(), false}}, otherwise: true}, true
	case positive.op == "=":
		o, ok = outcome{steps: []step{{v.is(t.value), true}}}, printable(t.value) && len(t.value) <= mostPattern
	case positive.op == "~" || positive.op == "~*":
		var m match
		m, ok = v.found(t.value, positive.op == "~*")
		o = outcome{steps: []step{{m, true}}}
		if empty, known := positive.holds(""); !known || empty { // an expression that matches what is not there
			ok = false
		}
	}
	if negated {
		return o.negated(), ok
	}
	return o, ok
}

// geoOutcome translates a test of a variable that a geo block sets by the address of the client.
func (n *nginx) geoOutcome(t test, d *directive) (o outcome, ok bool) {
	if len(d.args) > 1 && d.arg(0) != "$remote_addr" {
		return o, false
	}
	type entry struct {
		prefix netip.Prefix
		holds  bool
	}
	var list []entry
	if o.otherwise, ok = t.holds(""); !ok {
		return o, false
	}
	for _, e := range d.block {
		holds, known := t.holds(e.arg(0))
		text, isPrefix := prefixOf(e.name)
		switch {
		case !known || len(e.args) != 1 || strings.Contains(e.arg(0), "$"):
			return o, false
		case e.name == "default":
			o.otherwise = holds
		case !isPrefix || len(list) >= 256:
			return o, false
		default:
			list = append(list, entry{parsePrefix(text), holds})
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	for _, e := range list {
		text, _ := prefixOf(e.prefix.String())
		if n := len(o.steps); n > 0 && o.steps[n-1].answers == e.holds {
			o.steps[n-1].cond.clients = append(o.steps[n-1].cond.clients, text)
			continue
		}
		o.steps = append(o.steps, step{match{clients: []string{text}}, e.holds})
	}
	n.table(d)
	return o.trimmed(), true
}

// over returns the outcome of a variable that has one value where a condition holds, and else that of before.
func (o outcome) over(holds bool, before outcome) (out outcome, ok bool) {
	for _, s := range o.steps {
		if s.answers {
			out.steps = append(out.steps, step{s.cond, holds})
			continue
		}
		for _, earlier := range before.steps {
			switch both, how := conjoin(s.cond, earlier.cond); how {
			case joins:
				out.steps = append(out.steps, step{both, earlier.answers})
			case unsayable:
				return out, false
			}
		}
		out.steps = append(out.steps, step{s.cond, before.otherwise})
	}
	if out.otherwise = holds; !o.otherwise {
		out.steps, out.otherwise = append(out.steps, before.steps...), before.otherwise
	}
	return out, len(out.steps) <= mostDecisions
}

// trimmed returns an outcome without steps at its end that change nothing.
func (o outcome) trimmed() outcome {
	for len(o.steps) > 0 && o.steps[len(o.steps)-1].answers == o.otherwise {
		o.steps = o.steps[:len(o.steps)-1]
	}
	return o
}

// mapOutcome translates a test of a variable that a map sets: exact values come first, then expressions in their order.
func (s conditional) mapOutcome(t test, d *directive) (o outcome, ok bool) {
	v, ok := valueSource(strings.Trim(strings.TrimPrefix(d.arg(0), "$"), "{}"))
	rest, known := t.holds("")
	if !ok || !known || !strings.HasPrefix(d.arg(0), "$") {
		return o, false
	}
	var exact, patterns []step
	empty, hasEmpty := false, false
	for _, e := range d.block {
		holds, known := t.holds(e.arg(0))
		re, isRegexp := strings.CutPrefix(e.name, "~")
		switch {
		case e.name == "volatile" || e.name == "hostnames" && len(e.args) == 0:
			continue
		case len(e.args) != 1 || !known || strings.Contains(e.arg(0), "$"):
			return o, false
		case e.name == "default":
			rest = holds
		case e.name == "":
			empty, hasEmpty = holds, true
		case isRegexp:
			re, anyCase := strings.CutPrefix(re, "*")
			m, ok := v.found(re, anyCase)
			if matches, known := (test{op: "~", value: re}).holds(""); !ok || !known || matches {
				return o, false
			}
			patterns = append(patterns, step{m, holds})
		default:
			m, ok := v.found("^"+regexp.QuoteMeta(strings.TrimPrefix(e.name, `\`))+"$", true)
			if !ok {
				return o, false
			}
			exact = append(exact, step{m, holds})
		}
	}
	o = outcome{otherwise: rest, steps: joinedSteps(slices.Concat(exact, patterns))}.trimmed()
	if hasEmpty && empty != rest { // a value that is not there is empty
		o.steps = append(o.steps, step{v.some(), rest})
		o.otherwise = empty
	}
	if ok = len(o.steps) <= mostDecisions/2; ok {
		s.n.table(d)
	}
	return o, ok
}

// joinedSteps joins neighbours with the same result into one expression.
func joinedSteps(list []step) (out []step) {
	of := func(s *step) *condition {
		if len(s.cond.headers) == 1 {
			return &s.cond.headers[0]
		}
		return &s.cond.query[0]
	}
	for _, s := range list {
		if n := len(out) - 1; n >= 0 && out[n].answers == s.answers {
			before, c := of(&out[n]), of(&s)
			if before.regexp && c.regexp && len(before.value)+len(c.value)+8 <= mostPattern {
				before.value = "(?:" + before.value + ")|(?:" + c.value + ")"
				continue
			}
		}
		s.cond.headers, s.cond.query = slices.Clone(s.cond.headers), slices.Clone(s.cond.query)
		out = append(out, s)
	}
	return out
}

// setOutcome translates a test of a variable that `set` gives one text before the test, and `if` blocks others.
func (s conditional) setOutcome(t test) (o outcome, ok bool) {
	value := func(d *directive) (holds, ok bool) {
		if len(d.args) != 2 || strings.Contains(d.arg(1), "$") {
			return false, false
		}
		return t.holds(d.arg(1))
	}
	before, found := s.before, false
	defer func() { s.before = before }()
	var used []*directive
	for i, d := range before {
		switch {
		case d.name == "set" && d.arg(0) == "$"+t.name:
			if o.otherwise, ok = value(d); !ok {
				return o, false
			}
			o.steps, found = nil, true
		case d.name == "if":
			for _, inner := range d.block {
				if inner.name != "set" || inner.arg(0) != "$"+t.name {
					continue
				}
				holds, ok := value(inner)
				s.before = before[:i]
				cond, known := s.outcomeOf(d)
				if !ok || !known {
					return o, false
				}
				if o, ok = cond.over(holds, o); !ok {
					return o, false
				}
				used = append(used, d, inner)
			}
		}
	}
	for _, d := range used {
		if found {
			s.n.l.replaced(d.at, "routes[].rules[].matches[]")
		}
	}
	return o.trimmed(), found
}

// referers translates valid_referers to the outcome of $invalid_referer.
func (s conditional) referers() (o outcome, ok bool) {
	v := valued{name: "referer"}
	none, blocked := false, false
	var names []string
	list := s.in.find("valid_referers")
	for _, d := range list {
		for _, a := range d.texts() {
			switch re, isRegexp := strings.CutPrefix(a, "~"); {
			case a == "none":
				none = true
			case a == "blocked":
				blocked = true
			case a == "server_names":
				for _, n := range s.v.names {
					names = append(names, refererName(n))
				}
			case isRegexp:
				if !simple.MatchString(strings.NewReplacer(`\.`, "", ".", "", "*", "", "/", "").Replace(strings.TrimPrefix(re, "*"))) {
					return o, false
				}
				before := ".*"
				if strings.HasPrefix(strings.TrimPrefix(re, "*"), "^") {
					before = ""
				}
				names = append(names, before+"(?:"+strings.Trim(strings.TrimPrefix(re, "*"), "^$")+").*")
			default:
				names = append(names, refererName(a))
			}
		}
	}
	valid := `(?i:https?://(?:` + strings.Join(names, "|") + `))`
	if _, good := wholeRegexp(valid, false); len(list) == 0 || !good || len(valid) > mostPattern {
		return o, false
	}
	if len(names) > 0 {
		o.steps = append(o.steps, step{v.match(condition{value: valid, regexp: true}), false})
	}
	o.steps = append(o.steps, step{v.match(condition{value: `(?i:https?://).*`, regexp: true}), true})
	if blocked != none {
		o.steps = append(o.steps, step{v.some(), !blocked})
	}
	o.otherwise = !none
	for _, d := range list {
		s.n.l.ok(d.at, "routes[].rules[].matches[]")
	}
	return o, true
}

// refererName returns the expression of a name, which may have stars at its ends and a path behind it.
func refererName(name string) string {
	host, path, _ := strings.Cut(name, "/")
	re := regexp.QuoteMeta(host)
	switch {
	case strings.HasPrefix(host, "*."):
		re = `[^/:?#]+` + regexp.QuoteMeta(host[1:])
	case strings.HasPrefix(host, "."):
		re = `(?:[^/:?#]+\.)?` + regexp.QuoteMeta(host[1:])
	case strings.HasSuffix(host, ".*"):
		re = regexp.QuoteMeta(strings.TrimSuffix(host, "*")) + `[^/:?#]+`
	}
	if path != "" {
		return re + `(?::\d+)?/` + regexp.QuoteMeta(path) + ".*"
	}
	return re + `(?::\d+)?(?:[/?#].*)?`
}
