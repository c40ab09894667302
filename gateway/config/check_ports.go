package config

import (
	"cmp"
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"
)

// front is an address and port range of a service.
type front struct {
	at    AddrPorts
	proto string
}

// frontAddr is an address and a protocol that services listen on.
type frontAddr struct {
	addr  netip.Addr
	proto string
}

// frontRange is a range of ports of a service.
type frontRange struct {
	at      AddrPorts
	service string
	node    *yaml.Node
}

// fronts indexes the addresses and ports of services.
type fronts struct {
	lines  map[front]int              // where each stands
	all    map[frontAddr][]frontRange // the same by address
	ranges map[frontAddr][]frontRange // those of several ports
}

// checkFronts reports addresses that two services share, ranges of ports that overlap, and ports that would swallow
// replies to an SNAT address. A single port takes precedence over a range, and a range over AllPorts.
func (d *checker) checkFronts(c *Config) *fronts {
	f := &fronts{lines: map[front]int{}, all: map[frontAddr][]frontRange{}, ranges: map[frontAddr][]frontRange{}}
	for i := range c.Services {
		s := &c.Services[i]
		for j, a := range s.Addresses {
			n, key := d.places.services[i].addresses[j], front{a, s.Protocol}
			if line, ok := f.lines[key]; ok {
				d.Fail(n, "", "address %s/%s is already served on line %d", a, s.Protocol, line)
				continue
			}
			f.lines[key] = n.Line
			at, is := frontAddr{a.Addr(), s.Protocol}, frontRange{a, s.Name, n}
			f.all[at] = append(f.all[at], is)
			if a.IsRange() {
				f.ranges[at] = append(f.ranges[at], is)
			}
			for _, p := range d.places.snat {
				if p.value == a.Addr() && c.SNATPorts.Overlaps(a.Ports()) {
					d.Fail(n, "take another address, or narrow snat_ports",
						"address %s overlaps the ports of the snat address on line %d", a, p.node.Line)
				}
			}
		}
	}
	for _, list := range f.ranges {
		d.checkRanges(list)
	}
	if len(f.ranges) > maxRanges {
		d.Fail(d.places.services[0].node, "", "services have ranges of ports at %d addresses; at most %d are allowed", len(f.ranges), maxRanges)
	}
	return f
}

// checkRanges reports ranges of one address and protocol that overlap.
func (d *checker) checkRanges(list []frontRange) {
	list = slices.DeleteFunc(slices.Clone(list), func(r frontRange) bool { return r.at.Ports() == AllPorts })
	slices.SortFunc(list, func(a, b frontRange) int { return cmp.Compare(a.at.Port(), b.at.Port()) })
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		if a.at.Ports().Overlaps(b.at.Ports()) {
			if a.node.Line > b.node.Line {
				a, b = b, a
			}
			d.Fail(b.node, "a port is of one range only", "address %s of service %q overlaps %s of service %q on line %d",
				b.at, b.service, a.at, a.service, a.node.Line)
		}
		if list[i-1].at.Ports().Last > list[i].at.Ports().Last {
			list[i] = list[i-1] // what comes next is compared with the one that ends last
		}
	}
}

// of returns the line of a service address that has one of the given ports of an address.
func (f *fronts) of(a netip.Addr, ports PortRange, proto string) (line int, ok bool) {
	list := f.all[frontAddr{a, proto}]
	if ports.First == ports.Last {
		if line, ok := f.lines[front{AddrPorts{a, ports}, proto}]; ok {
			return line, true
		}
		list = f.ranges[frontAddr{a, proto}]
	}
	for _, r := range list {
		if r.at.Ports().Overlaps(ports) {
			return r.node.Line, true
		}
	}
	return 0, false
}

// checkBackendPorts reports ports of a backend's address that those of the service's addresses cannot be translated to.
func (d *checker) checkBackendPorts(s *Service, a AddrPorts, n *yaml.Node) {
	switch {
	case a.Ports() == AllPorts:
		d.Fail(n, "write "+a.Addr().String()+", which keeps the client's port", "backend %s cannot have all ports", a)
		return
	case !a.IsRange():
		return
	}
	hint := "write " + a.First().String()
	if s.HasRange() {
		hint = "write a range of the same length, one port for all, or " + a.Addr().String() + ", which keeps the client's port"
	}
	for _, front := range s.Addresses {
		if front.Addr().Is4() == a.Addr().Is4() && front.Ports().Size() != a.Ports().Size() {
			d.Fail(n, hint,
				"backend %s has %d ports, and address %s has %d", a, a.Ports().Size(), front, front.Ports().Size())
			return
		}
	}
}

// leadsTo returns the ports that the service's packets of an address's family reach it on.
func (s *Service) leadsTo(a AddrPorts) (list []PortRange) {
	if !s.KeepsPort(a) {
		return []PortRange{a.Ports()}
	}
	for _, front := range s.Addresses {
		if front.Addr().Is4() == a.Addr().Is4() {
			list = append(list, front.Ports())
		}
	}
	return list
}
