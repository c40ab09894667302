package config

import (
	"net/netip"
	"net/url"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// Tracing configures where spans of requests go.
type Tracing struct {
	Endpoint string         // key "endpoint", required: URL of a collector's OTLP endpoint over HTTP
	OneIn    int            // key "one_in": a request in so many begins a trace, default 100
	From     []netip.Prefix // key "from": clients whose decision counts in its place; default none
	Service  string         // key "service_name", default "millrace"
}

func (d *l7Decoder) tracing(n *yaml.Node, c *Config) {
	t := &Tracing{OneIn: 100, Service: "millrace"}
	d.Mapping(n, "tracing",
		strictyaml.Required("endpoint", func(n *yaml.Node) {
			if !d.Text(n, "endpoint", &t.Endpoint) {
				return
			}
			u, err := url.Parse(t.Endpoint)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
				d.Fail(n, "such as http://127.0.0.1:4318/v1/traces", "%q is not the URL of a collector", t.Endpoint)
				return
			}
			if u.Path == "" || u.Path == "/" {
				u.Path = "/v1/traces"
			}
			t.Endpoint = u.String()
		}),
		strictyaml.Optional("one_in", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "one_in", &t.OneIn, 1, 1e9) }),
		strictyaml.Optional("from", func(n *yaml.Node) {
			d.OneOrMore(n, "from", 1024, func(n *yaml.Node) {
				if p, ok := d.prefix(n, "from"); ok {
					t.From = append(t.From, p)
				}
			})
		}),
		strictyaml.Optional("service_name", func(n *yaml.Node) { d.Text(n, "service_name", &t.Service) }),
	)
	c.Tracing = t
}
