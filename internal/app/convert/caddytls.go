package convert

import (
	"slices"
	"strings"
	"time"
)

// caddyTLS holds the settings of a site that are of its listeners.
type caddyTLS struct {
	bind        []string
	cert, key   string
	internal    bool
	email       string
	directory   string
	minVersion  string
	clientCA    []string
	optional    bool
	compression *compression
}

// site translates a site.
func (c *caddy) site(d *directive) {
	c.l.ok(d.at, "routes[]")
	st := &caddyTLS{bind: []string{"0.0.0.0", "[::]"}}
	for _, o := range d.block {
		switch o.name {
		case "tls":
			c.tls(st, o)
		case "bind":
			st.bind = nil
			for _, a := range o.texts() {
				if a == "localhost" {
					a = "127.0.0.1"
				}
				st.bind = append(st.bind, a)
			}
			c.l.ok(o.at, "listeners[].address")
		case "encode":
			c.encode(st, o)
		case "log":
			c.log(o)
		}
	}
	list := c.addresses(d)
	b := &caddySite{caddy: c, d: d}
	items := b.collect(d.block, context{})
	for _, tls := range []bool{false, true} {
		var names, hosts []string
		every := false
		for _, a := range list {
			if a.tls != tls {
				continue
			}
			v := c.listener(a, st)
			if v == nil {
				continue
			}
			if !slices.Contains(names, v.name) {
				names = append(names, v.name)
			}
			every = every || a.host == ""
			if a.host != "" && !slices.Contains(hosts, a.host) {
				hosts = append(hosts, a.host)
			}
		}
		if len(names) == 0 {
			continue
		}
		if every {
			hosts = nil
		}
		b.routes(names, hosts, items, tls)
		if tls && !c.noRedirects && len(hosts) > 0 {
			c.toHTTPS(d, hosts, st, list)
		}
	}
}

// toHTTPS adds the redirect that Caddy has for each host with TLS.
func (c *caddy) toHTTPS(d *directive, hosts []string, st *caddyTLS, list []address) {
	var left []string
	for _, h := range hosts {
		plain := slices.ContainsFunc(list, func(a address) bool { return a.host == h && !a.tls })
		other := slices.ContainsFunc(c.m.routes, func(r *siteRoute) bool { return slices.Contains(r.hosts, h) && r.rules[0].note == "automatic" })
		if standard := slices.ContainsFunc(list, func(a address) bool { return a.host == h && a.tls && a.port == c.httpsPort }); standard && !plain && !other {
			left = append(left, h)
		}
	}
	if len(left) == 0 {
		return
	}
	v := c.listener(address{port: c.httpPort, at: d.at}, &caddyTLS{bind: st.bind})
	if v == nil {
		return
	}
	r := newRule(d.at)
	r.note, r.redirect = "automatic", &redirect{status: 308, location: "https://${hostname}${target}"}
	c.m.routes = append(c.m.routes, &siteRoute{at: d.at, name: c.m.unique("route", "to-https"), listeners: []string{v.name}, hosts: left, rules: []*rule{r}})
}

// tls translates certificates of a site.
func (c *caddy) tls(st *caddyTLS, d *directive) {
	c.l.ok(d.at, "listeners[].tls")
	switch {
	case d.arg(0) == "internal":
		st.internal = true
		c.l.left(d.at, "the gateway has no authority of its own", "make a certificate, and name its files: tls CERT KEY")
	case len(d.args) == 1 && strings.Contains(d.arg(0), "@"):
		if printable(d.arg(0)) && !strings.ContainsAny(d.arg(0), " {}") {
			st.email = "mailto:" + d.arg(0)
		}
	case len(d.args) == 2:
		if printable(d.arg(0)) && printable(d.arg(1)) && !strings.Contains(d.arg(0)+d.arg(1), "{") {
			st.cert, st.key = c.s.path(d.arg(0)), c.s.path(d.arg(1))
		} else {
			c.l.left(d.at, "the names of the files have variables", "")
		}
	}
	for _, o := range d.block {
		switch o.name {
		case "protocols":
			if o.arg(0) == "tls1.3" {
				st.minVersion = "1.3"
			}
			c.l.ok(o.at, "listeners[].tls.min_version")
		case "ca":
			if strings.HasPrefix(o.arg(0), "https://") && printable(o.arg(0)) {
				st.directory = o.arg(0)
			}
			c.l.ok(o.at, "listeners[].tls.acme.directory")
		case "ciphers", "curves", "alpn":
			c.l.changed(o.at, "", "the gateway has the cipher suites of crypto/tls")
		case "client_auth":
			c.clientAuth(st, o)
		case "on_demand":
			c.l.left(o.at, "names of certificates are listed", "see tls.acme.names")
		case "dns", "issuer", "get_certificate", "load", "eab", "resolvers", "propagation_delay", "propagation_timeout", "dns_challenge_override_domain", "dns_ttl", "key_type", "reuse_private_keys", "ca_root":
			c.whole(o, Left, "certificates come from files, or by http-01 and tls-alpn-01", "see listeners[].tls.acme")
		}
	}
}

func (c *caddy) clientAuth(st *caddyTLS, d *directive) {
	c.l.ok(d.at, "listeners[].tls.client_auth")
	mode := "require_and_verify"
	var walk func(list []*directive)
	walk = func(list []*directive) {
		for _, o := range list {
			switch o.name {
			case "mode":
				mode = o.arg(0)
			case "trusted_ca_cert_file", "trust_pool", "pem_file", "trusted_leaf_cert_file":
				for _, f := range o.texts() {
					if f != "file" && printable(f) && !strings.Contains(f, "{") && f != "" {
						st.clientCA = append(st.clientCA, c.s.path(f))
					}
				}
			}
			c.l.ok(o.at, "listeners[].tls.client_auth")
			walk(o.block)
		}
	}
	walk(d.block)
	st.optional = mode == "request" || mode == "verify_if_given"
	if len(st.clientCA) == 0 || mode == "request" || mode == "require" {
		c.l.left(d.at, "certificates of clients are verified by authorities: the site is left out", "name their file with trust_pool file")
		st.internal, st.cert, st.clientCA = true, "", nil
	}
}

// encode translates compression.
func (c *caddy) encode(st *caddyTLS, d *directive) {
	z := &compression{minBytes: 512}
	note := func(at pos, name string) {
		coding := map[string]string{"gzip": "gzip", "zstd": "zstd", "br": "br"}[name]
		if coding == "" {
			return
		}
		if !slices.Contains(z.codings, coding) {
			z.codings = append(z.codings, coding)
		}
	}
	for _, a := range d.texts() {
		note(d.at, a)
	}
	c.l.ok(d.at, "listeners[].compression")
	if strings.HasPrefix(d.arg(0), "@") || strings.HasPrefix(d.arg(0), "/") {
		c.l.changed(d.at, "listeners[].compression", "all responses of the listener are compressed")
	}
	for _, o := range d.block {
		note(o.at, o.name)
		c.l.ok(o.at, "listeners[].compression")
		switch {
		case o.name == "minimum_length":
			z.minBytes = int64(atoi(o.arg(0)))
		case o.name == "match":
			c.whole(o, Changed, "the gateway's own types are compressed", "")
		case len(o.args) > 0:
			c.l.changed(o.at, "listeners[].compression", "levels are fixed: gzip 4, br 4, zstd 1")
		}
	}
	if len(z.codings) == 0 {
		z.codings = []string{"zstd", "gzip"}
	}
	st.compression = z
}

// caddyTime reads a time of Caddy, which is one of Go with days.
func caddyTime(s string) (time.Duration, bool) {
	if v, ok := strings.CutSuffix(s, "d"); ok && atoi(v) > 0 {
		return min(time.Duration(atoi(v))*24*time.Hour, longest), true
	}
	t, err := time.ParseDuration(s)
	return min(t, longest), err == nil && t >= 0
}
