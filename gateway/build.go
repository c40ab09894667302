package gateway

import (
	"net/netip"
	"slices"
)

// pool is a Maglev table and what it was made of, to be kept while that stays the same.
type pool struct {
	shares []share
	size   int
	table  maglev
}

// poolKey names a pool: a service by number, and the address family.
type poolKey struct {
	service uint32
	is4     bool
}

// build returns a snapshot of configuration c with the present health and hops, on top of the
// places that old has given. The caller holds g.mu.
func (g *Gateway) build(old *snapshot, c *Config) *snapshot {
	s := &snapshot{
		ports:     old.ports,
		fronts:    slices.Clone(old.fronts),
		services:  slices.Clone(old.services),
		backends:  slices.Clone(old.backends),
		endpoints: slices.Clone(old.endpoints),
		snats:     slices.Clone(old.snats),
		timeouts:  newTimeouts(&c.Table),
		tunnel:    newTunnel(&c.Tunnel),
		dropL4:    c.Checksum == "drop",
	}
	for i := range s.fronts {
		s.fronts[i].service = -1
	}
	for i := range s.backends {
		s.backends[i].present = false
	}
	for i := range s.endpoints {
		s.endpoints[i].inUse, s.endpoints[i].client = false, false
	}
	for _, a := range c.SNAT {
		n := g.reg.snat(s, a)
		if a.Is4() {
			s.snat4 = append(s.snat4, n)
		} else {
			s.snat6 = append(s.snat6, n)
		}
	}
	for i := range c.Services {
		g.buildService(s, &c.Services[i])
	}
	g.applyUsable(s)
	g.applyHops(s)
	s.keys = g.buildIndex(s, c)
	return s
}

// buildService enters the addresses and backends of a service.
func (g *Gateway) buildService(s *snapshot, sv *Service) {
	id, proto := g.reg.service(s, sv.Name), protoOf(sv.Protocol)
	direct := sv.Mode.Direct()
	s.services[id].mode = sv.Mode
	s.services[id].fromClient = direct || sv.Source == SourceClient
	s.services[id].adopts = s.services[id].fromClient
	for _, ap := range sv.Addresses {
		s.fronts[g.reg.front(s, transport{ap, proto})].service = int32(id)
	}
	for _, b := range sv.Backends {
		for _, ap := range b.Addresses {
			n := g.reg.backend(s, backendName{sv.Name, b.Name, ap, proto})
			s.backends[n].present = true
			s.backends[n].way = wayOf(sv.Mode)
			e := &s.endpoints[s.backends[n].endpoint]
			e.inUse = true
			e.client = e.client || !direct && sv.Source == SourceClient
			e.wasClient = e.wasClient || e.client
		}
	}
}

// applyUsable sets which backends are usable and makes the tables of services where that, or which
// next hops are known, changed.
func (g *Gateway) applyUsable(s *snapshot) {
	for id := range s.backends {
		s.backends[id].usable = g.usable(uint32(id))
	}
	for i := range g.cfg.Services {
		sv := &g.cfg.Services[i]
		id := g.reg.services[sv.Name]
		s.services[id].pool4 = g.pool(poolKey{id, true}, sv)
		s.services[id].pool6 = g.pool(poolKey{id, false}, sv)
	}
}

// pool returns the table over the backends of one family that new connections may go to, the one of
// before when they are the same. A backend whose next hop is not known joins when it is: its first
// packets would be dropped. While no next hop is known all usable backends are in the table, so that
// drops tell why (no_neighbor, no_route).
func (g *Gateway) pool(key poolKey, sv *Service) maglev {
	var usable, ready []share
	for _, b := range sv.Backends {
		for _, ap := range b.Addresses {
			n := g.reg.backends[backendName{sv.Name, b.Name, ap, protoOf(sv.Protocol)}]
			if !b.serves(sv.Mode, ap, key.is4) || !g.usable(n) || g.ejected[n] != nil {
				continue
			}
			one := share{b.Name, b.Weight, n}
			usable = append(usable, one)
			if b.Weight > 0 && g.hops[addrOf(ap.Addr())].State == HopReady {
				ready = append(ready, one)
			}
		}
	}
	shares := ready
	if len(ready) == 0 {
		shares = usable
	}
	old := g.pools[key]
	if old == nil || old.size != sv.HashSize || !slices.Equal(old.shares, shares) {
		old = &pool{shares, sv.HashSize, newMaglev(shares, sv.HashSize)}
		g.pools[key] = old
	}
	return old.table
}

// alive reports whether a backend passes its checks, and a reload did not cut it off.
func (g *Gateway) alive(id uint32) bool { return !g.down[id] && !g.cut[id] }

// usable reports whether packets may go to a backend. One that is ejected keeps its TCP connections:
// that it refuses new ones does not say that it is dead.
func (g *Gateway) usable(id uint32) bool {
	e := g.ejected[id]
	return g.alive(id) && (e == nil || !e.all)
}

// applyHops enters the present hops.
func (g *Gateway) applyHops(s *snapshot) {
	for i := range s.endpoints {
		s.endpoints[i].hop = g.hops[s.endpoints[i].addr]
	}
}

// buildIndex makes the index of everything that a packet may be for or from. Service addresses and
// endpoints that are gone from the configuration stay: connections may use them.
func (g *Gateway) buildIndex(s *snapshot, c *Config) index {
	var all []indexSlot
	for i, f := range s.fronts {
		all = append(all, indexSlot{f.addr, tagOf(kindFront, f.port, f.proto), uint32(i)})
		if f.service >= 0 {
			all = append(all, indexSlot{f.addr, tagOf(kindLocal, 0, 0), 0})
		}
	}
	for i, e := range s.endpoints {
		if e.port == 0 { // of a direct mode: its replies pass by
			continue
		}
		all = append(all, indexSlot{e.addr, tagOf(kindEndpoint, e.port, e.proto), uint32(i)})
	}
	for i := 1; i < len(s.snats); i++ {
		all = append(all, indexSlot{s.snats[i], tagOf(kindSNAT, 0, 0), uint32(i)})
	}
	for _, a := range c.SNAT {
		all = append(all, indexSlot{addrOf(a), tagOf(kindLocal, 0, 0), 0})
	}
	return newIndex(all)
}

// backendAddrs returns the distinct addresses that need a next hop: those of the configuration's
// backends, and those that connections still go to.
func (g *Gateway) backendAddrs(s *snapshot) []netip.Addr {
	var list []netip.Addr
	for i := range s.endpoints {
		if s.endpoints[i].inUse || g.endpointFlows(s, uint32(i)) > 0 {
			list = append(list, s.endpoints[i].addr.Addr())
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// endpointFlows returns the number of connections to an endpoint.
func (g *Gateway) endpointFlows(s *snapshot, endpoint uint32) (n uint64) {
	for i := range s.backends {
		if s.backends[i].endpoint == endpoint {
			n += s.backends[i].flows()
		}
	}
	return n
}

// flows returns the number of connections of a backend. What closes meanwhile counts as open.
func (b *backend) flows() uint64 {
	over := b.count(closed)
	return b.count(opened) - over
}

// count returns a count of a backend over all loops.
func (b *backend) count(what int) (n uint64) {
	for _, block := range b.stats {
		n += block.Load(what)
	}
	return n
}
