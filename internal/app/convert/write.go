package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// write returns the configuration file of a model. Keys that would have no effect are left out: the gateway takes them for errors.
func write(s *source, m *model, language Language) string {
	p := printer{s, m}
	root := &object{}
	root.put("access_log", m.accessLog.object())
	if len(m.resolvers) > 0 && slices.ContainsFunc(m.pools, (*pool).named) {
		root.put("resolver", (&object{}).put("servers", m.resolvers).put("max_ttl", m.maxTTL))
	}
	root.put("rate_limits", each(m.limits, p.rateLimit))
	root.put("caches", each(m.usedCaches(), func(c *cache) *object {
		return (&object{comment: p.comment(c.at, "")}).put("name", c.name).put("memory", c.memory).put("max_object", c.maxObject).put("disk", c.disk.object())
	}))
	root.put("listeners", each(m.listeners, p.listener))
	root.put("routes", each(m.routes, p.route))
	root.put("tls_routes", each(m.tlsRoutes, p.streamRoute))
	root.put("tcp_routes", each(m.tcpRoutes, p.streamRoute))
	root.put("pools", each(m.pools, p.pool))
	var w yamlWriter
	fmt.Fprintf(&w, "# Converted from %s (%s) by millrace gateway convert. Comments name the lines of the source.\n", oneLine(s.files[0].name), language)
	for i := range root.fields {
		w.field(&root.fields[i], "", "")
	}
	return w.String()
}

// usedCaches returns the caches that rules name.
func (m *model) usedCaches() (list []*cache) {
	used := map[string]bool{}
	for _, r := range m.routes {
		for _, u := range r.rules {
			if u.cache != nil && !u.answers() {
				used[u.cache.name] = true
			}
		}
	}
	for _, c := range m.caches {
		if used[c.name] {
			list = append(list, c)
		}
	}
	return list
}

// oneLine returns text that a comment can have.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 {
			return '?'
		}
		return r
	}, s)
}

func each[T any](list []T, f func(T) *object) (out []*object) {
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

type printer struct {
	s *source
	m *model
}

// comment returns the place of a part of the model.
func (p printer) comment(at pos, note string) string {
	place := p.s.place(at)
	switch {
	case note == "":
		return oneLine(place)
	case place == "":
		return oneLine(note)
	}
	return oneLine(place + ": " + note)
}

func (p printer) rateLimit(l *rateLimit) *object {
	o := &object{comment: p.comment(l.at, "")}
	o.put("name", l.name)
	key := (&object{}).put("by", l.by)
	switch l.by {
	case "header", "cookie", "query":
		key.put("name", l.key)
	case "value":
		key.put("value", l.key)
	}
	if l.prefix6 > 0 && (l.by == "" || l.by == "client") {
		key.put("prefix6", l.prefix6)
	}
	return o.put("key", key).put("requests", l.requests).put("interval", l.interval).put("burst", l.burst).put("dry_run", l.dryRun)
}

func (t times) object() *object {
	o := &object{}
	for _, key := range slices.Sorted(maps.Keys(t)) {
		o.force(key, t[key])
	}
	return o
}

func (c counts) object() *object {
	o := &object{}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		o.force(key, c[key])
	}
	return o
}

func (l *listener) http() bool { return l.protocol == protoHTTP || l.protocol == protoHTTPS }

func (p printer) listener(l *listener) *object {
	o := &object{comment: p.comment(l.at, "")}
	o.put("name", l.name)
	if len(l.addresses) == 1 {
		o.put("address", l.addresses[0])
	} else {
		o.put("address", l.addresses)
	}
	o.put("protocol", l.protocol)
	if l.http() {
		o.put("versions", l.versions)
	}
	if len(l.proxyFrom) > 0 {
		o.put("proxy_protocol", (&object{}).put("from", l.proxyFrom))
	}
	if l.protocol == protoHTTPS {
		o.put("tls", l.tls.object())
		if l.hsts > 0 {
			o.put("hsts", (&object{}).put("max_age", l.hsts))
		}
	}
	o.put("sources", l.sources.object())
	if !l.http() {
		for _, key := range []string{"request_header", "request_body", "idle"} {
			delete(l.timeouts, key)
		}
		return o.put("timeouts", l.timeouts.object()).put("limits", (&object{}).put("connections", l.limits["connections"]))
	}
	forwarded := (&object{}).put("trusted", l.trusted)
	if l.noForwarded {
		forwarded.put("style", "none")
	}
	o.put("forwarded", forwarded)
	if c := l.compression; c != nil {
		of := (&object{}).put("codings", c.codings).put("types", c.types)
		if c.minBytes >= 0 {
			of.force("min_bytes", c.minBytes)
		}
		o.force("compression", of)
	}
	return o.put("timeouts", l.timeouts.object()).put("limits", l.limits.object()).put("error_pages", each(l.errorPages, pageObject))
}

func pageObject(e errorPage) *object {
	return (&object{}).put("status", e.statuses).put("file", e.file)
}

func (t *serverTLS) object() *object {
	o := &object{}
	if len(t.acme) > 0 {
		a := (&object{}).put("names", t.acme).put("dir", t.acmeDir).put("directory", t.directory)
		if t.contact != "" {
			a.put("contact", []string{t.contact})
		}
		o.put("acme", a.put("agree_to_terms", true))
	}
	o.put("certificates", each(t.certificates, func(c certificate) *object {
		return (&object{}).put("cert", c.cert).put("key", c.key).put("default", c.fallback && len(t.certificates) > 1)
	}))
	o.put("min_version", t.minVersion)
	if len(t.clientCA) > 0 {
		o.put("client_auth", (&object{}).put("ca_file", t.clientCA).put("crl_file", t.crl).put("optional", t.optional))
	} else if t.anyHost {
		o.put("misdirected", "off")
	}
	return o
}

func (s *sources) object() *object {
	if s == nil || len(s.deny) == 0 && !s.denyOthers {
		return nil
	}
	o := (&object{}).put("allow", s.allow).put("deny", s.deny)
	if s.denyOthers {
		o.put("default", "deny")
	}
	return o
}

func (p printer) route(r *siteRoute) *object {
	o := &object{comment: p.comment(r.at, "")}
	o.put("name", r.name).put("listeners", r.listeners).put("hostnames", r.hosts)
	served := slices.ContainsFunc(r.rules, func(u *rule) bool { return !u.answers() })
	g := &r.guard
	o.put("sources", g.sources.object()).put("rate_limits", g.rateLimits)
	if served {
		o.put("limits", (&object{}).put("body_bytes", g.bodyBytes))
		o.put("upgrades", r.upgrades)
		if g.concurrency > 0 {
			o.put("concurrency", (&object{}).put("requests", g.concurrency).force("pending", 0))
		}
	}
	switch {
	case g.users != "":
		o.put("auth", (&object{}).put("basic", (&object{}).put("file", g.users).put("realm", g.realm)))
	case g.askPool != "":
		o.put("auth", (&object{}).put("forward", (&object{}).put("pool", g.askPool).put("path", g.askPath).put("response_headers", g.askFields)))
	}
	o.put("error_pages", each(g.errorPages, pageObject))
	return o.put("rules", each(r.rules, p.rule))
}

func (p printer) rule(r *rule) *object {
	o := &object{comment: p.comment(r.at, r.note)}
	o.put("matches", each(r.matches, matchObject))
	var filters []*object
	if r.answers() {
		r.request = edits{}
	}
	filters = append(filters, r.request.filter("RequestHeaderModifier")...)
	filters = append(filters, r.response.filter("ResponseHeaderModifier")...)
	switch {
	case r.redirect != nil:
		d := r.redirect
		filters = append(filters, (&object{}).put("type", "RequestRedirect").put("location", d.location).put("scheme", d.scheme).put("hostname", d.hostname).
			put("port", d.port).put("path", d.path.object()).put("status_code", d.status))
	case r.fixed != nil:
		of := (&object{}).put("type", "FixedResponse").put("status_code", r.fixed.status)
		if r.fixed.kind != "" && r.fixed.body != "" {
			of.put("add", []*object{(&object{}).put("name", "content-type").put("value", r.fixed.kind)})
		}
		filters = append(filters, of.put("body", r.fixed.body))
	case r.rewrite != nil || r.hostname != "" && !r.answers():
		of := (&object{}).put("type", "URLRewrite").put("path", r.rewrite.object())
		if !r.answers() {
			of.put("hostname", r.hostname)
		}
		filters = append(filters, of)
	}
	o.put("filters", filters)
	if r.redirect != nil || r.fixed != nil {
		return o
	}
	o.put("static", r.static.object())
	o.put("backend_refs", each(r.pools, weightedObject))
	if !r.answers() {
		if r.timeout > 0 {
			o.put("timeouts", (&object{}).put("request", r.timeout))
		}
		retry := &object{}
		if r.attempts >= 0 {
			retry.force("attempts", r.attempts)
		}
		if r.attempts != 0 {
			retry.put("codes", r.codes)
		}
		o.put("retry", retry).put("cache", r.cache.object())
	}
	return o
}

func weightedObject(w weighted) *object {
	o := (&object{}).put("name", w.name)
	if w.weight != 1 {
		o.force("weight", w.weight)
	}
	return o
}

func matchObject(m match) *object {
	o := &object{}
	if m.kind != "" {
		path := &object{}
		if m.kind != pathPrefix {
			path.put("type", m.kind)
		}
		o.put("path", path.put("value", m.path))
	}
	return o.put("method", m.method).put("headers", each(m.headers, conditionObject)).put("query_params", each(m.query, conditionObject)).put("clients", m.clients)
}

func conditionObject(c condition) *object {
	o := &object{}
	if c.regexp {
		o.put("type", "RegularExpression")
	}
	return o.put("name", c.name).force("value", c.value)
}

// filter returns the modifier, if it changes anything.
func (e *edits) filter(kind string) []*object {
	if e.empty() {
		return nil
	}
	list := func(h []header) []*object {
		return each(h, func(h header) *object { return (&object{}).put("name", h.name).force("value", h.value) })
	}
	return []*object{(&object{}).put("type", kind).put("set", list(e.set)).put("add", list(e.add)).put("remove", e.remove)}
}

func (m *modifier) object() *object {
	if m == nil {
		return nil
	}
	return (&object{}).put("type", m.kind).put("value", m.value)
}

func (s *static) object() *object {
	if s == nil {
		return nil
	}
	return (&object{}).put("root", s.root).put("index", s.index).put("try_files", s.try).put("listing", s.listing).
		put("precompressed", s.precompressed).put("hidden", s.hidden).put("cache_control", s.cacheControl)
}

func (p printer) streamRoute(r *streamRoute) *object {
	o := &object{comment: p.comment(r.at, "")}
	return o.put("name", r.name).put("listeners", r.listeners).put("hostnames", r.hosts).put("clients", r.clients).put("backend_refs", each(r.pools, weightedObject))
}

func (p printer) pool(l *pool) *object {
	o := &object{comment: p.comment(l.at, "")}
	o.put("name", l.name).put("protocol", l.protocol).put("balance", l.balance)
	if l.balance == "consistent_hash" && l.hashBy != "" {
		o.put("hash", (&object{}).put("by", l.hashBy).put("name", l.hashName))
	}
	if l.sticky != "" && !l.tcp() {
		o.put("sticky", (&object{}).put("cookie", l.sticky))
	}
	if t := l.tls; t != nil {
		of := (&object{}).put("server_name", t.serverName).put("ca_file", t.ca)
		if t.cert != "" {
			of.put("certificate", (&object{}).put("cert", t.cert).put("key", t.key))
		}
		o.put("tls", of.put("insecure", t.insecure))
	}
	o.put("fastcgi", l.fast.object())
	o.put("proxy_protocol", l.proxy)
	o.put("backends", each(l.backends, backendObject))
	o.put("health", l.health.object())
	if l.errors > 0 {
		passive := (&object{}).force("errors", 0).put("gateway_errors", l.errors).put("down", max(l.down, time.Second))
		o.put("passive", passive)
	}
	o.put("slow_start", l.slowStart)
	if !l.tcp() {
		if l.idle >= 0 {
			o.force("idle_connections", l.idle)
		}
		o.put("connection_requests", l.uses)
	}
	limits := (&object{}).put("connections", l.connection)
	if !l.tcp() {
		limits.put("header_bytes", l.header)
	} else {
		for _, key := range []string{"response", "body", "idle"} {
			delete(l.timeouts, key)
		}
	}
	return o.put("limits", limits).put("timeouts", l.timeouts.object())
}

func (f *fastCGI) object() *object {
	if f == nil {
		return nil
	}
	params := each(f.params, func(h header) *object { return (&object{}).put("name", h.name).force("value", h.value) })
	return (&object{}).put("root", f.root).put("local_root", f.local).put("index", f.index).put("fallback", f.fallback).
		put("extensions", f.extensions).put("keep_connections", f.keep).put("params", params)
}

func backendObject(b backend) *object {
	o := (&object{}).put("name", b.name).put("address", b.address)
	if b.weight >= 0 {
		o.force("weight", b.weight)
	}
	return o.put("state", b.state).put("max_connections", b.most).put("max_requests", b.requests)
}

func (h *health) object() *object {
	if h == nil {
		return nil
	}
	o := (&object{}).put("type", h.kind).put("interval", h.interval).put("timeout", h.timeout).put("rise", h.rise).put("fall", h.fall).put("port", h.port)
	if h.kind == "http" || h.kind == "https" {
		o.put("http", (&object{}).put("method", h.method).put("path", h.path).put("host", h.host).put("status", h.status).put("body", h.body).
			put("insecure", h.insecure && h.kind == "https"))
	}
	return o
}
