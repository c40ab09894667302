package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/strictyaml"
)

// keyPlaces are the places of the keys of a mapping and of those in it, by path ("http.status"); the
// mapping's own has the path "".
type keyPlaces map[string]*yaml.Node

// under returns fields that note their places below a path.
func (k keyPlaces) under(path string, fields ...strictyaml.Field) []strictyaml.Field {
	for i := range fields {
		read, at := fields[i].Read, path+fields[i].Name
		fields[i].Read = func(n *yaml.Node) { k[at] = n; read(n) }
	}
	return fields
}

// at returns the place of a key, or of what it is missing in.
func (k keyPlaces) at(path string) *yaml.Node {
	for k[path] == nil && path != "" {
		i := strings.LastIndexByte(path, '.')
		path = path[:max(i, 0)]
	}
	return k[path]
}

// Package health checks these bounds; the ones here only reject values without meaning.
const (
	leastTime = time.Duration(0)
	mostCount = 1 << 30
)

func (d *decoder) health(n *yaml.Node, c *health.Check, at *servicePlace) {
	k, port := keyPlaces{"": n}, int(c.Port)
	at.health = k
	d.Mapping(n, "health", k.under("",
		strictyaml.Optional("type", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "type", &c.Type, health.Types...) }),
		strictyaml.Optional("interval", func(n *yaml.Node) { d.Duration(n, "interval", &c.Interval, leastTime, maxTimeout) }),
		strictyaml.Optional("timeout", func(n *yaml.Node) { d.Duration(n, "timeout", &c.Timeout, leastTime, maxTimeout) }),
		strictyaml.Optional("rise", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "rise", &c.Rise, 0, mostCount) }),
		strictyaml.Optional("fall", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "fall", &c.Fall, 0, mostCount) }),
		strictyaml.Optional("port", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "port", &port, 1, 65535) }),
		strictyaml.Optional("device", func(n *yaml.Node) { d.deviceName(n, "device", &c.Device) }),
		strictyaml.Optional("http", func(n *yaml.Node) { d.healthHTTP(n, &c.HTTP, k) }),
		strictyaml.Optional("grpc", func(n *yaml.Node) { d.healthGRPC(n, &c.GRPC, k) }),
		strictyaml.Optional("udp", func(n *yaml.Node) { d.healthUDP(n, &c.UDP, k) }),
		strictyaml.Optional("tcp", func(n *yaml.Node) { d.healthTCP(n, &c.TCP) }),
		strictyaml.Optional("command", func(n *yaml.Node) { d.command(n, &c.Command) }),
	)...)
	c.Port = uint16(port)
	if k["timeout"] == nil && c.Timeout > c.Interval && c.Interval > 0 {
		c.Timeout = c.Interval
	}
}

func (d *decoder) healthHTTP(n *yaml.Node, h *health.HTTP, k keyPlaces) {
	d.Mapping(n, "http", k.under("http.",
		strictyaml.Optional("method", func(n *yaml.Node) { d.Text(n, "method", &h.Method) }),
		strictyaml.Optional("path", func(n *yaml.Node) { d.Text(n, "path", &h.Path) }),
		strictyaml.Optional("host", func(n *yaml.Node) { d.Text(n, "host", &h.Host) }),
		strictyaml.Optional("status", func(n *yaml.Node) { d.status(n, &h.Status) }),
		strictyaml.Optional("body", func(n *yaml.Node) { d.Text(n, "body", &h.Body) }),
		strictyaml.Optional("server_name", func(n *yaml.Node) { d.Text(n, "server_name", &h.ServerName) }),
		strictyaml.Optional("insecure", func(n *yaml.Node) { d.Truth(n, "insecure", &h.Insecure) }),
		strictyaml.Optional("ca_file", func(n *yaml.Node) { d.Text(n, "ca_file", &h.CAFile) }),
	)...)
}

func (d *decoder) healthGRPC(n *yaml.Node, g *health.GRPC, k keyPlaces) {
	d.Mapping(n, "grpc", k.under("grpc.",
		strictyaml.Optional("service", func(n *yaml.Node) { d.Text(n, "service", &g.Service) }),
		strictyaml.Optional("host", func(n *yaml.Node) { d.Text(n, "host", &g.Host) }),
		strictyaml.Optional("server_name", func(n *yaml.Node) { d.Text(n, "server_name", &g.ServerName) }),
		strictyaml.Optional("insecure", func(n *yaml.Node) { d.Truth(n, "insecure", &g.Insecure) }),
		strictyaml.Optional("ca_file", func(n *yaml.Node) { d.Text(n, "ca_file", &g.CAFile) }),
	)...)
}

func (d *decoder) healthUDP(n *yaml.Node, u *health.UDP, k keyPlaces) {
	d.Mapping(n, "udp", k.under("udp.",
		strictyaml.Optional("send", func(n *yaml.Node) { d.octets(n, "send", &u.Send) }),
		strictyaml.Optional("send_hex", func(n *yaml.Node) { d.octetsHex(n, "send_hex", &u.Send) }),
		strictyaml.Optional("expect", func(n *yaml.Node) { d.octets(n, "expect", &u.Expect) }),
		strictyaml.Optional("expect_hex", func(n *yaml.Node) { d.octetsHex(n, "expect_hex", &u.Expect) }),
		strictyaml.Optional("silence", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "silence", &u.Silence, health.SilenceFailure, health.SilenceSuccess)
		}),
	)...)
	for _, key := range []string{"send", "expect"} {
		if again := k["udp."+key+"_hex"]; again != nil && k["udp."+key] != nil {
			d.Fail(again, "remove one", "%s and %s_hex say the same thing twice", key, key)
		}
	}
}

// healthTCP reads a conversation.
func (d *decoder) healthTCP(n *yaml.Node, to *[]health.Step) {
	d.List(n, "tcp", 64, func(n *yaml.Node) {
		var s health.Step
		k := keyPlaces{"": n}
		d.Mapping(n, "a step", k.under("",
			strictyaml.Optional("send", func(n *yaml.Node) { d.octets(n, "send", &s.Send) }),
			strictyaml.Optional("send_hex", func(n *yaml.Node) { d.octetsHex(n, "send_hex", &s.Send) }),
			strictyaml.Optional("expect", func(n *yaml.Node) { d.octets(n, "expect", &s.Expect) }),
			strictyaml.Optional("expect_hex", func(n *yaml.Node) { d.octetsHex(n, "expect_hex", &s.Expect) }),
		)...)
		if len(k) > 2 {
			d.Fail(n, "make each a step of its own", "a step sends or expects one thing")
		}
		*to = append(*to, s)
	})
}

func (d *decoder) passive(n *yaml.Node, p *health.Passive, at *servicePlace) {
	k := keyPlaces{"": n}
	at.passive = k
	d.Mapping(n, "passive", k.under("",
		strictyaml.Optional("failures", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "failures", &p.Failures, 0, mostCount) }),
		strictyaml.Optional("window", func(n *yaml.Node) { d.Duration(n, "window", &p.Window, leastTime, maxTimeout) }),
		strictyaml.Optional("down", func(n *yaml.Node) { d.Duration(n, "down", &p.Down, leastTime, maxTimeout) }),
		strictyaml.Optional("max_down", func(n *yaml.Node) { d.Duration(n, "max_down", &p.MaxDown, leastTime, maxTimeout) }),
		strictyaml.Optional("max_ejected", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "max_ejected", &p.MaxEjected, 0, 100) }),
	)...)
	if k["max_down"] == nil {
		p.MaxDown = max(p.MaxDown, p.Down)
	}
}

// status reads a code, or ranges of codes between commas, or a list of those.
func (d *decoder) status(n *yaml.Node, to *[]health.StatusRange) {
	var list []health.StatusRange
	least, most := int64(100), int64(599)
	before := len(d.Problems)
	d.OneOrMore(n, "status", 64, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "ranges"}, strictyaml.Schema{Type: "integer", Minimum: &least, Maximum: &most}) {
			return
		}
		if n.Kind != yaml.ScalarNode {
			d.Fail(n, "such as 200 or 200-399", "status must be codes, not %s", strictyaml.Kind(n))
			return
		}
		ranges, err := health.ParseStatus(n.Value)
		if err != nil {
			d.Fail(n, "", "%v", err)
		}
		list = append(list, ranges...)
	})
	if len(d.Problems) == before {
		*to = list
	}
}

// command reads a program and its arguments.
func (d *decoder) command(n *yaml.Node, to *[]string) {
	d.List(n, "command", 64, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "word"}) {
			return
		}
		if n.Kind != yaml.ScalarNode {
			d.Fail(n, "", "command must be a list of words, not %s", strictyaml.Kind(n))
			return
		}
		*to = append(*to, n.Value)
	})
}

func (d *decoder) octets(n *yaml.Node, what string, to *[]byte) {
	if s := ""; d.Text(n, what, &s) {
		*to = []byte(s)
	}
}

// octetsHex reads octets in hexadecimal. YAML takes some for numbers: the text counts.
func (d *decoder) octetsHex(n *yaml.Node, what string, to *[]byte) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "octets in hexadecimal"}) {
		return
	}
	b, err := health.ParseHex(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || len(b) == 0 {
		d.Fail(n, "two hexadecimal digits for each octet, in quotes", "%s must be octets, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = b
}
