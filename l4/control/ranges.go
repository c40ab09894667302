package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
)

// Ranges of ports. An address and protocol with ranges has one entry in the snapshot, and what its ports belong to is
// made anew by each build. The numbers of single ports that were there before stay in use: see datapath/ranges.go.

// rangeKey is an address and protocol that has ranges of ports.
type rangeKey struct {
	addr  netip.Addr
	proto uint8
}

// rangesFit reports a configuration with more ranges than there are numbers left.
func (g *Gateway) rangesFit(c *config.Config) error {
	vips, endpoints := map[rangeKey]bool{}, map[rangeKey]bool{}
	for i := range c.Services {
		s := &c.Services[i]
		proto := protoOf(s.Protocol)
		for _, a := range s.Addresses {
			if key := (rangeKey{a.Addr(), proto}); a.IsRange() && !g.reg.hasVIPRange(key) {
				vips[key] = true
			}
		}
		for _, b := range s.Backends {
			for _, a := range b.Addresses {
				if key := (rangeKey{a.Addr(), proto}); (a.IsRange() || s.KeepsPort(a)) && !g.reg.hasEndpointRange(key) {
					endpoints[key] = true
				}
			}
		}
	}
	if len(g.reg.vipRanges)+len(vips) > datapath.MaxRanges || len(g.reg.endpointRanges)+len(endpoints) > datapath.MaxRanges {
		return fmt.Errorf("ranges of ports at more than %d addresses since the start: %w", datapath.MaxRanges, ErrRestart)
	}
	return nil
}

func (r *registry) hasVIPRange(key rangeKey) bool      { _, ok := r.vipRanges[key]; return ok }
func (r *registry) hasEndpointRange(key rangeKey) bool { _, ok := r.endpointRanges[key]; return ok }

// vipRange returns the place of the range of an address and protocol in s.VIPRanges.
func (r *registry) vipRange(s *datapath.Snapshot, key rangeKey) uint32 {
	place, ok := r.vipRanges[key]
	if !ok {
		at := netip.AddrPortFrom(key.addr, 0)
		v := datapath.NewVIP(at, key.proto)
		v.Range = true
		n, _ := r.vips.get(transport{at: at, proto: key.proto, ranged: true})
		s.SetVIP(n, v)
		place = uint32(len(s.VIPRanges))
		s.VIPRanges = append(s.VIPRanges, datapath.VIPRange{VIP: n})
		r.vipRanges[key] = place
		r.grown = true
	}
	return place
}

// endpointRange returns the place of the endpoint of all ports of an address and protocol.
func (r *registry) endpointRange(s *datapath.Snapshot, key rangeKey) uint32 {
	if place, ok := r.endpointRanges[key]; ok {
		return place
	}
	place := r.endpoint(s, transport{at: netip.AddrPortFrom(key.addr, 0), proto: key.proto, ranged: true})
	s.EndpointRanges = append(s.EndpointRanges, place)
	r.endpointRanges[key] = place
	return place
}

// endpointOf returns the place of the endpoint of a backend's address, and how the ports of the service lead there.
func (r *registry) endpointOf(s *datapath.Snapshot, sv *config.Service, a config.AddrPorts, proto uint8) (uint32, datapath.PortMap) {
	key, t := rangeKey{a.Addr(), proto}, transport{at: a.First(), proto: proto}
	_, known := r.endpoints.of[t]
	switch {
	case a.IsRange() || sv.KeepsPort(a):
		return r.endpointRange(s, key), datapath.PortMap{First: a.Port()}
	case !known && a.Port() != 0 && r.hasEndpointRange(key): // connections may have the number of the range's port
		return r.endpointRanges[key], datapath.PortMap{First: a.Port(), One: true}
	}
	return r.endpoint(s, t), datapath.PortMap{}
}

// buildRanges enters which services of c have the ports of the addresses with ranges.
func (g *Gateway) buildRanges(s *datapath.Snapshot, c *config.Config) {
	if len(g.reg.vipRanges) == 0 {
		return
	}
	wanted := map[rangeKey][]datapath.Span{}
	for i := range c.Services {
		sv := &c.Services[i]
		for _, a := range sv.Addresses {
			if key := (rangeKey{a.Addr(), protoOf(sv.Protocol)}); g.reg.hasVIPRange(key) {
				wanted[key] = append(wanted[key], datapath.Span{
					Ports: datapath.PortRange(a.Ports()), First: a.Port(), Service: int32(g.reg.services.of[sv.Name]),
				})
			}
		}
	}
	s.VIPRanges = slices.Clone(s.VIPRanges)
	for key, place := range g.reg.vipRanges {
		r := &s.VIPRanges[place]
		for _, old := range r.Spans { // connections may use them
			wanted[key] = append(wanted[key], datapath.Span{Ports: old.Ports, First: old.Ports.First, Service: -1})
		}
		r.Spans = layer(wanted[key])
		for _, n := range g.reg.singles[key] {
			s.VIPs[n].Service = r.Service(s.VIPs[n].Port)
		}
	}
}

// layer returns spans without overlaps: of several that hold a port the shortest counts, and one of a service before one of
// none. Neighbours that belong together are one.
func layer(all []datapath.Span) (out []datapath.Span) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b datapath.Span) int {
		if (a.Service < 0) != (b.Service < 0) {
			return cmp.Compare(b.Service, a.Service)
		}
		return cmp.Compare(a.Ports.Size(), b.Ports.Size())
	})
	var edges []int // where a span begins, or one has ended
	for _, s := range all {
		edges = append(edges, int(s.Ports.First), int(s.Ports.Last)+1)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	owner := make([]int, len(edges)) // of the ports from an edge on: place in all, from 1
	next := make([]int, len(edges)+1)
	for i := range next {
		next[i] = i
	}
	free := func(i int) int { // the first edge from i on without an owner
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}
	for k, s := range all {
		i, _ := slices.BinarySearch(edges, int(s.Ports.First))
		for i = free(i); i < len(edges) && edges[i] <= int(s.Ports.Last); i = free(i) {
			owner[i], next[i] = k+1, i+1
		}
	}
	for i, k := range owner {
		if k == 0 {
			continue
		}
		s := all[k-1]
		s.Ports = datapath.PortRange{First: uint16(edges[i]), Last: uint16(edges[i+1] - 1)}
		if s.Service < 0 {
			s.First = 0
		}
		if n := len(out); n > 0 && int(out[n-1].Ports.Last)+1 == edges[i] && out[n-1].Service == s.Service && out[n-1].First == s.First {
			out[n-1].Ports.Last = s.Ports.Last
			continue
		}
		out = append(out, s)
	}
	return out
}

// lead reports that ports of a service's address lead to ports of an address of its backend.
type lead struct {
	front config.AddrPorts
	ports datapath.PortRange // of the backend
	first uint16             // port of the service that leads to the first
}

// leadsTo returns what leads to an address of a backend, of the same family.
func leadsTo(sv *config.Service, a config.AddrPorts) (list []lead) {
	for _, front := range sv.Addresses {
		if front.Addr().Is4() != a.Addr().Is4() {
			continue
		}
		l := lead{front, datapath.PortRange(a.Ports()), front.Port()}
		if sv.KeepsPort(a) {
			l.ports = datapath.PortRange(front.Ports())
		}
		list = append(list, l)
	}
	return list
}

// usersOf returns the backends that have the endpoint at a place, and those with a range of its address that may.
func (g *Gateway) usersOf(s *datapath.Snapshot, place uint32) (own, ranges []uint32) {
	e := s.Endpoints[place]
	for _, user := range g.reg.users[place] {
		if s.Backends[user].Endpoint == place {
			own = append(own, user)
		}
	}
	if e.Range {
		return nil, own
	}
	if at, ok := g.reg.endpointRanges[rangeKey{e.Addr(), e.Proto}]; ok && e.Port != 0 {
		for _, user := range g.reg.users[at] {
			if s.Backends[user].Endpoint == at {
				ranges = append(ranges, user)
			}
		}
	}
	return own, ranges
}

// spansOf returns what backends with ranges use of an endpoint.
func (g *Gateway) spansOf(s *datapath.Snapshot, place uint32, users []uint32) (spans []datapath.EndpointSpan) {
	e := s.Endpoints[place]
	for _, user := range users {
		b := s.Backends[user]
		o := g.services[b.Service]
		if !b.Configured || o.config == nil {
			continue
		}
		sv := s.Services[b.Service]
		for _, l := range leadsTo(o.config, g.reg.labels[user].Address) {
			if !e.Range && !l.ports.Contains(e.Port) {
				continue
			}
			transparent := sv.Transparent && !sv.Mode.Direct()
			spans = append(spans, datapath.EndpointSpan{
				Ports: l.ports, Backend: user, VIP: g.reg.numberAt(l.front, e.Proto), First: l.first, Several: l.front.Ports().Size() > l.ports.Size(),
				PickUp: transparent && sv.PickUp, ResetUnknown: sv.ResetUnknown, Transparent: transparent,
			})
		}
	}
	return spans
}

// numberAt returns a number of a service address: that of the single port, or of the whole range.
func (r *registry) numberAt(a config.AddrPorts, proto uint8) uint32 {
	if n, ok := r.vips.of[transport{at: a.First(), proto: proto}]; ok && !a.IsRange() {
		return n
	}
	return datapath.RangeNumber(r.vipRanges[rangeKey{a.Addr(), proto}])
}

// buildRangeEndpoint enters what the endpoint of all ports of an address is used for.
func (g *Gateway) buildRangeEndpoint(s *datapath.Snapshot, e *datapath.Endpoint) {
	e.InUse, e.Transparent = len(e.Spans) > 0, false
	for _, span := range e.Spans {
		if span.Transparent {
			e.Transparent = true
			e.Replies = joined(append(slices.Clone(e.Replies), span.Ports))
		}
	}
	e.WasTransparent = e.WasTransparent || e.Transparent
}

// joined sorts ranges and joins those that meet.
func joined(list []datapath.PortRange) (out []datapath.PortRange) {
	slices.SortFunc(list, func(a, b datapath.PortRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range list {
		if n := len(out); n > 0 && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
