package config

import (
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/strictyaml"
)

// config reads the root of the file.
func (d *decoder) config(n *yaml.Node, c *Config) {
	k := keyPlaces{"": n}
	d.places.keys = k
	l7 := &l7Decoder{d}
	d.Mapping(n, "the configuration", k.under("",
		strictyaml.Optional("devices", func(n *yaml.Node) { d.devices(n, c) }),
		strictyaml.Optional("snat", func(n *yaml.Node) { d.snat(n, c) }),
		strictyaml.Optional("snat_ports", func(n *yaml.Node) { d.portRange(n, "snat_ports", &c.SNATPorts) }),
		strictyaml.Optional("checksum", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "checksum", &c.Checksum, "forward", "drop") }),
		strictyaml.Optional("engine", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "engine", &c.Engine, "cpu", "cuda", "auto") }),
		strictyaml.Optional("hash_key_file", func(n *yaml.Node) { d.hashKeyFile(n, c) }),
		strictyaml.Optional("kernel_flows", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "kernel_flows", &c.KernelFlows, KernelFlowsOff, KernelFlowsAuto, KernelFlowsOn)
		}),
		strictyaml.Optional("cpus", func(n *yaml.Node) { d.cpus(n, &c.CPUs) }),
		strictyaml.Optional("extra_processor", func(n *yaml.Node) { d.Truth(n, "extra_processor", &c.ExtraProcessor) }),
		strictyaml.Optional("spin", func(n *yaml.Node) { d.Duration(n, "spin", &c.Spin, time.Microsecond, time.Second) }),
		strictyaml.Optional("tunnel", func(n *yaml.Node) { d.tunnel(n, &c.Tunnel) }),
		strictyaml.Optional("sources", func(n *yaml.Node) { d.sources(n, &c.Sources) }),
		strictyaml.Optional("limits", func(n *yaml.Node) { d.limits(n, &c.Limits, true) }),
		strictyaml.Optional("defence", func(n *yaml.Node) { d.defence(n, c) }),
		strictyaml.Optional("table", func(n *yaml.Node) { d.table(n, &c.Table) }),
		strictyaml.Optional("sync", func(n *yaml.Node) { d.sync(n, c) }),
		strictyaml.Optional("bgp", func(n *yaml.Node) { bgpDecoder{d}.bgp(n, c) }),
		strictyaml.Optional("admin", func(n *yaml.Node) { d.admin(n, &c.Admin) }),
		strictyaml.Optional("metrics", func(n *yaml.Node) { d.metrics(n, &c.Metrics) }),
		strictyaml.Optional("inspection", func(n *yaml.Node) { d.inspection(n, c) }),
		strictyaml.Optional("services", func(n *yaml.Node) { d.services(n, c) }),
		strictyaml.Optional("stack", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "stack", &c.Stack, StackKernel, StackDevices) }),
		strictyaml.Optional("loops", func(n *yaml.Node) { l7.proxyLoops(n, &c.ProxyLoops) }),
		strictyaml.Optional("network", func(n *yaml.Node) { l7.network(n, &c.Network) }),
		strictyaml.Optional("access_log", func(n *yaml.Node) { l7.accessLog(n, &c.AccessLog) }),
		strictyaml.Optional("tracing", func(n *yaml.Node) { l7.tracing(n, c) }),
		strictyaml.Optional("rate_limits", func(n *yaml.Node) { guardDecoder{l7}.rateLimits(n, c) }),
		strictyaml.Optional("caches", func(n *yaml.Node) { cacheDecoder{l7}.caches(n, c) }),
		strictyaml.Optional("listeners", func(n *yaml.Node) { l7.listeners(n, c) }),
		strictyaml.Optional("routes", func(n *yaml.Node) { l7.routes(n, c) }),
		strictyaml.Optional("tls_routes", func(n *yaml.Node) { l7.streamRoutes(n, "tls_routes", &c.TLSRoutes, &d.places.tlsRoutes) }),
		strictyaml.Optional("tcp_routes", func(n *yaml.Node) { l7.streamRoutes(n, "tcp_routes", &c.TCPRoutes, &d.places.tcpRoutes) }),
		strictyaml.Optional("resolver", func(n *yaml.Node) { l7.resolver(n, &c.Resolver) }),
		strictyaml.Optional("pools", func(n *yaml.Node) { l7.pools(n, c) }),
	)...)
}

func (d *decoder) devices(n *yaml.Node, c *Config) {
	d.List(n, "devices", maxDevices, func(n *yaml.Node) {
		dev, at := newDevice(), devicePlace{}
		d.Mapping(n, "a device",
			strictyaml.Required("name", func(n *yaml.Node) { d.deviceName(n, "name", &dev.Name) }),
			strictyaml.Optional("driver", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "driver", &dev.Driver, "auto", "afxdp", "afpacket", "tap")
			}),
			strictyaml.Optional("queues", func(n *yaml.Node) { d.queues(n, &dev.Queues) }),
			strictyaml.Optional("ring", func(n *yaml.Node) { strictyaml.PowerOfTwo(d.Decoder, n, "ring", &dev.Ring, MinRing, MaxRing) }),
			strictyaml.Optional("mode", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "mode", &dev.Mode, "auto", "native", "generic") }),
			strictyaml.Optional("addresses", func(n *yaml.Node) { at.addresses = n; d.deviceAddresses(n, &dev.Addresses) }),
		)
		at.value, at.node = dev, n
		d.places.devices = append(d.places.devices, at)
		c.Devices = append(c.Devices, dev)
	})
}

// queues reads "auto" or a number.
func (d *decoder) queues(n *yaml.Node, to *int) {
	if d.Word(n, "auto") {
		*to = QueuesAuto
		return
	}
	strictyaml.Integer(d.Decoder, n, "queues", to, 1, MaxQueues)
}

// deviceName reads a name that Linux allows for an interface, or that of a device of DPDK or a vhost-user socket.
func (d *decoder) deviceName(n *yaml.Node, what string, to *string) {
	if s := ""; d.Text(n, what, &s) {
		if devargs.Is(s) {
			if err := devargs.Check(s); err != nil {
				d.Fail(n, "", "%s is not a device: %v", what, err)
				return
			}
			*to = s
			return
		}
		if len(s) > 15 || strings.ContainsAny(s, "/ \t:") {
			d.Fail(n, "1 to 15 characters without space, / and :", "%s is not a name of an interface: %q", what, s)
			return
		}
		*to = s
	}
}

func (d *decoder) snat(n *yaml.Node, c *Config) {
	before := len(d.Problems)
	defer func() { d.places.snatWrong = len(d.Problems) > before }()
	d.OneOrMore(n, "snat", maxSNAT, func(n *yaml.Node) {
		if a, ok := d.addr(n, "snat"); ok {
			d.places.snat = append(d.places.snat, place[netip.Addr]{a, n})
			c.SNAT = append(c.SNAT, a)
		}
	})
}

func (d *decoder) table(n *yaml.Node, t *Table) {
	timeout := func(name string, to *time.Duration) strictyaml.Field {
		return strictyaml.Optional(name, func(n *yaml.Node) { d.Duration(n, name, to, time.Second, maxTimeout) })
	}
	d.Mapping(n, "table",
		strictyaml.Optional("size", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "size", &t.Size, 1024, maxTable) }),
		strictyaml.Optional("tcp", func(n *yaml.Node) {
			d.Mapping(n, "tcp", timeout("established", &t.TCPEstablished), timeout("syn", &t.TCPSYN), timeout("syn_recv", &t.TCPSYNReceived),
				timeout("half_closed", &t.TCPHalfClosed), timeout("fin", &t.TCPFIN), timeout("reset", &t.TCPReset))
		}),
		timeout("udp", &t.UDP),
		strictyaml.Optional("half_open", func(n *yaml.Node) {
			d.places.halfOpen = n
			strictyaml.Integer(d.Decoder, n, "half_open", &t.HalfOpen, 256, maxTable)
		}),
		strictyaml.Optional("kernel_flows", func(n *yaml.Node) {
			strictyaml.Integer(d.Decoder, n, "kernel_flows", &t.KernelFlows, MaxQueues, maxKernelFlows)
		}),
		strictyaml.Optional("fragments", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "fragments", &t.Fragments, 64, maxClients) }),
	)
}

// sync reads which gateway connections are shared with.
func (d *decoder) sync(n *yaml.Node, c *Config) {
	s, key, file := &Sync{}, false, false
	c.Sync = s
	d.Mapping(n, "sync",
		strictyaml.Required("listen", func(n *yaml.Node) { s.Listen, _ = d.addrPort(n, "listen"); d.places.sync.listen = n }),
		strictyaml.Required("peer", func(n *yaml.Node) {
			d.places.sync.peer = n
			if s.Peer, _ = d.addrPort(n, "peer"); s.Peer.IsValid() && s.Peer == s.Listen {
				d.Fail(n, "the listen address of the other gateway", "peer is this gateway itself")
			}
		}),
		strictyaml.Optional("key", func(n *yaml.Node) { key = true; d.hex(n, "key", &s.Key, syncKey, syncKey) }),
		strictyaml.Optional("key_file", func(n *yaml.Node) {
			if file = true; d.Text(n, "key_file", &s.KeyFile) {
				c.syncKeyAt = d.Place(n.Line, n.Column)
			}
		}),
		strictyaml.Required("index", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "index", &s.Index, 0, 1) }),
		strictyaml.Optional("role", func(n *yaml.Node) { s.Role = newRole(); d.role(n, s) }),
	)
	if n == nil { // the keys are described, not read
		return
	}
	switch {
	case key && file:
		d.Fail(n, "leave one of them out", "sync has both key and key_file")
	case !key && !file:
		d.Fail(n, "key_file names a file with the key", "sync has neither key_file nor key")
	}
}

// admin reads where the control socket lies; an empty string is none.

func (d *decoder) services(n *yaml.Node, c *Config) {
	d.List(n, "services", maxServices, func(n *yaml.Node) {
		s := newService()
		at := servicePlace{node: n}
		d.Mapping(n, "a service",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &s.Name) }),
			strictyaml.Optional("protocol", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "protocol", &s.Protocol, "tcp", "udp") }),
			strictyaml.Required("address", func(n *yaml.Node) { s.Addresses, at.addresses = d.serviceAddrs(n) }),
			strictyaml.Optional("mode", func(n *yaml.Node) {
				at.mode = n
				strictyaml.Choice(d.Decoder, n, "mode", &s.Mode, ModeNAT, ModeIPIP, ModeGUE, ModeL2)
			}),
			strictyaml.Optional("source", func(n *yaml.Node) {
				at.source = n
				strictyaml.Choice(d.Decoder, n, "source", &s.Source, SourceGateway, SourceClient)
			}),
			strictyaml.Optional("removed", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "removed", &s.Removed, "keep", "drop") }),
			strictyaml.Optional("unhealthy", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "unhealthy", &s.Unhealthy, "keep", "drop") }),
			strictyaml.Optional("unknown", func(n *yaml.Node) {
				at.unknown = n
				strictyaml.Choice(d.Decoder, n, "unknown", &s.Unknown, UnknownAuto, UnknownDrop, UnknownReset, UnknownPickUp)
			}),
			strictyaml.Optional("hash_size", func(n *yaml.Node) { d.hashSize(n, &s.HashSize) }),
			strictyaml.Optional("slow_start", func(n *yaml.Node) { d.Duration(n, "slow_start", &s.SlowStart, 0, 24*time.Hour) }),
			strictyaml.Optional("drain", func(n *yaml.Node) { d.Duration(n, "drain", &s.Drain, 0, maxTimeout) }),
			strictyaml.Optional("unavailable", func(n *yaml.Node) { d.unavailable(n, &s.Reject) }),
			strictyaml.Optional("mss", func(n *yaml.Node) { at.mss = n; d.mss(n, &s.MSS) }),
			strictyaml.Optional("balance", func(n *yaml.Node) {
				at.balance = n
				strictyaml.Choice(d.Decoder, n, "balance", &s.Balance, BalanceMaglev, BalanceLeastConnections)
			}),
			strictyaml.Optional("persistence", func(n *yaml.Node) { at.persistence = n; d.persistence(n, &s) }),
			strictyaml.Optional("when_full", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "when_full", &s.WhenFull, FullNext, FullReset, FullDrop)
			}),
			strictyaml.Optional("quic", func(n *yaml.Node) { at.quic = n; s.QUIC = &QUIC{}; d.quic(n, s.QUIC) }),
			strictyaml.Optional("sources", func(n *yaml.Node) { d.sources(n, &s.Sources) }),
			strictyaml.Optional("limits", func(n *yaml.Node) { d.limits(n, &s.Limits, false) }),
			strictyaml.Optional("announce", func(n *yaml.Node) { at.announce = n; bgpDecoder{d}.announce(n, &s) }),
			strictyaml.Required("backends", func(n *yaml.Node) { d.backends(n, &s, &at) }),
			strictyaml.Optional("health", func(n *yaml.Node) { s.Health = health.New(); d.health(n, s.Health, &at) }),
			strictyaml.Optional("passive", func(n *yaml.Node) { s.Passive = health.NewPassive(); d.passive(n, s.Passive, &at) }),
		)
		d.places.services = append(d.places.services, at)
		c.Services = append(c.Services, s)
	})
}

// serviceAddrs reads one or more addresses with ports or ranges of them, and where each stands.
func (d *decoder) serviceAddrs(n *yaml.Node) (list []AddrPorts, at []*yaml.Node) {
	d.OneOrMore(n, "address", 64, func(n *yaml.Node) {
		if d.Takes(strictyaml.Schema{Type: "string", Title: "IP:port, IP:first-last or IP:*"}) {
			return
		}
		if ap, ok := d.addrPorts(n, "address"); ok {
			list, at = append(list, ap), append(at, n)
		}
	})
	return list, at
}

// hashSize reads a prime; 0 stands for auto until all of the service is read.
func (d *decoder) hashSize(n *yaml.Node, to *int) {
	if d.Word(n, "auto") {
		*to = 0
		return
	}
	var v int
	if !strictyaml.Integer(d.Decoder, n, "hash_size", &v, 251, 16777213) {
		return
	}
	if !prime(v) {
		d.Fail(n, "auto, or such as 1021, 65537 or 655373", "hash_size is %d, which is not a prime", v)
		return
	}
	*to = v
}

func (d *decoder) backends(n *yaml.Node, s *Service, at *servicePlace) {
	d.List(n, "backends", maxBackends, func(n *yaml.Node) {
		b := Backend{Weight: 1, State: StateActive}
		p := backendPlace{node: n, name: n}
		d.Mapping(n, "a backend",
			strictyaml.Optional("name", func(n *yaml.Node) { p.name = n; d.name(n, "name", &b.Name) }),
			strictyaml.Required("address", func(n *yaml.Node) { b.Addresses, p.addresses = d.backendAddrs(n) }),
			strictyaml.Optional("state", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "state", &b.State, StateActive, StateFilling, StateDraining, StateInactive)
			}),
			strictyaml.Optional("server_id", func(n *yaml.Node) { p.serverID = n; d.hex(n, "server_id", &b.ServerID, 1, 15) }),
			strictyaml.Optional("max_connections", func(n *yaml.Node) {
				strictyaml.Integer(d.Decoder, n, "max_connections", &b.MaxConnections, 0, maxTable)
			}),
			strictyaml.Optional("weight", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "weight", &b.Weight, 0, MaxWeight) }),
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
