package config

import (
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/tls/acme"
)

// ACME obtains and renews certificates of a listener by ACME (RFC 8555). Listeners with the same Dir share an account.
type ACME struct {
	Names      []string         // key "names": each gets a certificate of its own; required without OnDemand
	Dir        string           // key "dir", required: of accounts, keys and certificates, relative to the configuration file's folder
	Terms      bool             // key "agree_to_terms", required: of the authority
	Directory  string           // key "directory": URL of the authority, default Let's Encrypt
	CAFiles    []string         // key "ca_file": PEM files of the authorities that its HTTPS is verified by; default the system's
	Contact    []string         // key "contact": URLs such as mailto:admin@example.org; default none
	Challenges []Challenge      // key "challenges": ways to prove control of a name, default all
	External   *ExternalAccount // key "external_account": one that was made with the authority by other means; absent: none
	OnDemand   *OnDemand        // key "on_demand": certificates for names that clients ask for; absent: none
}

// Challenge is a way to prove control of a name.
type Challenge string

// The values of Challenge.
const (
	ChallengeHTTP Challenge = "http-01"     // by listeners with `protocol: HTTP`: one has to be reached at port 80
	ChallengeTLS  Challenge = "tls-alpn-01" // by the listener itself, which has to be reached at port 443
)

// ExternalAccount is an account that was made without ACME (RFC 8555 7.3.4).
type ExternalAccount struct {
	KeyID   string // key "key_id", required
	KeyFile string // key "key_file", required: the MAC key in base64url, relative to the configuration file's folder
}

func newACME() *ACME {
	return &ACME{Directory: acme.LetsEncrypt, Challenges: []Challenge{ChallengeHTTP, ChallengeTLS}}
}

// acmePlace is where the parts of an ACME stand.
type acmePlace struct{ node, terms *yaml.Node }

func (d *l7Decoder) acme(n *yaml.Node, a *ACME, at *listenerPlace) {
	at.acme.node = n
	lines := map[string]int{}
	d.Mapping(n, "acme",
		strictyaml.Optional("names", func(n *yaml.Node) {
			d.eachText(n, "names", 1024, func(n *yaml.Node, text string) {
				if err := acme.CheckName(text); err != nil {
					d.Fail(n, "such as www.example.org; certificates for *.example.org are proven by DNS, for which another client is needed", "names has none that ACME can prove over HTTP or TLS: %q", text)
				}
				text = strings.ToLower(strings.TrimSuffix(text, "."))
				d.unique(lines, text, n, "name")
				a.Names = append(a.Names, text)
			})
		}),
		strictyaml.Required("dir", func(n *yaml.Node) { d.Text(n, "dir", &a.Dir) }),
		strictyaml.Required("agree_to_terms", func(n *yaml.Node) { at.acme.terms = n; d.Truth(n, "agree_to_terms", &a.Terms) }),
		strictyaml.Optional("directory", func(n *yaml.Node) {
			if !d.Text(n, "directory", &a.Directory) {
				return
			}
			if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
				d.Fail(n, "such as "+acme.LetsEncrypt, "directory is no URL with https: %q", a.Directory)
			}
		}),
		strictyaml.Optional("ca_file", func(n *yaml.Node) { d.files(n, "ca_file", fileRoots, &a.CAFiles, &at.files) }),
		strictyaml.Optional("contact", func(n *yaml.Node) {
			d.eachText(n, "contact", 16, func(n *yaml.Node, text string) {
				if u, err := url.Parse(text); err != nil || u.Scheme == "" {
					d.Fail(n, "such as mailto:admin@example.org", "contact has no URL: %q", text)
				}
				a.Contact = append(a.Contact, text)
			})
		}),
		strictyaml.Optional("challenges", func(n *yaml.Node) {
			a.Challenges = nil
			lines := map[string]int{}
			d.OneOrMore(n, "challenges", 2, func(n *yaml.Node) {
				var c Challenge
				if strictyaml.Choice(d.Decoder, n, "challenges", &c, ChallengeHTTP, ChallengeTLS); c != "" {
					d.unique(lines, string(c), n, "challenge")
					a.Challenges = append(a.Challenges, c)
				}
			})
		}),
		strictyaml.Optional("external_account", func(n *yaml.Node) {
			a.External = &ExternalAccount{}
			d.Mapping(n, "external_account",
				strictyaml.Required("key_id", func(n *yaml.Node) { d.Text(n, "key_id", &a.External.KeyID) }),
				strictyaml.Required("key_file", func(n *yaml.Node) {
					if d.Text(n, "key_file", &a.External.KeyFile) {
						at.files = append(at.files, filePlace{fileSecret, a.External.KeyFile, n})
					}
				}),
			)
		}),
		strictyaml.Optional("on_demand", func(n *yaml.Node) { a.OnDemand = decodeOnDemand(d, n, at) }),
	)
	if len(a.Names) == 0 && a.OnDemand == nil && !d.FailedAt(n) {
		d.Fail(n, "add the names of the certificates, or on_demand", "acme has neither names nor on_demand")
	}
}

// Allows reports whether a challenge may be used.
func (a *ACME) Allows(c Challenge) bool { return slices.Contains(a.Challenges, c) }

// checkACME reports certificates that cannot be obtained.
func (d *checker) checkACME(c *Config) {
	http := slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Protocol == ListenerHTTP })
	first := map[string]int{}
	for i := range c.Listeners {
		l, at := &c.Listeners[i], &d.places.listeners[i]
		if l.TLS == nil || at.acme.node == nil || l.Protocol != ListenerHTTPS {
			continue
		}
		a := l.TLS.ACME
		overTCP := slices.Contains(l.Versions, HTTP1) || l.HTTP2()
		switch {
		case at.acme.terms != nil && !a.Terms && !d.FailedAt(at.acme.terms):
			d.Fail(at.acme.terms, "read them at the authority, and set it to true", "without agree_to_terms the authority makes no account")
		case a.Allows(ChallengeTLS) && overTCP:
		case !http && a.Allows(ChallengeHTTP):
			d.Fail(at.acme.node, "add a listener with `protocol: HTTP` that is reached at port 80, or the challenge tls-alpn-01", "nothing answers the challenge http-01: there is no listener for HTTP")
		case !a.Allows(ChallengeHTTP):
			d.Fail(at.acme.node, "add \"1.1\" or \"2\" to versions, or the challenge http-01", "listener %q has HTTP/3 alone, and the challenge tls-alpn-01 is over TCP", l.Name)
		}
		if k, ok := first[a.Dir]; ok {
			if b := c.Listeners[k].TLS.ACME; !a.SameAccount(b) {
				d.Fail(at.acme.node, "give each its dir, or both the same keys but names", "acme of listener %q has another authority, account or challenges in dir %q", c.Listeners[k].Name, a.Dir)
			}
			continue
		}
		first[a.Dir] = i
	}
}

// SameAccount reports whether both are managed by one account.
func (a *ACME) SameAccount(b *ACME) bool {
	sameExternal := (a.External == nil) == (b.External == nil) && (a.External == nil || *a.External == *b.External)
	return a.Directory == b.Directory && slices.Equal(a.CAFiles, b.CAFiles) && slices.Equal(a.Contact, b.Contact) && slices.Equal(a.Challenges, b.Challenges) && sameExternal
}
