package config

import (
	"net/netip"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/devargs"
)

// place is a value and where it stands in the file.
type place[T any] struct {
	value T
	node  *yaml.Node
}

// places are the parts of the file that are compared with each other after it has been read.
type places struct {
	keys      keyPlaces // of the root
	devices   []devicePlace
	snat      []place[netip.Addr]
	tunnel    []place[netip.Prefix]
	snatWrong bool           // some could not be read: what is missing is not known
	services  []servicePlace // in the order of Config.Services
	policies  []policyPlace  // in the order of Config.Inspection.Policies

	halfOpen *yaml.Node // nil when absent

	adminToken *yaml.Node // the same
	defence    *yaml.Node // the same
	bgp        bgpPlace
	sync       syncPlace

	networkRoutes        []*yaml.Node
	rateLimits           []rateLimitPlace
	caches               []cachePlace
	listeners            []listenerPlace // in the order of Config.Listeners; and so on
	routes               []routePlace
	tlsRoutes, tcpRoutes []routePlace
	pools                []poolPlace
}

// devicePlace is where a device stands.
type devicePlace struct {
	place[Device]
	addresses *yaml.Node // nil when absent
}

type servicePlace struct {
	node, name, source   *yaml.Node
	balance, persistence *yaml.Node
	mode, mss, quic      *yaml.Node
	announce             *yaml.Node // nil when absent
	unknown              *yaml.Node // of the service and of keys in it; nil when absent
	addresses            []*yaml.Node
	backends             []backendPlace
	health, passive      keyPlaces // nil when absent
}

type backendPlace struct {
	node, name, serverID *yaml.Node
	addresses            []*yaml.Node
}

// check compares the parts of the file with each other.
func (d *checker) check(c *Config) {
	d.checkParts(c)
	d.checkDevices()
	d.checkSNAT(c)
	d.checkTable(c)
	d.checkDefence(c)
	fronts := d.checkFronts(c)
	d.checkOverlaps(c)
	d.checkInspection(c)
	routeInspectionChecker{d}.check(c)
	d.checkListeners(c, fronts)
	d.checkACME(c)
	d.checkRoutes(c)
	d.checkGuards(c)
	wafChecker{d}.check(c)
	d.checkCaches(c)
	d.checkPools(c)
	bgpChecker{d}.check(c)
	roleChecker{d}.check(c)
	names, ranges := map[string]int{}, map[frontAddr]bool{}
	for i := range c.Services {
		s, at := &c.Services[i], &d.places.services[i]
		d.unique(names, s.Name, at.name, "service")
		if s.HashSize == 0 {
			s.HashSize = autoHashSize(s.Backends)
		}
		d.checkBackends(s, at, fronts)
		d.checkMode(c, s, at)
		for _, b := range s.Backends {
			for _, a := range b.Addresses {
				if a.IsRange() || s.KeepsPort(a) {
					ranges[frontAddr{a.Addr(), s.Protocol}] = true
				}
			}
		}
		d.checkQUIC(s, at)
		if !s.Mode.Direct() {
			d.checkFamilies(c, s, at)
		}
		d.checkHealth(s, at)
		d.checkPassive(s, at)
	}
	if len(ranges) > maxRanges {
		d.Fail(d.places.services[0].node, "", "%d addresses of backends have ranges of ports; at most %d are allowed", len(ranges), maxRanges)
	}
	d.checkEffects(c)
}

// unique reports a name that an earlier line has already.
func (d *decoder) unique(lines map[string]int, name string, n *yaml.Node, what string) {
	if name == "" || n == nil {
		return
	}
	if line, ok := lines[name]; ok {
		d.Fail(n, "", "%s %q is already on line %d", what, name, line)
		return
	}
	lines[name] = n.Line
}

func (d *checker) checkDevices() {
	names := map[string]int{}
	for _, p := range d.places.devices {
		d.unique(names, p.value.Name, p.node, "device")
		if first := d.places.devices[0]; p.value.Queues != first.value.Queues {
			d.Fail(p.node, "loop i serves queue i of every device",
				"device %q has %s queues, but %q has %s", p.value.Name, p.value.queues(), first.value.Name, first.value.queues())
		}
		if devargs.Is(p.value.Name) && (p.value.Driver != "auto" || p.value.Mode != "auto") {
			d.Fail(p.node, "leave driver and mode out: the name selects them", "device %q has driver %s, mode %s", p.value.Name, p.value.Driver, p.value.Mode)
		}
		if p.value.Driver == "tap" && p.value.Ring != DefaultRing {
			d.Fail(p.node, "`ip link set DEV txqueuelen N` sets it",
				"device %q has ring %d, but packets of a tap device wait in the kernel", p.value.Name, p.value.Ring)
		}
	}
}

// queues says the number as the file does.
func (d *Device) queues() string {
	if d.Queues == QueuesAuto {
		return "auto"
	}
	return strconv.Itoa(d.Queues)
}

func (d *checker) checkSNAT(c *Config) {
	lines := map[string]int{}
	for _, p := range d.places.snat {
		d.unique(lines, p.value.String(), p.node, "snat address")
	}
	if len(c.Devices) > 0 && len(d.places.snat) > 0 && c.SNATPorts.Size() < c.Loops()*c.Gateways() {
		d.Fail(d.places.snat[0].node, "", "snat_ports has %d ports for %d loops", c.SNATPorts.Size(), c.Loops()*c.Gateways())
	}
}

func (d *checker) checkBackends(s *Service, at *servicePlace, fronts *fronts) {
	names, addrs := map[string]int{}, map[string]int{}
	for i := range s.Backends {
		b, p := &s.Backends[i], &at.backends[i]
		d.unique(names, b.Name, p.name, "backend")
		if len(b.Addresses) == 2 && b.Addresses[0].Addr().Is4() == b.Addresses[1].Addr().Is4() {
			d.Fail(p.addresses[1], "write one backend for each", "backend %q has two addresses of one family", b.Name)
		}
		for j, ap := range b.Addresses {
			n := p.addresses[j]
			d.unique(addrs, nameOf(ap), n, "backend address")
			for _, ports := range s.leadsTo(ap) {
				if line, ok := fronts.of(ap.Addr(), ports, s.Protocol); ok && !s.Mode.Direct() {
					d.Fail(n, "", "backend %s is the gateway itself: it is the address of a service on line %d", nameOf(ap), line)
					break
				}
			}
		}
	}
}

// checkFamilies reports backends that no address of the service can lead to, and addresses that
// lead to no backend: NAT does not change the address family.
func (d *checker) checkFamilies(c *Config, s *Service, at *servicePlace) {
	back := map[bool]bool{}
	front := map[bool]bool{}
	for _, ap := range s.Addresses {
		front[ap.Addr().Is4()] = true
	}
	for i, b := range s.Backends {
		for j, ap := range b.Addresses {
			back[ap.Addr().Is4()] = true
			if len(front) > 0 && !front[ap.Addr().Is4()] {
				d.Fail(at.backends[i].addresses[j], "NAT needs backends of the same address family",
					"backend %s is %s, but service %q has no %s address", ap, family(ap.Addr()), s.Name, family(ap.Addr()))
			}
		}
	}
	for j, ap := range s.Addresses {
		if len(back) > 0 && !back[ap.Addr().Is4()] {
			d.Fail(at.addresses[j], "NAT needs backends of the same address family",
				"address %s is %s, but service %q has no %s backend", ap, family(ap.Addr()), s.Name, family(ap.Addr()))
		}
		if s.Source == SourceGateway && !d.places.snatWrong && !hasFamily(c.SNAT, ap.Addr()) {
			d.Fail(at.addresses[j], "add one to snat, or set `source: client`",
				"service %q needs an %s snat address", s.Name, family(ap.Addr()))
		}
	}
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func hasFamily(list []netip.Addr, like netip.Addr) bool {
	for _, a := range list {
		if a.Is4() == like.Is4() {
			return true
		}
	}
	return false
}
