package convert

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// tls translates the certificates of a listener: those of all of its servers, chosen by the names in them. It reports whether
// there are any.
func (n *nginx) tls(x *listener, e *endpoint) bool {
	x.protocol, x.tls = protoHTTPS, &serverTLS{anyHost: true}
	ordered := append([]*server{e.fallback}, e.servers...) // the first is the default
	for _, v := range ordered {
		certs, keys := v.sc.find("ssl_certificate"), v.sc.find("ssl_certificate_key")
		for i, d := range certs {
			cert, ok := v.sc.plain(d.arg(0))
			if !ok || cert == "" || strings.HasPrefix(cert, "data:") || strings.HasPrefix(cert, "engine:") || !printable(cert) {
				n.l.left(d.at, "the certificate is chosen by its names, and not by a variable", "list the files, or take tls.acme")
				continue
			}
			key := ""
			if i < len(keys) {
				if key, ok = v.sc.plain(keys[i].arg(0)); !ok || !printable(key) {
					key = ""
				}
				n.l.ok(keys[i].at, "listeners[].tls.certificates[].key")
			}
			cert = n.s.path(cert)
			if slices.ContainsFunc(x.tls.certificates, func(c certificate) bool { return c.cert == cert }) {
				continue
			}
			x.tls.certificates = append(x.tls.certificates, certificate{cert, n.s.path(key), v == e.fallback && len(x.tls.certificates) == 0})
			n.l.ok(d.at, "listeners[].tls.certificates[].cert")
		}
	}
	if len(x.tls.certificates) == 0 {
		for _, d := range e.listens {
			n.l.left(d.at, "no certificate of its servers is known", "name one with ssl_certificate and ssl_certificate_key")
		}
		return false
	}
	n.tlsKeys(x, e)
	return true
}

// tlsKeys translates versions, ciphers and certificates of clients.
func (n *nginx) tlsKeys(x *listener, e *endpoint) {
	for _, v := range e.servers {
		for _, d := range v.sc.find("ssl_protocols") {
			switch {
			case d.has("TLSv1") || d.has("TLSv1.1") || d.has("SSLv3"):
				n.l.changed(d.at, "listeners[].tls.min_version", "there is nothing before TLS 1.2")
			default:
				n.l.ok(d.at, "listeners[].tls.min_version")
			}
			if v == e.fallback && d.has("TLSv1.3") && len(d.args) == 1 {
				x.tls.minVersion = "1.3"
			}
		}
		for _, name := range []string{"ssl_ciphers", "ssl_ecdh_curve", "ssl_conf_command"} {
			for _, d := range v.sc.find(name) {
				n.l.changed(d.at, "", "the gateway has the cipher suites and curves of crypto/tls")
			}
		}
		for _, d := range v.sc.find("ssl_reject_handshake") {
			n.l.changed(d.at, "", "names without a certificate of their own get the default one")
		}
		n.clientAuth(x, e, v)
	}
}

// clientAuth translates the certificates of clients, which are those of a listener.
func (n *nginx) clientAuth(x *listener, e *endpoint, v *server) {
	ca, verify := v.sc.last("ssl_client_certificate"), v.sc.value("ssl_verify_client")
	if verify == "optional" && refusesUnverified(v) {
		verify = "on"
	}
	for _, name := range []string{"ssl_client_certificate", "ssl_verify_client", "ssl_crl"} {
		for _, d := range v.sc.find(name) {
			switch {
			case verify == "" || verify == "off":
				n.l.unneeded(d.at, "clients are not asked for certificates")
			case verify == "optional_no_ca" || ca == nil || !printable(ca.arg(0)):
				n.l.left(d.at, "certificates of clients are verified by authorities", "name them with ssl_client_certificate")
			case len(e.servers) > 1:
				n.l.changed(d.at, "listeners[].tls.client_auth", "clients are asked at all hosts of the address")
			default:
				n.l.ok(d.at, "listeners[].tls.client_auth")
			}
		}
	}
	if verify == "" || verify == "off" || verify == "optional_no_ca" {
		return
	}
	if ca == nil || !printable(ca.arg(0)) || ca.arg(0) == "" {
		if verify == "on" {
			v.guard = v.sc.last("ssl_verify_client")
		}
		return
	}
	switch file := n.s.path(ca.arg(0)); {
	case len(x.tls.clientCA) == 0:
		x.tls.clientCA, x.tls.optional = []string{file}, true
	case x.tls.clientCA[0] != file: // its clients are others
		if v.guard = v.sc.last("ssl_verify_client"); verify != "on" {
			v.guard = nil
		}
		return
	}
	if verify == "on" {
		x.tls.optional, v.verified = false, true
	}
	if crl := v.sc.value("ssl_crl"); crl != "" && printable(crl) && !slices.Contains(x.tls.crl, n.s.path(crl)) {
		x.tls.crl = append(x.tls.crl, n.s.path(crl))
	}
}

// refusesUnverified reports whether a server refuses all clients without a valid certificate by itself.
func refusesUnverified(v *server) bool {
	return slices.ContainsFunc(v.sc.own("if"), func(d *directive) bool {
		t, ok := parseTest(d)
		return ok && t.name == "ssl_client_verify" && t.op == "!=" && t.value == "SUCCESS" && len(d.block) == 1 && d.block[0].name == "return" && atoi(d.block[0].arg(0)) >= 400
	})
}

// mediaType is a type that the gateway compresses.
var mediaType = regexp.MustCompile(`^[a-z0-9!#$&^_.+-]+/(?:[a-z0-9!#$&^_.+-]+|\*)$`)

// listenerKeys translates what nginx takes from the default server of an address, and what the gateway has at listeners alone.
func (n *nginx) listenerKeys(x *listener, e *endpoint) {
	sc := e.pick()
	for name, key := range map[string]string{
		"client_header_timeout": "request_header", "client_body_timeout": "request_body", "send_timeout": "write", "keepalive_timeout": "idle",
	} {
		for _, v := range e.servers {
			for _, d := range v.sc.find(name) {
				t, ok := nginxTime(d.arg(0))
				switch {
				case !ok:
					n.s.mistake(d.at, "such as 30s", "%s is no time", shorten(d.arg(0)))
				case v == e.fallback:
					if name == "keepalive_timeout" && t == 0 {
						x.limits["connection_requests"] = 1
					} else {
						x.timeouts[key] = min(t, longest)
					}
					n.l.ok(d.at, "listeners[].timeouts."+key)
				default:
					n.l.changed(d.at, "listeners[].timeouts."+key, "the default server of the address decides")
				}
			}
		}
	}
	for _, v := range e.servers {
		inBlocks(v.sc.list, func(d *directive) {
			switch d.name {
			case "client_header_timeout", "client_body_timeout", "send_timeout", "keepalive_timeout", "keepalive_requests", "large_client_header_buffers":
				n.l.changed(d.at, "", "it is the same for all of a listener")
			}
		})
	}
	if d := sc.last("keepalive_requests"); d != nil && x.limits["connection_requests"] == 0 {
		x.limits["connection_requests"] = int64(atoi(d.arg(0)))
	}
	n.noteAll(e, "keepalive_requests", "listeners[].limits.connection_requests")
	if d := sc.last("http2_max_concurrent_streams"); d != nil && e.h2 && atoi(d.arg(0)) > 0 {
		x.limits["streams"] = min(int64(atoi(d.arg(0))), 65536)
	}
	n.noteAll(e, "http2_max_concurrent_streams", "listeners[].limits.streams")
	n.buffers(x, e)
	n.realIP(x, e)
	n.compression(x, e)
	if e.proxy && len(x.proxyFrom) == 0 {
		x.proxyFrom = []string{"0.0.0.0/0", "::/0"}
	}
	n.forwarded(x, e)
}

func (n *nginx) noteAll(e *endpoint, name, key string) {
	for _, v := range e.servers {
		for _, d := range v.sc.find(name) {
			n.l.ok(d.at, key)
		}
	}
}

// buffers translates the buffers that bound the header of a request.
func (n *nginx) buffers(x *listener, e *endpoint) {
	for _, v := range e.servers {
		for _, d := range v.sc.find("large_client_header_buffers") {
			one, ok := size(d.arg(1))
			if count := int64(atoi(d.arg(0))); !ok || count == 0 {
				n.l.left(d.at, "it is no number and size", "")
				continue
			}
			x.limits["target_bytes"] = min(max(one, x.limits["target_bytes"], 64), 1<<20)
			x.limits["header_bytes"] = min(max(one*int64(min(atoi(d.arg(0)), 1024)), x.limits["header_bytes"], 1024), 1<<20)
			n.l.ok(d.at, "listeners[].limits.header_bytes, target_bytes")
		}
	}
}

// realIP translates the proxies whose word for the client's address counts.
func (n *nginx) realIP(x *listener, e *endpoint) {
	for _, v := range e.servers {
		from, by := v.sc.find("set_real_ip_from"), v.sc.value("real_ip_header")
		var list []string
		for _, d := range from {
			p, ok := prefixOf(d.arg(0))
			if !ok || len(list) >= 256 {
				n.l.left(d.at, "it is no prefix of addresses", "")
				continue
			}
			n.l.ok(d.at, map[bool]string{true: "listeners[].proxy_protocol.from", false: "listeners[].forwarded.trusted"}[by == "proxy_protocol"])
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
		for _, d := range v.sc.find("real_ip_header") {
			switch {
			case by == "proxy_protocol" || strings.EqualFold(by, "X-Forwarded-For"):
				n.l.ok(d.at, "listeners[].forwarded.trusted")
			default:
				n.l.changed(d.at, "listeners[].forwarded.trusted", "the client's address comes from X-Forwarded-For")
			}
		}
		to := &x.trusted
		if by == "proxy_protocol" {
			to = &x.proxyFrom
		}
		if by == "proxy_protocol" && !e.proxy {
			continue
		}
		for _, p := range list {
			if !slices.Contains(*to, p) && len(*to) < 256 {
				*to = append(*to, p)
			}
		}
	}
}

// compression translates gzip, which is of listeners.
func (n *nginx) compression(x *listener, e *endpoint) {
	for _, v := range e.servers {
		gzip, brotli, zstd := n.anyOn(v, "gzip"), n.anyOn(v, "brotli"), n.anyOn(v, "zstd")
		if !gzip && !brotli && !zstd {
			n.offDirectives(v)
			continue
		}
		if x.compression == nil {
			x.compression = &compression{minBytes: 20} // gzip_min_length
		}
		c := x.compression
		for coding, on := range map[string]bool{"zstd": zstd, "br": brotli, "gzip": gzip} {
			if on && !slices.Contains(c.codings, coding) {
				c.codings = append(c.codings, coding)
			}
		}
		slices.SortFunc(c.codings, func(a, b string) int {
			return slices.Index([]string{"zstd", "br", "gzip"}, a) - slices.Index([]string{"zstd", "br", "gzip"}, b)
		})
		n.compressionKeys(v, c)
		if len(c.types) == 0 {
			c.types = []string{"text/html"}
		}
	}
}

// anyOn reports whether a switch is on in the server or in one of its blocks.
func (n *nginx) anyOn(v *server, name string) bool {
	if v.sc.on(name) {
		return true
	}
	some := false
	each := func(d *directive) {
		if d.name == name {
			some = some || d.arg(0) == "on"
			n.l.changed(d.at, "listeners[].compression", "compression is the same for all of the listener")
		}
	}
	inBlocks(v.sc.list, each)
	return some
}

// inBlocks calls f for all directives within blocks of a list.
func inBlocks(list []*directive, f func(d *directive)) {
	for _, d := range list {
		for _, inner := range d.block {
			f(inner)
		}
		inBlocks(d.block, f)
	}
}

func (n *nginx) offDirectives(v *server) {
	for _, name := range []string{"gzip", "brotli", "zstd", "gzip_types", "gzip_min_length", "gzip_comp_level", "brotli_types", "brotli_comp_level", "brotli_min_length"} {
		for _, d := range v.sc.find(name) {
			n.l.unneeded(d.at, "compression is off")
		}
	}
}

func (n *nginx) compressionKeys(v *server, c *compression) {
	all := map[string][]*directive{}
	note := func(d *directive) { all[d.name] = append(all[d.name], d) }
	for _, name := range []string{"gzip", "brotli", "zstd", "gzip_types", "brotli_types", "zstd_types", "gzip_min_length", "brotli_min_length", "zstd_min_length", "gzip_comp_level", "brotli_comp_level", "zstd_comp_level"} {
		for _, d := range v.sc.find(name) {
			note(d)
		}
	}
	inBlocks(v.sc.list, note)
	for _, coding := range []string{"gzip", "brotli", "zstd"} {
		for _, d := range all[coding] {
			n.l.ok(d.at, "listeners[].compression")
		}
		for _, d := range all[coding+"_comp_level"] {
			n.l.changed(d.at, "", "levels are fixed: gzip 4, br 4, zstd 1")
		}
		for _, d := range all[coding+"_types"] {
			n.l.ok(d.at, "listeners[].compression.types")
			for _, t := range append([]string{"text/html"}, d.texts()...) {
				t = strings.ToLower(t)
				if t == "*" {
					c.types = []string{"text/*", "application/*", "image/*", "font/*"}
					n.l.changed(d.at, "listeners[].compression.types", "types of audio and video are left out")
					break
				}
				if mediaType.MatchString(t) && !slices.Contains(c.types, t) && len(c.types) < 256 {
					c.types = append(c.types, t)
				}
			}
		}
		for _, d := range all[coding+"_min_length"] {
			if b, ok := size(d.arg(0)); ok {
				c.minBytes = min(b, 1<<30)
				n.l.ok(d.at, "listeners[].compression.min_bytes")
			}
		}
	}
}

// forwarded decides whether backends get X-Forwarded-For and the others: where no location sends any, as nginx does by default, they
// do not.
func (n *nginx) forwarded(x *listener, e *endpoint) {
	some, passed := false, false
	look := func(d *directive) {
		passed = passed || d.name == "proxy_pass" || d.name == "grpc_pass"
		if (d.name == "proxy_set_header" || d.name == "grpc_set_header") && strings.HasPrefix(strings.ToLower(d.arg(0)), "x-forwarded-") && d.arg(1) != "" {
			some = true
		}
	}
	for _, v := range e.servers {
		for s := v.sc; s != nil; s = s.outer {
			for _, d := range s.list {
				look(d)
			}
		}
		inBlocks(v.sc.list, look)
	}
	x.noForwarded = passed && !some
}

// streamTimeout raises the time that WebSockets may be silent to what a location permits.
func (n *nginx) streamTimeout(listeners []string, t time.Duration) {
	for _, x := range n.m.listeners {
		if slices.Contains(listeners, x.name) && t > max(x.timeouts["stream"], time.Minute) {
			x.timeouts["stream"] = min(t, longest)
		}
	}
}
