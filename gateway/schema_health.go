package gateway

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/health"
)

// keyPlaces are the places of the keys of a mapping and of those in it, by path ("http.status"); the
// mapping's own has the path "".
type keyPlaces map[string]*yaml.Node

// under returns fields that note their places below a path.
func (k keyPlaces) under(path string, fields ...field) []field {
	for i := range fields {
		read, at := fields[i].read, path+fields[i].name
		fields[i].read = func(n *yaml.Node) { k[at] = n; read(n) }
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

// The least and most of what a check may hold are health's own to judge; these only keep nonsense out.
const (
	leastTime = time.Duration(0)
	mostCount = 1 << 30
)

func (d *decoder) health(n *yaml.Node, c *health.Check, at *servicePlace) {
	k, port := keyPlaces{"": n}, int(c.Port)
	at.health = k
	d.mapping(n, "health", k.under("",
		field{"type", false, func(n *yaml.Node) { choice(d, n, "type", &c.Type, health.Types...) }},
		field{"interval", false, func(n *yaml.Node) { d.duration(n, "interval", &c.Interval, leastTime, maxTimeout) }},
		field{"timeout", false, func(n *yaml.Node) { d.duration(n, "timeout", &c.Timeout, leastTime, maxTimeout) }},
		field{"rise", false, func(n *yaml.Node) { d.integerTo(n, "rise", &c.Rise, 0, mostCount) }},
		field{"fall", false, func(n *yaml.Node) { d.integerTo(n, "fall", &c.Fall, 0, mostCount) }},
		field{"port", false, func(n *yaml.Node) { d.integerTo(n, "port", &port, 1, 65535) }},
		field{"device", false, func(n *yaml.Node) { d.deviceName(n, "device", &c.Device) }},
		field{"http", false, func(n *yaml.Node) { d.healthHTTP(n, &c.HTTP, k) }},
		field{"udp", false, func(n *yaml.Node) { d.healthUDP(n, &c.UDP, k) }},
		field{"command", false, func(n *yaml.Node) { d.command(n, &c.Command) }},
	)...)
	c.Port = uint16(port)
	if k["timeout"] == nil && c.Timeout > c.Interval && c.Interval > 0 {
		c.Timeout = c.Interval
	}
}

func (d *decoder) healthHTTP(n *yaml.Node, h *health.HTTP, k keyPlaces) {
	d.mapping(n, "http", k.under("http.",
		field{"method", false, func(n *yaml.Node) { d.textTo(n, "method", &h.Method) }},
		field{"path", false, func(n *yaml.Node) { d.textTo(n, "path", &h.Path) }},
		field{"host", false, func(n *yaml.Node) { d.textTo(n, "host", &h.Host) }},
		field{"status", false, func(n *yaml.Node) { d.status(n, &h.Status) }},
		field{"body", false, func(n *yaml.Node) { d.textTo(n, "body", &h.Body) }},
		field{"server_name", false, func(n *yaml.Node) { d.textTo(n, "server_name", &h.ServerName) }},
		field{"insecure", false, func(n *yaml.Node) { d.truth(n, "insecure", &h.Insecure) }},
		field{"ca_file", false, func(n *yaml.Node) { d.textTo(n, "ca_file", &h.CAFile) }},
	)...)
}

func (d *decoder) healthUDP(n *yaml.Node, u *health.UDP, k keyPlaces) {
	d.mapping(n, "udp", k.under("udp.",
		field{"send", false, func(n *yaml.Node) { d.octets(n, "send", &u.Send) }},
		field{"send_hex", false, func(n *yaml.Node) { d.octetsHex(n, "send_hex", &u.Send) }},
		field{"expect", false, func(n *yaml.Node) { d.octets(n, "expect", &u.Expect) }},
		field{"expect_hex", false, func(n *yaml.Node) { d.octetsHex(n, "expect_hex", &u.Expect) }},
		field{"silence", false, func(n *yaml.Node) { choice(d, n, "silence", &u.Silence, health.SilenceFailure, health.SilenceSuccess) }},
	)...)
	for _, key := range []string{"send", "expect"} {
		if again := k["udp."+key+"_hex"]; again != nil && k["udp."+key] != nil {
			d.fail(again, "remove one", "%s and %s_hex say the same thing twice", key, key)
		}
	}
}

func (d *decoder) passive(n *yaml.Node, p *health.Passive, at *servicePlace) {
	k := keyPlaces{"": n}
	at.passive = k
	d.mapping(n, "passive", k.under("",
		field{"failures", false, func(n *yaml.Node) { d.integerTo(n, "failures", &p.Failures, 0, mostCount) }},
		field{"window", false, func(n *yaml.Node) { d.duration(n, "window", &p.Window, leastTime, maxTimeout) }},
		field{"down", false, func(n *yaml.Node) { d.duration(n, "down", &p.Down, leastTime, maxTimeout) }},
		field{"max_down", false, func(n *yaml.Node) { d.duration(n, "max_down", &p.MaxDown, leastTime, maxTimeout) }},
		field{"max_ejected", false, func(n *yaml.Node) { d.integerTo(n, "max_ejected", &p.MaxEjected, 0, 100) }},
	)...)
	if k["max_down"] == nil {
		p.MaxDown = max(p.MaxDown, p.Down)
	}
}

// status reads a code, or ranges of codes between commas, or a list of those.
func (d *decoder) status(n *yaml.Node, to *[]health.StatusRange) {
	var list []health.StatusRange
	before := len(d.problems)
	d.oneOrMore(n, "status", 64, func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			d.fail(n, "such as 200 or 200-399", "status must be codes, not %s", kind(n))
			return
		}
		ranges, err := health.ParseStatus(n.Value)
		if err != nil {
			d.fail(n, "", "%v", err)
		}
		list = append(list, ranges...)
	})
	if len(d.problems) == before {
		*to = list
	}
}

// command reads a program and its arguments.
func (d *decoder) command(n *yaml.Node, to *[]string) {
	d.list(n, "command", 64, func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			d.fail(n, "", "command must be a list of words, not %s", kind(n))
			return
		}
		*to = append(*to, n.Value)
	})
}

func (d *decoder) octets(n *yaml.Node, what string, to *[]byte) {
	if s, ok := d.text(n, what); ok {
		*to = []byte(s)
	}
}

// octetsHex reads octets in hexadecimal. YAML takes some for numbers: the text counts.
func (d *decoder) octetsHex(n *yaml.Node, what string, to *[]byte) {
	b, err := health.ParseHex(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || len(b) == 0 {
		d.fail(n, "two hexadecimal digits for each octet, in quotes", "%s must be octets, not %s", what, kind(n))
		return
	}
	*to = b
}

func (d *decoder) textTo(n *yaml.Node, what string, to *string) {
	if s, ok := d.text(n, what); ok {
		*to = s
	}
}

// truth reads true or false.
func (d *decoder) truth(n *yaml.Node, what string, to *bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.fail(n, "allowed: true, false", "%s must be true or false, not %s", what, kind(n))
		return
	}
	*to = n.Value == "true"
}
