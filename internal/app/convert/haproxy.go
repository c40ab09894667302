package convert

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// haproxy translates the sections of HAProxy.
type haproxy struct {
	s *source
	l *ledger
	m *model

	crtBase, caBase string
	minVersion      string
	globalLog       *line // log of the section global, which "log global" means
	formatUsed      *line // the log-format of the log
	backends        map[string]*proxy
	pools           map[string]*pool // by section
	edits           map[string]*backendEdits
	caches          map[string]*cache
	acls            []pos // lines of the condition that is translated
	fronts          []*proxy
	edited          map[string]bool // samples that rules before the condition change
}

// proxy is a frontend, a backend or both, with the lines of its defaults before its own.
type proxy struct {
	kind, name string
	at         pos
	lines      []*line
	own        int // where its own lines begin
}

// last returns the line of a keyword that counts, nil for none.
func (p *proxy) last(name string) *line {
	for i := len(p.lines) - 1; i >= 0; i-- {
		if p.lines[i].name() == name {
			return p.lines[i]
		}
	}
	return nil
}

// all returns the lines of a keyword. Lists of defaults are replaced by those of the section, but for lines of their kind that
// accumulate.
func (p *proxy) all(name string) (list []*line) {
	for _, l := range p.lines {
		if l.name() == name {
			list = append(list, l)
		}
	}
	return list
}

// option reports whether an option is set, and not taken back by a later line.
func (p *proxy) option(name string) bool {
	set := false
	for _, l := range p.lines {
		switch {
		case l.name() == "option "+name:
			set = true
		case len(l.words) > 2 && l.words[0] == "no" && l.words[1] == "option" && l.words[2] == name:
			set = false
		}
	}
	return set
}

func (p *proxy) tcp() bool {
	l := p.last("mode")
	return l == nil || l.arg(1) == "tcp"
}

func convertHAProxy(s *source, l *ledger, m *model) {
	h := &haproxy{s: s, l: l, m: m, backends: map[string]*proxy{}, pools: map[string]*pool{}, edits: map[string]*backendEdits{}, caches: map[string]*cache{}}
	sections := parseHAProxy(s, l)
	if len(s.problems) > 0 {
		return
	}
	h.fronts = h.sections(sections)
	for _, p := range h.fronts {
		if p.tcp() {
			h.tcpFront(p)
		} else {
			h.front(p)
		}
	}
	for _, p := range h.backends {
		for _, x := range p.lines[p.own:] {
			if line := l.lines[x.at]; line.Result == "" && h.pools[p.name] == nil {
				l.unneeded(x.at, "no frontend leads to the section")
			}
		}
	}
}

// sections reads all sections, and returns those with listeners.
func (h *haproxy) sections(list []*section) (fronts []*proxy) {
	l := h.l
	var defaults []*line
	named := map[string][]*line{}
	for _, c := range list {
		h.tables(c)
		switch c.kind {
		case "global":
			l.ok(c.at, "")
			h.global(c)
		case "defaults":
			l.ok(c.at, "")
			defaults = c.lines
			named[c.name] = c.lines
		case "frontend", "backend", "listen":
			inherit := defaults
			if i := slices.Index(c.words, "from"); i >= 0 && i+1 < len(c.words) {
				inherit = named[c.words[i+1]]
			}
			p := &proxy{kind: c.kind, name: c.name, at: c.at, lines: slices.Concat(inherit, c.lines), own: len(inherit)}
			if len(c.words) > 2 && c.words[2] != "from" { // an address beside the name, as before bind
				p.lines = append(p.lines, &line{append([]string{"bind"}, c.words[2:]...), c.at})
			}
			if c.kind != "frontend" {
				h.backends[c.name] = p
				l.ok(c.at, "pools[]")
			}
			if c.kind != "backend" {
				fronts = append(fronts, p)
				l.ok(c.at, "listeners[], routes[]")
			}
		case "resolvers":
			l.ok(c.at, "resolver")
			h.resolvers(c)
		case "cache":
			h.readCache(c)
		case "userlist":
			l.left(c.at, "passwords are in a file of htpasswd", "write one with htpasswd -B, and name it in routes[].auth.basic")
			h.leftLines(c, "it is of a userlist")
		default:
			l.left(c.at, "the gateway has no such section", "")
			h.leftLines(c, "its section is left out")
		}
	}
	return fronts
}

// tables notes lines that the tables decide.
func (h *haproxy) tables(c *section) {
	for _, x := range c.lines {
		name := x.name()
		if why, ok := haproxyUnneeded[name]; ok {
			h.l.unneeded(x.at, why)
		} else if strings.HasPrefix(name, "tune.") || strings.HasPrefix(name, "no ") || strings.HasPrefix(name, "profiling.") || strings.HasPrefix(name, "h2-workaround") {
			h.l.unneeded(x.at, "tuning and workarounds are of HAProxy")
		}
		if g, ok := haproxyLeft[name]; ok {
			h.l.left(x.at, g[0], g[1])
		} else if g, ok := haproxyLeft[x.words[0]]; ok {
			h.l.left(x.at, g[0], g[1])
		}
	}
}

func (h *haproxy) leftLines(c *section, why string) {
	for _, x := range c.lines {
		h.l.left(x.at, why, "")
	}
}

func (h *haproxy) global(c *section) {
	for _, x := range c.lines {
		switch x.words[0] {
		case "crt-base":
			h.crtBase = x.arg(1)
			h.l.ok(x.at, "listeners[].tls.certificates")
		case "ca-base":
			h.caBase = x.arg(1)
			h.l.ok(x.at, "")
		case "log":
			h.globalLog = x
			h.l.unneeded(x.at, "messages of the gateway itself are on standard error")
		case "maxconn":
			h.l.unneeded(x.at, "file descriptors bound connections: LimitNOFILE, ulimit -n")
		case "ssl-default-bind-options":
			for i, w := range x.words {
				if w == "ssl-min-ver" && x.arg(i+1) == "TLSv1.3" {
					h.minVersion = "1.3"
				}
			}
			h.l.ok(x.at, "listeners[].tls.min_version")
		case "ssl-default-bind-ciphers", "ssl-default-bind-ciphersuites":
			h.l.changed(x.at, "", "the gateway has the cipher suites of crypto/tls")
		}
	}
}

func (h *haproxy) resolvers(c *section) {
	for _, x := range c.lines {
		addr := strings.TrimPrefix(x.arg(2), "udp@")
		switch {
		case x.words[0] == "nameserver" && listenAddress(addr, "53") != "":
			if a := listenAddress(addr, "53"); !slices.Contains(h.m.resolvers, a) && len(h.m.resolvers) < 16 && !strings.HasPrefix(a, "0.0.0.0:") && !strings.HasPrefix(a, "[::]:") {
				h.m.resolvers = append(h.m.resolvers, a)
			}
			h.l.ok(x.at, "resolver.servers")
		case x.words[0] == "hold" && x.arg(1) == "valid":
			if t, ok := haproxyTime(x.arg(2)); ok {
				h.m.maxTTL = min(max(t, time.Second), 7*24*time.Hour)
			}
			h.l.ok(x.at, "resolver.max_ttl")
		default:
			h.l.unneeded(x.at, "the gateway has its own times of look-ups")
		}
	}
}

// haproxyTime reads a time of HAProxy, of milliseconds without a unit.
func haproxyTime(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	if strings.Trim(s, "0123456789") == "" {
		s += "ms"
	}
	if v, ok := strings.CutSuffix(s, "us"); ok {
		n := atoi(v)
		return time.Duration(n) * time.Microsecond, n > 0 || v == "0"
	}
	return nginxTime(s)
}

// bind makes the listeners of a frontend.
func (h *haproxy) bind(p *proxy) (list []*listener) {
	for _, x := range p.lines {
		if x.words[0] != "bind" {
			continue
		}
		v := &listener{at: x.at, protocol: protoHTTP, versions: []string{"1.1"}, timeouts: times{}, limits: counts{}}
		h.l.ok(x.at, "listeners[]")
		quic := false
		for _, a := range strings.Split(x.arg(1), ",") {
			for _, prefix := range []string{"ipv4@", "ipv6@", "quic4@", "quic6@"} {
				if rest, ok := strings.CutPrefix(a, prefix); ok {
					a, quic = rest, quic || strings.HasPrefix(prefix, "quic")
				}
			}
			switch {
			case strings.HasPrefix(a, ":"):
				a = "0.0.0.0" + a
			case strings.HasPrefix(a, "*:"):
				a = "0.0.0.0" + a[1:]
			case strings.HasPrefix(a, ":::"):
				a = "[::]:" + a[3:]
			}
			addr := listenAddress(a, "")
			if i := slices.IndexFunc(list, func(o *listener) bool { return slices.Contains(o.addresses, addr) && o.protocol == protoHTTPS }); quic && i >= 0 {
				if !slices.Contains(list[i].versions, "3") { // the same address over UDP
					list[i].versions = append(list[i].versions, "3")
				}
				continue
			}
			if addr == "" && h.s.port(x.at, a) {
				continue
			}
			if addr == "" || slices.ContainsFunc(h.m.listeners, func(o *listener) bool { return slices.Contains(o.addresses, addr) }) || slices.Contains(v.addresses, addr) || len(v.addresses) >= 64 {
				h.l.left(x.at, shorten(a)+" is no address with a port that is free", "write an IP address and a port")
				continue
			}
			v.addresses = append(v.addresses, addr)
		}
		if len(v.addresses) == 0 || !h.bindKeys(v, x, p, quic) {
			continue
		}
		kind := map[string]string{protoHTTP: "http-", protoHTTPS: "https-", protoTCP: "tcp-", protoTLS: "tls-"}[v.protocol]
		v.name = h.m.unique("listener", kind+v.addresses[0][strings.LastIndexByte(v.addresses[0], ':')+1:])
		h.frontKeys(v, p)
		h.m.listeners = append(h.m.listeners, v)
		list = append(list, v)
	}
	return list
}

// bindTLS holds the TLS settings of a bind line.
type bindTLS struct {
	on         bool
	verify, ca string
}

// bindArguments are parameters of a bind line with an argument that needs no counterpart.
var bindArguments = []string{
	"interface", "name", "process", "thread", "maxconn", "mode", "user", "group", "uid", "gid", "backlog", "level", "id", "mss", "namespace", "nice", "tcp-ut", "ssl-max-ver", "severity-output",
	"generate-certificates", "shards",
}

// bindKeys translates the parameters of a bind line. It reports whether there is a listener.
func (h *haproxy) bindKeys(v *listener, x *line, p *proxy, quic bool) bool {
	t, of := &serverTLS{anyHost: true, minVersion: h.minVersion}, bindTLS{verify: "none"}
	for i := 2; i < len(x.words); i++ {
		if h.bindWord(v, t, &of, x, i) {
			i++
		}
	}
	switch {
	case of.on && p.tcp():
		h.l.left(x.at, "TLS ends at listeners of HTTP alone", "pass TLS through, or set mode http")
		return false
	case p.tcp():
		v.protocol = protoTCP
		return true
	case !of.on:
		return true
	case len(t.certificates) == 0:
		h.l.left(x.at, "no certificate of it is known", "name a file with crt")
		return false
	}
	t.certificates[0].fallback = true
	if of.verify == "required" || of.verify == "optional" {
		ca := h.base(h.caBase, of.ca)
		if ca == "" || !printable(ca) || strings.HasPrefix(ca, "@") {
			h.l.left(x.at, "the authorities of clients are not known: nothing listens here", "name their file with ca-file")
			return false
		}
		t.clientCA, t.optional = []string{ca}, of.verify == "optional"
	}
	v.protocol, v.tls = protoHTTPS, t
	if quic {
		v.versions = []string{"3"}
	}
	return true
}

// bindWord translates one parameter of a bind line. It reports whether the next word is its argument.
func (h *haproxy) bindWord(v *listener, t *serverTLS, of *bindTLS, x *line, i int) bool {
	value := x.arg(i + 1)
	switch w := x.words[i]; w {
	case "ssl":
		of.on = true
	case "force-tlsv13":
		t.minVersion = "1.3"
	case "accept-proxy":
		v.proxyFrom = []string{"0.0.0.0/0", "::/0"}
	case "strict-sni":
		h.l.changed(x.at, "listeners[]", "names without a certificate of their own get the default one")
	case "allow-0rtt":
		h.l.changed(x.at, "listeners[]", "crypto/tls takes no early data over TCP")
	case "crt":
		h.certificates(t, x, value)
		return true
	case "crt-list":
		h.l.left(x.at, "lists of certificates are not read", "name the certificates in tls.certificates")
		return true
	case "alpn", "npn":
		if strings.Contains(value, "h2") {
			v.versions = []string{"1.1", "2"}
		}
		return true
	case "proto":
		if value == "h2" {
			v.versions = []string{"2"}
		}
		return true
	case "ca-file":
		of.ca = value
		return true
	case "crl-file":
		if printable(value) && value != "" {
			t.crl = []string{h.s.path(value)}
		}
		return true
	case "verify":
		of.verify = value
		return true
	case "ssl-min-ver":
		if value == "TLSv1.3" {
			t.minVersion = "1.3"
		}
		return true
	case "ciphers", "ciphersuites", "curves", "ecdhe", "sigalgs":
		h.l.changed(x.at, "listeners[]", "the gateway has the cipher suites of crypto/tls")
		return true
	default:
		return slices.Contains(bindArguments, w)
	}
	return false
}

// base returns a path of the file below a folder that global names.
func (h *haproxy) base(folder, name string) string {
	if name == "" || filepath.IsAbs(name) || strings.HasPrefix(name, "@") {
		return name
	}
	if folder != "" {
		return h.s.path(filepath.Join(folder, name))
	}
	return h.s.path(name)
}

// certificates adds the file that crt names, or those of a folder.
func (h *haproxy) certificates(t *serverTLS, x *line, name string) {
	path := h.base(h.crtBase, name)
	if path == "" || !printable(path) {
		h.l.left(x.at, "it is no name of a file", "")
		return
	}
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*.pem"))
	} else if strings.HasSuffix(path, "/") || err != nil && filepath.Ext(path) == "" {
		h.l.left(x.at, "the folder "+shorten(name)+" is not here, or has no files that end with .pem", "name its files in tls.certificates")
		return
	}
	for _, f := range files {
		if len(t.certificates) < 1024 && !slices.ContainsFunc(t.certificates, func(c certificate) bool { return c.cert == f }) {
			t.certificates = append(t.certificates, certificate{cert: f})
		}
	}
}

// frontKeys translates what a frontend has for its listeners.
func (h *haproxy) frontKeys(v *listener, p *proxy) {
	for _, k := range []struct{ name, key string }{
		{"timeout client", "request_body"}, {"timeout http-request", "request_header"}, {"timeout http-keep-alive", "idle"}, {"timeout tunnel", "stream"},
	} {
		x := p.last(k.name)
		if x == nil {
			continue
		}
		t, ok := haproxyTime(x.arg(2))
		if !ok {
			h.s.mistake(x.at, "such as 30s", "%s is no time", shorten(x.arg(2)))
			continue
		}
		t = min(t, longest)
		h.l.ok(x.at, "listeners[].timeouts."+k.key)
		v.timeouts[k.key] = t
		if k.name == "timeout client" {
			v.timeouts["write"] = t
			if p.last("timeout http-keep-alive") == nil && p.last("timeout http-request") == nil {
				v.timeouts["idle"] = t
			}
			if p.tcp() && p.last("timeout tunnel") == nil {
				v.timeouts["stream"] = t
			}
		}
	}
	if x := p.last("maxconn"); x != nil && p.kind != "backend" {
		v.limits["connections"] = int64(atoi(x.arg(1)))
		if v.limits["connections"] == 0 {
			delete(v.limits, "connections")
		}
		h.l.ok(x.at, "listeners[].limits.connections")
	}
	h.logs(p)
	if !v.http() {
		return
	}
	if x := p.last("compression algo"); x != nil {
		v.compression = &compression{codings: []string{"gzip"}, minBytes: 0}
		h.l.changed(x.at, "listeners[].compression", "gzip alone, for the types that are named")
		if types := p.last("compression type"); types != nil {
			for _, t := range types.words[2:] {
				if t = strings.ToLower(t); mediaType.MatchString(t) && !slices.Contains(v.compression.types, t) && len(v.compression.types) < 256 {
					v.compression.types = append(v.compression.types, t)
				}
			}
			h.l.ok(types.at, "listeners[].compression.types")
		}
	}
}
