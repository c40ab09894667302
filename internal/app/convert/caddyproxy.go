package convert

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// forwardAuth translates forward_auth.
func (b *caddySite) forwardAuth(d *directive, args []string) func(it *item) {
	closed := func(it *item) { it.guard.sources = &sources{denyOthers: true} }
	p := &pool{at: d.at, idle: -1, timeouts: times{}}
	path := ""
	var fields []string
	for _, o := range d.block {
		b.l.ok(o.at, "routes[].auth.forward")
		switch o.name {
		case "uri":
			path = o.arg(0)
		case "copy_headers":
			names := o.texts()
			for _, inner := range o.block {
				b.l.ok(inner.at, "routes[].auth.forward.response_headers")
				if len(inner.args) > 0 || strings.Contains(inner.name, ">") {
					b.l.left(inner.at, "fields keep their names", "")
					continue
				}
				names = append(names, inner.name)
			}
			for _, n := range names {
				if n = strings.ToLower(n); strings.Contains(n, ">") {
					b.l.left(o.at, "fields keep their names", "")
				} else if validField(n) && !slices.Contains(fields, n) {
					fields = append(fields, n)
				}
			}
		case "header_up", "header_down", "transport":
			b.whole(o, Changed, "it is left out: the server gets the fields of the request", "")
		}
	}
	ok := len(args) == 1 && b.upstream(p, args[0], d.at)
	bare, _, _ := strings.Cut(path, "?")
	if !ok || !validReplacement(bare) || strings.ContainsAny(path, "{} #") || !printable(path) {
		b.l.close(d.at, "the server that is asked cannot be expressed", "write routes[].auth.forward")
		return closed
	}
	name := b.enter(p, args[0])
	b.l.ok(d.at, "routes[].auth.forward")
	return func(it *item) { it.guard.askPool, it.guard.askPath, it.guard.askFields = name, path, fields }
}

// enter adds a pool, unless there is one like it.
func (c *caddy) enter(p *pool, wish string) string {
	key := p.key("")
	if name := c.pools[key]; name != "" {
		return name
	}
	if u, err := url.Parse(wish); err == nil && u.Host != "" {
		wish = u.Host
	}
	p.name = c.m.unique("pool", strings.TrimPrefix(wish, "unix/"))
	c.pools[key] = p.name
	c.m.pools = append(c.m.pools, p)
	return p.name
}

// upstream adds a backend. It reports whether there is an address.
func (b *caddySite) upstream(p *pool, text string, at pos) bool {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	if path, ok := strings.CutPrefix(text, "unix/"); ok {
		scheme, rest = "", "unix:"+path
	}
	if path, ok := strings.CutPrefix(text, "unix+h2c/"); ok {
		scheme, rest = "h2c", "unix:"+path
	}
	rest = strings.TrimSuffix(rest, "/")
	port := "80"
	switch scheme {
	case "https":
		port = "443"
		if p.protocol = "HTTPS"; p.tls == nil {
			host, _, _ := hostPort(rest, port)
			p.tls = &poolTLS{serverName: strings.ToLower(host)}
		}
	case "h2c":
		p.protocol = "H2C"
	case "", "http":
	default:
		return false
	}
	if strings.HasPrefix(rest, ":") {
		rest = "127.0.0.1" + rest
	}
	addr, ok := backendAddress(rest, port)
	if !ok || slices.ContainsFunc(p.backends, func(x backend) bool { return x.address == addr }) || len(p.backends) >= 4096 {
		return false
	}
	p.backends = append(p.backends, backend{at: at, address: addr, weight: -1})
	return true
}

// proxy translates reverse_proxy.
func (b *caddySite) proxy(d *directive, args []string) *rule {
	r := newRule(d.at)
	p := &pool{at: d.at, idle: -1, timeouts: times{}}
	wish := ""
	to := func(at pos, list []string) {
		for _, a := range list {
			if !b.upstream(p, a, at) {
				b.l.left(at, shorten(a)+" is no address of a server", "write an address or a name, with a port; placeholders are not read")
				continue
			}
			if wish == "" {
				wish = a
			}
		}
	}
	to(d.at, args)
	policy := ""
	for _, o := range d.block {
		if o.name == "to" {
			to(o.at, o.texts())
			b.l.ok(o.at, "pools[].backends[]")
			continue
		}
		b.proxyKey(p, r, o, &policy)
	}
	if p.health != nil && p.health.path == "" && p.health.port == 0 { // without either Caddy does not check
		p.health = nil
	}
	if len(p.backends) == 0 {
		b.l.left(d.at, "no server of it could be translated", "")
		return nil
	}
	if len(p.backends) > 1 && policy == "" { // Caddy's default
		p.balance = "random"
	}
	if p.tls != nil && p.tls.insecure {
		p.tls.ca = ""
	} else if p.tls != nil && (p.tls.serverName == "" || !validHost(p.tls.serverName) || strings.HasPrefix(p.tls.serverName, "*")) {
		p.tls.serverName, p.tls.insecure, p.tls.ca = "", true, ""
		b.l.left(d.at, "the name that certificates must have is not known: any certificate is taken", "set pools[].tls.server_name")
	}
	if p.health != nil && p.protocol == "HTTPS" || p.health != nil && p.protocol == "H2" {
		p.health.kind, p.health.insecure = "https", p.tls.insecure
	}
	if r.hostname == "upstream" { // header_up Host {upstream_hostport}
		r.hostname = ""
		host, port, _ := hostPort(p.backends[0].address, "")
		if host = strings.ToLower(host); len(p.backends) == 1 && validHost(host) {
			r.hostname = host
			if port != "80" && port != "443" {
				b.l.changed(d.at, "URLRewrite.hostname", "Host has no port")
			}
		} else {
			b.l.changed(d.at, "", "backends get the client's Host")
		}
	}
	r.pools = []weighted{{b.enter(p, wish), 1}}
	return r
}

// proxyKey translates an option of reverse_proxy.
func (b *caddySite) proxyKey(p *pool, r *rule, o *directive, policy *string) {
	led, arg := b.l, o.arg(0)
	duration := func(key string) {
		if t, ok := caddyTime(arg); ok {
			p.timeouts[key] = t
			led.ok(o.at, "pools[].timeouts."+key)
		}
	}
	if strings.HasPrefix(o.name, "health_") {
		b.health(p, o)
		return
	}
	switch o.name {
	case "lb_policy":
		*policy = arg
		b.policy(p, o)
	case "lb_retries":
		r.attempts = min(atoi(arg), 10)
		led.ok(o.at, "routes[].rules[].retry.attempts")
	case "lb_try_duration", "lb_try_interval", "lb_retry_match":
		b.whole(o, Changed, "attempts are counted: see routes[].rules[].retry", "")
	case "max_fails":
		p.errors = int64(max(atoi(arg), 1))
		led.changed(o.at, "pools[].passive", "failures in a row count, with responses 502, 503 and 504")
	case "fail_duration":
		if t, ok := caddyTime(arg); ok && t > 0 {
			p.down, p.errors = min(max(t, time.Second), 5*time.Minute), max(p.errors, 1)
		}
		led.changed(o.at, "pools[].passive", "failures in a row count, and the pause doubles each time")
	case "unhealthy_status", "unhealthy_latency", "unhealthy_request_count":
		led.changed(o.at, "pools[].passive", "failures are responses 502, 503 and 504, and requests without one")
	case "header_up":
		b.headerUp(r, o)
	case "header_down":
		b.edit(&r.response, o.at, o.texts(), false)
	case "transport":
		b.transport(p, o)
	case "flush_interval", "buffer_requests", "buffer_responses", "request_buffers", "response_buffers", "verbose_logs", "trusted_proxies", "stream_timeout", "stream_close_delay", "max_buffer_size":
		b.whole(o, Unneeded, "the gateway passes content on as it comes", "")
	case "dial_timeout":
		duration("connect")
	case "method", "rewrite":
		b.whole(o, Left, "requests keep their method, and are rewritten by rewrite", "")
	default:
		b.whole(o, Left, "pools have no such option", "")
	}
}

// health translates an option of the checks of backends.
func (b *caddySite) health(p *pool, o *directive) {
	led, arg := b.l, o.arg(0)
	if p.health == nil {
		p.health = &health{kind: "http", interval: 30 * time.Second, timeout: 5 * time.Second}
	}
	c := p.health
	led.ok(o.at, "pools[].health")
	switch o.name {
	case "health_uri":
		if path := arg; strings.HasPrefix(path, "/") && printable(path) && !strings.ContainsAny(path, " #%\\{}") {
			c.path = path
		} else {
			led.left(o.at, "the path is none of a check", "")
		}
	case "health_path":
	case "health_port":
		c.port = int64(min(atoi(arg), 65535))
	case "health_interval":
		if t, ok := caddyTime(arg); ok {
			c.interval = min(max(t, 10*time.Millisecond), time.Hour)
			c.timeout = min(c.timeout, c.interval)
		}
	case "health_timeout":
		if t, ok := caddyTime(arg); ok && t >= 10*time.Millisecond {
			c.timeout = min(t, c.interval)
		}
	case "health_status":
		if n := atoi(arg); n >= 100 && n <= 599 {
			c.status = arg
		} else if len(arg) == 3 && strings.HasSuffix(arg, "xx") && strings.Contains("2345", arg[:1]) {
			c.status = arg[:1] + "00-" + arg[:1] + "99"
		}
	case "health_body", "health_headers", "health_method", "health_follow_redirects", "health_request_body", "health_upstream":
		b.whole(o, Changed, "it is left out of the check", "")
	case "health_passes":
		c.rise = int64(min(max(atoi(arg), 1), 100))
	case "health_fails":
		c.fall = int64(min(max(atoi(arg), 1), 100))
	default:
		b.whole(o, Left, "checks have no such option", "")
	}
}

// headerUp translates fields of requests to backends.
func (b *caddySite) headerUp(r *rule, o *directive) {
	words := o.texts()
	if len(words) == 0 {
		return
	}
	name := strings.ToLower(words[0])
	value := o.arg(1)
	switch {
	case name == "host" && (value == "{upstream_hostport}" || value == "{http.reverse_proxy.upstream.hostport}" || value == "{http.reverse_proxy.upstream.host}"):
		r.hostname = "upstream"
		b.l.ok(o.at, "URLRewrite.hostname")
	case name == "host" && (value == "{host}" || value == "{hostport}" || value == "{http.request.host}" || value == "{http.request.hostport}"):
		b.l.ok(o.at, "")
	case name == "host" && validHost(strings.ToLower(value)) && !strings.HasPrefix(value, "*"):
		r.hostname = strings.ToLower(value)
		b.l.ok(o.at, "URLRewrite.hostname")
	case name == "host":
		b.l.left(o.at, "the host has a variable, or a port", "write URLRewrite with a hostname")
	case (name == "x-forwarded-for" || name == "x-forwarded-proto" || name == "x-forwarded-host") && slices.Contains([]string{"{remote_host}", "{remote}", "{scheme}", "{host}", "{hostport}", "{client_ip}"}, value):
		b.l.ok(o.at, "listeners[].forwarded")
	case name == "connection" || name == "upgrade":
		b.l.ok(o.at, "")
	default:
		b.edit(&r.request, o.at, words, true)
	}
}

// policy translates the selection of backends.
func (b *caddySite) policy(p *pool, o *directive) {
	led := b.l
	hash := func(by, name string) {
		p.balance, p.hashBy, p.hashName = "consistent_hash", by, name
		led.changed(o.at, "pools[].hash", "the hash is another: keys change their backend once")
	}
	switch name := o.arg(1); o.arg(0) {
	case "random":
		p.balance = "random"
		led.ok(o.at, "pools[].balance")
	case "round_robin":
		led.ok(o.at, "pools[].balance")
	case "weighted_round_robin":
		for i := range p.backends {
			if i+1 < len(o.args) {
				p.backends[i].weight = min(max(atoi(o.arg(i+1)), 1), 1000)
			}
		}
		led.ok(o.at, "pools[].backends[].weight")
	case "least_conn", "random_choose":
		p.balance = "least_request"
		led.changed(o.at, "pools[].balance", "of two backends, drawn by weight, the one with fewer requests")
	case "ip_hash", "client_ip_hash":
		hash("client", "")
	case "uri_hash":
		hash("path", "")
	case "header":
		if validToken(name) {
			hash("header", name)
			return
		}
		led.left(o.at, "it is no name of a field", "")
	case "query":
		if validToken(name) {
			hash("query", name)
			return
		}
		led.left(o.at, "it is no name of a parameter", "")
	case "cookie":
		if p.sticky = "lb"; validToken(name) {
			p.sticky = name
		}
		led.changed(o.at, "pools[].sticky", "the value of the cookie is the gateway's: sessions begin anew")
	default:
		led.left(o.at, "the gateway has no such selection", "see pools[].balance")
	}
	for _, inner := range o.block {
		led.changed(inner.at, "", "it is left out")
	}
}

// transport translates how backends are spoken to.
func (b *caddySite) transport(p *pool, o *directive) {
	if o.arg(0) != "http" {
		b.whole(o, Left, "reverse_proxy speaks HTTP here", "write php_fastcgi for scripts")
		p.backends = nil
		return
	}
	b.l.ok(o.at, "pools[].protocol, pools[].tls")
	tls := func() *poolTLS {
		if p.tls == nil {
			name := ""
			if len(p.backends) > 0 {
				name, _, _ = hostPort(p.backends[0].address, "443")
			}
			p.protocol, p.tls = "HTTPS", &poolTLS{serverName: strings.ToLower(name)}
		}
		return p.tls
	}
	for _, k := range o.block {
		if b.transportTime(p, k) {
			b.l.ok(k.at, "pools[].timeouts, pools[].limits")
			continue
		}
		b.l.ok(k.at, "pools[].tls")
		switch k.name {
		case "tls":
			tls()
		case "tls_insecure_skip_verify":
			tls().insecure = true
		case "tls_server_name":
			tls().serverName = strings.ToLower(k.arg(0))
		case "tls_trusted_ca_certs", "tls_trust_pool":
			if f := k.arg(len(k.args) - 1); printable(f) && f != "" && !strings.Contains(f, "{") {
				tls().ca = b.s.path(f)
			}
		case "tls_client_auth":
			if len(k.args) == 2 && printable(k.arg(0)+k.arg(1)) && k.arg(0) != "" {
				tls().cert, tls().key = b.s.path(k.arg(0)), b.s.path(k.arg(1))
			}
		case "versions":
			if k.has("h2c") {
				p.protocol, p.tls = "H2C", nil
			}
		case "proxy_protocol":
			if p.proxy = k.arg(0); p.proxy != "v1" && p.proxy != "v2" {
				p.proxy = ""
			}
		default:
			b.whole(k, Changed, "it is left out", "")
		}
	}
}

// transportTime translates the times and numbers of connections. It reports whether the option is one of them.
func (b *caddySite) transportTime(p *pool, k *directive) bool {
	t, good := caddyTime(k.arg(0))
	switch k.name {
	case "dial_timeout":
		if good {
			p.timeouts["connect"] = t
		}
	case "response_header_timeout":
		if good {
			p.timeouts["response"] = t
		}
	case "read_timeout", "write_timeout":
		if good {
			p.timeouts["body"] = max(t, p.timeouts["body"])
		}
	case "keepalive":
		if good && k.arg(0) != "off" {
			p.timeouts["idle"] = t
		} else {
			p.idle = 0
		}
	case "keepalive_idle_conns", "keepalive_idle_conns_per_host":
		p.idle = int64(min(atoi(k.arg(0)), 65536))
	case "max_conns_per_host":
		for i := range p.backends {
			p.backends[i].most = int64(atoi(k.arg(0)))
		}
	default:
		return false
	}
	return true
}
