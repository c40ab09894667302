package config

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// cpus reads "auto", "none" or a list of CPU numbers.
func (d *decoder) cpus(n *yaml.Node, c *CPUs) {
	if d.Word(n, "auto", "none") {
		*c = CPUs{Auto: n.Value == "auto"}
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		d.Fail(n, "auto, none, or a list such as [2, 3]", "cpus cannot be %s", strictyaml.Kind(n))
		return
	}
	*c = CPUs{}
	lines := map[string]int{}
	d.OneOrMore(n, "cpus", MaxQueues, func(n *yaml.Node) {
		var v int
		if strictyaml.Integer(d.Decoder, n, "a CPU", &v, 0, 8191) {
			d.unique(lines, strconv.Itoa(v), n, "CPU")
			c.List = append(c.List, v)
		}
	})
}

func (d *decoder) tunnel(n *yaml.Node, t *Tunnel) {
	port := int(t.GUEPort)
	d.Mapping(n, "tunnel",
		strictyaml.Required("source", func(n *yaml.Node) {
			d.OneOrMore(n, "source", 2, func(n *yaml.Node) {
				if p, ok := d.prefix(n, "source"); ok && d.unicast(n, "source", p.Addr()) {
					if len(t.Sources) == 1 && t.Sources[0].Addr().Is4() == p.Addr().Is4() {
						d.Fail(n, "give one for each family", "two tunnel sources are %s", family(p.Addr()))
					}
					t.Sources = append(t.Sources, p)
					d.places.tunnel = append(d.places.tunnel, place[netip.Prefix]{p, n})
				}
			})
		}),
		strictyaml.Optional("gue_port", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "gue_port", &port, 1, 65535) }),
		strictyaml.Optional("too_big", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "too_big", &t.TooBig, TooBigAnswer, TooBigFragment)
		}),
	)
	t.GUEPort = uint16(port)
}

// prefix reads a prefix; an address stands for itself alone.
func (d *decoder) prefix(n *yaml.Node, what string) (netip.Prefix, bool) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "prefix"}) {
		return netip.Prefix{}, false
	}
	p, err := parsePrefix(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Fail(n, "such as 198.18.0.0/24, 2001:db8::/64 or one address", "%s must be a prefix, not %s", what, strictyaml.Kind(n))
		return p, false
	}
	if p != p.Masked() {
		d.Fail(n, "write "+p.Masked().String(), "%s %s has bits beyond its length", what, p)
		return p, false
	}
	return p, true
}

// parsePrefix parses a prefix, or an address as the prefix that holds it alone.
func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return a.Prefix(a.BitLen())
}

func (d *decoder) sources(n *yaml.Node, s *Sources) {
	d.Mapping(n, "sources",
		strictyaml.Optional("deny", func(n *yaml.Node) { s.Deny = d.sourceLists(n, "deny") }),
		strictyaml.Optional("allow", func(n *yaml.Node) { s.Allow = d.sourceLists(n, "allow") }),
		strictyaml.Optional("default", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "default", &s.Default, "allow", "deny") }),
	)
}

// sourceLists reads prefixes and names of files. What looks like neither is a mistyped prefix.
func (d *decoder) sourceLists(n *yaml.Node, what string) (lists []SourceList) {
	d.OneOrMore(n, what, maxLists, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "prefix or file"}) {
			return
		}
		if _, err := parsePrefix(n.Value); err != nil && strings.ContainsAny(n.Value, "./") && !addressLike(n.Value) {
			if file := ""; d.Text(n, what, &file) {
				lists = append(lists, SourceList{File: file})
				d.listAt[file] = d.Place(n.Line, n.Column)
			}
			return
		}
		if p, ok := d.prefix(n, what); ok {
			lists = append(lists, SourceList{Prefix: p})
			d.listAt[p.String()] = d.Place(n.Line, n.Column)
		}
	})
	return lists
}

// addressLike reports whether s has only characters of addresses and prefixes.
func addressLike(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF.:/") == "" }

// limits reads limits of one client; those of all services also say how many clients are followed.
func (d *decoder) limits(n *yaml.Node, l *Limits, all bool) {
	fields := []strictyaml.Field{
		strictyaml.Optional("packets", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "packets", &l.Packets, 0, maxRate) }),
		strictyaml.Optional("connections", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "connections", &l.Connections, 0, maxRate) }),
		strictyaml.Optional("burst", func(n *yaml.Node) { d.Duration(n, "burst", &l.Burst, 10*time.Millisecond, time.Minute) }),
	}
	if all {
		fields = append(fields, strictyaml.Optional("clients", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "clients", &l.Clients, 1024, maxClients) }))
	}
	d.Mapping(n, "limits", fields...)
}

// persistence reads which connections go to one backend.
func (d *decoder) persistence(n *yaml.Node, s *Service) {
	p := newPersistence()
	d.Mapping(n, "persistence",
		strictyaml.Optional("by", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "by", &p.By, "client") }),
		strictyaml.Optional("prefix4", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "prefix4", &p.Prefix4, 1, 32) }),
		strictyaml.Optional("prefix6", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "prefix6", &p.Prefix6, 1, 128) }),
	)
	s.Persistence = &p
}

// hashKeyFile reads the name of the file with the key; see Config.readKey.
func (d *decoder) hashKeyFile(n *yaml.Node, c *Config) {
	if d.Text(n, "hash_key_file", &c.HashKey.File) {
		c.keyAt = d.Place(n.Line, n.Column)
	}
}

func (d *decoder) unavailable(n *yaml.Node, reject *bool) {
	word := "drop"
	strictyaml.Choice(d.Decoder, n, "unavailable", &word, "drop", "reject")
	*reject = word == "reject"
}

// mss reads a number of bytes, "auto" or "none". The least that every host takes is RFC 9293 3.7.1's.
func (d *decoder) mss(n *yaml.Node, to *int) {
	switch {
	case d.Word(n, "none"):
		*to = 0
	case d.Word(n, "auto"):
		*to = MSSAuto
	default:
		strictyaml.Integer(d.Decoder, n, "mss", to, 536, 65495)
	}
}

func (d *decoder) quic(n *yaml.Node, q *QUIC) {
	d.Mapping(n, "quic",
		strictyaml.Optional("rotation", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "rotation", &q.Rotation, 0, 6) }),
		strictyaml.Required("server_id_length", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "server_id_length", &q.ServerID, 1, 15) }),
		strictyaml.Required("nonce_length", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "nonce_length", &q.Nonce, 4, 18) }),
		strictyaml.Optional("key", func(n *yaml.Node) { d.hex(n, "key", &q.Key, 16, 16) }),
	)
}

// hex reads least to most octets.
func (d *decoder) hex(n *yaml.Node, what string, to *[]byte, least, most int) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: span(least, most) + " octets in hexadecimal"}) {
		return
	}
	b, err := hex.DecodeString(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || len(b) < least || len(b) > most {
		d.Fail(n, "two hexadecimal digits for each octet, in quotes", "%s must be %s octets, not %s", what, span(least, most), strictyaml.Kind(n))
		return
	}
	*to = b
}

func span(least, most int) string {
	if least == most {
		return strconv.Itoa(least)
	}
	return strconv.Itoa(least) + " to " + strconv.Itoa(most)
}

// backendAddrs reads one or two addresses, with ports for NAT and without for the direct modes and for ports that are kept:
// the service decides which, once all of it has been read.
func (d *decoder) backendAddrs(n *yaml.Node) (list []AddrPorts, at []*yaml.Node) {
	d.OneOrMore(n, "address", 2, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port, IP:first-last or IP"}) {
			return
		}
		if a, err := netip.ParseAddr(n.Value); err == nil && n.Kind == yaml.ScalarNode {
			if d.unicast(n, "address", a) {
				list, at = append(list, AddrPorts{addr: a}), append(at, n)
			}
			return
		}
		if ap, ok := d.addrPorts(n, "address"); ok {
			list, at = append(list, ap), append(at, n)
		}
	})
	return list, at
}

// nameOf is the name of a backend that has none in the configuration.
func nameOf(ap AddrPorts) string {
	if ap.Port() == 0 {
		return ap.Addr().String()
	}
	return ap.String()
}
