package config

import "net/netip"

// checkOverlaps reports addresses that the gateway would have in two roles.
func (d *checker) checkOverlaps(c *Config) {
	snats, fronts := d.roles(c)
	for _, p := range d.places.tunnel {
		for _, a := range d.places.snat {
			if p.value.Contains(a.value) {
				d.Fail(p.node, "outer sources need addresses of their own", "tunnel source %s holds the snat address %s on line %d", p.value, a.value, a.node.Line)
			}
		}
	}
	for i := range c.Services {
		s, at := &c.Services[i], &d.places.services[i]
		for j, ap := range s.Addresses {
			if p, ok := d.tunnelOf(ap.Addr()); ok {
				d.Fail(at.addresses[j], "outer sources need addresses of their own: a backend drops what comes from an address that it has",
					"address %s lies in the tunnel source %s on line %d", ap.Addr(), p.value, p.node.Line)
			}
		}
		for j := range s.Backends {
			d.checkRoles(s, &s.Backends[j], &at.backends[j], roles{snats, fronts})
		}
	}
}

// roles are the lines of addresses that the gateway answers for.
type roles struct{ snats, fronts map[netip.Addr]int }

// roles returns the line of each SNAT address and of each service's address.
func (d *checker) roles(c *Config) (snats, fronts map[netip.Addr]int) {
	snats, fronts = map[netip.Addr]int{}, map[netip.Addr]int{}
	for _, p := range d.places.snat {
		snats[p.value] = p.node.Line
	}
	for i := range c.Services {
		for j, ap := range c.Services[i].Addresses {
			if _, ok := fronts[ap.Addr()]; !ok {
				fronts[ap.Addr()] = d.places.services[i].addresses[j].Line
			}
		}
	}
	return snats, fronts
}

// tunnelOf returns the tunnel source that an address lies in.
func (d *checker) tunnelOf(a netip.Addr) (place[netip.Prefix], bool) {
	for _, p := range d.places.tunnel {
		if p.value.Contains(a) {
			return p, true
		}
	}
	return place[netip.Prefix]{}, false
}

// checkRoles reports a backend that is the gateway itself: what is sent there would come back. NAT
// distinguishes services' addresses by port; checkBackends looks at those.
func (d *checker) checkRoles(s *Service, b *Backend, at *backendPlace, r roles) {
	for i, ap := range b.Addresses {
		n, a := at.addresses[i], ap.Addr()
		if line, ok := r.snats[a]; ok {
			d.Fail(n, "", "backend %s is the gateway itself: it is the snat address on line %d", a, line)
		}
		if line, ok := r.fronts[a]; ok && s.Mode.Direct() {
			d.Fail(n, "write an address that the backend alone has", "backend %s is the gateway itself: it is the address of a service on line %d", a, line)
		}
		if p, ok := d.tunnelOf(a); ok {
			d.Fail(n, "outer sources need addresses of their own: a backend drops what comes from an address that it has",
				"backend %s lies in the tunnel source %s on line %d", a, p.value, p.node.Line)
		}
	}
}
