package config

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// ConnectUDP has a rule relay datagrams of clients to targets that they name (RFC 9298).
type ConnectUDP struct {
	Targets []UDPTarget   // key "targets", required: prefix:ports; loopback, link-local and own addresses only where a target has nothing else
	Tunnels int           // key "tunnels": open at a time, default 1024
	Idle    time.Duration // key "idle": without a datagram in either direction, after which a tunnel ends, default 2m
}

// UDPTarget is addresses and ports that a tunnel may lead to.
type UDPTarget struct {
	Prefix      netip.Prefix
	First, Last uint16
}

func newConnectUDP() *ConnectUDP { return &ConnectUDP{Tunnels: 1024, Idle: 2 * time.Minute} }

// udpDecoder reads tunnels of UDP.
type udpDecoder struct{ *l7Decoder }

// key reads the key of a rule.
func (d udpDecoder) key(u *Rule, at *rulePlace) strictyaml.Field {
	return strictyaml.Optional("connect_udp", func(n *yaml.Node) {
		c := newConnectUDP()
		u.ConnectUDP, at.udp = c, n
		d.Mapping(n, "connect_udp",
			strictyaml.Required("targets", func(n *yaml.Node) { d.targets(n, c) }),
			strictyaml.Optional("tunnels", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "tunnels", &c.Tunnels, 1, 1<<16) }),
			strictyaml.Optional("idle", func(n *yaml.Node) { d.Duration(n, "idle", &c.Idle, time.Second, 24*time.Hour) }),
		)
	})
}

// maxUDPTargets bounds the targets of a rule.
const maxUDPTargets = 1024

func (d udpDecoder) targets(n *yaml.Node, c *ConnectUDP) {
	lines := map[string]int{}
	d.eachText(n, "targets", maxUDPTargets, func(n *yaml.Node, text string) {
		t, ok := parseUDPTarget(text)
		if !ok {
			d.Fail(n, "such as 192.0.2.0/24:53, \"[2001:db8::]/32:443\", 192.0.2.1:8000-8099, or 192.0.2.1:* for all ports", "targets has no prefix with ports: %q", text)
			return
		}
		if t.Prefix != t.Prefix.Masked() {
			d.Fail(n, "write "+t.Prefix.Masked().String(), "%s has bits beyond its length", t.Prefix)
			return
		}
		d.unique(lines, text, n, "target")
		c.Targets = append(c.Targets, t)
	})
}

// parseUDPTarget reads address:ports or prefix:ports. An address of IPv6 has brackets, with the length behind them.
func parseUDPTarget(s string) (t UDPTarget, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return t, false
	}
	host, ports := s[:i], s[i+1:]
	text, bits, isPrefix := strings.Cut(host, "/")
	bare, closed := strings.CutSuffix(text, "]")
	bare, opened := strings.CutPrefix(bare, "[")
	a, err := netip.ParseAddr(bare)
	if err != nil || a.Zone() != "" || a.Is4In6() || opened != closed || a.Is4() == opened {
		return t, false
	}
	length := a.BitLen()
	if isPrefix {
		if length, err = strconv.Atoi(bits); err != nil || bits != strconv.Itoa(length) || length < 0 || length > a.BitLen() {
			return t, false
		}
	}
	t.Prefix = netip.PrefixFrom(a, length)
	if ports == "*" {
		t.First, t.Last = 1, 65535
		return t, true
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	t.First, t.Last = uint16(from), uint16(to)
	return t, err1 == nil && err2 == nil && from > 0 && from <= to
}

// checkConnectUDP reports a rule that relays datagrams and answers in another way too.
func checkConnectUDP(d *checker, c *Config, r *Route, u *Rule, at *rulePlace, answers *yaml.Node) {
	switch {
	case u.ConnectUDP == nil:
	case answers != nil:
		d.Fail(at.udp, "leave one of them out", "connect_udp is not used: the filter on line %d answers", answers.Line)
	case u.Static != nil || len(u.BackendRefs) > 0:
		d.Fail(at.udp, "make it a rule of its own, with a match of the path /.well-known/masque/udp", "a rule of route %q has connect_udp beside static or backend_refs", r.Name)
	case c.Stack == StackDevices:
		d.Fail(at.udp, "leave `stack: devices` out, or give tunnels a gateway of their own", "connect_udp has sockets of the kernel, and listeners those of the userspace stack")
	}
}
