package config

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/resolve"
	"github.com/millrace/millrace/internal/strictyaml"
)

// Prefixes of addresses of backends that are no IP:port.
const (
	unixPrefix = "unix:"
	srvPrefix  = "srv:"
)

// maxNames bounds the names of a configuration: each has a goroutine.
const maxNames = 1024

// dnsName is a name of DNS: labels of letters, digits, - and _ (RFC 1035 2.3.1; SRV has _, RFC 2782). A last label of digits would be
// a mistyped address.
var dnsName = regexp.MustCompile(`^(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)

var digits = regexp.MustCompile(`(?:^|\.)[0-9]+\.?$`)

// isDNSName reports whether a name can be looked up.
func isDNSName(s string) bool {
	return len(s) <= 253 && dnsName.MatchString(s) && !digits.MatchString(s)
}

// backendHint names the forms of an address.
const backendHint = `such as 198.18.0.1:80, "[2001:db8::1]:80", app.example.org:80, srv:_http._tcp.example.org or unix:/run/app.sock`

// backendAddress reads where a backend is.
func (d *l7Decoder) backendAddress(n *yaml.Node, b *PoolBackend) bool {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port, name:port, srv:name or unix:/path"}) {
		return false
	}
	before := len(d.Problems)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		d.Fail(n, backendHint, "address must be that of a backend, not %s", strictyaml.Kind(n))
		return false
	}
	switch path, name := strings.CutPrefix(n.Value, unixPrefix); {
	case name:
		d.unixPath(n, path, b)
	case strings.HasPrefix(n.Value, srvPrefix):
		if b.Named = (resolve.Name{Kind: resolve.Service, Name: strings.TrimPrefix(n.Value, srvPrefix)}); !isDNSName(b.Named.Name) {
			d.Fail(n, "such as srv:_http._tcp.example.org", "address has no name of a service behind srv: %q", b.Named.Name)
		}
	default:
		d.nameOrAddress(n, b)
	}
	return len(d.Problems) == before
}

// unixPath reads the path of a socket: absolute, since a daemon has its own working directory.
func (d *l7Decoder) unixPath(n *yaml.Node, path string, b *PoolBackend) {
	switch {
	case !strings.HasPrefix(path, "/"):
		d.Fail(n, "such as unix:/run/app.sock", "the path of a socket must be absolute: %q", path)
	case len(path) > 107: // sockaddr_un
		d.Fail(n, "", "the path of a socket has %d characters; at most 107 are allowed", len(path))
	default:
		b.Path = path
	}
}

// nameOrAddress reads IP:port or name:port.
func (d *l7Decoder) nameOrAddress(n *yaml.Node, b *PoolBackend) {
	i := strings.LastIndexByte(n.Value, ':')
	if i < 0 || !isDNSName(n.Value[:i]) {
		if a, ok := d.socketAddr(n, "address"); ok {
			b.Address = a
		} else if i < 0 && isDNSName(n.Value) {
			d.Problems[len(d.Problems)-1].Hint = "the port is missing: " + n.Value + ":80"
		}
		return
	}
	port, err := strconv.ParseUint(n.Value[i+1:], 10, 16)
	if err != nil || port == 0 {
		d.Fail(n, backendHint, "address has no port: %q", n.Value[i+1:])
		return
	}
	b.Named = resolve.Name{Kind: resolve.Host, Name: n.Value[:i], Port: uint16(port)}
}

// resolver reads how names are looked up.
func (d *l7Decoder) resolver(n *yaml.Node, r *Resolver) {
	k := keyPlaces{"": n}
	d.Mapping(n, "resolver", k.under("",
		strictyaml.Optional("servers", func(n *yaml.Node) {
			d.OneOrMore(n, "servers", 16, func(n *yaml.Node) {
				if a, ok := d.nameServer(n); ok {
					r.Servers = append(r.Servers, a)
				}
			})
		}),
		strictyaml.Optional("timeout", func(n *yaml.Node) { d.Duration(n, "timeout", &r.Timeout, 10*time.Millisecond, time.Minute) }),
		strictyaml.Optional("attempts", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "attempts", &r.Attempts, 1, 10) }),
		strictyaml.Optional("family", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "family", &r.Family, resolve.AnyFamily, resolve.IPv4, resolve.IPv6)
		}),
		strictyaml.Optional("min_ttl", func(n *yaml.Node) { d.Duration(n, "min_ttl", &r.MinTTL, 10*time.Millisecond, 24*time.Hour) }),
		strictyaml.Optional("max_ttl", func(n *yaml.Node) { d.Duration(n, "max_ttl", &r.MaxTTL, 10*time.Millisecond, 7*24*time.Hour) }),
	)...)
	if r.MaxTTL < r.MinTTL {
		at := k["max_ttl"]
		if at == nil {
			at = k["min_ttl"]
		}
		d.Fail(at, "", "max_ttl %v is shorter than min_ttl %v", r.MaxTTL, r.MinTTL)
	}
}

// nameServer reads the address of a name server: port 53 where it has none.
func (d *l7Decoder) nameServer(n *yaml.Node) (netip.AddrPort, bool) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP or IP:port"}) {
		return netip.AddrPort{}, false
	}
	if a, err := netip.ParseAddr(n.Value); err == nil && n.Kind == yaml.ScalarNode {
		return netip.AddrPortFrom(a, 53), true
	}
	return d.socketAddr(n, "servers")
}
