package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/tls/acme"
)

// caddy translates a Caddyfile.
type caddy struct {
	s *source
	l *ledger
	m *model

	httpPort, httpsPort string
	email, directory    string
	noHTTPS             bool // auto_https off
	noRedirects         bool
	protocols           []string
	trusted             []string
	proxyFrom           []string
	listeners           map[string]*listener // by port, bind addresses and TLS
	pools               map[string]string
	taken               map[string]bool // addresses of listeners
	account             *account        // nil until a certificate is obtained
}

func convertCaddy(s *source, l *ledger, m *model, by *inclusion) {
	c := &caddy{
		s: s, l: l, m: m, httpPort: "80", httpsPort: "443", protocols: []string{"1.1", "2", "3"},
		listeners: map[string]*listener{}, pools: map[string]string{}, taken: map[string]bool{},
	}
	p := &caddyParser{s: s, l: l, snippets: map[string][]*directive{}}
	list := p.parse(0)
	if len(s.problems) > 0 {
		return
	}
	var top []*directive
	for i, d := range list {
		switch {
		case strings.HasPrefix(d.name, "(") && strings.HasSuffix(d.name, ")") && d.open:
			p.snippets[strings.Trim(d.name, "()")] = d.block
			l.ok(d.at, "")
		case !d.open && d.name != "import" && d.name != "": // a site without braces has the rest of the file
			top = append(top, &directive{name: d.name, args: d.args, at: d.at, open: true, block: list[i+1:]})
		default:
			top = append(top, d)
			continue
		}
		if !d.open && d.name != "import" {
			break
		}
	}
	top = p.expand(top, by, 0)
	if len(s.problems) > 0 {
		return
	}
	for i, d := range top {
		if d.name == "" && d.open && i == 0 {
			l.ok(d.at, "")
			c.global(d.block)
		}
	}
	for i, d := range top {
		switch {
		case d.name == "" && i == 0:
		case d.name == "" || !d.open:
			l.left(d.at, "it is no site", "begin with an address")
		default:
			c.site(d)
		}
	}
	for _, body := range p.snippets {
		c.unused(body)
	}
}

// unused notes directives of snippets that no site imports.
func (c *caddy) unused(list []*directive) {
	for _, d := range list {
		if line := c.l.lines[d.at]; line != nil && line.Result == "" {
			c.l.unneeded(d.at, "no site imports the snippet")
		}
		c.unused(d.block)
	}
}

// global translates the options of the file.
func (c *caddy) global(list []*directive) {
	for _, d := range list {
		arg := d.arg(0)
		switch d.name {
		case "email":
			if strings.Contains(arg, "@") && printable(arg) && !strings.ContainsAny(arg, " {}") {
				c.email = "mailto:" + arg
			}
			c.l.ok(d.at, "listeners[].tls.acme.contact")
		case "acme_ca":
			if strings.HasPrefix(arg, "https://") && printable(arg) {
				c.directory = arg
			}
			c.l.ok(d.at, "listeners[].tls.acme.directory")
		case "http_port", "https_port":
			if n := atoi(arg); n > 0 && n < 65536 {
				if d.name == "http_port" {
					c.httpPort = arg
				} else {
					c.httpsPort = arg
				}
			}
			c.l.ok(d.at, "listeners[].address")
		case "auto_https":
			c.noHTTPS, c.noRedirects = arg == "off", arg == "off" || arg == "disable_redirects"
			c.l.ok(d.at, "listeners[]")
		case "admin", "persist_config", "grace_period", "shutdown_delay", "storage", "debug", "order", "storage_clean_interval", "ocsp_stapling", "skip_install_trust", "renew_interval":
			c.whole(d, Unneeded, "it is of Caddy's process, or of its plugins", "")
		case "servers":
			c.servers(d)
		case "log":
			c.log(d)
		default:
			c.whole(d, Left, "the gateway has no such option", "")
		}
	}
}

// whole notes the result of a directive and of all that is in it.
func (c *caddy) whole(d *directive, r Result, why, remedy string) {
	c.l.result(d.at, r, "", why, remedy)
	for _, inner := range d.block {
		c.whole(inner, r, why, "")
	}
}

// servers translates options of listeners.
func (c *caddy) servers(d *directive) {
	c.l.ok(d.at, "listeners[]")
	for _, o := range d.block {
		switch o.name {
		case "protocols":
			c.protocols = nil
			for _, p := range []struct{ name, version string }{{"h1", "1.1"}, {"h2", "2"}, {"h3", "3"}} {
				if o.has(p.name) {
					c.protocols = append(c.protocols, p.version)
				}
			}
			if len(c.protocols) == 0 {
				c.protocols = []string{"1.1"}
			}
			c.l.ok(o.at, "listeners[].versions")
		case "trusted_proxies":
			for _, a := range o.texts() {
				if a == "private_ranges" {
					c.trusted = append(c.trusted, privateRanges...)
				} else if p, ok := prefixOf(a); ok && len(c.trusted) < 250 {
					c.trusted = append(c.trusted, p)
				}
			}
			slices.Sort(c.trusted)
			c.trusted = slices.Compact(c.trusted)
			c.l.ok(o.at, "listeners[].forwarded.trusted")
		case "listener_wrappers":
			c.whole(o, Translated, "", "")
			for _, w := range o.block {
				if w.name == "proxy_protocol" {
					c.proxyFrom = []string{"0.0.0.0/0", "::/0"}
					for _, a := range w.block {
						if a.name == "allow" {
							c.proxyFrom = nil
							for _, s := range a.texts() {
								if p, ok := prefixOf(s); ok && len(c.proxyFrom) < 250 {
									c.proxyFrom = append(c.proxyFrom, p)
								}
							}
						}
					}
				}
			}
		case "metrics", "log_credentials", "keepalive_interval", "strict_sni_host", "enable_full_duplex", "name", "trusted_proxies_strict", "client_ip_headers", "max_header_size":
			c.whole(o, Unneeded, "it is what the gateway does, or has in its metrics", "")
		default:
			c.whole(o, Left, "listeners have no such option", "see listeners[].timeouts and limits")
		}
	}
}

// privateRanges are the prefixes that Caddy calls so.
var privateRanges = []string{"192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"}

func init() { // 127.0.0.1/8 in the gateway's form
	for i, p := range privateRanges {
		privateRanges[i], _ = prefixOf(p)
	}
}

// address is one of a site.
type address struct {
	host, port string
	tls        bool
	at         pos
}

// addresses reads those of a site.
func (c *caddy) addresses(d *directive) (list []address) {
	words := append([]token{{text: d.name, at: d.at}}, d.args...)
	for _, w := range words {
		for _, text := range strings.Split(w.text, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			a, ok := c.address(text)
			a.at = d.at
			if !ok && c.s.port(d.at, text) {
				continue
			}
			if !ok {
				c.l.left(d.at, shorten(text)+" is no address of a site", "write a host and a port; the environment is not read")
				continue
			}
			list = append(list, a)
		}
	}
	return list
}

// address reads scheme, host and port.
func (c *caddy) address(text string) (a address, ok bool) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	rest = strings.TrimSuffix(rest, "/")
	a.host = strings.ToLower(rest)
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		a.host, a.port = strings.ToLower(rest[:i]), rest[i+1:]
	}
	a.tls = scheme == "https" || scheme == "" && a.host != "" && !c.noHTTPS && a.port != c.httpPort || a.port == c.httpsPort && scheme != "http"
	if a.port == "" {
		if a.port = c.httpPort; a.tls {
			a.port = c.httpsPort
		}
	}
	n := atoi(a.port)
	return a, n > 0 && n < 65536 && (scheme == "" || scheme == "http" || scheme == "https") && (a.host == "" || validHost(a.host))
}

// public reports whether an authority issues certificates for a host.
func public(host string) bool {
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return false
	}
	return strings.Contains(host, ".") && acme.CheckName(host) == nil && !strings.HasPrefix(host, "*") && !strings.HasSuffix(host, ".localhost") && !strings.HasSuffix(host, ".local") && !strings.HasSuffix(host, ".internal") &&
		!strings.HasSuffix(host, ".test") && !strings.HasSuffix(host, ".home.arpa")
}

// acmeFolder is where the gateway keeps certificates unless the operator chooses another.
const acmeFolder = "/var/lib/millrace/acme"

// listener returns the listener of an address, and makes it where there is none; nil where it lacks a certificate.
func (c *caddy) listener(a address, st *caddyTLS) *listener {
	key := fmt.Sprint(a.port, a.tls, st.bind)
	v := c.listeners[key]
	if v == nil {
		v = &listener{at: a.at, protocol: protoHTTP, versions: []string{"1.1"}, timeouts: times{}, limits: counts{}, trusted: c.trusted, proxyFrom: c.proxyFrom}
		for _, host := range st.bind {
			if addr := listenAddress(host, a.port); addr != "" && !c.taken[addr] && len(v.addresses) < 64 {
				v.addresses = append(v.addresses, addr)
			}
		}
		if len(v.addresses) == 0 {
			c.l.left(a.at, "the port has a listener of the other kind already", "write a port for each")
			return nil
		}
		if a.tls {
			v.protocol, v.tls, v.versions = protoHTTPS, &serverTLS{}, c.protocols
			if len(v.versions) == 1 && v.versions[0] == "3" { // certificates are proven over TCP
				v.versions = []string{"1.1", "3"}
			}
		}
	}
	if a.tls && !c.certificate(v, a, st) {
		return nil
	}
	if c.listeners[key] == nil {
		wish := "http-" + a.port
		if a.tls {
			wish = "https-" + a.port
		}
		v.name = c.m.unique("listener", wish)
		for _, addr := range v.addresses {
			c.taken[addr] = true
		}
		c.listeners[key] = v
		c.m.listeners = append(c.m.listeners, v)
	}
	if st.compression != nil {
		if v.compression == nil {
			v.compression = st.compression
		}
		for _, coding := range st.compression.codings {
			if !slices.Contains(v.compression.codings, coding) {
				v.compression.codings = append(v.compression.codings, coding)
			}
		}
	}
	return v
}

// account is the one that certificates are obtained by.
type account struct{ contact, directory string }

// certificate gives a listener the certificate of a site: files, or one of an authority. It reports whether there is one.
func (c *caddy) certificate(v *listener, a address, st *caddyTLS) bool {
	switch {
	case st.cert != "":
		if !slices.ContainsFunc(v.tls.certificates, func(have certificate) bool { return have.cert == st.cert }) {
			v.tls.certificates = append(v.tls.certificates, certificate{cert: st.cert, key: st.key})
		}
	case st.internal || a.host != "" && !public(a.host):
		c.l.left(a.at, "no authority issues a certificate for "+shorten(a.host), "make one, and name its files: tls CERT KEY")
		return false
	case a.host == "":
		c.l.left(a.at, "no certificate is known for every host", "name the files, or the hosts")
		return false
	default:
		if !slices.Contains(v.tls.acme, a.host) {
			v.tls.acme = append(v.tls.acme, a.host)
		}
		if c.account == nil { // listeners share it, and the folder
			c.account = &account{cmp.Or(st.email, c.email), cmp.Or(st.directory, c.directory)}
		}
		if st.email != "" && st.email != c.account.contact || st.directory != "" && st.directory != c.account.directory {
			c.l.changed(a.at, "listeners[].tls.acme", "one account has all certificates: that of the first site")
		}
		v.tls.acmeDir, v.tls.directory, v.tls.contact = acmeFolder, c.account.directory, c.account.contact
	}
	if st.minVersion != "" {
		v.tls.minVersion = st.minVersion
	}
	if len(st.clientCA) > 0 {
		v.tls.clientCA, v.tls.optional = st.clientCA, st.optional
	}
	return true
}
