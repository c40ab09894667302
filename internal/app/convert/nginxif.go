package convert

import (
	"regexp"
	"slices"
	"strings"
)

// test is the condition of an `if`: a variable, an operator and a value. Of a variable alone op is empty.
type test struct{ name, op, value string }

// parseTest reads the condition of an `if`. It is false for what is none on a variable, as -f.
func parseTest(d *directive) (t test, ok bool) {
	words := d.texts()
	if len(words) == 0 {
		return t, false
	}
	words[0] = strings.TrimPrefix(words[0], "(")
	last := len(words) - 1
	words[last] = strings.TrimSuffix(words[last], ")")
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	if len(words) == 2 && (words[1] == "=" || words[1] == "!=") {
		words = append(words, "") // quotes with nothing
	}
	switch {
	case len(words) == 0 || !strings.HasPrefix(words[0], "$") || len(words) == 2 || len(words) > 3:
		return t, false
	case len(words) == 3:
		t.op, t.value = words[1], words[2]
	}
	t.name = strings.Trim(words[0][1:], "{}")
	return t, t.name != ""
}

// negative returns the test without the negation of its operator, and whether there is one.
func (t test) negative() (test, bool) {
	op, ok := strings.CutPrefix(t.op, "!")
	t.op = op
	return t, ok
}

// holds evaluates a test of a value that is known. It is false in known where the expression is none of RE2.
func (t test) holds(value string) (result, known bool) {
	positive, negated := t.negative()
	switch positive.op {
	case "":
		return value != "" && value != "0", true
	case "=":
		return (value == t.value) != negated, true
	case "~", "~*":
		prefix := map[bool]string{true: "(?i)"}[positive.op == "~*"]
		re, err := regexp.Compile(prefix + t.value)
		if err != nil {
			return false, false
		}
		return re.MatchString(value) != negated, true
	}
	return false, false
}

// outcome is a condition as steps: the first that holds decides, and otherwise stands for the rest.
type outcome struct {
	steps     []step
	otherwise bool
}

// constant is the outcome of a condition that does not depend on the request.
func constant(holds bool) outcome { return outcome{otherwise: holds} }

// negated returns the opposite outcome.
func (o outcome) negated() outcome {
	out := outcome{otherwise: !o.otherwise}
	for _, s := range o.steps {
		out.steps = append(out.steps, step{s.cond, !s.answers})
	}
	return out
}

// conditional translates the `if` blocks of a site.
type conditional struct{ *site }

// outcomeOf translates the condition of an `if`. It is false for one that rules cannot have.
func (s conditional) outcomeOf(d *directive) (outcome, bool) {
	t, ok := parseTest(d)
	if !ok {
		return outcome{}, false
	}
	return s.evaluate(t)
}

// evaluate translates a test on a variable.
func (s conditional) evaluate(t test) (outcome, bool) {
	if value, known := s.valueOf(t.name); known {
		result, ok := t.holds(value)
		return constant(result), ok
	}
	switch {
	case t.name == "host" || t.name == "http_host":
		if t.op == "=" || t.op == "!=" { // the hosts that tests name have sites of their own
			return constant(t.op == "!="), s.foldable(strings.ToLower(t.value))
		}
		return outcome{}, false
	case t.name == "request_method":
		return methodOutcome(t)
	case t.name == "remote_addr" && validPrefix(t.value) && (t.op == "=" || t.op == "!="):
		p, _ := prefixOf(t.value)
		return outcome{steps: []step{{match{clients: []string{p}}, t.op == "="}}, otherwise: t.op == "!="}, true
	case t.name == "invalid_referer":
		o, ok := s.referers()
		return s.ofBool(t, o, ok)
	}
	if f, ok := valueSource(t.name); ok {
		return f.outcome(t)
	}
	if d := s.n.geos[t.name]; d != nil {
		return s.n.geoOutcome(t, d)
	}
	if d := s.n.maps[t.name]; d != nil {
		return s.mapOutcome(t, d)
	}
	return s.setOutcome(t)
}

// ofBool returns the outcome of a test on a variable that is 1 or empty.
func (s conditional) ofBool(t test, o outcome, ok bool) (outcome, bool) {
	yes, known := t.holds("1")
	no, _ := t.holds("")
	switch {
	case !ok || !known:
		return outcome{}, false
	case yes == no:
		return constant(yes), true
	case no:
		return o.negated(), true
	}
	return o, true
}

// valueOf returns the value of a variable that is the same for all requests of the site's listeners.
func (s conditional) valueOf(name string) (string, bool) {
	switch name {
	case "scheme":
		return map[bool]string{true: "http", false: "https"}[s.p.plain], true
	case "https":
		return map[bool]string{true: "", false: "on"}[s.p.plain], true
	case "host", "http_host":
		return s.only, s.only != ""
	case "ssl_client_verify":
		if s.p.plain {
			return "", true
		}
		return "SUCCESS", s.v.verified
	case "server_port":
		return s.p.port, s.p.port != ""
	}
	return "", false
}

// foldable reports whether a host can have a site of its own. One without is that of no request here.
func (s conditional) foldable(host string) bool {
	return validHost(host) && !strings.HasPrefix(host, "*")
}

var methodList = regexp.MustCompile(`^\^?\(?([A-Z]+(?:\|[A-Z]+)*)\)?\$?$`)

// methodOutcome translates a test of the method.
func methodOutcome(t test) (o outcome, ok bool) {
	positive, negated := t.negative()
	m := methodList.FindStringSubmatch(t.value)
	if m == nil || positive.op != "=" && positive.op != "~" || positive.op == "=" && strings.Contains(t.value, "|") || len(m[1]) >= 200 {
		return o, false
	}
	for _, method := range strings.Split(m[1], "|") {
		o.steps = append(o.steps, step{match{method: method}, true})
	}
	if negated {
		return o.negated(), true
	}
	return o, true
}

// gates translates the `if` blocks of a server and of a location, in their order. Where one cannot be expressed, and decides about the
// content, what is behind it is closed, unless that is refused in any case. Of the server those behind a directive do not count,
// unless it is nil.
func (s conditional) gates(l *loc, until *directive, refused bool) (out []gate) {
	for i, list := range [][]*directive{s.v.sc.list, l.own()} {
		for _, d := range list {
			if i == 0 && d == until {
				break
			}
			if d.name != "if" || i == 1 && l.d == nil {
				continue
			}
			if g, ok := s.gateOf(d, l, refused); ok {
				out = append(out, g)
			}
		}
	}
	return out
}

// beforeOf returns the directives of a server and of a location that come before one of them.
func beforeOf(d *directive, server, location []*directive) []*directive {
	if i := slices.Index(server, d); i >= 0 {
		return server[:i]
	}
	return slices.Concat(server, location[:max(slices.Index(location, d), 0)])
}

// own returns the directives of a location itself.
func (l *loc) own() []*directive {
	if l.d == nil {
		return nil
	}
	return l.sc.list
}

// gateOf translates one `if`. It is false for one that decides nothing.
func (s conditional) gateOf(d *directive, l *loc, refused bool) (gate, bool) {
	led := s.n.l
	s.before, s.in = beforeOf(d, s.v.sc.list, l.own()), l.sc
	o, known := s.outcomeOf(d)
	if known && len(o.steps) == 0 && !o.otherwise {
		led.ok(d.at, "routes[]") // it does not hold for the requests of this route
		for _, inner := range d.block {
			led.unneeded(inner.at, "its condition holds for no request")
		}
		return gate{}, false
	}
	if (scripting{s.site}).checked(l, d) {
		return gate{}, false
	}
	r, g := s.answerOf(d, l)
	switch {
	case r == nil && harmless(d.block), !known && refused:
		s.leftCondition(d)
		return gate{}, false
	case r == nil && known:
		r = s.n.l.close(d.at, "rules with a condition answer, or lead to a pool, and do nothing else", "")
		s.leftBlock(d)
	case !known && maintenance(d, r):
		s.n.l.left(d.at, "no file decides whether a route is under maintenance", "set routes[].maintenance, and reload")
		s.leftBlock(d)
		return gate{}, false
	case !known:
		r = s.closeCondition(d)
		return gate{otherwise: true, rule: r}, true
	default:
		led.ok(d.at, "routes[].rules[].matches[]")
	}
	return gate{steps: o.steps, otherwise: o.otherwise, rule: r, guard: g}, true
}

// harmless reports whether no directive of a block that is left out decides about the content.
func harmless(block []*directive) bool {
	return !slices.ContainsFunc(block, func(d *directive) bool {
		if d.name == "set" || d.name == "access_log" || d.name == "add_header" || d.name == "expires" || strings.HasPrefix(d.name, "gzip") {
			return false
		}
		return !opens(d.name) || nginxRead[d.name] || strings.HasSuffix(d.name, "_pass") || slices.Contains(nginxContent, d.name)
	})
}

// maintenance reports whether an `if` answers 503 while there is a file.
func maintenance(d *directive, r *rule) bool {
	word := strings.TrimPrefix(d.arg(0), "(")
	return (word == "-f" || word == "-e" || word == "-d") && r != nil && r.fixed != nil && r.fixed.status == 503
}

// leftCondition notes an `if` that cannot be expressed, and what is in it.
func (s conditional) leftCondition(d *directive) {
	why, remedy := s.noCondition(d)
	s.n.l.left(d.at, why, remedy)
	s.leftBlock(d)
}

// closeCondition notes an `if` that cannot be expressed, and returns the answer in its place.
func (s conditional) closeCondition(d *directive) *rule {
	why, remedy := s.noCondition(d)
	r := s.n.l.close(d.at, why, remedy)
	s.leftBlock(d)
	return r
}

func (s conditional) noCondition(d *directive) (why, remedy string) {
	for _, test := range []string{"(-f", "(!-f", "(-e", "(!-e", "(-d", "(!-d"} {
		if d.has(test) {
			return "files are looked for by try_files alone", "write static.try_files"
		}
	}
	return "the gateway has no such condition", "write rules with matches by host, path, method, header, query or client"
}

func (s conditional) leftBlock(d *directive) {
	for _, inner := range d.block {
		s.n.l.left(inner.at, "its condition is left out", "")
	}
}

// answerOf returns the rule of a block that answers, or that passes requests on; nil for another.
func (s conditional) answerOf(d *directive, l *loc) (*rule, guard) {
	inner := newScope(l.sc, d.block)
	for _, b := range d.block {
		switch b.name {
		case "return":
			return s.returned(b, inner), guard{}
		case "rewrite":
			if r := s.rewriteAll(b, l.sc); r != nil {
				return r, guard{}
			}
		case "proxy_pass":
			if l.d == nil {
				continue
			}
			within := *l
			within.sc = inner
			r := s.proxied(&within, b)
			s.responseFields(r, inner, false)
			if d := s.unexpressed(&within); d != nil {
				r = s.closeFor(d, &within)
			}
			return r, s.guard(&within)
		}
	}
	return nil, guard{}
}
