package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// backendEdits are changes of a backend to its requests that depend on the rule.
type backendEdits struct {
	request, response edits
	tls               edits // of requests that came with TLS
	rewrite           *modifier
	rewriteAt         pos
	prefix            string
	toTLS             *redirect // of requests that came without TLS
	attempts          int
	codes             []int
	of                *proxy
	guards            []backendGuard // that come before its servers, in their order
}

// toBackend returns the rule that leads to a backend; nil where there is none.
func (h *haproxy) toBackend(x *line, name string) *rule {
	p := h.backends[name]
	if p == nil {
		h.l.left(x.at, "there is no backend "+shorten(name), "")
		return nil
	}
	l := h.pool(p)
	if l == nil {
		r := newRule(x.at)
		r.note, r.fixed = "the backend has no server", &fixed{status: 503}
		return r
	}
	r, e := newRule(x.at), h.edits[l.name]
	r.pools, r.attempts, r.codes = []weighted{{l.name, 1}}, e.attempts, e.codes
	r.request, r.response, r.rewrite = e.request.clone(), e.response.clone(), e.rewrite
	return r
}

// pool returns the pool of a backend, nil where it has no server.
func (h *haproxy) pool(p *proxy) *pool {
	if l, ok := h.pools[p.name]; ok {
		return l
	}
	l := &pool{at: p.at, idle: -1, timeouts: times{}}
	if p.tcp() {
		l.protocol = protoTCP
	}
	h.pools[p.name] = l
	h.poolKeys(l, p)
	h.health(l, p)
	for _, x := range p.lines {
		switch x.words[0] {
		case "server":
			h.server(l, p, x, x.arg(1), x.arg(2), x.words[min(3, len(x.words)):])
		case "server-template":
			h.server(l, p, x, "", x.arg(3), x.words[min(4, len(x.words)):])
		case "mode":
			h.l.ok(x.at, "pools[].protocol")
		}
	}
	e := h.backendRules(p)
	weights := 0
	for _, b := range l.backends {
		if b.weight != 0 {
			weights++
		}
	}
	if weights == 0 {
		h.pools[p.name] = nil
		return nil
	}
	l.name = h.m.unique("pool", p.name)
	h.edits[l.name] = e
	h.m.pools = append(h.m.pools, l)
	return l
}

func (h *haproxy) poolKeys(l *pool, p *proxy) {
	if x := p.last("balance"); x != nil {
		h.balance(l, x)
	}
	for _, k := range []struct{ name, key string }{{"timeout connect", "connect"}, {"timeout server", "response"}, {"timeout queue", "wait"}} {
		x := p.last(k.name)
		if x == nil {
			continue
		}
		t, ok := haproxyTime(x.arg(2))
		if !ok {
			h.s.mistake(x.at, "such as 30s", "%s is no time", shorten(x.arg(2)))
			continue
		}
		l.timeouts[k.key] = min(t, longest)
		if k.key == "response" {
			l.timeouts["body"] = min(t, longest)
		}
		h.l.ok(x.at, "pools[].timeouts."+k.key)
	}
	if x := p.last("timeout tunnel"); x != nil {
		if t, ok := haproxyTime(x.arg(2)); ok {
			for _, v := range h.m.listeners {
				v.timeouts["stream"] = max(v.timeouts["stream"], min(t, longest))
			}
			h.l.ok(x.at, "listeners[].timeouts.stream")
		}
	}
	for _, name := range []string{"timeout server-fin", "timeout client-fin"} {
		if x := p.last(name); x != nil {
			h.l.unneeded(x.at, "it is what the gateway does")
		}
	}
	for _, x := range p.all("cookie") {
		switch {
		case p.tcp() || !validToken(x.arg(1)) || !slices.Contains(x.words, "insert"):
			h.l.left(x.at, "sessions go by a cookie that the gateway sets", "write pools[].sticky")
		default:
			l.sticky = x.arg(1)
			h.l.changed(x.at, "pools[].sticky", "the value of the cookie is the gateway's: sessions begin anew")
		}
	}
	for _, x := range p.all("stick on") {
		h.l.left(x.at, "sessions are not kept in tables", "see pools[].hash")
	}
	for _, x := range p.lines {
		if x.words[0] != "stick" || x.arg(1) != "on" {
			continue
		}
		if x.arg(2) == "src" && l.balance != "consistent_hash" {
			l.balance, l.hashBy = "consistent_hash", "client"
			h.l.changed(x.at, "pools[].hash", "clients are hashed to backends, without a table")
		} else {
			h.l.left(x.at, "sessions are not kept in tables", "see pools[].hash")
		}
	}
}

func (h *haproxy) balance(l *pool, x *line) {
	kind, arg := x.arg(1), x.arg(2)
	if name, rest, ok := strings.Cut(kind, "("); ok {
		kind, arg = name, strings.TrimSuffix(rest, ")")
	}
	switch kind {
	case "roundrobin", "static-rr":
		h.l.ok(x.at, "pools[].balance")
	case "leastconn":
		l.balance = "least_request"
		h.l.changed(x.at, "pools[].balance", "of two backends, drawn by weight, the one with fewer requests")
	case "random":
		l.balance = "random"
		h.l.ok(x.at, "pools[].balance")
	case "source":
		l.balance, l.hashBy = "consistent_hash", "client"
		h.l.changed(x.at, "pools[].hash", "the hash is another: clients change their backend once")
	case "uri", "url_param", "hdr":
		if l.tcp() || kind != "uri" && !validToken(arg) {
			h.l.left(x.at, "pools of TCP are hashed by the client alone", "")
			return
		}
		l.balance = "consistent_hash"
		l.hashBy = map[string]string{"uri": "path", "url_param": "query", "hdr": "header"}[kind]
		if kind != "uri" {
			l.hashName = arg
		}
		h.l.changed(x.at, "pools[].hash", "the hash is another: keys change their backend once")
	default:
		h.l.left(x.at, "the gateway has no such selection", "see pools[].balance")
	}
}

// checkTimes translates inter, rise and fall.
func (h *haproxy) checkTimes(l *pool, p *proxy, words []string) {
	c := l.health
	for i := 0; i+1 < len(words); i++ {
		v := words[i+1]
		switch words[i] {
		case "inter":
			if t, ok := haproxyTime(v); ok {
				c.interval = min(max(t, 10*time.Millisecond), time.Hour)
			}
		case "rise":
			c.rise = int64(min(max(atoi(v), 1), 100))
		case "fall":
			c.fall = int64(min(max(atoi(v), 1), 100))
		case "port":
			if n := atoi(v); n > 0 && n < 65536 {
				c.port = int64(n)
			}
		}
	}
	if x := p.last("timeout check"); x != nil {
		if t, ok := haproxyTime(x.arg(2)); ok && t >= 10*time.Millisecond {
			interval := c.interval
			if interval == 0 {
				interval = 2 * time.Second
			}
			c.timeout = min(t, interval)
			h.l.ok(x.at, "pools[].health.timeout")
		}
	}
}

// serverArguments are parameters of a server with an argument that needs no counterpart, or has one elsewhere.
var serverArguments = []string{
	"inter", "rise", "fall", "port", "cookie", "fastinter", "downinter", "init-addr", "resolvers", "resolve-prefer", "resolve-opts", "id", "maxqueue", "minconn", "pool-max-conn",
	"pool-purge-delay", "check-sni", "check-alpn", "observe", "error-limit", "on-error", "on-marked-down", "on-marked-up", "ciphers", "ssl-min-ver", "ssl-max-ver", "addr", "tfo", "namespace",
	"crl-file", "agent-port", "agent-inter", "log-bufsize", "max-reuse", "ciphersuites",
}

// serverState holds the settings of a server beside its backend.
type serverState struct {
	at           pos
	checked, tls bool
	of           poolTLS
}

// server translates a server with its parameters, those of default-server before its own.
func (h *haproxy) server(l *pool, p *proxy, x *line, name, addr string, words []string) {
	for _, prefix := range []string{"ipv4@", "ipv6@", "tcp@"} {
		addr = strings.TrimPrefix(addr, prefix)
	}
	if path, ok := strings.CutPrefix(addr, "unix@"); ok || strings.HasPrefix(addr, "/") {
		addr = "unix:" + path
	}
	to, ok := backendAddress(addr, "")
	if !ok && h.s.port(x.at, addr) {
		return
	}
	if !ok || slices.ContainsFunc(l.backends, func(b backend) bool { return b.address == to }) {
		h.l.left(x.at, shorten(addr)+" is no address of a server with a port, or is there already", "write an IP address or a name, and a port")
		return
	}
	b := backend{at: x.at, address: to, weight: -1}
	if name != "" && nameForm.MatchString(name) && !slices.ContainsFunc(l.backends, func(o backend) bool { return o.name == name }) {
		b.name = name
	}
	h.l.ok(x.at, "pools[].backends[]")
	all := []string{}
	for _, d := range p.all("default-server") {
		h.l.ok(d.at, "pools[].backends[]")
		all = append(all, d.words[1:]...)
	}
	all = append(all, words...)
	state := serverState{at: x.at, of: poolTLS{insecure: true}}
	for i := 0; i < len(all); i++ {
		if h.serverWord(l, &b, &state, all[i], (&line{words: all}).arg(i+1)) {
			i++
		}
	}
	if state.checked && l.health == nil {
		l.health = &health{kind: "tcp"}
	}
	if l.health != nil {
		h.checkTimes(l, p, all)
	}
	if state.tls {
		h.serverTLS(l, x, &state.of)
	}
	l.backends = append(l.backends, b)
}

// serverWord translates one parameter of a server. It reports whether the next word is its argument.
func (h *haproxy) serverWord(l *pool, b *backend, s *serverState, word, v string) bool {
	switch word {
	case "check", "no-check":
		s.checked = word == "check"
	case "disabled":
		b.state = "inactive"
	case "backup":
		b.state = "inactive"
		h.l.left(s.at, "pools have no backup servers: the backend is inactive", "make it active by hand, or give it a small weight")
	case "ssl":
		s.tls = true
	case "send-proxy":
		l.proxy = "v1"
	case "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn":
		l.proxy = "v2"
	case "weight":
		b.weight = min(atoi(v), 1000)
		return true
	case "maxconn":
		b.requests = int64(atoi(v))
		return true
	case "verify":
		s.of.insecure = v != "required"
		return true
	case "ca-file":
		s.of.ca = h.base(h.caBase, v)
		return true
	case "crt":
		s.of.cert = h.base(h.crtBase, v)
		return true
	case "sni", "verifyhost":
		if name := strings.TrimSuffix(strings.TrimPrefix(v, "str("), ")"); validHost(strings.ToLower(name)) && !strings.HasPrefix(name, "*") {
			s.of.serverName = strings.ToLower(name)
		} else {
			h.l.changed(s.at, "pools[].tls", "the name of TLS is one, and has no variables")
		}
		return true
	case "alpn", "proto":
		if v == "h2" && !l.tcp() {
			l.protocol = "H2C"
		}
		return true
	case "slowstart":
		if t, ok := haproxyTime(v); ok {
			l.slowStart = min(t, 24*time.Hour)
		}
		return true
	case "track", "source", "redir", "agent-check", "agent-addr":
		h.l.changed(s.at, "pools[].backends[]", word+" is left out")
		return true
	default:
		return slices.Contains(serverArguments, word)
	}
	return false
}

// nameForm is a name of a backend.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// serverTLS translates TLS towards a server, which is that of its pool.
func (h *haproxy) serverTLS(l *pool, x *line, t *poolTLS) {
	if l.tcp() {
		h.l.left(x.at, "TLS towards backends is of HTTP alone", "")
		l.backends = nil
		return
	}
	if !t.insecure && (t.serverName == "" || !printable(t.ca) || strings.HasPrefix(t.ca, "@")) {
		if t.ca = strings.TrimPrefix(t.ca, "@system-ca"); t.serverName == "" || strings.HasPrefix(t.ca, "@") {
			h.l.left(x.at, "the name that certificates must have is not known: any certificate is taken", "set pools[].tls.server_name, and ca_file")
			t.insecure = true
		}
	}
	if t.insecure {
		t.ca = ""
	}
	if !printable(t.cert) {
		t.cert = ""
	}
	l.protocol = map[string]string{"": "HTTPS", "HTTPS": "HTTPS", "H2C": "H2", "H2": "H2"}[l.protocol]
	if l.health != nil && l.health.kind == "http" {
		l.health.kind, l.health.insecure = "https", t.insecure
	}
	l.tls = t
}

// health translates option httpchk and the checks of other protocols.
func (h *haproxy) health(l *pool, p *proxy) {
	x := p.last("option httpchk")
	for _, name := range []string{"option tcp-check", "option ssl-hello-chk", "option mysql-check", "option pgsql-check", "option redis-check", "option ldap-check", "option smtpchk"} {
		if o := p.last(name); o != nil && x == nil {
			l.health = &health{kind: "tcp"}
			if name == "option tcp-check" {
				h.l.ok(o.at, "pools[].health")
			} else {
				h.l.changed(o.at, "pools[].health", "connections are opened, and nothing is asked")
			}
		}
	}
	for _, o := range p.lines {
		if o.words[0] == "tcp-check" || o.words[0] == "external-check" {
			h.l.left(o.at, "checks of TCP send nothing", "write a check of type command")
		}
	}
	if x == nil {
		return
	}
	h.l.ok(x.at, "pools[].health.http")
	c := &health{kind: "http"}
	l.health = c
	words := x.words[2:]
	switch len(words) {
	case 0:
		c.method = "OPTIONS"
	case 1:
		c.path, c.method = words[0], "OPTIONS"
	default:
		c.method, c.path = words[0], words[1]
	}
	for _, w := range words[min(2, len(words)):] {
		if _, host, ok := strings.Cut(w, "Host:"); ok {
			c.host = strings.TrimSpace(host)
		}
	}
	for _, o := range p.lines {
		switch o.name() {
		case "http-check send":
			if v := o.after("meth"); v != "" {
				c.method = v
			}
			if v := o.after("uri"); v != "" {
				c.path = v
			}
			if i := slices.Index(o.words, "hdr"); i >= 0 && strings.EqualFold(o.arg(i+1), "host") {
				c.host = o.arg(i + 2)
			}
			h.l.ok(o.at, "pools[].health.http")
		case "http-check expect":
			h.expect(c, o)
		case "http-check disable-on-404", "http-check connect", "http-check comment", "http-check send-state", "http-check set-var":
			h.l.changed(o.at, "pools[].health", "it is left out")
		}
	}
	h.checkValid(c, x)
}

// checkValid takes back what the gateway's checks cannot have.
func (h *haproxy) checkValid(c *health, x *line) {
	if !slices.Contains([]string{"", "GET", "HEAD", "OPTIONS", "POST"}, c.method) {
		h.l.changed(x.at, "pools[].health.http", "the method is GET")
		c.method = "GET"
	}
	if c.path != "" && (!strings.HasPrefix(c.path, "/") || strings.ContainsAny(c.path, " #%\\") || !printable(c.path)) {
		h.l.changed(x.at, "pools[].health.http", "the path is /: it has parts that the gateway does not send")
		c.path = ""
	}
	if c.host != "" && !validHost(strings.ToLower(strings.Split(c.host, ":")[0])) {
		c.host = ""
	}
	if c.method == "HEAD" {
		c.body = ""
	}
}

var statusList = regexp.MustCompile(`^[1-5][0-9][0-9](?:-[1-5][0-9][0-9])?(?:,[1-5][0-9][0-9](?:-[1-5][0-9][0-9])?)*$`)

// expect translates what a check expects of a response.
func (h *haproxy) expect(c *health, x *line) {
	words := slices.DeleteFunc(slices.Clone(x.words[2:]), func(w string) bool { return w == "min-recv" || w == "comment" })
	value := (&line{words: words}).arg(1)
	digit := strings.TrimSuffix(strings.TrimPrefix(value, "^"), "..")
	switch {
	case len(words) == 0 || words[0] == "!":
		h.l.left(x.at, "checks have no negation", "")
	case words[0] == "status" && statusList.MatchString(value) && ascending(value):
		c.status = value
		h.l.ok(x.at, "pools[].health.http.status")
	case words[0] == "rstatus" && len(digit) > 0 && strings.Trim(strings.Trim(digit, "(|)[]"), "12345|") == "" && len(digit) == 1 && digit != "1":
		c.status = digit + "00-" + digit + "99"
		h.l.ok(x.at, "pools[].health.http.status")
	case words[0] == "string" && value != "" && printable(value) && len(value) <= 4096:
		c.body = value
		h.l.ok(x.at, "pools[].health.http.body")
	default:
		h.l.left(x.at, "checks compare no regular expressions", "see health.http.status and body")
	}
}

// ascending reports whether each range of a list of statuses has its lower end first.
func ascending(s string) bool {
	for _, r := range strings.Split(s, ",") {
		a, b, ok := strings.Cut(r, "-")
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		if ok && x > y {
			return false
		}
	}
	return true
}
