package config

import (
	"net/netip"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/semantics"
)

// auth reads how requests are asked for credentials.
func (d guardDecoder) auth(n *yaml.Node, a *Auth, at *guardPlace) {
	ways := 0
	d.Mapping(n, "auth",
		strictyaml.Optional("basic", func(n *yaml.Node) {
			ways++
			a.Basic = newBasicAuth()
			d.Mapping(n, "basic",
				strictyaml.Required("file", func(n *yaml.Node) { d.oneFile(n, "file", fileUsers, &a.Basic.File, at) }),
				strictyaml.Optional("realm", func(n *yaml.Node) { d.realm(n, &a.Basic.Realm) }))
		}),
		strictyaml.Optional("jwt", func(n *yaml.Node) { ways++; a.JWT = newJWTAuth(); d.jwt(n, a.JWT, at) }),
		strictyaml.Optional("forward", func(n *yaml.Node) { ways++; a.Forward = newForwardAuth(); d.forwardAuth(n, a.Forward, at) }),
	)
	if ways != 1 {
		d.Fail(n, "basic, jwt or forward", "auth has %d ways of asking for credentials: exactly one is required", ways)
	}
}

func (d guardDecoder) jwt(n *yaml.Node, j *JWTAuth, at *guardPlace) {
	k := keyPlaces{"": n}
	d.Mapping(n, "jwt", k.under("",
		strictyaml.Required("issuer", func(n *yaml.Node) { d.Text(n, "issuer", &j.Issuer) }),
		strictyaml.Required("audiences", func(n *yaml.Node) {
			d.OneOrMore(n, "audiences", maxLists, func(n *yaml.Node) {
				if s := ""; d.Text(n, "audiences", &s) {
					j.Audiences = append(j.Audiences, s)
				}
			})
		}),
		strictyaml.Optional("jwks_file", func(n *yaml.Node) { d.oneFile(n, "jwks_file", fileJWKS, &j.File, at) }),
		strictyaml.Optional("jwks_url", func(n *yaml.Node) { d.keysURL(n, &j.URL) }),
		strictyaml.Optional("ca_file", func(n *yaml.Node) { d.oneFile(n, "ca_file", fileRoots, &j.CAFile, at) }),
		strictyaml.Optional("refresh", func(n *yaml.Node) { d.Duration(n, "refresh", &j.Refresh, 10*time.Second, 24*time.Hour) }),
		strictyaml.Optional("leeway", func(n *yaml.Node) { d.Duration(n, "leeway", &j.Leeway, 0, 10*time.Minute) }),
		strictyaml.Optional("cookie", func(n *yaml.Node) { d.token(n, "cookie", &j.Cookie) }),
		strictyaml.Optional("realm", func(n *yaml.Node) { d.realm(n, &j.Realm) }),
		strictyaml.Optional("user_claim", func(n *yaml.Node) { d.Text(n, "user_claim", &j.UserClaim) }),
		strictyaml.Optional("claims", func(n *yaml.Node) {
			lines := map[string]int{}
			d.List(n, "claims", maxEdits, func(n *yaml.Node) {
				var f ClaimField
				var name *yaml.Node
				d.Mapping(n, "an entry of claims",
					strictyaml.Required("name", func(n *yaml.Node) { name = n; d.editable(n, &f.Name) }),
					strictyaml.Required("claim", func(n *yaml.Node) { d.Text(n, "claim", &f.Claim) }))
				d.unique(lines, f.Name, name, "field")
				j.Claims = append(j.Claims, f)
			})
		}),
	)...)
	switch {
	case (k["jwks_file"] == nil) == (k["jwks_url"] == nil):
		d.Fail(n, "a file, or where the issuer has its keys, such as https://issuer.example/.well-known/jwks.json", "jwt needs one of jwks_file and jwks_url")
	case k["jwks_url"] == nil && k["ca_file"] != nil:
		d.Fail(k["ca_file"], leaveOut, "ca_file has no effect: it is for jwks_url")
	case k["jwks_url"] == nil && k["refresh"] != nil:
		d.Fail(k["refresh"], "a reload reads the file again", "refresh has no effect: it is for jwks_url")
	}
}

// keysURL reads where keys are read from. Whoever is on the path of plain HTTP could put a key of its own there.
func (d guardDecoder) keysURL(n *yaml.Node, to *string) {
	if !d.Text(n, "jwks_url", to) {
		return
	}
	u, err := url.Parse(*to)
	if err != nil || u.Host == "" || u.User != nil {
		d.Fail(n, "such as https://issuer.example/.well-known/jwks.json", "jwks_url is not a URL: %q", *to)
		return
	}
	local, _ := netip.ParseAddr(u.Hostname())
	if u.Scheme != "https" && !(u.Scheme == "http" && local.IsLoopback()) {
		d.Fail(n, "write https: whoever is on the path of plain HTTP could make tokens", "jwks_url cannot have %s", u.Scheme)
	}
}

func (d guardDecoder) forwardAuth(n *yaml.Node, f *ForwardAuth, at *guardPlace) {
	d.Mapping(n, "forward",
		strictyaml.Required("pool", func(n *yaml.Node) { at.authPool = n; d.Text(n, "pool", &f.Pool) }),
		strictyaml.Optional("path", func(n *yaml.Node) {
			if !d.describeText(n, "path", &f.Path) && d.Text(n, "path", &f.Path) && (!strings.HasPrefix(f.Path, "/") || strings.ContainsAny(f.Path, " #") || !semantics.IsValue(f.Path)) {
				d.Fail(n, "begin with a slash; a query may follow", "path %q is not a path", f.Path)
			}
		}),
		strictyaml.Optional("timeout", func(n *yaml.Node) { d.Duration(n, "timeout", &f.Timeout, time.Millisecond, time.Minute) }),
		strictyaml.Optional("request_headers", func(n *yaml.Node) { d.fieldNames(n, "request_headers", &f.RequestHeaders) }),
		strictyaml.Optional("response_headers", func(n *yaml.Node) { d.fieldNames(n, "response_headers", &f.ResponseHeaders) }),
	)
}

// fieldNames reads names of fields that a filter may edit.
func (d guardDecoder) fieldNames(n *yaml.Node, what string, to *[]string) {
	lines := map[string]int{}
	d.OneOrMore(n, what, maxEdits, func(n *yaml.Node) {
		var s string
		if d.editable(n, &s); s != "" {
			d.unique(lines, s, n, "field")
			*to = append(*to, s)
		}
	})
}

// realm reads the realm of a challenge, which stands in quotes.
func (d guardDecoder) realm(n *yaml.Node, to *string) {
	if d.describeText(n, "realm", to) || !d.Text(n, "realm", to) {
		return
	}
	if !semantics.IsValue(*to) || strings.ContainsAny(*to, "\"\\") {
		d.Fail(n, "no quotes, backslashes and control characters", "realm cannot be %q", *to)
	}
}

// oneFile reads the name of a file that is checked with the lists.
func (d guardDecoder) oneFile(n *yaml.Node, what string, kind fileKind, to *string, at *guardPlace) {
	if d.Text(n, what, to) {
		at.files = append(at.files, filePlace{kind, *to, n})
	}
}
