package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/tls"
)

// listenerPlace is where the parts of a listener stand that are compared with others.
type listenerPlace struct {
	node, name, tls *yaml.Node
	announce        *yaml.Node
	maxVersion      *yaml.Node
	ciphers         *yaml.Node
	versions        *yaml.Node
	proxyProtocol   *yaml.Node
	proxyDatagrams  *yaml.Node
	forwarded       *yaml.Node
	colliding       *yaml.Node
	requestID       *yaml.Node
	compression     *yaml.Node
	acme            acmePlace
	altSvc          *yaml.Node
	earlyData       *yaml.Node
	guard           guardPlace
	waf             wafPlace
	hsts            *yaml.Node
	addresses       []*yaml.Node
	certificates    []certificatePlace
	files           []filePlace
}

// certificatePlace is where a certificate stands.
type certificatePlace struct {
	value    Certificate
	node     *yaml.Node
	ofClient bool // the gateway shows it to backends
}

// filePlace is where a file of another kind is named.
type filePlace struct {
	kind fileKind
	name string
	node *yaml.Node
}

// fileKind is the required content of a file.
type fileKind uint8

const (
	fileCertificate fileKind = iota
	fileRoots
	fileCRL
	fileTickets
	fileUsers // htpasswd
	fileJWKS
	filePage
	fileFolder // of static
	fileSecret // one that only its owner and group may read
	fileOCSP   // a response of OCSP
	fileToken  // of the dashboard
)

// proxyLoops reads "auto" or a number.
func (d *l7Decoder) proxyLoops(n *yaml.Node, to *int) {
	if d.Word(n, "auto") {
		*to = LoopsAuto
		return
	}
	strictyaml.Integer(d.Decoder, n, "loops", to, 1, MaxQueues)
}

// network reads the routes of the userspace stack.
func (d *l7Decoder) network(n *yaml.Node, w *Network) {
	d.Mapping(n, "network", strictyaml.Required("routes", func(n *yaml.Node) {
		d.List(n, "routes", 4096, func(n *yaml.Node) {
			var r NetworkRoute
			toDefault := false
			d.Mapping(n, "a route",
				strictyaml.Required("to", func(n *yaml.Node) {
					if toDefault = d.Word(n, "default"); !toDefault {
						r.To, _ = d.prefix(n, "to")
					}
				}),
				strictyaml.Optional("via", func(n *yaml.Node) { r.Via, _ = d.addr(n, "via") }),
				strictyaml.Optional("device", func(n *yaml.Node) { d.deviceName(n, "device", &r.Device) }),
			)
			switch {
			case toDefault && !r.Via.IsValid():
				d.Fail(n, "add the router's address as via", "a default route needs via")
			case toDefault:
				r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				if r.Via.Is4() {
					r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				}
			}
			w.Routes = append(w.Routes, r)
			d.places.networkRoutes = append(d.places.networkRoutes, n)
		})
	}))
}

// deviceAddresses reads addresses with the length of their network's prefix.
func (d *decoder) deviceAddresses(n *yaml.Node, to *[]netip.Prefix) {
	d.OneOrMore(n, "addresses", 64, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "IP/length"}) {
			return
		}
		p, err := netip.ParsePrefix(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			d.Fail(n, "such as 198.18.0.2/24 or 2001:db8::2/64", "addresses must be an address with a prefix length, not %s", strictyaml.Kind(n))
			return
		}
		if d.unicast(n, "addresses", p.Addr()) {
			*to = append(*to, p)
		}
	})
}

func (d *l7Decoder) listeners(n *yaml.Node, c *Config) {
	d.List(n, "listeners", maxListeners, func(n *yaml.Node) {
		l, at := newListener(), listenerPlace{node: n}
		d.Mapping(n, "a listener",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &l.Name) }),
			strictyaml.Required("address", func(n *yaml.Node) { l.Addresses, at.addresses = d.listenAddrs(n) }),
			strictyaml.Required("protocol", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "protocol", &l.Protocol, ListenerHTTP, ListenerHTTPS, ListenerPass, ListenerTCP)
			}),
			strictyaml.Optional("versions", func(n *yaml.Node) { at.versions = n; d.versions(n, &l.Versions) }),
			strictyaml.Optional("alt_svc", func(n *yaml.Node) {
				at.altSvc = n
				d.Duration(n, "alt_svc", &l.AltSvc, 0, 365*24*time.Hour)
			}),
			strictyaml.Optional("early_data", func(n *yaml.Node) { at.earlyData = n; d.Truth(n, "early_data", &l.EarlyData) }),
			strictyaml.Optional("proxy_protocol", func(n *yaml.Node) {
				at.proxyProtocol = n
				d.Mapping(n, "proxy_protocol",
					strictyaml.Required("from", func(n *yaml.Node) { d.prefixes(n, "from", &l.ProxyProtocol) }),
					strictyaml.Optional("http3", func(n *yaml.Node) {
						at.proxyDatagrams = n
						d.Truth(n, "http3", &l.ProxyDatagrams)
					}),
				)
			}),
			strictyaml.Optional("forwarded", func(n *yaml.Node) { at.forwarded = n; d.forwarded(n, &l.Forwarded) }),
			strictyaml.Optional("compression", func(n *yaml.Node) {
				at.compression, l.Compression = n, newCompression()
				d.compression(n, l.Compression)
			}),
			strictyaml.Optional("request_id", func(n *yaml.Node) { at.requestID = n; d.editable(n, &l.RequestID) }),
			strictyaml.Optional("colliding_fields", func(n *yaml.Node) {
				at.colliding = n
				strictyaml.Choice(d.Decoder, n, "colliding_fields", &l.Colliding, CollidingDrop, CollidingReject, CollidingAllow)
			}),
			strictyaml.Optional("tls", func(n *yaml.Node) { at.tls = n; l.TLS = newListenerTLS(); d.listenerTLS(n, l.TLS, &at) }),
			strictyaml.Optional("timeouts", func(n *yaml.Node) { d.listenerTimeouts(n, &l.Timeouts) }),
			strictyaml.Optional("limits", func(n *yaml.Node) { d.listenerLimits(n, &l.Limits) }),
			strictyaml.Optional("sources", func(n *yaml.Node) { d.sources(n, &l.Sources) }),
			strictyaml.Optional("hsts", func(n *yaml.Node) { at.hsts = n; l.HSTS = &HSTS{}; guardDecoder{d}.hsts(n, l.HSTS) }),
			strictyaml.Optional("error_pages", func(n *yaml.Node) { guardDecoder{d}.errorPages(n, &l.ErrorPages, &at.guard) }),
			strictyaml.Optional("rate_limits", func(n *yaml.Node) { l.RateLimits, at.guard.rateLimits = d.references(n, "rate_limits") }),
			wafDecoder{d}.key(&l.WAF, &at.waf),
			strictyaml.Optional("announce", func(n *yaml.Node) {
				at.announce, l.Announce = n, &Attributes{}
				d.Mapping(n, "announce", bgpDecoder{d.decoder}.attributes(l.Announce)...)
			}),
		)
		if len(l.Versions) == 0 {
			l.Versions = defaultVersions(l.Protocol)
		}
		d.places.listeners = append(d.places.listeners, at)
		c.Listeners = append(c.Listeners, l)
	})
}

// defaultVersions are those of a listener that names none.
func defaultVersions(p ListenerProtocol) []HTTPVersion {
	switch p {
	case ListenerHTTP:
		return []HTTPVersion{HTTP1}
	case ListenerHTTPS:
		return []HTTPVersion{HTTP1, HTTP2}
	}
	return nil
}

// listenAddrs reads one or more addresses with a port. Unlike addresses of services they may be unspecified or of loopback:
// sockets have them.
func (d *l7Decoder) listenAddrs(n *yaml.Node) (list []netip.AddrPort, at []*yaml.Node) {
	d.OneOrMore(n, "address", 64, func(n *yaml.Node) {
		if a, ok := d.socketAddr(n, "address"); ok {
			list, at = append(list, a), append(at, n)
		}
	})
	return list, at
}

// socketAddr reads an address and a port that a socket can have.
func (d *l7Decoder) socketAddr(n *yaml.Node, what string) (netip.AddrPort, bool) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port"}) {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddrPort(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil:
		d.Fail(n, addrPortHint(n.Value), "%s must be an IP address and a port, not %s", what, strictyaml.Kind(n))
	case a.Port() == 0:
		d.Fail(n, "", "%s has port 0", what)
	case a.Addr().IsLoopback() || a.Addr().IsUnspecified() && !a.Addr().Is4In6():
		return a, true
	default:
		return a, d.unicast(n, what, a.Addr())
	}
	return a, false
}

func (d *l7Decoder) versions(n *yaml.Node, to *[]HTTPVersion) {
	lines := map[string]int{}
	d.OneOrMore(n, "versions", 3, func(n *yaml.Node) {
		var v HTTPVersion
		if strictyaml.Choice(d.Decoder, n, "versions", &v, HTTP1, HTTP2, HTTP3); v != "" {
			d.unique(lines, string(v), n, "version")
			*to = append(*to, v)
		}
	})
}

// prefixes reads one or more prefixes.
func (d *l7Decoder) prefixes(n *yaml.Node, what string, to *[]netip.Prefix) {
	d.OneOrMore(n, what, maxLists, func(n *yaml.Node) {
		if p, ok := d.prefix(n, what); ok {
			*to = append(*to, p)
		}
	})
}

func (d *l7Decoder) forwarded(n *yaml.Node, f *Forwarded) {
	d.Mapping(n, "forwarded",
		strictyaml.Optional("trusted", func(n *yaml.Node) { d.prefixes(n, "trusted", &f.Trusted) }),
		strictyaml.Optional("style", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "style", &f.Style, ForwardedX, ForwardedRFC, ForwardedNone)
		}),
		strictyaml.Optional("via", func(n *yaml.Node) { d.Truth(n, "via", &f.Via) }),
	)
}

func (d *l7Decoder) listenerTLS(n *yaml.Node, t *ListenerTLS, at *listenerPlace) {
	d.Mapping(n, "tls",
		strictyaml.Optional("acme", func(n *yaml.Node) { t.ACME = newACME(); d.acme(n, t.ACME, at) }),
		strictyaml.Optional("certificates", func(n *yaml.Node) {
			d.List(n, "certificates", maxCertificates, func(n *yaml.Node) {
				c := d.certificate(n, &at.files)
				t.Certificates = append(t.Certificates, c)
				at.certificates = append(at.certificates, certificatePlace{value: c, node: n})
			})
		}),
		strictyaml.Optional("min_version", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "min_version", &t.MinVersion, TLS12, TLS13)
		}),
		strictyaml.Optional("max_version", func(n *yaml.Node) {
			at.maxVersion = n
			strictyaml.Choice(d.Decoder, n, "max_version", &t.MaxVersion, TLS12, TLS13)
		}),
		strictyaml.Optional("ciphers", func(n *yaml.Node) { at.ciphers = n; decodeCiphers(d, n, &t.Ciphers) }),
		strictyaml.Optional("ocsp", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "ocsp", &t.OCSP, OCSPNone, OCSPFetch)
		}),
		strictyaml.Optional("client_auth", func(n *yaml.Node) {
			t.ClientAuth = newClientAuth()
			d.Mapping(n, "client_auth",
				strictyaml.Required("ca_file", func(n *yaml.Node) { d.files(n, "ca_file", fileRoots, &t.ClientAuth.CAFiles, &at.files) }),
				strictyaml.Optional("crl_file", func(n *yaml.Node) { d.files(n, "crl_file", fileCRL, &t.ClientAuth.CRLFiles, &at.files) }),
				strictyaml.Optional("optional", func(n *yaml.Node) { d.Truth(n, "optional", &t.ClientAuth.Optional) }),
				strictyaml.Optional("forward", func(n *yaml.Node) {
					strictyaml.Choice(d.Decoder, n, "forward", &t.ClientAuth.Forward, ForwardCertNone, ForwardCertRFC, ForwardCertX)
				}),
				strictyaml.Optional("forward_chain", func(n *yaml.Node) { d.Truth(n, "forward_chain", &t.ClientAuth.ForwardChain) }),
			)
		}),
		strictyaml.Optional("misdirected", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "misdirected", &t.Misdirected, MisdirectedCertificate, MisdirectedServerName, MisdirectedOff)
		}),
		strictyaml.Optional("ticket_key_file", func(n *yaml.Node) {
			if d.Text(n, "ticket_key_file", &t.TicketKeyFile) {
				at.files = append(at.files, filePlace{fileTickets, t.TicketKeyFile, n})
			}
		}),
	)
	if len(t.Certificates) == 1 { // for every name, as operators expect of the only one there is
		t.Certificates[0].Default, at.certificates[0].value.Default = true, true
	}
}

// decodeCiphers reads names of suites of TLS 1.2.
func decodeCiphers(d *l7Decoder, n *yaml.Node, to *[]string) {
	lines := map[string]int{}
	d.OneOrMore(n, "ciphers", 16, func(n *yaml.Node) {
		name := ""
		if strictyaml.Choice(d.Decoder, n, "ciphers", &name, tls.SuiteNames()...); name != "" {
			d.unique(lines, name, n, "cipher suite")
			*to = append(*to, name)
		}
	})
}

// certificate reads the names of the files of one.
func (d *l7Decoder) certificate(n *yaml.Node, files *[]filePlace) (c Certificate) {
	d.Mapping(n, "a certificate",
		strictyaml.Required("cert", func(n *yaml.Node) { d.Text(n, "cert", &c.Cert) }),
		strictyaml.Optional("key", func(n *yaml.Node) { d.Text(n, "key", &c.Key) }),
		strictyaml.Optional("default", func(n *yaml.Node) { d.Truth(n, "default", &c.Default) }),
		strictyaml.Optional("ocsp_file", func(n *yaml.Node) {
			if d.Text(n, "ocsp_file", &c.OCSPFile) {
				*files = append(*files, filePlace{fileOCSP, c.OCSPFile, n})
			}
		}),
	)
	return c
}

// files reads one or more names of files.
func (d *l7Decoder) files(n *yaml.Node, what string, kind fileKind, to *[]string, at *[]filePlace) {
	d.OneOrMore(n, what, 64, func(n *yaml.Node) {
		if s := ""; d.Text(n, what, &s) {
			*to, *at = append(*to, s), append(*at, filePlace{kind, s, n})
		}
	})
}

// timeout is the key of a time-out, of which 0 is none.
func (d *l7Decoder) timeout(name string, to *time.Duration) strictyaml.Field {
	return strictyaml.Optional(name, func(n *yaml.Node) { d.Duration(n, name, to, 0, maxTimeout) })
}

func (d *l7Decoder) listenerTimeouts(n *yaml.Node, t *ListenerTimeouts) {
	d.Mapping(n, "timeouts",
		d.timeout("handshake", &t.Handshake), d.timeout("request_header", &t.RequestHeader), d.timeout("request_body", &t.RequestBody),
		d.timeout("write", &t.Write), d.timeout("idle", &t.Idle), d.timeout("stream", &t.Stream), d.timeout("drain", &t.Drain))
}

// limit is the key of a limit, of which 0 is none.
func limit[N ~int | ~int64](d *decoder, name string, to *N, most int64) strictyaml.Field {
	return strictyaml.Optional(name, func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, name, to, 0, most) })
}

func (d *l7Decoder) listenerLimits(n *yaml.Node, l *ListenerLimits) {
	d.Mapping(n, "limits",
		limit(d.decoder, "connections", &l.Connections, maxRate),
		limit(d.decoder, "connection_requests", &l.ConnectionRequests, maxRate),
		strictyaml.Optional("streams", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "streams", &l.Streams, 1, 65536) }),
		strictyaml.Optional("target_bytes", func(n *yaml.Node) {
			strictyaml.Integer(d.Decoder, n, "target_bytes", &l.TargetBytes, 64, 1<<20)
		}),
		headerBytes(d, &l.HeaderBytes), headerFields(d, &l.HeaderFields),
		limit(d.decoder, "body_bytes", &l.BodyBytes, maxBodyBytes))
}

// headerBytes is the key of the largest header of a message.
func headerBytes(d *l7Decoder, to *int) strictyaml.Field {
	return strictyaml.Optional("header_bytes", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "header_bytes", to, 1024, 1<<20) })
}

// headerFields is the key of how many lines the header of a message may have.
func headerFields(d *l7Decoder, to *int) strictyaml.Field {
	return strictyaml.Optional("header_fields", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "header_fields", to, 8, 10000) })
}

// hostnames reads names of hosts, or "*.name", in lower case.
func (d *l7Decoder) hostnames(n *yaml.Node, what string, to *[]string, at *[]*yaml.Node) {
	d.OneOrMore(n, what, maxHostnames, func(n *yaml.Node) {
		if s := ""; d.Text(n, what, &s) {
			*to = append(*to, comparedHost(s))
			if at != nil {
				*at = append(*at, n)
			}
		}
	})
}

// comparedHost returns a name, or an address of IPv6 in brackets, as rules compare it. Names with a dot at the end stay, and are
// reported: one form is enough for the file.
func comparedHost(s string) string {
	if host, ok := semantics.NormalizeHost(s); ok && !strings.HasSuffix(s, ".") {
		return host
	}
	return strings.ToLower(s)
}

// references reads names of listeners.
func (d *l7Decoder) references(n *yaml.Node, what string) (list []string, at []*yaml.Node) {
	d.OneOrMore(n, what, maxListeners, func(n *yaml.Node) {
		if s := ""; d.Text(n, what, &s) {
			if slices.Contains(list, s) {
				d.Fail(n, "", "%s has %q twice", what, s)
				return
			}
			list, at = append(list, s), append(at, n)
		}
	})
	return list, at
}
