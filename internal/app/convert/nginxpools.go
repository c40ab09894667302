package convert

import (
	"slices"
	"strings"
	"time"
)

// pool returns the name of the pool of a target, and makes it where there is none: locations with the same target and settings
// share one.
func (n *nginx) pool(l *loc, t *target, d *directive) (string, bool) {
	p, ok := n.backends(l, t, d)
	if !ok {
		return "", false
	}
	if p.protocol == "HTTPS" || p.protocol == "H2" {
		n.poolTLS(p, l, t)
	}
	wish := t.addr
	if n.upstreams[wish] == nil {
		wish = strings.TrimPrefix(wish, "unix:/")
	}
	return n.enter(p, wish), true
}

// backends makes a pool of the servers of a target.
func (n *nginx) backends(l *loc, t *target, d *directive) (*pool, bool) {
	p := &pool{at: d.at, idle: -1, timeouts: times{}}
	switch t.scheme {
	case "https":
		p.protocol = "HTTPS"
	case "grpc":
		p.protocol = "H2C"
	case "grpcs":
		p.protocol = "H2"
	}
	if up := n.upstreams[t.addr]; up != nil {
		p.at = up.at
		n.upstream(p, up, "80")
	} else {
		addr, ok := backendAddress(t.addr, defaultPort(t.scheme))
		if !ok {
			n.l.left(d.at, "it is no address of a server", "write an address or a name, with a port")
			return nil, false
		}
		p.backends = []backend{{address: addr, weight: -1}}
	}
	if len(p.backends) == 0 {
		n.l.left(d.at, "the upstream has no server that could be translated", "")
		return nil, false
	}
	n.poolTimes(p, l, t)
	return p, true
}

// enter adds a pool, unless there is one like it.
func (n *nginx) enter(p *pool, wish string) string {
	key := p.key(wish)
	if name := n.pools[key]; name != "" {
		return name
	}
	n.pools[key] = n.m.unique("pool", wish)
	p.name = n.pools[key]
	n.m.pools = append(n.m.pools, p)
	return p.name
}

// upstream translates the servers and the selection of an upstream.
func (n *nginx) upstream(p *pool, up *directive, port string) {
	led, weights := n.l, 0
	for _, d := range up.block {
		arg := d.arg(0)
		switch d.name {
		case "server":
			n.upstreamServer(p, d, port)
		case "keepalive":
			p.idle = int64(min(atoi(arg), 65536))
			led.ok(d.at, "pools[].idle_connections")
		case "keepalive_requests":
			p.uses = int64(atoi(arg))
			led.ok(d.at, "pools[].connection_requests")
		case "keepalive_timeout":
			if t, ok := nginxTime(arg); ok {
				p.timeouts["idle"] = min(t, longest)
				led.ok(d.at, "pools[].timeouts.idle")
			}
		case "least_conn", "least_time":
			p.balance = "least_request"
			led.changed(d.at, "pools[].balance", "of two backends, drawn by weight, the one with fewer requests")
		case "ip_hash":
			p.balance, p.hashBy = "consistent_hash", "client"
			led.changed(d.at, "pools[].hash", "the hash is another: clients change their backend once; the whole address counts")
		case "random":
			p.balance = "random"
			if arg == "two" {
				p.balance = "least_request"
			}
			led.ok(d.at, "pools[].balance")
		case "hash":
			n.hash(p, d)
		case "sticky":
			n.sticky(p, d)
		case "check":
			p.health = &health{kind: "tcp"}
			led.changed(d.at, "pools[].health", "a check of TCP with the gateway's intervals")
		case "resolver":
		case "queue", "ntlm", "check_http_send", "check_http_expect_alive", "state":
			led.left(d.at, "pools have no such key", "see pools[].limits and health")
		}
	}
	for _, b := range p.backends {
		if b.weight < 0 {
			weights++
		}
		weights += max(b.weight, 0)
	}
	if weights == 0 {
		p.backends = nil
	}
}

func (n *nginx) hash(p *pool, d *directive) {
	key := d.arg(0)
	p.balance = "consistent_hash"
	why := "the hash is another: keys change their backend once"
	switch {
	case key == "$remote_addr" || key == "$binary_remote_addr":
		p.hashBy = "client"
	case key == "$request_uri" || key == "$uri":
		p.hashBy, why = "path", why+"; the query does not count"
	case strings.HasPrefix(key, "$http_") && validToken(key[6:]):
		p.hashBy, p.hashName = "header", strings.ReplaceAll(key[6:], "_", "-")
	case strings.HasPrefix(key, "$cookie_") && validToken(key[8:]):
		p.hashBy, p.hashName = "cookie", key[8:]
	case strings.HasPrefix(key, "$arg_") && validToken(key[5:]):
		p.hashBy, p.hashName = "query", key[5:]
	default:
		p.balance = ""
		n.l.left(d.at, "the gateway does not hash by "+shorten(key), "see pools[].hash.by")
		return
	}
	n.l.changed(d.at, "pools[].hash", why)
}

func (n *nginx) sticky(p *pool, d *directive) {
	name := d.arg(0)
	if name == "cookie" {
		name = d.arg(1)
	}
	for _, a := range d.texts() {
		if v, ok := strings.CutPrefix(a, "name="); ok {
			name = v
		}
	}
	if !validToken(name) || d.arg(0) == "route" || d.arg(0) == "learn" {
		n.l.left(d.at, "sessions go by a cookie of the gateway", "see pools[].sticky")
		return
	}
	p.sticky = name
	n.l.changed(d.at, "pools[].sticky", "the value of the cookie is the gateway's: sessions begin anew")
}

// upstreamServer translates a server of an upstream.
func (n *nginx) upstreamServer(p *pool, d *directive, port string) {
	addr, ok := backendAddress(d.arg(0), port)
	if !ok || slices.ContainsFunc(p.backends, func(b backend) bool { return b.address == addr }) {
		if ok {
			n.l.changed(d.at, "", "the address is in the pool already: give it a weight")
			return
		}
		n.l.left(d.at, shorten(d.arg(0))+" is no address of a server", "write an address or a name, with a port")
		return
	}
	b := backend{at: d.at, address: addr, weight: -1}
	fails, failTime := -1, time.Duration(0)
	n.l.ok(d.at, "pools[].backends[]")
	for _, a := range d.texts()[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "weight":
			b.weight = min(atoi(value), 1000)
		case "max_conns":
			b.most = int64(atoi(value))
		case "max_fails":
			fails = atoi(value)
		case "fail_timeout":
			failTime, _ = nginxTime(value)
		case "slow_start":
			if t, ok := nginxTime(value); ok {
				p.slowStart = min(t, 24*time.Hour)
			}
		case "down":
			b.state = "inactive"
		case "backup":
			b.state = "inactive"
			n.l.left(d.at, "pools have no backup servers: the backend is inactive", "make it active by hand, or give it a small weight")
		case "resolve":
		case "service":
			n.l.changed(d.at, "pools[].backends[]", "write srv:_service._tcp.name as its address")
		default:
			n.l.changed(d.at, "pools[].backends[]", shorten(a)+" is left out")
		}
	}
	if fails > 0 || fails < 0 && failTime > 0 {
		p.errors, p.down = max(p.errors, int64(max(fails, 1))), max(p.down, min(max(failTime, time.Second), 5*time.Minute))
		if failTime == 0 {
			p.down = max(p.down, 10*time.Second)
		}
		n.l.changed(d.at, "pools[].passive", "failures in a row count, with responses 502, 503 and 504, and the pause doubles each time")
	}
	p.backends = append(p.backends, b)
}

// poolTimes translates time-outs and buffers towards backends.
func (n *nginx) poolTimes(p *pool, l *loc, t *target) {
	kind := "proxy"
	if strings.HasPrefix(t.scheme, "grpc") {
		kind = "grpc"
	} else if t.scheme == "fastcgi" {
		kind = t.scheme
	}
	for _, k := range []struct{ name, key string }{{"connect_timeout", "connect"}, {"read_timeout", "response"}, {"send_timeout", "body"}} {
		d := l.sc.last(kind + "_" + k.name)
		if d == nil {
			continue
		}
		v, ok := nginxTime(d.arg(0))
		if !ok {
			n.s.mistake(d.at, "such as 30s", "%s is no time", shorten(d.arg(0)))
			continue
		}
		v = min(v, longest)
		p.timeouts[k.key] = v
		if k.key != "connect" {
			p.timeouts["body"] = max(p.timeouts["body"], v)
		}
		n.l.ok(d.at, "pools[].timeouts."+k.key)
	}
	if d := l.sc.last("proxy_buffer_size"); d != nil && kind == "proxy" {
		if b, ok := size(d.arg(0)); ok && b > 64<<10 {
			p.header = min(b, 1<<20)
			n.l.ok(d.at, "pools[].limits.header_bytes")
		} else {
			n.l.unneeded(d.at, "the header of a response may have 64 KiB")
		}
	}
}

// poolTLS translates TLS towards backends. nginx verifies their certificates only with proxy_ssl_verify.
func (n *nginx) poolTLS(p *pool, l *loc, t *target) {
	kind := "proxy"
	if strings.HasPrefix(t.scheme, "grpc") {
		kind = "grpc"
	}
	p.tls = &poolTLS{insecure: true}
	find := func(name string) *directive { return l.sc.last(kind + "_ssl_" + name) }
	host, _, _ := strings.Cut(t.host, ":")
	if d := find("name"); d != nil {
		n.l.ok(d.at, "pools[].tls.server_name")
		if v, ok := l.sc.plain(d.arg(0)); ok {
			host = v
		} else {
			n.l.changed(d.at, "pools[].tls.server_name", "the name is that of the server: it has no variables")
		}
	}
	host = strings.ToLower(host)
	named := validHost(host) && !strings.HasPrefix(host, "*") && !strings.ContainsAny(host, "[_")
	if d := find("server_name"); d != nil {
		n.l.ok(d.at, "pools[].tls.server_name")
		if d.arg(0) == "on" && named {
			p.tls.serverName = host
		}
	}
	ca := find("trusted_certificate")
	verify := find("verify")
	if verify != nil && verify.arg(0) == "on" && ca != nil && named && printable(ca.arg(0)) && ca.arg(0) != "" {
		p.tls.insecure, p.tls.serverName, p.tls.ca = false, host, n.s.path(ca.arg(0))
		n.l.ok(verify.at, "pools[].tls")
		n.l.ok(ca.at, "pools[].tls.ca_file")
	} else {
		if verify != nil && verify.arg(0) == "on" {
			n.l.left(verify.at, "the name of the server or its authorities are not known", "write pools[].tls.server_name and ca_file")
		} else if verify != nil {
			n.l.ok(verify.at, "pools[].tls.insecure")
		}
		if ca != nil {
			n.l.unneeded(ca.at, "certificates of backends are not verified")
		}
	}
	if d := find("certificate"); d != nil && printable(d.arg(0)) && d.arg(0) != "" && !strings.Contains(d.arg(0), "$") {
		p.tls.cert = n.s.path(d.arg(0))
		n.l.ok(d.at, "pools[].tls.certificate")
		if k := find("certificate_key"); k != nil && printable(k.arg(0)) {
			p.tls.key = n.s.path(k.arg(0))
			n.l.ok(k.at, "pools[].tls.certificate.key")
		}
	}
	for _, name := range []string{"ciphers", "crl"} {
		if d := find(name); d != nil {
			n.l.changed(d.at, "", "the gateway has the cipher suites of crypto/tls, and no list of revocations of backends")
		}
	}
}
