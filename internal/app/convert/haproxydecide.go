package convert

import (
	"slices"
	"strings"
)

// service closes the requests that a service of HAProxy or a script answers.
func (f *frontend) service(x *line) {
	f.closeWith(x, f.h.covering(f.p, x.words), "the gateway has no such content", "name a backend, or see metrics.listen")
}

// refuse translates rules on connections: clients that are refused.
func (f *frontend) refuse(x *line) {
	verb := x.arg(2)
	v := f.h.condition(f.p, x.words)
	switch {
	case never(v):
		f.h.l.unneeded(x.at, "its condition holds for no request")
		return
	case verb == "accept" && f.accepted(x, v):
		return
	case verb == "accept":
		f.h.l.unneeded(x.at, "connections are accepted, and rules behind it hold for them too")
		return
	case x.guards():
		f.closeLine(x)
		return
	case verb != "reject" && verb != "silent-drop":
		f.h.l.left(x.at, "connections have no such rule", "see rate_limits and sources of listeners")
		return
	}
	for _, a := range v.atoms {
		bare := a
		bare.match.clients, bare.notFrom = nil, nil
		v.known = v.known && onlyTLS(bare) && bare.tls == 0 && len(a.match.clients)+len(a.notFrom) > 0
	}
	if f.sources == nil {
		f.sources = &sources{}
	}
	if !v.known || len(v.atoms) == 0 {
		f.refuseAll(x)
		return
	}
	for _, a := range v.atoms {
		f.sources.deny = append(f.sources.deny, a.match.clients...)
		if len(a.notFrom) > 0 {
			if f.sources.denyOthers && len(f.sources.allow) > 0 { // clients of both lists alone
				a.notFrom = common(f.sources.allow, a.notFrom)
				f.sources.allow = nil
			}
			f.sources.allow, f.sources.denyOthers = append(f.sources.allow, a.notFrom...), true
		}
	}
	f.h.l.changed(x.at, "routes[].sources", "requests of these clients get 403; HAProxy closes their connections")
}

// refuseAll closes what a rule on connections refuses: some requests, where its condition is one on them, and else all clients.
func (f *frontend) refuseAll(x *line) {
	const why, remedy = "connections are refused by their address alone", "see sources of listeners and routes, and rate_limits"
	if !f.p.tcp() {
		f.closeWith(x, f.h.covering(f.p, x.words), why, remedy)
		return
	}
	f.sources.denyOthers = f.h.l.closeSources(x.at, why, remedy).denyOthers
	f.sources.allow = nil
}

// accepted translates the acceptance of some clients before all others are refused, as a list of clients.
func (f *frontend) accepted(x *line, v verdict) bool {
	i := slices.IndexFunc(f.p.lines, func(o *line) bool { return o.at == x.at })
	if i < 0 || i+1 >= len(f.p.lines) || !v.known || len(v.atoms) == 0 {
		return false
	}
	next := f.p.lines[i+1]
	if next.name() != x.name() || next.arg(2) != "reject" || len(next.words) != 3 || f.sources != nil {
		return false
	}
	var clients []string
	for _, a := range v.atoms {
		bare := a
		bare.match.clients = nil
		if !onlyTLS(bare) || bare.tls != 0 || len(a.match.clients) == 0 {
			return false
		}
		clients = append(clients, a.match.clients...)
	}
	f.listed = next
	f.sources = &sources{allow: clients, denyOthers: true}
	f.h.l.ok(x.at, "routes[].sources")
	f.h.l.changed(next.at, "routes[].sources", "requests of other clients get 403; HAProxy closes their connections")
	return true
}

// decide translates a decision that needs no backend.
func (f *frontend) decide(x *line, words []string) {
	r, ok := f.answerOf(x, words)
	if !ok {
		return
	}
	if r.fixed != nil && r.fixed.status == 403 && f.fromFile(x) || r.fixed != nil && words[0] != "return" && f.rateDeny(x) {
		return
	}
	v := f.h.condition(f.p, x.words)
	if never(v) {
		f.h.l.unneeded(x.at, "its condition holds for no request")
		return
	}
	if !v.known || len(v.atoms) == 0 {
		f.closeWith(x, f.h.covering(f.p, x.words), "its condition cannot be expressed", conditionRemedy)
		return
	}
	if r.refuses() && r.redirect == nil {
		v = strictly(v)
	}
	f.enter(x, v, r)
}

// conditionRemedy names what conditions of rules are.
const conditionRemedy = "write rules with matches by host, path, method, header, query or client"

// never reports whether a condition is known to hold for no request.
func never(v verdict) bool {
	return v.known && !slices.ContainsFunc(v.atoms, func(a atom) bool { return !a.never })
}

// enter appends an item for each alternative.
func (f *frontend) enter(x *line, v verdict, r *rule) {
	if never(v) {
		f.h.l.unneeded(x.at, "its condition holds for no request")
		return
	}
	v = v.segments()
	for _, a := range v.atoms {
		if a.never {
			continue
		}
		a = a.clientsAside(r)
		f.items = append(f.items, item{at: x.at, atom: a, rule: r})
	}
	if v.coarse != "" {
		f.h.l.changed(x.at, "routes[].rules[]", v.coarse)
	} else {
		f.h.l.ok(x.at, "routes[].rules[]")
	}
}

// answerOf returns the rule of a decision without a backend.
func (f *frontend) answerOf(x *line, words []string) (*rule, bool) {
	r, led := newRule(x.at), f.h.l
	value := func(word string) string { return (&line{words: words}).after(word) }
	switch words[0] {
	case "deny", "tarpit", "reject", "silent-drop":
		r.fixed = &fixed{status: 403}
		if n := atoi(value("deny_status")); n >= 200 && n <= 599 && words[0] != "reject" {
			r.fixed.status = n
		} else if n := atoi(value("status")); n >= 200 && n <= 599 {
			r.fixed.status = n
		}
		if words[0] == "tarpit" || words[0] == "reject" || words[0] == "silent-drop" {
			led.changed(x.at, "FixedResponse", "the request is answered at once")
		}
	case "return":
		r.fixed = &fixed{status: 200, kind: "text/plain"}
		if n := atoi(value("status")); n >= 200 && n <= 599 {
			r.fixed.status = n
		}
		body := value("string")
		if body == "" {
			body = value("lf-string")
		}
		if value("file") != "" || value("lf-file") != "" || value("errorfile") != "" || strings.Contains(value("lf-string"), "%") || !printable(body) || len(body) > 64<<10 {
			led.changed(x.at, "FixedResponse", "the content is left out: it has variables, or is a file")
			body = ""
		}
		if r.fixed.status != 204 && r.fixed.status != 304 && r.fixed.status != 205 {
			r.fixed.body = body
		}
		if kind := value("content-type"); kind != "" && validValue(literal(kind)) {
			r.fixed.kind = literal(kind)
		}
	case "redirect":
		return f.redirect(x, words)
	case "auth":
		f.closeWith(x, f.h.covering(f.p, x.words), passwords, passwordRemedy)
		return nil, false
	case "allow":
		led.left(x.at, "rules do not end the others: those behind it hold for its requests as well", "")
		return nil, false
	}
	return r, true
}

// redirect translates the three kinds of redirects.
func (f *frontend) redirect(x *line, words []string) (*rule, bool) {
	l, r := &line{words: words}, newRule(x.at)
	status := 302
	if n := atoi(l.after("code")); slices.Contains([]int{301, 302, 303, 307, 308}, n) {
		status = n
	}
	to, unknown := "", ""
	switch {
	case l.after("scheme") != "":
		to, unknown = haproxyFormat(l.after("scheme"))
		to += "://${host}${target}"
	case l.after("prefix") != "":
		to, unknown = haproxyFormat(l.after("prefix"))
		to = strings.TrimSuffix(to, "/") + "${target}"
		if slices.Contains(words, "drop-query") {
			to = strings.TrimSuffix(to, "${target}") + "${path}"
		}
	default:
		to, unknown = haproxyFormat(l.after("location"))
	}
	if unknown != "" || !validLocation(to) {
		f.closeWith(x, f.h.covering(f.p, x.words), "the URL has a part without a counterpart, or may lead to another host", "write it with the variables of docs/http-gateway.md")
		return nil, false
	}
	if slices.Contains(words, "set-cookie") || slices.Contains(words, "append-slash") || slices.Contains(words, "clear-cookie") {
		f.h.l.changed(x.at, "RequestRedirect", "cookies and slashes are left out")
	}
	r.redirect = &redirect{status: status, location: to}
	return r, true
}
