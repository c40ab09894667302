package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// requestFields translates the header that backends get.
func (s *site) requestFields(l *loc, d *directive, t *target, r *rule) {
	led := s.n.l
	own := "proxy_set_header"
	if d.name == "grpc_pass" {
		own = "grpc_set_header"
	}
	list := l.sc.find(own)
	host := ""
	for _, h := range list {
		name, value := strings.ToLower(h.arg(0)), h.arg(1)
		switch {
		case name == "host":
			host = value
			s.host(h, value, t, l.sc, r)
		case name == "upgrade" || name == "connection":
			led.ok(h.at, "")
			r.streaming = r.streaming || name == "upgrade"
		case name == "x-forwarded-for" && (value == "$proxy_add_x_forwarded_for" || value == "$remote_addr"):
			s.forwardedFor(h, value)
		case name == "x-forwarded-proto" && (value == "$scheme" || s.n.schemes[value]) && !s.hidden():
			led.ok(h.at, "listeners[].forwarded")
		case slices.Contains(ownFields, name) || name == "accept-encoding" && value == "":
			if name == "accept-encoding" {
				r.request.without(name)
			}
			led.ok(h.at, "")
		default:
			s.requestField(h, name, value, l.sc, r)
		}
	}
	if host == "" {
		s.host(d, "$proxy_host", t, l.sc, r)
	}
	for _, name := range []string{"proxy_redirect"} {
		for _, d := range l.sc.find(name) {
			if d.arg(0) == "off" {
				led.ok(d.at, "")
			} else {
				led.changed(d.at, "", "Location of backends passes as it is")
			}
		}
	}
}

// hidden reports whether the listeners add no fields of the client.
func (s *site) hidden() bool {
	return slices.ContainsFunc(s.n.m.listeners, func(x *listener) bool { return x.noForwarded && slices.Contains(s.p.listeners, x.name) })
}

// forwardedFor notes what the gateway does by itself.
func (s *site) forwardedFor(d *directive, value string) {
	trusts := slices.ContainsFunc(s.n.m.listeners, func(x *listener) bool { return len(x.trusted) > 0 && slices.Contains(s.p.listeners, x.name) })
	if value == "$remote_addr" || trusts {
		s.n.l.ok(d.at, "listeners[].forwarded")
		return
	}
	s.n.l.changed(d.at, "listeners[].forwarded", "what clients claim is replaced and not continued, unless forwarded.trusted has them; X-Forwarded-Proto and -Host are sent too")
}

// host translates the field Host that backends get.
func (s *site) host(d *directive, value string, t *target, sc *scope, r *rule) {
	led := s.n.l
	if value == "$proxy_host" {
		value = t.host
	} else if plain, ok := sc.plain(strings.ReplaceAll(value, "$server_name", s.v.first)); ok {
		value = plain
	} else {
		switch value {
		case "$http_host", "${http_host}", "$host:$server_port":
			led.ok(d.at, "")
		case "$host", "${host}":
			if s.p.standard {
				led.ok(d.at, "")
			} else {
				led.changed(d.at, "", "backends get the port of Host, if the client sends it")
			}
		default:
			led.left(d.at, "the host has a variable", "write URLRewrite with a hostname")
		}
		return
	}
	name, port, hasPort := strings.Cut(value, ":")
	if strings.HasPrefix(value, "[") {
		end := strings.IndexByte(value, ']') + 1
		name, port, hasPort = value[:end], value[end:], end < len(value)
	}
	if name = strings.ToLower(name); !validHost(name) || strings.HasPrefix(name, "*") {
		led.changed(d.at, "", "backends get the client's Host: "+shorten(value)+" is no name of a host")
		return
	}
	r.hostname = name
	if hasPort {
		led.changed(d.at, "URLRewrite.hostname", "Host has no port: "+name+" in place of "+name+":"+strings.TrimPrefix(port, ":"))
		return
	}
	led.ok(d.at, "URLRewrite.hostname")
}

// requestField translates one field.
func (s *site) requestField(d *directive, name, value string, sc *scope, r *rule) {
	led := s.n.l
	if !validField(name) {
		led.left(d.at, "rules cannot edit the field", "")
		return
	}
	if value == "" {
		r.request.without(name)
		led.ok(d.at, "RequestHeaderModifier.remove")
		return
	}
	if same := strings.TrimPrefix(value, "$http_"); same != value && strings.ReplaceAll(same, "_", "-") == name && validToken(same) {
		led.ok(d.at, "") // as the client has sent it
		return
	}
	e := sc.expand(value, s.v.first)
	switch {
	case s.asked(sc, value):
		led.ok(d.at, "routes[].auth.forward.response_headers")
		return
	case strings.HasPrefix(value, "$ssl_client_"):
		led.left(d.at, "variables have nothing of a client's certificate", "see listeners[].tls.client_auth.forward")
		return
	case e.unknown != "":
		led.left(d.at, "the gateway has no variable "+e.unknown, "")
		return
	case !validValue(e.text) || e.text == "":
		led.left(d.at, "it is no value of a field", "")
		return
	case e.differs != "":
		led.changed(d.at, "RequestHeaderModifier", e.differs)
	case strings.Contains(value, "$proxy_add_x_forwarded_for"):
		led.changed(d.at, "RequestHeaderModifier", "what clients claim is replaced and not continued")
	default:
		led.ok(d.at, "RequestHeaderModifier.set")
	}
	r.request.put(name, e.text)
}

// responseFields translates add_header, expires and proxy_hide_header. Of a text that is returned Content-Type is its own.
func (s *site) responseFields(r *rule, sc *scope, text bool) {
	led := s.n.l
	for _, d := range sc.find("add_header") {
		name, e := strings.ToLower(d.arg(0)), sc.expand(d.arg(1), s.v.first)
		switch {
		case text && name == "content-type":
			led.changed(d.at, "FixedResponse", "Content-Type is sent once; nginx sends that of the text as well")
		case d.arg(1) == "":
			led.ok(d.at, "") // nginx adds nothing
		case d.arg(1) == "$upstream_cache_status":
			led.changed(d.at, "", "responses have Cache-Status (RFC 9211)")
		case !validField(name) || !validValue(e.text) || e.text == "":
			led.left(d.at, "rules cannot add the field, or it is no value", "")
		case e.unknown != "":
			led.left(d.at, "the gateway has no variable "+e.unknown, "")
		case !r.response.more(name, e.text):
			led.left(d.at, "a field is added once", "put the values into one line, with commas")
		case d.arg(2) == "always" || d.arg(2) == "" && r.redirect != nil:
			led.ok(d.at, "ResponseHeaderModifier.add")
		default:
			led.changed(d.at, "ResponseHeaderModifier.add", "responses of all statuses get it, as with always")
		}
	}
	if d := sc.last("expires"); d != nil {
		s.expires(r, d)
	}
	for _, d := range sc.find("proxy_hide_header", "grpc_hide_header", "fastcgi_hide_header") {
		if name := strings.ToLower(d.arg(0)); validField(name) && !slices.ContainsFunc(r.response.add, func(h header) bool { return h.name == name }) {
			r.response.without(name)
			led.ok(d.at, "ResponseHeaderModifier.remove")
		} else if validField(name) { // added beside: in place of
			r.response.drop(name)
			e := s.added(sc, name)
			r.response.put(name, e)
			led.ok(d.at, "ResponseHeaderModifier.set")
		} else {
			led.ok(d.at, "")
		}
	}
}

// added returns the value that add_header gives a field.
func (s *site) added(sc *scope, name string) string {
	for _, d := range sc.find("add_header") {
		if strings.EqualFold(d.arg(0), name) {
			return sc.expand(d.arg(1), s.v.first).text
		}
	}
	return ""
}

// expires translates the lifetime of content.
func (s *site) expires(r *rule, d *directive) {
	value := ""
	arg := d.arg(len(d.args) - 1)
	t, ok := nginxTime(arg)
	switch {
	case arg == "off":
		s.n.l.ok(d.at, "")
		return
	case arg == "max":
		value = "max-age=315360000"
	case arg == "epoch", strings.HasPrefix(arg, "-"):
		value = "no-cache"
	case ok && d.arg(0) != "modified":
		value = fmt.Sprintf("max-age=%d", int64(t/time.Second))
	default:
		s.n.l.left(d.at, "the time depends on a variable or the file", "")
		return
	}
	for _, h := range r.response.add {
		if h.name == "cache-control" {
			value += ", " + h.value // two lines are one list
		}
	}
	r.response.drop("cache-control")
	r.response.more("cache-control", value)
	s.n.l.changed(d.at, "ResponseHeaderModifier", "Cache-Control alone is sent, not Expires, with all statuses")
}
