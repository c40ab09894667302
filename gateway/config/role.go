package config

import (
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// Role makes one of two gateways answer for the addresses, the active one, while the other waits, the standby.
type Role struct {
	Priority     int           // key "priority": 1 to 254, default 100: the higher one is active where neither is yet
	Lease        time.Duration // key "lease": the standby takes over when it has not heard its peer for so long, default 1s
	Preempt      bool          // key "preempt": ask an active peer of lower priority for the addresses, default false
	PreemptDelay time.Duration // key "preempt_delay": once the peer could be replaced for so long, default 30s
	Paths        []RolePath    // key "paths": beside listen and peer of sync
	Watch        []netip.Addr  // key "watch": of neighbours, such as routers; where none answers any more the peer takes over
}

// RolePath is a pair of addresses that the gateways also exchange messages over.
type RolePath struct {
	Listen netip.AddrPort // key "listen", required: of this machine
	Peer   netip.AddrPort // key "peer", required: of the other one
}

// The shortest and the longest lease.
const (
	minLease = 200 * time.Millisecond
	maxLease = time.Minute
)

// Bounds of the networks between two gateways, and of the addresses that each asks for six times in a lease.
const (
	maxPaths   = 8
	maxWatched = 4
)

func newRole() *Role {
	return &Role{Priority: 100, Lease: time.Second, PreemptDelay: 30 * time.Second}
}

// role reads which of two gateways answers for the addresses.
func (d *decoder) role(n *yaml.Node, s *Sync) {
	r := s.Role
	d.Mapping(n, "role",
		strictyaml.Optional("priority", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "priority", &r.Priority, 1, 254) }),
		strictyaml.Optional("lease", func(n *yaml.Node) { d.Duration(n, "lease", &r.Lease, minLease, maxLease) }),
		strictyaml.Optional("preempt", func(n *yaml.Node) { d.Truth(n, "preempt", &r.Preempt) }),
		strictyaml.Optional("preempt_delay", func(n *yaml.Node) { d.Duration(n, "preempt_delay", &r.PreemptDelay, 0, maxTimeout) }),
		strictyaml.Optional("paths", func(n *yaml.Node) {
			d.List(n, "paths", maxPaths, func(n *yaml.Node) {
				var p RolePath
				d.Mapping(n, "path",
					strictyaml.Required("listen", func(n *yaml.Node) { p.Listen, _ = d.addrPort(n, "listen") }),
					strictyaml.Required("peer", func(n *yaml.Node) { p.Peer, _ = d.addrPort(n, "peer") }),
				)
				if n != nil && p.Listen.IsValid() && (p.Listen == p.Peer || p.Listen.Addr().Is4() != p.Peer.Addr().Is4()) {
					d.Fail(n, "listen is an address of this machine, peer one of the other, both of one family", "the path leads from %v to %v", p.Listen, p.Peer)
				}
				r.Paths = append(r.Paths, p)
				d.places.sync.paths = append(d.places.sync.paths, n)
			})
		}),
		strictyaml.Optional("watch", func(n *yaml.Node) {
			d.List(n, "watch", maxWatched, func(n *yaml.Node) {
				a, _ := d.addr(n, "watch")
				r.Watch = append(r.Watch, a)
				d.places.sync.watch = append(d.places.sync.watch, n)
			})
		}),
	)
}

// sameTransport reports whether two roles differ only in keys that a reload may change.
func (r *Role) sameTransport(o *Role) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Lease == o.Lease && slices.Equal(r.Paths, o.Paths)
}

// syncPlace is where the addresses of the messages between two gateways stand.
type syncPlace struct {
	listen, peer *yaml.Node
	paths        []*yaml.Node // in the order of Role.Paths
	watch        []*yaml.Node // in that of Role.Watch
}

// roleChecker reports addresses that a role would not move.
type roleChecker struct{ *checker }

// check reports service and SNAT addresses that a host at the devices has as well (`stack: devices`): it answers for them,
// whichever gateway is active.
func (d roleChecker) check(c *Config) {
	if c.Sync == nil || c.Sync.Role == nil {
		return
	}
	d.checkPaths(c)
	hosts := map[netip.Addr]bool{}
	for i := range c.Devices {
		for _, p := range c.Devices[i].Addresses {
			hosts[p.Addr()] = true
		}
	}
	refuse := func(a netip.Addr, n *yaml.Node) {
		if hosts[a] {
			d.Fail(n, "give the devices of both gateways other addresses", "%v is an address of a device, whose host answers for it whichever gateway is active", a)
		}
	}
	for i := range c.Services {
		for k, ap := range c.Services[i].Addresses {
			refuse(ap.Addr(), d.places.services[i].addresses[k])
		}
	}
	for _, p := range d.places.snat {
		refuse(p.value, p.node)
	}
}

// checkPaths reports paths that cannot be opened beside another one, and addresses of messages that move with the role: a gateway
// that is not active could not send from them.
func (d roleChecker) checkPaths(c *Config) {
	moved := map[netip.Addr]bool{}
	for i := range c.Services {
		for _, ap := range c.Services[i].Addresses {
			moved[ap.Addr()] = true
		}
	}
	for _, a := range c.SNAT {
		moved[a] = true
	}
	refuse := func(n *yaml.Node, list ...netip.AddrPort) {
		for _, ap := range list {
			if n != nil && moved[ap.Addr()] {
				d.Fail(n, "listen and peer are addresses of the machines' kernels, which stay where they are", "%v is a service or SNAT address, which moves with the role", ap.Addr())
			}
		}
	}
	at := d.places.sync
	for i, a := range c.Sync.Role.Watch {
		if moved[a] {
			d.Fail(at.watch[i], "name addresses of other hosts, such as the next router", "%v is a service or SNAT address, for which a gateway answers itself", a)
		}
	}
	refuse(at.listen, c.Sync.Listen)
	refuse(at.peer, c.Sync.Peer)
	used := map[netip.AddrPort]string{c.Sync.Listen: "sync.listen"}
	for i, p := range c.Sync.Role.Paths {
		refuse(at.paths[i], p.Listen, p.Peer)
		if by := used[p.Listen]; by != "" && p.Listen.IsValid() {
			d.Fail(at.paths[i], "leave this path out, or give it addresses of another network", "%v is the address of %s already", p.Listen, by)
		}
		used[p.Listen] = "another path"
	}
}
