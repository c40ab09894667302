package gateway

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/datapath"
	"github.com/millrace/millrace/gateway/quiclb"
)

// origin is what a service was made of, to tell what a reload changes, and its members.
type origin struct {
	config  *config.Service // nil: not in the configuration
	round   int             // the reload that saw it last
	fronts  []uint32        // its addresses
	ids     []uint32        // its backends, those that are gone included
	members map[string]*member
}

// replace returns a copy of an element that stands in its place from now on.
func replace[T any](list []*T, i uint32) *T {
	c := *list[i]
	list[i] = &c
	return &c
}

// build returns a snapshot of configuration c with the present health and hops, on top of the
// places that old has given. Services that c has as they were keep all they have. The caller holds
// g.mu.
func (g *Gateway) build(old *datapath.Snapshot, c *config.Config) *datapath.Snapshot {
	s := old.Clone()
	s.Fronts, s.Endpoints = slices.Clone(old.Fronts), slices.Clone(old.Endpoints)
	s.Timeouts, s.Tunnel, s.DropL4 = datapath.NewTimeouts(idleTimes(&c.Table)), datapath.NewTunnel(c.Tunnel.GUEPort, c.Tunnel.Sources), c.Checksum == "drop"
	s.Snat4, s.Snat6 = nil, nil
	for _, a := range c.SNAT {
		n := g.reg.snat(s, a)
		if a.Is4() {
			s.Snat4 = append(s.Snat4, n)
		} else {
			s.Snat6 = append(s.Snat6, n)
		}
	}
	changed := g.changedServices(s, c)
	s.Round = g.round
	for _, id := range changed { // before any comes, so that addresses can move between services
		g.clearService(s, id)
	}
	for _, id := range changed {
		g.buildService(s, id)
	}
	for _, id := range changed {
		g.buildEndpoints(s, id)
		g.renew(s, id, "configuration")
	}
	s.Limits, s.Sources = g.buildLimits(s, c), g.buildSources(s, c)
	if len(changed) > 0 || g.reg.grown || !slices.Equal(g.indexed, c.SNAT) {
		g.indexed, g.reg.grown = c.SNAT, false
		s.Index(c.SNAT)
	}
	return s
}

func idleTimes(t *config.Table) datapath.IdleTimes {
	return datapath.IdleTimes{UDP: t.UDP, TCPSYN: t.TCPSYN, TCPEstablished: t.TCPEstablished, TCPFIN: t.TCPFIN}
}

// changedServices enters the services of c and returns the numbers of those that are new, not as
// they were, or gone.
func (g *Gateway) changedServices(s *datapath.Snapshot, c *config.Config) (changed []uint32) {
	g.round++
	for i := range c.Services {
		sv := &c.Services[i]
		id := g.reg.service(s, sv.Name)
		if int(id) == len(g.origins) {
			g.origins = append(g.origins, &origin{members: map[string]*member{}})
		}
		o := g.origins[id]
		o.round = g.round
		if o.config == nil || !reflect.DeepEqual(o.config, sv) {
			changed = append(changed, id)
			g.wanted[id] = sv
			continue
		}
		o.config = sv // the same; lets go of the old configuration
	}
	for id, o := range g.origins {
		if o.config != nil && o.round != g.round {
			changed = append(changed, uint32(id))
		}
	}
	return changed
}

// clearService takes the addresses and backends of a service out of s, as far as its connections
// do not need them.
func (g *Gateway) clearService(s *datapath.Snapshot, id uint32) {
	o := g.origins[id]
	for _, n := range o.fronts {
		s.Fronts[n].Service = -1
	}
	for _, n := range o.ids {
		replace(s.Backends, n).Present = false
	}
}

// buildService enters the addresses and backends that a service is to have from now on, and what
// becomes of those that it had.
func (g *Gateway) buildService(s *datapath.Snapshot, id uint32) {
	o, sv := g.origins[id], g.wanted[id]
	delete(g.wanted, id)
	was := o.config
	o.config, o.fronts = sv, nil
	if sv != nil {
		g.enterService(s, id)
	}
	for _, n := range o.ids {
		switch b := s.Backends[n]; {
		case b.Present:
			delete(g.cut, n)
		case was != nil && hadBackend(was, &g.reg.labels[n]):
			g.cut[n] = was.Removed == "drop"
			delete(g.down, n) // nobody looks any more
		}
	}
	g.keepMembers(id, was)
}

// enterService enters the addresses and backends of a service of the configuration.
func (g *Gateway) enterService(s *datapath.Snapshot, id uint32) {
	o := g.origins[id]
	sv, proto := o.config, protoOf(o.config.Protocol)
	to := replace(s.Services, id)
	to.Way, to.FromClient, to.Reject = wayOf(sv.Mode), sv.Mode.Direct() || sv.Source == config.SourceClient, sv.Reject
	to.Mss = sv.MSS
	if sv.MSS == config.MSSAuto {
		to.Mss = datapath.MssAuto
	}
	for _, ap := range sv.Addresses {
		n := g.reg.front(s, transport{ap, proto})
		s.Fronts[n].Service = int32(id)
		o.fronts = append(o.fronts, n)
	}
	for _, name := range backendsOf(sv) {
		n := g.reg.backend(s, name)
		if int(n) == len(g.seats) {
			g.seats = append(g.seats, seat{})
			o.ids = append(o.ids, n)
		}
		s.Backends[n].Present, s.Backends[n].Way = true, wayOf(sv.Mode)
	}
	g.enterRoute(s, to, o)
}

// enterRoute enters what the connection IDs of a service's packets say. The configuration has been
// checked: it makes a codec.
func (g *Gateway) enterRoute(s *datapath.Snapshot, to *datapath.Service, o *origin) {
	to.Quic = nil
	if q := o.config.QUIC; q != nil {
		codec, err := quiclb.New(quiclb.Config{Rotation: q.Rotation, ServerID: q.ServerID, Nonce: q.Nonce, Key: q.Key})
		if err != nil {
			panic(err)
		}
		to.Quic = datapath.NewRoute(codec)
		for i := range o.config.Backends {
			g.enterServer(to.Quic, o.config, &o.config.Backends[i])
		}
	}
	for _, n := range o.ids {
		s.Backends[n].Quic = to.Quic
	}
}

// buildSources returns the lists of a configuration for the services of s. Tables of unchanged lists
// are compiled once: the mark, which makes handlers look at open connections again, stays then.
func (g *Gateway) buildSources(s *datapath.Snapshot, c *config.Config) datapath.Sources {
	lists, services := c.Lists(), make([]*datapath.SourceTable, len(s.Services))
	for name, t := range lists.Services {
		services[g.reg.services[name]] = sourcesOf(t)
	}
	changed := g.lists != lists && (s.Sources.Mark != 0 || lists.All != nil || len(lists.Services) > 0)
	g.lists = lists
	return s.Sources.Next(sourcesOf(lists.All), services, changed)
}

func sourcesOf(t *config.SourceTable) *datapath.SourceTable {
	if t == nil {
		return nil
	}
	return &datapath.SourceTable{Prefixes: t.Prefixes, Denied: config.SourceDeny, Deny: t.Deny}
}

// buildLimits returns the limits of a configuration for the services of s.
func (g *Gateway) buildLimits(s *datapath.Snapshot, c *config.Config) datapath.LimitTable {
	services := make([]datapath.Limits, len(s.Services))
	for i := range c.Services {
		services[g.reg.services[c.Services[i].Name]] = limitsOf(&c.Services[i].Limits)
	}
	return datapath.NewLimitTable(c.Limits.Clients, limitsOf(&c.Limits), services)
}

func limitsOf(l *config.Limits) datapath.Limits {
	return datapath.NewLimits(l.Packets, l.Connections, l.Burst)
}

// enterServer enters the addresses of a backend by its server ID.
func (g *Gateway) enterServer(r *datapath.Route, sv *config.Service, b *config.Backend) {
	for f := range datapath.Families {
		for _, ap := range b.Addresses {
			if b.Serves(sv.Mode, ap, f == datapath.Family4) {
				r.Set(quiclb.NewServerID(b.ServerID), f, g.reg.backends[nameOfBackend(sv, b.Name, ap)])
			}
		}
	}
}

// hadBackend reports whether a service had the backend of a label.
func hadBackend(sv *config.Service, label *label) bool {
	return slices.ContainsFunc(sv.Backends, func(b config.Backend) bool {
		return b.Name == label.Name && slices.Contains(b.Addresses, label.Address)
	})
}

// buildEndpoints enters what the endpoints of a service are used for.
func (g *Gateway) buildEndpoints(s *datapath.Snapshot, id uint32) {
	for _, n := range g.origins[id].ids {
		to := s.Backends[n].Endpoint
		e := *s.Endpoints[to]
		e.InUse, e.Client = false, false
		for _, user := range g.reg.users[to] {
			b := s.Backends[user]
			e.InUse = e.InUse || b.Present
			sv := s.Services[b.Service]
			e.Client = e.Client || b.Present && sv.FromClient && !sv.Way.Direct()
		}
		e.WasClient = e.WasClient || e.Client
		e.Hop = hopOf(g.hops[e.Addr()])
		if e != *s.Endpoints[to] {
			s.Endpoints[to] = &e
		}
	}
}

// backendAddrs returns the distinct addresses that need a next hop: those of the configuration's
// backends, and those that connections still go to.
func (g *Gateway) backendAddrs(s *datapath.Snapshot) []netip.Addr {
	var list []netip.Addr
	for i, e := range s.Endpoints {
		if e.InUse || g.endpointFlows(s, uint32(i)) > 0 {
			list = append(list, e.Addr())
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// endpointFlows returns the number of connections to an endpoint.
func (g *Gateway) endpointFlows(s *datapath.Snapshot, endpoint uint32) (n uint64) {
	for _, user := range g.reg.users[endpoint] {
		n += s.Backends[user].Flows()
	}
	return n
}

// wayOf returns the way of a checked configuration's mode.
func wayOf(m config.Mode) datapath.Way {
	switch m {
	case config.ModeIPIP:
		return datapath.WayIPIP
	case config.ModeGUE:
		return datapath.WayGUE
	case config.ModeL2:
		return datapath.WayL2
	}
	return datapath.WayNAT
}
