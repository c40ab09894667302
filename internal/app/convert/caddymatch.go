package convert

import (
	"regexp"
	"slices"
	"strings"
)

// caddyPath translates the path of a matcher: a star at its end stands for the rest, elsewhere for one segment's part.
func caddyPath(p string) (v verdict) {
	bare := strings.TrimSuffix(p, "*")
	m := match{kind: pathExact, path: p}
	switch {
	case p == "*" || p == "/*":
		return always
	case strings.Contains(bare, "*"):
		if strings.HasPrefix(p, "*") && !strings.Contains(p[1:], "*") {
			m = match{kind: pathRegexp, path: ".*" + regexp.QuoteMeta(p[1:])}
		} else {
			m = match{kind: pathRegexp, path: strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, "[^/]*")}
		}
	case bare != p:
		m = match{kind: pathPrefix, path: bare}
		v.coarse = "a prefix ends with a segment: " + bare + " does not have " + bare + "x"
		if strings.HasSuffix(bare, "/") {
			v.coarse = "the prefix " + bare + " also has the path without the slash"
		}
	}
	v.atoms, v.known = []atom{{match: m}}, validPath(m.kind, m.path)
	return v
}

// named translates a named matcher: all of its lines must hold, and of one line any of its values.
func (b *caddySite) named(d *directive) verdict {
	if !d.open {
		return b.one(d.args)
	}
	v := always
	for _, o := range d.block {
		w := b.line(o)
		if w.known {
			b.l.ok(o.at, "routes[].rules[].matches[]")
		} else {
			b.l.left(o.at, "rules have no such condition", "see routes[].rules[].matches[]")
		}
		for _, inner := range o.block {
			b.l.ok(inner.at, "")
		}
		v = both(v, w)
	}
	return v
}

// line translates one line of a named matcher.
func (b *caddySite) line(o *directive) verdict {
	if o.name != "not" || !o.open {
		return b.one(append([]token{{text: o.name}}, o.args...))
	}
	v := always // all of them hold together
	for _, inner := range o.block {
		v = both(v, b.one(append([]token{{text: inner.name}}, inner.args...)))
	}
	return negated(v)
}

// one translates one matcher.
func (b *caddySite) one(words []token) verdict {
	if len(words) == 0 {
		return verdict{}
	}
	var args []string
	for _, w := range words[1:] {
		args = append(args, w.text)
	}
	arg := (&line{words: args}).arg
	switch words[0].text {
	case "path":
		v := verdict{known: len(args) > 0}
		for _, p := range args {
			v = either(v, caddyPath(p))
		}
		return v
	case "path_regexp":
		re, ok := wholeRegexp(arg(len(args)-1), false)
		return verdict{atoms: []atom{{match: match{kind: pathRegexp, path: re}}}, known: ok}
	case "host":
		hosts := make([]string, 0, len(args))
		for _, h := range args {
			hosts = append(hosts, strings.ToLower(h))
		}
		return verdict{atoms: []atom{{hosts: hosts}}, known: len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !validHost(h) })}
	case "method":
		if b.edited[editedMethod] {
			return verdict{}
		}
		return eachValue(args, func(s string) (atom, bool) {
			return atom{match: match{method: strings.ToUpper(s)}}, validToken(s)
		})
	case "header", "header_regexp":
		if b.edited[strings.ToLower(arg(max(len(args)-2, 0)))] || b.edited[strings.ToLower(arg(0))] || b.edited[editedAll] {
			return verdict{}
		}
		if words[0].text == "header_regexp" {
			name, re := arg(len(args)-2), arg(len(args)-1)
			whole, ok := wholeRegexp(re, false)
			return verdict{atoms: []atom{{match: match{headers: []condition{{strings.ToLower(name), whole, true}}}}}, known: ok && len(args) >= 2 && validField(name)}
		}
		return b.headerMatch(args)
	case "query":
		return queryMatch(args)
	case "remote_ip", "client_ip":
		var list []string
		for _, a := range args {
			if a == "private_ranges" {
				list = append(list, privateRanges...)
			} else if a != "forwarded" {
				list = append(list, a)
			}
		}
		return sourceTest(list)
	case "protocol":
		switch arg(0) {
		case "https":
			return verdict{atoms: []atom{{tls: 1}}, known: true}
		case "http":
			return verdict{atoms: []atom{{tls: -1}}, known: true}
		}
	case "not":
		return negated(b.one(words[1:]))
	}
	return verdict{}
}

// queryMatch translates conditions on parameters, all of which must hold.
func queryMatch(args []string) verdict {
	v := always
	for _, q := range args {
		name, value, ok := strings.Cut(q, "=")
		c := condition{name: name, value: value}
		if value == "*" {
			c.value, c.regexp = ".*", true
		}
		v = both(v, verdict{atoms: []atom{{match: match{query: []condition{c}}}}, known: ok && name != "" && printable(q) && !strings.Contains(q, "{")})
	}
	return v
}

// headerMatch translates the condition on a field: stars stand for any text at its ends.
func (b *caddySite) headerMatch(args []string) verdict {
	if len(args) == 0 || !validField(args[0]) && !strings.EqualFold(args[0], "connection") && !strings.EqualFold(args[0], "upgrade") {
		return verdict{}
	}
	name := strings.ToLower(args[0])
	if name == "connection" { // that of WebSocket, which Upgrade names as well
		return always
	}
	value := strings.Join(args[1:], " ")
	c := condition{name: name, value: value}
	if strings.Contains(value, "*") || value == "" {
		parts := strings.Split(value, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		c.value, c.regexp = strings.Join(parts, ".*"), true
		if value == "" {
			c.value = ".*"
		}
	}
	if name == "upgrade" {
		return webSocket
	}
	return verdict{atoms: []atom{{match: match{headers: []condition{c}}}}, known: printable(value) && !strings.Contains(value, "{") && !strings.HasPrefix(args[0], "!")}
}

// caddyVariables are placeholders with a counterpart.
var caddyVariables = map[string]string{
	"{host}": "${hostname}", "{http.request.host}": "${hostname}", "{hostport}": "${host}", "{http.request.hostport}": "${host}", "{uri}": "${target}", "{http.request.uri}": "${target}",
	"{http.request.orig_uri}": "${target}", "{path}": "${path}", "{http.request.uri.path}": "${path}", "{scheme}": "${scheme}", "{http.request.scheme}": "${scheme}", "{remote_host}": "${peer_address}",
	"{http.request.remote.host}": "${peer_address}", "{remote}": "${peer_address}", "{remote_port}": "${peer_port}", "{http.request.remote.port}": "${peer_port}", "{client_ip}": "${client_address}",
	"{http.vars.client_ip}": "${client_address}", "{method}": "${method}", "{http.request.method}": "${method}", "{port}": "${listener_port}", "{http.request.port}": "${listener_port}",
	"{http.request.uuid}": "${request_id}", "{uuid}": "${request_id}", "{http.auth.user.id}": "${user}", "{tls_version}": "${tls_version}", "{tls_client_servername}": "${server_name}",
	"{upstream_hostport}": "${backend_address}", "{http.reverse_proxy.upstream.hostport}": "${backend_address}", "{http.request.proto}": "${protocol}",
}

var placeholder = regexp.MustCompile(`\{[^{}\s]+\}`)

// caddyText translates a text with placeholders. unknown is the first without a counterpart.
func caddyText(s string) (out, unknown string) {
	at := 0
	for _, m := range placeholder.FindAllStringIndex(s, -1) {
		out += literal(s[at:m[0]])
		at = m[1]
		if with, ok := caddyVariables[s[m[0]:m[1]]]; ok && !strings.HasSuffix(out, "$") {
			out += with
		} else if unknown == "" {
			unknown = s[m[0]:m[1]]
		}
	}
	return out + literal(s[at:]), unknown
}
