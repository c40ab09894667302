package gateway

import (
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/health"
)

// config reads the root of the file.
func (d *decoder) config(n *yaml.Node, c *Config) {
	d.mapping(n, "the configuration",
		field{"devices", true, func(n *yaml.Node) { d.devices(n, c) }},
		field{"snat", false, func(n *yaml.Node) { d.snat(n, c) }},
		field{"snat_ports", false, func(n *yaml.Node) { d.portRange(n, "snat_ports", &c.SNATPorts) }},
		field{"checksum", false, func(n *yaml.Node) { choice(d, n, "checksum", &c.Checksum, "forward", "drop") }},
		field{"engine", false, func(n *yaml.Node) { choice(d, n, "engine", &c.Engine, "cpu", "cuda", "auto") }},
		field{"cpus", false, func(n *yaml.Node) { d.places.cpus = n; d.cpus(n, &c.CPUs) }},
		field{"spin", false, func(n *yaml.Node) { d.duration(n, "spin", &c.Spin, time.Microsecond, time.Second) }},
		field{"tunnel", false, func(n *yaml.Node) { d.tunnel(n, &c.Tunnel) }},
		field{"sources", false, func(n *yaml.Node) { d.sources(n, &c.Sources) }},
		field{"limits", false, func(n *yaml.Node) { d.limits(n, &c.Limits, true) }},
		field{"table", false, func(n *yaml.Node) { d.table(n, &c.Table) }},
		field{"admin", false, func(n *yaml.Node) { d.admin(n, &c.Admin) }},
		field{"metrics", false, func(n *yaml.Node) { d.metrics(n, &c.Metrics) }},
		field{"services", true, func(n *yaml.Node) { d.services(n, c) }},
	)
}

func (d *decoder) devices(n *yaml.Node, c *Config) {
	d.list(n, "devices", maxDevices, func(n *yaml.Node) {
		dev := newDevice()
		d.mapping(n, "a device",
			field{"name", true, func(n *yaml.Node) { d.deviceName(n, "name", &dev.Name) }},
			field{"driver", false, func(n *yaml.Node) { choice(d, n, "driver", &dev.Driver, "auto", "afxdp", "afpacket", "tap") }},
			field{"queues", false, func(n *yaml.Node) { d.queues(n, &dev.Queues) }},
			field{"mode", false, func(n *yaml.Node) { choice(d, n, "mode", &dev.Mode, "auto", "native", "generic") }},
		)
		d.places.devices = append(d.places.devices, place[Device]{dev, n})
		c.Devices = append(c.Devices, dev)
	})
}

// queues reads "auto" or a number.
func (d *decoder) queues(n *yaml.Node, to *int) {
	if n.Kind == yaml.ScalarNode && n.Value == "auto" {
		*to = QueuesAuto
		return
	}
	d.integerTo(n, "queues", to, 1, MaxQueues)
}

// deviceName reads a name that Linux allows for an interface.
func (d *decoder) deviceName(n *yaml.Node, what string, to *string) {
	if s, ok := d.text(n, what); ok {
		if len(s) > 15 || strings.ContainsAny(s, "/ \t:") {
			d.fail(n, "1 to 15 characters without space, / and :", "%s is not a name of an interface: %q", what, s)
			return
		}
		*to = s
	}
}

func (d *decoder) snat(n *yaml.Node, c *Config) {
	before := len(d.problems)
	defer func() { d.places.snatWrong = len(d.problems) > before }()
	d.oneOrMore(n, "snat", maxSNAT, func(n *yaml.Node) {
		if a, ok := d.addr(n, "snat"); ok {
			d.places.snat = append(d.places.snat, place[netip.Addr]{a, n})
			c.SNAT = append(c.SNAT, a)
		}
	})
}

func (d *decoder) table(n *yaml.Node, t *Table) {
	timeout := func(name string, to *time.Duration) field {
		return field{name, false, func(n *yaml.Node) { d.duration(n, name, to, time.Second, maxTimeout) }}
	}
	d.mapping(n, "table",
		field{"size", false, func(n *yaml.Node) { d.integerTo(n, "size", &t.Size, 1024, maxTable) }},
		field{"tcp", false, func(n *yaml.Node) {
			d.mapping(n, "tcp", timeout("established", &t.TCPEstablished), timeout("syn", &t.TCPSYN), timeout("fin", &t.TCPFIN))
		}},
		timeout("udp", &t.UDP),
		field{"half_open", false, func(n *yaml.Node) { d.places.halfOpen = n; d.integerTo(n, "half_open", &t.HalfOpen, 256, maxTable) }},
		field{"fragments", false, func(n *yaml.Node) { d.integerTo(n, "fragments", &t.Fragments, 64, maxClients) }},
	)
}

// admin reads where the control socket lies; an empty string is none.
func (d *decoder) admin(n *yaml.Node, a *Admin) {
	d.mapping(n, "admin", field{"socket", false, func(n *yaml.Node) {
		switch {
		case n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value != "" && n.Value[0] != '/':
			d.fail(n, "such as "+DefaultSocket+`; "" is none`, "socket must be an absolute path, not %s", kind(n))
		case len(n.Value) > 107: // sockaddr_un
			d.fail(n, "", "socket has %d characters; at most 107 are allowed", len(n.Value))
		default:
			a.Socket = n.Value
		}
	}})
}

func (d *decoder) metrics(n *yaml.Node, m *Metrics) {
	d.mapping(n, "metrics", field{"listen", false, func(n *yaml.Node) {
		ap, err := netip.ParseAddrPort(n.Value)
		if err != nil || n.Kind != yaml.ScalarNode {
			d.fail(n, "such as 127.0.0.1:9100", "listen must be an IP address and a port, not %s", kind(n))
			return
		}
		m.Listen = ap.String()
	}})
}

func (d *decoder) services(n *yaml.Node, c *Config) {
	d.list(n, "services", maxServices, func(n *yaml.Node) {
		s := newService()
		at := servicePlace{node: n}
		d.mapping(n, "a service",
			field{"name", true, func(n *yaml.Node) { at.name = n; d.name(n, "name", &s.Name) }},
			field{"protocol", false, func(n *yaml.Node) { choice(d, n, "protocol", &s.Protocol, "tcp", "udp") }},
			field{"address", true, func(n *yaml.Node) { s.Addresses, at.addresses = d.addrPorts(n, 64) }},
			field{"mode", false, func(n *yaml.Node) { at.mode = n; choice(d, n, "mode", &s.Mode, ModeNAT, ModeIPIP, ModeGUE, ModeL2) }},
			field{"source", false, func(n *yaml.Node) { at.source = n; choice(d, n, "source", &s.Source, SourceGateway, SourceClient) }},
			field{"removed", false, func(n *yaml.Node) { choice(d, n, "removed", &s.Removed, "keep", "drop") }},
			field{"hash_size", false, func(n *yaml.Node) { d.hashSize(n, &s.HashSize) }},
			field{"slow_start", false, func(n *yaml.Node) { d.duration(n, "slow_start", &s.SlowStart, 0, 24*time.Hour) }},
			field{"drain", false, func(n *yaml.Node) { d.duration(n, "drain", &s.Drain, 0, maxTimeout) }},
			field{"unavailable", false, func(n *yaml.Node) { d.unavailable(n, &s.Reject) }},
			field{"mss", false, func(n *yaml.Node) { at.mss = n; d.mss(n, &s.MSS) }},
			field{"quic", false, func(n *yaml.Node) { at.quic = n; s.QUIC = &QUIC{}; d.quic(n, s.QUIC) }},
			field{"sources", false, func(n *yaml.Node) { d.sources(n, &s.Sources) }},
			field{"limits", false, func(n *yaml.Node) { d.limits(n, &s.Limits, false) }},
			field{"backends", true, func(n *yaml.Node) { d.backends(n, &s, &at) }},
			field{"health", false, func(n *yaml.Node) { s.Health = health.New(); d.health(n, s.Health, &at) }},
			field{"passive", false, func(n *yaml.Node) { s.Passive = health.NewPassive(); d.passive(n, s.Passive, &at) }},
		)
		d.places.services = append(d.places.services, at)
		c.Services = append(c.Services, s)
	})
}

// addrPorts reads one or more addresses with ports, and where each stands.
func (d *decoder) addrPorts(n *yaml.Node, limit int) (list []netip.AddrPort, at []*yaml.Node) {
	d.oneOrMore(n, "address", limit, func(n *yaml.Node) {
		if ap, ok := d.addrPort(n, "address"); ok {
			list, at = append(list, ap), append(at, n)
		}
	})
	return list, at
}

// hashSize reads a prime; 0 stands for auto until all of the service is read.
func (d *decoder) hashSize(n *yaml.Node, to *int) {
	if n.Value == "auto" {
		*to = 0
		return
	}
	v, ok := d.integer(n, "hash_size", 251, 16777213)
	if !ok {
		return
	}
	if !prime(v) {
		d.fail(n, "auto, or such as 1021, 65537 or 655373", "hash_size is %d, which is not a prime", v)
		return
	}
	*to = v
}

func (d *decoder) backends(n *yaml.Node, s *Service, at *servicePlace) {
	d.list(n, "backends", maxBackends, func(n *yaml.Node) {
		b := Backend{Weight: 1, State: StateActive}
		p := backendPlace{node: n, name: n}
		d.mapping(n, "a backend",
			field{"name", false, func(n *yaml.Node) { p.name = n; d.name(n, "name", &b.Name) }},
			field{"address", true, func(n *yaml.Node) { b.Addresses, p.addresses = d.backendAddrs(n) }},
			field{"state", false, func(n *yaml.Node) {
				choice(d, n, "state", &b.State, StateActive, StateFilling, StateDraining, StateInactive)
			}},
			field{"server_id", false, func(n *yaml.Node) { p.serverID = n; d.hex(n, "server_id", &b.ServerID, 1, 15) }},
			field{"weight", false, func(n *yaml.Node) { d.integerTo(n, "weight", &b.Weight, 0, MaxWeight) }},
		)
		if b.Name == "" && len(b.Addresses) > 0 {
			b.Name = nameOf(b.Addresses[0])
		}
		s.Backends, at.backends = append(s.Backends, b), append(at.backends, p)
	})
}

// prime reports whether n has no divisor.
func prime(n int) bool {
	for i := 2; i*i <= n; i++ {
		if n%i == 0 {
			return false
		}
	}
	return n > 1
}
