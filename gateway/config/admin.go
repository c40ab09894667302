package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/secretfile"
	"github.com/millrace/millrace/internal/strictyaml"
)

// Admin configures where the running gateway is controlled, and where its dashboard is.
type Admin struct {
	Socket    string   // key "socket": path of the unix socket, default DefaultSocket; "" is none
	Listen    string   // key "listen": IP:port of the dashboard, "" (default) is none
	Hosts     []string // key "hosts": names by which browsers may ask for it, beside localhost and IP addresses
	TokenFile string   // key "token_file", relative to the configuration file's folder: with its token the dashboard changes states; "" is never
}

// AdminToken returns the token of Admin.TokenFile, nil without one, as Load has read it.
func (c *Config) AdminToken() []byte { return c.adminToken }

func (d *decoder) admin(n *yaml.Node, a *Admin) {
	d.Mapping(n, "admin",
		strictyaml.Optional("socket", func(n *yaml.Node) {
			switch {
			case d.Takes(strictyaml.Schema{Type: "string", Title: "path", Pattern: "^(/.*)?$", Default: a.Socket}):
			case n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value != "" && n.Value[0] != '/':
				d.Fail(n, "such as "+DefaultSocket+`; "" is none`, "socket must be an absolute path, not %s", strictyaml.Kind(n))
			case len(n.Value) > 107: // sockaddr_un
				d.Fail(n, "", "socket has %d characters; at most 107 are allowed", len(n.Value))
			default:
				a.Socket = n.Value
			}
		}),
		strictyaml.Optional("listen", func(n *yaml.Node) { d.listenAddress(n, "such as 127.0.0.1:9180", &a.Listen) }),
		strictyaml.Optional("hosts", func(n *yaml.Node) {
			d.OneOrMore(n, "hosts", 64, func(n *yaml.Node) {
				host := ""
				if !d.Text(n, "hosts", &host) {
					return
				}
				if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
					d.Fail(n, "such as gateway.example.org: lower case, without scheme and port", "%q is not the name of a host", host)
					return
				}
				a.Hosts = append(a.Hosts, host)
			})
		}),
		strictyaml.Optional("token_file", func(n *yaml.Node) {
			if d.Text(n, "token_file", &a.TokenFile) {
				d.places.adminToken = n
			}
		}),
	)
}

func (d *decoder) metrics(n *yaml.Node, m *Metrics) {
	d.Mapping(n, "metrics", strictyaml.Optional("listen", func(n *yaml.Node) { d.listenAddress(n, "such as 127.0.0.1:9100", &m.Listen) }))
}

// listenAddress reads an address of the kernel's stack.
func (d *decoder) listenAddress(n *yaml.Node, hint string, to *string) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port"}) {
		return
	}
	ap, err := netip.ParseAddrPort(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		d.Fail(n, hint, "listen must be an IP address and a port, not %s", strictyaml.Kind(n))
		return
	}
	*to = ap.String()
}

// checkAdmin reports a dashboard where the metrics are.
func (d *checker) checkAdmin(c *Config) {
	if a := c.Admin; a.Listen != "" && a.Listen == c.Metrics.Listen {
		d.Fail(d.places.keys["admin"], "give it another port", "admin.listen and metrics.listen are both %s", a.Listen)
	}
	if n := d.places.adminToken; n != nil {
		d.noteFiles(c, nil, []filePlace{{fileToken, c.Admin.TokenFile, n}})
	}
}

// Bounds of a token in characters. The least takes longer to guess than there is time.
const (
	leastToken = 32
	mostToken  = 1024
)

// readToken reads the token of the dashboard: one line.
func readToken(path string) ([]byte, error) {
	text, err := secretfile.Read(path)
	if err != nil {
		return nil, err
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(token) < leastToken || len(token) > mostToken:
		return nil, fmt.Errorf("a token of %d characters; %d to %d are allowed: openssl rand -hex 32", len(token), leastToken, mostToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("a token has only printable characters of ASCII, and is one line: openssl rand -hex 32")
	}
	return []byte(token), nil
}
