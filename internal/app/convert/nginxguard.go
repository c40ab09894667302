package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// limitZones translates limit_req and limit_conn.
func (s *site) limitZones(l *loc, g *guard) {
	led := s.n.l
	status := l.sc.value("limit_req_status")
	for _, d := range l.sc.find("limit_req_status", "limit_conn_status") {
		if d.name == "limit_req_status" && d.arg(0) == "429" || d.name == "limit_conn_status" && d.arg(0) == "503" {
			led.ok(d.at, "")
		} else {
			led.changed(d.at, "", "refused requests get 429, those of concurrency 503")
		}
	}
	for _, d := range l.sc.find("limit_req") {
		name, burst, delayed := "", int64(0), true
		for _, a := range d.texts() {
			if v, ok := strings.CutPrefix(a, "zone="); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(a, "burst="); ok {
				burst = int64(atoi(v))
			}
			delayed = delayed && a != "nodelay"
		}
		z := s.n.zones[name]
		if z == nil || z.limit.requests == 0 {
			g.sources = led.closeSources(d.at, "its zone has no rate", "write rate_limits")
			continue
		}
		limit := z.limit
		limit.burst, limit.dryRun = min(burst+1, 1_000_000), l.sc.on("limit_req_dry_run")
		key := fmt.Sprint(name, limit.burst, limit.dryRun)
		if s.n.limits[key] == "" {
			limit.name = s.n.m.unique("limit", name)
			s.n.limits[key] = limit.name
			s.n.m.limits = append(s.n.m.limits, &limit)
		}
		if !slices.Contains(g.rateLimits, s.n.limits[key]) {
			g.rateLimits = append(g.rateLimits, s.n.limits[key])
		}
		switch {
		case !z.known:
			led.changed(d.at, "routes[].rate_limits", "requests of all clients count together, which refuses more: the gateway does not count by the key")
		case delayed && burst > 0:
			led.changed(d.at, "routes[].rate_limits", "requests within the burst are served at once, as with nodelay; beyond it they get 429")
		case status != "429":
			led.changed(d.at, "routes[].rate_limits", "refused requests get 429")
		default:
			led.ok(d.at, "routes[].rate_limits")
		}
	}
	for _, d := range l.sc.find("limit_req_dry_run") {
		led.ok(d.at, "rate_limits[].dry_run")
	}
	dry := l.sc.on("limit_conn_dry_run")
	for _, d := range l.sc.find("limit_conn_dry_run") {
		led.ok(d.at, "")
	}
	for _, d := range l.sc.find("limit_conn") {
		if dry {
			led.left(d.at, "it refuses nothing, and routes[].concurrency would", "")
			continue
		}
		zone := s.n.connZones[d.arg(0)]
		n := atoi(d.arg(1))
		if zone != nil && zone.arg(0) == "$server_name" && n > 0 {
			g.concurrency = int64(n)
			led.changed(d.at, "routes[].concurrency", "requests are counted, not connections")
			continue
		}
		if n == 0 || g.concurrency > 0 && g.concurrency < int64(n) {
			n = int(g.concurrency)
		}
		if g.concurrency = int64(n); n == 0 {
			g.sources = led.closeSources(d.at, "its zone, or its number, is none", "write routes[].concurrency")
			continue
		}
		led.changed(d.at, "routes[].concurrency", "requests of all clients count together, which refuses more: raise the number, or write rate_limits")
	}
}

// lists translates allow and deny: nginx takes the first that holds the client, and the gateway the longest prefix.
func (s *site) lists(l *loc, g *guard) {
	led := s.n.l
	type entry struct {
		p     netip.Prefix
		allow bool
	}
	var before []entry
	out, decided := &sources{}, false
	for _, d := range l.sc.find("allow", "deny") {
		arg, allow := d.arg(0), d.name == "allow"
		if decided {
			led.unneeded(d.at, "a line before it holds for all clients")
			continue
		}
		if arg == "all" {
			decided, out.denyOthers = true, !allow
			led.ok(d.at, "routes[].sources.default")
			continue
		}
		text, ok := prefixOf(arg)
		if !ok || len(before) >= 256 {
			if arg != "unix:" {
				if allow {
					led.left(d.at, "it is no prefix of addresses", "write the prefixes of the clients")
				} else { // what is to be kept out stays out
					out.denyOthers = led.closeSources(d.at, "it is no prefix of addresses", "write the prefixes of the clients").denyOthers
				}
			} else {
				led.ok(d.at, "")
			}
			continue
		}
		p := parsePrefix(text)
		if slices.ContainsFunc(before, func(e entry) bool { return e.p.Bits() <= p.Bits() && e.p.Contains(p.Addr()) }) {
			led.unneeded(d.at, "a line before it holds for these clients")
			continue
		}
		before = append(before, entry{p, allow})
		led.ok(d.at, "routes[].sources")
		if allow {
			out.allow = append(out.allow, text)
		} else {
			out.deny = append(out.deny, text)
		}
	}
	if len(out.deny) > 0 || out.denyOthers {
		g.sources = out
	}
}

// parsePrefix parses what prefixOf has returned.
func parsePrefix(s string) netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p
	}
	a, _ := netip.ParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen())
}

// guard translates what the requests of a location have to fulfil.
func (s *site) guard(l *loc) (g guard) {
	led := s.n.l
	s.lists(l, &g)
	s.limitZones(l, &g)
	g.bodyBytes = 1 << 20 // nginx's default
	if d := l.sc.last("client_max_body_size"); d != nil {
		b, ok := size(d.arg(0))
		if !ok {
			s.n.s.mistake(d.at, "such as 10m", "%s is no size", shorten(d.arg(0)))
		} else {
			g.bodyBytes = b
			led.ok(d.at, "routes[].limits.body_bytes")
		}
	}
	s.basic(l, &g)
	s.asks(l, &g)
	s.pages(l, &g)
	return g
}

// basic translates auth_basic.
func (s *site) basic(l *loc, g *guard) {
	realm, file := l.sc.last("auth_basic"), l.sc.last("auth_basic_user_file")
	switch {
	case realm == nil && file == nil:
	case realm == nil || realm.arg(0) == "off":
		for _, d := range l.sc.find("auth_basic", "auth_basic_user_file") {
			s.n.l.unneeded(d.at, "credentials are not asked for")
		}
	case file == nil || strings.Contains(file.arg(0), "$") || file.arg(0) == "" || !printable(file.arg(0)):
		g.sources = s.n.l.closeSources(realm.at, "the file of users is not known", "name it with auth_basic_user_file")
	default:
		g.users = s.n.s.path(file.arg(0))
		if text := realm.arg(0); validValue(literal(text)) && !strings.ContainsAny(text, "\"\\$") {
			g.realm = text
		}
		s.n.l.ok(realm.at, "routes[].auth.basic")
		s.n.l.changed(file.at, "routes[].auth.basic.file", "passwords must be hashed by bcrypt: htpasswd -B")
	}
}

// pages translates error_page, for pages that are files.
func (s *site) pages(l *loc, g *guard) {
	led := s.n.l
	for _, d := range l.sc.find("error_page") {
		if l.d != nil && d == s.leads(l) {
			continue
		}
		words := d.texts()
		if len(words) < 2 {
			led.left(d.at, "it has no page", "")
			continue
		}
		uri := words[len(words)-1]
		var page errorPage
		wrong := strings.HasPrefix(uri, "@") || strings.Contains(uri, "://") || strings.Contains(uri, "$")
		for _, w := range words[:len(words)-1] {
			code := atoi(w)
			if strings.HasPrefix(w, "=") || code < 400 || code > 599 || code >= 494 && code <= 499 {
				wrong = true
				continue
			}
			if !slices.ContainsFunc(g.errorPages, func(p errorPage) bool { return slices.Contains(p.statuses, code) }) && !slices.Contains(page.statuses, code) {
				page.statuses = append(page.statuses, code)
			}
		}
		if !wrong {
			page.file = s.fileOf(uri)
		}
		lower := strings.ToLower(page.file)
		typed := strings.HasSuffix(lower, ".html") || strings.HasSuffix(lower, ".htm") || strings.HasSuffix(lower, ".txt") || strings.HasSuffix(lower, ".json")
		if wrong || page.file == "" || !typed || !printable(page.file) {
			led.left(d.at, "pages are files for the gateway's own responses, with their status", "name a file of html, txt or json in error_pages")
			continue
		}
		led.ok(d.at, "routes[].error_pages")
		if len(page.statuses) > 0 && len(g.errorPages) < 64 {
			g.errorPages = append(g.errorPages, page)
		}
	}
}

// except returns the gate of limit_except, which lets some methods through.
func (s *site) except(l *loc, g guard) []gate {
	if l.d == nil || len(l.sc.own("limit_except")) == 0 {
		return nil
	}
	d := l.sc.own("limit_except")[0]
	known := len(d.block) > 0
	for _, inner := range d.block {
		ok := inner.name == "deny" && inner.arg(0) == "all"
		if known = known && ok; ok {
			s.n.l.ok(inner.at, "FixedResponse")
		} else {
			s.n.l.closed(inner.at, "other methods get 403", "write rules with a method, in routes with sources or auth")
		}
	}
	methods := d.texts()
	if d.has("GET") && !d.has("HEAD") {
		methods = append(methods, "HEAD")
	}
	refused := s.refusal(d.at, 403)
	refused.note = "other methods"
	out := gate{otherwise: true, rule: refused, guard: guard{bodyBytes: g.bodyBytes, errorPages: g.errorPages}}
	for _, method := range methods {
		if validToken(method) && strings.ToUpper(method) == method {
			out.steps = append(out.steps, step{cond: match{method: method}})
		}
	}
	if known {
		s.n.l.ok(d.at, "routes[].rules[].matches[].method")
	} else {
		s.n.l.changed(d.at, "routes[].rules[].matches[].method", "other methods get 403, whatever the block permits")
	}
	return []gate{out}
}
