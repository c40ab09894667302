package stackd

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/tcp/cc"
)

// places are the nodes of what check compares with other parts.
type places struct {
	devices, routes, neighbors, services []*yaml.Node
	cpus, rdma                           *yaml.Node
	root                                 *yaml.Node
}

// config reads the root of the file.
func (d *decoder) config(n *yaml.Node, c *Config) {
	d.at.root = n
	d.Mapping(n, "the configuration",
		strictyaml.Required("devices", func(n *yaml.Node) { d.List(n, "devices", maxDevices, func(n *yaml.Node) { d.device(n, c) }) }),
		strictyaml.Optional("routes", func(n *yaml.Node) { d.List(n, "routes", maxRoutes, func(n *yaml.Node) { d.route(n, c) }) }),
		strictyaml.Optional("neighbors", func(n *yaml.Node) { d.List(n, "neighbors", maxNeighbors, func(n *yaml.Node) { d.neighbor(n, c) }) }),
		strictyaml.Optional("engine", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "engine", &c.Engine, "cpu", "cuda", "auto") }),
		strictyaml.Optional("cpus", func(n *yaml.Node) { d.cpus(n, c) }),
		strictyaml.Optional("extra_processor", func(n *yaml.Node) { d.truth(n, "extra_processor", &c.ExtraProcessor) }),
		strictyaml.Optional("tcp", func(n *yaml.Node) { d.tcp(n, &c.TCP) }),
		strictyaml.Optional("services", func(n *yaml.Node) { d.services(n, c) }),
		strictyaml.Optional("metrics", func(n *yaml.Node) {
			d.Mapping(n, "metrics", strictyaml.Required("listen", func(n *yaml.Node) { d.endpoint(n, &c.Metrics.Listen) }))
		}),
		strictyaml.Optional("control", func(n *yaml.Node) {
			d.Mapping(n, "control", strictyaml.Optional("socket", func(n *yaml.Node) { d.text(n, "socket", &c.Control.Socket) }))
		}),
		strictyaml.Optional("shim", func(n *yaml.Node) { d.shim(n, &c.Shim) }),
		strictyaml.Optional("rdma", func(n *yaml.Node) { d.rdma(n, c) }),
	)
}

func (d *decoder) device(n *yaml.Node, c *Config) {
	v := NewDevice("")
	d.Mapping(n, "a device",
		strictyaml.Required("name", func(n *yaml.Node) { d.text(n, "name", &v.Name) }),
		strictyaml.Optional("driver", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "driver", &v.Driver, "auto", "afxdp", "afpacket", "tap")
		}),
		strictyaml.Optional("mode", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "mode", &v.Mode, "auto", "native", "generic") }),
		strictyaml.Optional("queues", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "queues", &v.Queues, 1, maxQueues) }),
		strictyaml.Optional("ring", func(n *yaml.Node) {
			strictyaml.PowerOfTwo(d.Decoder, n, "ring", &v.Ring, device.MinRing, device.MaxRing)
		}),
		strictyaml.Optional("take", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "take", &v.Take, TakeAuto, TakeAll, TakeAddresses) }),
		strictyaml.Optional("addresses", func(n *yaml.Node) {
			d.List(n, "addresses", maxAddresses, func(n *yaml.Node) { d.address(n, &v) })
		}),
		strictyaml.Optional("dhcp", func(n *yaml.Node) { d.truth(n, "dhcp", &v.DHCP) }),
		strictyaml.Optional("slaac", func(n *yaml.Node) { d.truth(n, "slaac", &v.SLAAC) }),
	)
	c.Devices, d.at.devices = append(c.Devices, v), append(d.at.devices, n)
}

// address reads an address of the host with its prefix length.
func (d *decoder) address(n *yaml.Node, v *Device) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP/length"}) {
		return
	}
	p, err := ParseAddress(n.Value)
	if n.Kind != yaml.ScalarNode || err != "" {
		d.Fail(n, "such as 198.18.0.2/24 or \"2001:db8::2/64\"", "%s cannot be an address: %s", strictyaml.Kind(n), err)
		return
	}
	v.Addresses = append(v.Addresses, p)
}

// ParseAddress reads an address that a host can have, with its prefix length; why is the error, ""
// is nothing.
func ParseAddress(text string) (p netip.Prefix, why string) {
	p, err := netip.ParsePrefix(text)
	a := p.Addr()
	switch {
	case err != nil && !strings.Contains(text, "/"):
		return p, "the prefix length is missing"
	case err != nil:
		return p, "it is none"
	case a.Is4In6():
		return p, "it is IPv4 in IPv6 form"
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return p, "no host has it on a network"
	case a.Is4() && p.Bits() < 31 && p.Bits() > 0 && (a == p.Masked().Addr() || a == last4(p)):
		return p, "it is the network's own or its broadcast address"
	}
	return p, ""
}

// last4 returns the broadcast address of an IPv4 prefix.
func last4(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}

func (d *decoder) route(n *yaml.Node, c *Config) {
	var r Route
	to := n
	d.Mapping(n, "a route",
		strictyaml.Required("to", func(n *yaml.Node) {
			d.Takes(strictyaml.Schema{Type: "string", Title: "prefix or default"})
			to = n
		}),
		strictyaml.Optional("via", func(n *yaml.Node) { d.addr(n, "via", &r.Via) }),
		strictyaml.Optional("device", func(n *yaml.Node) { d.text(n, "device", &r.Device) }),
		strictyaml.Optional("metric", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "metric", &r.Metric, 0, 1<<32-1) }),
	)
	if to != n {
		d.target(to, &r)
	}
	c.Routes, d.at.routes = append(c.Routes, r), append(d.at.routes, n)
}

// target reads what a route leads to.
func (d *decoder) target(n *yaml.Node, r *Route) {
	if n.Value == "default" {
		if !r.Via.IsValid() {
			d.Fail(n, "name a gateway with via, or write 0.0.0.0/0 or \"::/0\"", "a default route without via has no address family")
			return
		}
		r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if r.Via.Is4() {
			r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return
	}
	p, err := netip.ParsePrefix(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Fail(n, "default, or such as 198.19.0.0/16 or \"2001:db8:1::/48\"", "to must be a network, not %s", strictyaml.Kind(n))
		return
	}
	if p != p.Masked() {
		d.Fail(n, "write "+p.Masked().String(), "%s has bits set beyond its length", p)
		return
	}
	r.To = p
}

func (d *decoder) neighbor(n *yaml.Node, c *Config) {
	var v Neighbor
	d.Mapping(n, "a neighbour",
		strictyaml.Required("address", func(n *yaml.Node) { d.addr(n, "address", &v.Address) }),
		strictyaml.Required("mac", func(n *yaml.Node) {
			if d.Takes(strictyaml.Schema{Type: "string", Title: "link address"}) {
				return
			}
			mac, err := net.ParseMAC(n.Value)
			if n.Kind != yaml.ScalarNode || err != nil || len(mac) != 6 || mac[0]&1 != 0 {
				d.Fail(n, "such as \"02:00:00:00:00:01\"", "mac must be a unicast link address, not %s", strictyaml.Kind(n))
				return
			}
			v.MAC = mac
		}),
		strictyaml.Optional("device", func(n *yaml.Node) { d.text(n, "device", &v.Device) }),
	)
	c.Neighbors, d.at.neighbors = append(c.Neighbors, v), append(d.at.neighbors, n)
}

func (d *decoder) tcp(n *yaml.Node, t *TCP) {
	o := &t.Options
	buffer := func(what string, to *int) func(*yaml.Node) {
		return func(n *yaml.Node) {
			v := int64(*to)
			d.bytes(n, what, &v, minBuffer, maxBuffer)
			*to = int(v)
		}
	}
	without := func(what string, to *bool) func(*yaml.Node) {
		return func(n *yaml.Node) {
			offer := true
			d.truth(n, what, &offer)
			*to = !offer
		}
	}
	d.Mapping(n, "tcp",
		strictyaml.Optional("congestion", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "congestion", &o.Congestion, cc.Names()...) }),
		strictyaml.Optional("send_buffer", buffer("send_buffer", &o.SendBuffer)),
		strictyaml.Optional("receive_buffer", buffer("receive_buffer", &o.ReceiveBuffer)),
		strictyaml.Optional("memory", func(n *yaml.Node) { d.bytes(n, "memory", &t.Memory, 1<<20, maxMemory) }),
		strictyaml.Optional("connections", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "connections", &t.Connections, 1, 1<<26) }),
		strictyaml.Optional("nodelay", without("nodelay", &t.Nagle)),
		strictyaml.Optional("keepalive", func(n *yaml.Node) { d.Duration(n, "keepalive", &o.KeepAlive.Idle, time.Second, maxIdle) }),
		strictyaml.Optional("user_timeout", func(n *yaml.Node) { d.Duration(n, "user_timeout", &o.UserTimeout, time.Second, maxIdle) }),
		strictyaml.Optional("mss", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "mss", &o.MSS, 88, 65495) }),
		strictyaml.Optional("timestamps", without("timestamps", &o.NoTimestamps)),
		strictyaml.Optional("sack", without("sack", &o.NoSACK)),
		strictyaml.Optional("scaling", without("scaling", &o.NoScaling)),
		strictyaml.Optional("fast_open", func(n *yaml.Node) { d.truth(n, "fast_open", &o.FastOpen) }),
		strictyaml.Optional("path_probe", func(n *yaml.Node) { d.truth(n, "path_probe", &o.PathProbe) }),
		strictyaml.Optional("ecn", func(n *yaml.Node) {
			word := "passive"
			strictyaml.Choice(d.Decoder, n, "ecn", &word, ecnWords...)
			o.ECN = ecnModes[word]
		}),
	)
}

// ecnWords are the values of tcp.ecn, and ecnModes what they mean.
var (
	ecnWords = []string{"off", "passive", "classic", "accurate"}
	ecnModes = map[string]tcp.ECNMode{
		"off": tcp.ECNOff, "passive": tcp.ECNPassive, "classic": tcp.ECNClassic, "accurate": tcp.ECNAccurate,
	}
)

// services reads a list of them; an item is a name, or a mapping.
func (d *decoder) services(n *yaml.Node, c *Config) {
	if d.Word(n, "all") {
		c.Services = AllServices()
		for range c.Services {
			d.at.services = append(d.at.services, n)
		}
		return
	}
	d.List(n, "services", maxServices, func(n *yaml.Node) {
		var s Service
		d.Either(n,
			func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "a service", &s.Kind, service.Kinds...) },
			func(n *yaml.Node) { d.service(n, &s) })
		if s.Port == 0 {
			s.Port = s.Kind.Port()
		}
		c.Services, d.at.services = append(c.Services, s), append(d.at.services, n)
	})
}

func (d *decoder) service(n *yaml.Node, s *Service) {
	d.Mapping(n, "a service",
		strictyaml.Required("service", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "service", &s.Kind, service.Kinds...) }),
		strictyaml.Optional("port", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "port", &s.Port, 1, 65535) }),
		strictyaml.Optional("address", func(n *yaml.Node) { d.addr(n, "address", &s.Address) }),
		strictyaml.Optional("connections", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "connections", &s.Limits.Connections, 1, 1<<20) }),
		strictyaml.Optional("idle", func(n *yaml.Node) { d.Duration(n, "idle", &s.Limits.Idle, time.Second, maxIdle) }),
	)
}

func (d *decoder) shim(n *yaml.Node, s *Shim) {
	limit := func(what string, to *int) func(*yaml.Node) {
		return func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, what, to, 1, 1<<20) }
	}
	d.Mapping(n, "shim",
		strictyaml.Optional("socket", func(n *yaml.Node) { d.text(n, "socket", &s.Socket) }),
		strictyaml.Optional("groups", func(n *yaml.Node) { d.groups(n, &s.Groups) }),
		strictyaml.Optional("everyone", func(n *yaml.Node) { d.truth(n, "everyone", &s.Everyone) }),
		strictyaml.Optional("privileged_ports", func(n *yaml.Node) { d.truth(n, "privileged_ports", &s.PrivilegedPorts) }),
		strictyaml.Optional("through_loop", func(n *yaml.Node) { d.truth(n, "through_loop", &s.ThroughLoop) }),
		strictyaml.Optional("resolver", func(n *yaml.Node) {
			d.List(n, "resolver", maxServers, func(n *yaml.Node) {
				var a netip.Addr
				d.addr(n, "a name server", &a)
				s.Resolver = append(s.Resolver, a)
			})
		}),
		strictyaml.Optional("sockets", limit("sockets", &s.Sockets)),
		strictyaml.Optional("backlog", limit("backlog", &s.Backlog)),
		strictyaml.Optional("connects", limit("connects", &s.Connects)),
		strictyaml.Optional("rings", limit("rings", &s.Rings)),
		strictyaml.Optional("descriptors", limit("descriptors", &s.Descriptors)),
	)
}

// cpus reads "auto", "none" or a list of CPU numbers, one for each loop.
func (d *decoder) cpus(n *yaml.Node, c *Config) {
	if d.Word(n, "auto", "none") {
		c.CPUs = node.CPUs{Auto: n.Value == "auto"}
		return
	}
	d.at.cpus = n
	d.List(n, "cpus", maxQueues, func(n *yaml.Node) {
		v := 0
		if !strictyaml.Integer(d.Decoder, n, "a CPU", &v, 0, 8191) {
			return
		}
		if slices.Contains(c.CPUs.List, v) {
			d.Fail(n, "name each once", "CPU %d is there twice", v)
		}
		c.CPUs.List = append(c.CPUs.List, v)
	})
}

// endpoint reads an address with a port to listen on.
func (d *decoder) endpoint(n *yaml.Node, to *string) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port"}) {
		return
	}
	_, port, err := net.SplitHostPort(n.Value)
	if k, e := strconv.ParseUint(port, 10, 16); n.Kind != yaml.ScalarNode || err != nil || e != nil || k == 0 {
		d.Fail(n, "such as 127.0.0.1:9100", "listen must be an address with a port, not %s", strictyaml.Kind(n))
		return
	}
	*to = n.Value
}

func (d *decoder) groups(n *yaml.Node, to *[]string) {
	d.List(n, "groups", maxGroups, func(n *yaml.Node) {
		var g string
		d.text(n, "a group", &g)
		*to = append(*to, g)
	})
}

func (d *decoder) rdma(n *yaml.Node, c *Config) {
	d.at.rdma = n
	r := &c.RDMA
	d.Mapping(n, "rdma",
		strictyaml.Required("address", func(n *yaml.Node) {
			if d.Word(n, autoSocket) {
				r.Address = autoSocket
				return
			}
			var a netip.Addr
			if d.addr(n, "address", &a); a.IsValid() {
				r.Address = a.String()
			}
		}),
		strictyaml.Optional("socket", func(n *yaml.Node) { d.text(n, "socket", &r.Socket) }),
		strictyaml.Optional("groups", func(n *yaml.Node) { d.groups(n, &r.Groups) }),
		strictyaml.Optional("everyone", func(n *yaml.Node) { d.truth(n, "everyone", &r.Everyone) }),
	)
}
