package convert

import (
	"regexp"
	"slices"
	"strings"
)

// Passwords of HAProxy are in the file itself, and those of the gateway in one of htpasswd.
const (
	passwords      = "passwords are in a file of htpasswd"
	passwordRemedy = "write one with htpasswd -B, and name it in routes[].auth.basic"
)

// front translates a frontend of HTTP.
func (h *haproxy) front(p *proxy) {
	if p.statistics() {
		h.l.left(p.at, "the gateway has metrics of its own", "see metrics.listen, and millrace gateway status")
		for _, x := range p.lines[p.own:] {
			h.l.left(x.at, "it is of a page of statistics", "")
		}
		return
	}
	listeners := h.bind(p)
	for _, x := range p.all("mode") {
		h.l.ok(x.at, "listeners[].protocol")
	}
	if len(listeners) == 0 {
		return
	}
	f := &frontend{h: h, p: p, reached: map[pos]bool{}}
	f.fields(listeners)
	f.collect()
	f.backends()
	for _, tls := range []int{-1, 1} {
		var names []string
		for _, v := range listeners {
			if (v.protocol == protoHTTPS) == (tls == 1) {
				names = append(names, v.name)
			}
		}
		if len(names) > 0 {
			f.routes(names, tls)
		}
	}
	for _, it := range f.items {
		if !f.reached[it.at] && len(it.atom.notFrom) == 0 && it.atom.tls == 0 {
			h.l.unreached(it.at)
		}
	}
}

// statistics reports whether a section has a page of statistics and nothing else.
func (p *proxy) statistics() bool {
	page, other := false, false
	for _, x := range p.lines[p.own:] {
		page = page || x.words[0] == "stats"
		other = other || x.words[0] == "server" || x.words[0] == "use_backend" || x.words[0] == "default_backend"
	}
	return page && !other
}

// frontend is the translation of one.
type frontend struct {
	h       *haproxy
	p       *proxy
	items   []item
	request map[int]*edits // of every request, by atom.tls
	answer  map[int]*edits // of every response, the same
	sources *sources       // clients that are served at all
	reached map[pos]bool   // items that are in the output
	listed  *line          // whose clients are those of the line before it
	limits  []string       // rate limits of every request
}

// fields translates the fields that are set for all requests of the frontend.
func (f *frontend) fields(listeners []*listener) {
	f.request, f.answer = map[int]*edits{-1: {}, 1: {}}, map[int]*edits{-1: {}, 1: {}}
	forwarded := f.p.last("option forwardfor")
	for _, b := range f.h.backends {
		if x := b.last("option forwardfor"); forwarded == nil && x != nil && !b.tcp() {
			forwarded = x
		}
	}
	if forwarded == nil {
		for _, v := range listeners {
			v.noForwarded = true
		}
	} else {
		f.h.l.changed(forwarded.at, "listeners[].forwarded", "what clients claim is replaced and not continued, unless forwarded.trusted has them; X-Forwarded-Proto and -Host are sent too")
		if name := forwarded.after("header"); validField(name) {
			f.request[1].put(name, "${client_address}")
			f.request[-1].put(name, "${client_address}")
		}
	}
	for _, b := range f.h.backends {
		if x := b.last("option forwardfor"); x != nil && x != forwarded {
			f.h.l.changed(x.at, "listeners[].forwarded", "it is of listeners")
		}
	}
	for _, x := range f.p.lines {
		name := x.name()
		if !fieldEdit(name) {
			continue
		}
		v := f.h.condition(f.p, x.words)
		if !v.known || len(v.atoms) != 1 || !onlyTLS(v.atoms[0]) {
			f.h.l.left(x.at, "its condition is left out, and with it the field", "set the field in rules with the condition as their match")
			continue
		}
		for _, tls := range []int{-1, 1} {
			if v.atoms[0].tls != -tls {
				f.h.edit(x, f.request[tls], f.answer[tls], tls)
			}
		}
	}
	for tls, proto := range map[int]string{-1: "http", 1: "https"} { // which the gateway sends itself
		if forwarded != nil && slices.Contains(f.request[tls].set, header{"x-forwarded-proto", proto}) {
			f.request[tls].drop("x-forwarded-proto")
		}
	}
}

func fieldEdit(name string) bool {
	switch name {
	case "http-request set-header", "http-request add-header", "http-request del-header", "http-response set-header", "http-response add-header", "http-response del-header",
		"http-after-response set-header", "http-after-response add-header", "http-after-response del-header":
		return true
	}
	return false
}

// onlyTLS reports whether an atom has no condition but on TLS.
func onlyTLS(a atom) bool {
	return !a.never && len(a.hosts) == 0 && a.match.kind == "" && a.match.method == "" && len(a.match.headers)+len(a.match.query)+len(a.match.clients)+len(a.notFrom)+len(a.except) == 0
}

// edit translates one field.
func (h *haproxy) edit(x *line, request, answer *edits, tls int) {
	to, key := request, "RequestHeaderModifier"
	if x.words[0] != "http-request" {
		to, key = answer, "ResponseHeaderModifier"
	}
	verb, name := x.arg(1), strings.ToLower(x.arg(2))
	switch {
	case name == "x-forwarded-proto" && verb == "set-header" && (x.arg(3) == "https" && tls == 1 || x.arg(3) == "http" && tls == -1):
		to.put(name, x.arg(3))
		h.l.ok(x.at, key)
		return
	case name == "host" && verb == "set-header":
		h.l.left(x.at, "the host is changed by URLRewrite", "write a rule with URLRewrite and hostname")
		return
	case !validField(name):
		h.l.left(x.at, "rules cannot edit the field", "")
		return
	case verb == "del-header":
		if len(x.words) > 3 && x.arg(3) == "-m" {
			h.l.left(x.at, "names are compared as a whole", "list them in remove")
			return
		}
		to.without(name)
		h.l.ok(x.at, key+".remove")
		return
	}
	value, unknown := haproxyFormat(x.arg(3))
	switch {
	case unknown != "":
		h.l.left(x.at, "the gateway has no variable "+shorten(unknown), "")
	case !validValue(value) || value == "":
		h.l.left(x.at, "it is no value of a field", "")
	case verb == "add-header" && !to.more(name, value):
		h.l.left(x.at, "a field is added once", "put the values into one line, with commas")
	case verb == "add-header":
		h.l.ok(x.at, key+".add")
	default:
		to.put(name, value)
		h.l.ok(x.at, key+".set")
	}
}

// haproxyVariables are parts of formats with a counterpart.
var haproxyVariables = map[string]string{
	"%[src]": "${client_address}", "%ci": "${client_address}", "%cp": "${peer_port}", "%[src_port]": "${peer_port}", "%[dst_port]": "${listener_port}", "%fp": "${listener_port}",
	"%[dst]": "${listener_address}", "%fi": "${listener_address}", "%[req.hdr(host)]": "${host}", "%[req.hdr(Host)]": "${host}", "%[hdr(host)]": "${host}", "%[hdr(Host)]": "${host}",
	"%[req.hdr(host),lower]": "${host}", "%[path]": "${path}", "%HP": "${path}", "%HU": "${target}", "%[url]": "${target}", "%[capture.req.uri]": "${target}", "%[pathq]": "${target}",
	"%HM": "${method}", "%[method]": "${method}", "%[ssl_fc_sni]": "${server_name}", "%[unique-id]": "${request_id}", "%ID": "${request_id}", "%[uuid()]": "${request_id}", "%[uuid]": "${request_id}",
	"%b": "${pool}", "%s": "${backend}", "%[ssl_fc_protocol]": "${tls_version}", "%sslv": "${tls_version}", "%f": "${listener}", "%[be_name]": "${pool}", "%[srv_name]": "${backend}",
	"%[hdr(host),field(1,:)]": "${hostname}", "%[req.hdr(host),field(1,:)]": "${hostname}", "%[req.hdr(host),host_only]": "${hostname}",
}

var formatPart = regexp.MustCompile(`%(?:\[[^\]]*\]|%|\{[^}]*\}[A-Za-z]+|[A-Za-z]+)`)

// haproxyFormat translates a format. unknown is the first part without a counterpart.
func haproxyFormat(s string) (out, unknown string) {
	at := 0
	for _, m := range formatPart.FindAllStringIndex(s, -1) {
		out += literal(s[at:m[0]])
		part := s[m[0]:m[1]]
		at = m[1]
		with, known := haproxyVariables[part]
		switch {
		case part == "%%":
			out += "%"
		case known && !strings.HasSuffix(out, "$"): // a dollar sign before a variable would be its escape
			out += with
		case unknown == "":
			unknown = part
		}
	}
	return out + literal(s[at:]), unknown
}

// collect reads the decisions of the frontend in HAProxy's order: http-request, redirect, use_backend, default_backend.
func (f *frontend) collect() {
	for _, x := range f.p.all("monitor-uri") {
		if r := newRule(x.at); validPath(pathExact, x.arg(1)) {
			r.fixed = &fixed{status: 200}
			f.items = append(f.items, item{at: x.at, atom: atom{match: match{kind: pathExact, path: x.arg(1)}}, rule: r})
			f.h.l.changed(x.at, "FixedResponse", "the page is empty, and the query does not count")
		}
	}
	for _, x := range f.p.lines {
		if f.closeEdited(x) {
			continue
		}
		switch x.name() {
		case "tcp-request connection", "tcp-request content", "tcp-request session":
			if x != f.listed {
				f.refuse(x)
			}
		case "http-request deny", "http-request tarpit", "http-request reject", "http-request silent-drop", "http-request return", "http-request redirect", "http-request auth", "http-request allow":
			f.decide(x, x.words[1:])
		case "http-request wait-for-handshake", "http-request normalize-uri", "http-request wait-for-body", "http-request do-resolve", "http-request disable-l7-retry":
			f.h.l.unneeded(x.at, "it is what the gateway does")
		case "http-request set-path", "http-request replace-path", "http-request replace-uri", "http-request replace-pathq":
			f.h.l.left(x.at, "paths are rewritten in rules", "write it in the backend that the path leads to")
		case "http-request use-service":
			f.service(x)
		default:
			if x.guards() {
				f.closeLine(x)
			}
		}
	}
	for _, x := range f.p.all("redirect") {
		f.decide(x, x.words)
	}
}

// backends reads use_backend and default_backend; a section listen leads to itself.
func (f *frontend) backends() {
	for _, x := range f.p.all("use_backend") {
		v := f.h.condition(f.p, x.words)
		switch {
		case strings.Contains(x.arg(1), "%"):
			f.h.l.left(x.at, "the name of the backend has a variable", "write a rule for each")
		case never(v):
			f.h.l.unneeded(x.at, "its condition holds for no request")
		case !v.known || len(v.atoms) == 0:
			f.unknownBackend(x)
		default:
			if r := f.backend(x, x.arg(1)); r != nil {
				f.toBackend(x, v, r)
			} else { // what others do with its requests is not known
				f.closeWith(x, v, "the backend cannot be expressed", "write its pool by hand")
			}
		}
	}
	for _, x := range f.p.all("use-server") {
		f.h.l.left(x.at, "rules lead to pools", "write a pool for the server")
	}
	var r *rule
	if x := f.p.last("default_backend"); x != nil {
		if r = f.backend(x, x.arg(1)); r != nil {
			f.h.l.ok(x.at, "routes[].rules[]")
		}
	} else if f.p.kind == "listen" {
		r = f.backend(&line{words: []string{"listen"}, at: f.p.at}, f.p.name)
	}
	if r == nil {
		r = newRule(f.p.at)
		r.note, r.fixed = "no backend", &fixed{status: 503}
	}
	f.toBackend(&line{words: []string{"default_backend"}, at: r.at}, always, r)
	f.items[len(f.items)-1].last = true
}

// unknownBackend notes a use_backend whose condition cannot be expressed. One that may keep clients from the backends behind it closes
// their requests.
func (f *frontend) unknownBackend(x *line) {
	to := f.h.backends[x.arg(1)]
	if f.h.routing(f.p, x.words) && to != nil && !slices.ContainsFunc(to.lines, (*line).refuses) && slices.ContainsFunc(to.lines, func(l *line) bool {
		return l.words[0] == "server" || l.words[0] == "server-template"
	}) {
		f.h.l.left(x.at, "its condition cannot be expressed: it stays open, and its requests go to the next line that holds for them, or to default_backend", conditionRemedy)
		return
	}
	f.closeWith(x, f.h.covering(f.p, x.words), "its condition cannot be expressed", conditionRemedy)
}

// refuses reports whether a line of a backend keeps requests from its servers.
func (x *line) refuses() bool {
	switch x.name() {
	case "http-request deny", "http-request tarpit", "http-request reject", "http-request silent-drop", "http-request auth", "http-request return", "http-request redirect", "redirect",
		"http-request use-service":
		return true
	}
	return x.words[0] == "tcp-request" && x.arg(1) != "inspect-delay" || x.guards()
}

// toBackend appends an item that leads to a backend, behind what the backend itself refuses.
func (f *frontend) toBackend(x *line, v verdict, r *rule) {
	if e := f.h.edits[firstPool(r)]; e != nil && e.of != f.p {
		for _, g := range e.guards {
			for _, a := range v.atoms {
				for _, b := range strictly(g.cond).atoms {
					with, ok := a.and(b)
					if !ok { // the refusal holds for all of its requests
						with, g.rule = a, f.h.l.close(g.at, "its condition and that of the line which leads to the backend do not join", "write it in the frontend")
						with.notFrom = nil
					}
					with = with.clientsAside(g.rule)
					if !with.never {
						f.items = append(f.items, item{at: g.at, atom: with, rule: g.rule})
					}
				}
			}
		}
	}
	f.enter(x, v, r)
}

// fromFile translates the refusal of clients that a file lists, or of all others, for all requests. It reports whether it is one.
func (f *frontend) fromFile(x *line) bool {
	i := slices.Index(x.words, "if")
	if i < 0 {
		return false
	}
	list := terms(x.words[i+1:])
	if len(list) != 1 {
		return false
	}
	words, at := list[0][1:], pos{}
	if words[0] == "{" {
		words = words[1:]
	} else {
		name := words[0]
		words = nil
		for _, l := range f.p.all("acl") {
			if l.arg(1) == name && words == nil {
				words, at = l.words[2:], l.at
			} else if l.arg(1) == name {
				return false
			}
		}
	}
	if len(words) != 3 || words[0] != "src" || f.h.editedBefore(f.p, x.words)[editedClient] || words[1] != "-f" || !printable(words[2]) || !strings.ContainsAny(words[2], "./") || strings.HasPrefix(words[2], "virt@") {
		return false
	}
	if f.sources == nil {
		f.sources = &sources{}
	}
	if file := f.h.s.path(words[2]); list[0][0] == "!" {
		f.sources.allow, f.sources.denyOthers = append(f.sources.allow, file), true
	} else {
		f.sources.deny = append(f.sources.deny, file)
	}
	f.h.l.ok(x.at, "routes[].sources")
	f.h.l.ok(at, "routes[].sources")
	return true
}
