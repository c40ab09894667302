package config

import (
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/tls/acme"
)

// OnDemand has certificates obtained for names that clients ask for in handshakes. Names, Suffixes or Ask are required.
type OnDemand struct {
	Names         []string      // key "names": permitted names
	Suffixes      []string      // key "suffixes": names below these are permitted, with Ask only those that it permits too
	Ask           string        // key "ask": URL that gets the parameter domain, and permits a name by a status 2xx; default none
	CAFiles       []string      // key "ca_file": PEM files of the authorities that its HTTPS is verified by; default the system's
	Wait          time.Duration // key "wait": how long a handshake waits, default 10s
	OrdersPerHour int           // key "orders_per_hour": default 20
	Certificates  int           // key "certificates": that are held at a time, default 1000
}

func newOnDemand() *OnDemand {
	return &OnDemand{Wait: 10 * time.Second, OrdersPerHour: 20, Certificates: 1000}
}

// decodeOnDemand decodes the key on_demand.
func decodeOnDemand(d *l7Decoder, n *yaml.Node, at *listenerPlace) *OnDemand {
	o := newOnDemand()
	names := func(key string, to *[]string, example string) strictyaml.Field {
		return strictyaml.Optional(key, func(n *yaml.Node) {
			lines := map[string]int{}
			d.eachText(n, key, 1024, func(n *yaml.Node, text string) {
				if err := acme.CheckName(text); err != nil {
					d.Fail(n, "such as "+example, "%s has none that ACME can prove over HTTP or TLS: %q", key, text)
				}
				text = strings.ToLower(strings.TrimSuffix(text, "."))
				d.unique(lines, text, n, "name")
				*to = append(*to, text)
			})
		})
	}
	d.Mapping(n, "on_demand",
		names("names", &o.Names, "www.example.org"),
		names("suffixes", &o.Suffixes, "customers.example.org, for all names below it"),
		strictyaml.Optional("ask", func(n *yaml.Node) {
			if !d.Text(n, "ask", &o.Ask) {
				return
			}
			if u, err := url.Parse(o.Ask); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
				d.Fail(n, "such as http://127.0.0.1:9000/ask", "ask is no URL with http or https: %q", o.Ask)
			}
		}),
		strictyaml.Optional("ca_file", func(n *yaml.Node) {
			if d.files(n, "ca_file", fileRoots, &o.CAFiles, &at.files); !strings.HasPrefix(o.Ask, "https:") {
				d.Fail(n, "give `ask` with https, before ca_file, or leave ca_file out", "ca_file has no effect without an `ask` with https")
			}
		}),
		strictyaml.Optional("wait", func(n *yaml.Node) { d.Duration(n, "wait", &o.Wait, 100*time.Millisecond, time.Minute) }),
		strictyaml.Optional("orders_per_hour", func(n *yaml.Node) {
			strictyaml.Integer(d.Decoder, n, "orders_per_hour", &o.OrdersPerHour, 1, 100_000)
		}),
		strictyaml.Optional("certificates", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "certificates", &o.Certificates, 1, 100_000) }),
	)
	if len(o.Names)+len(o.Suffixes) == 0 && o.Ask == "" && !d.FailedAt(n) {
		d.Fail(n, "add names, suffixes or ask", "on_demand permits no name: without a list anyone could have certificates ordered")
	}
	return o
}
