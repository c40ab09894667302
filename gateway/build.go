package gateway

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gateway/config"
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
func (g *Gateway) build(old *snapshot, c *config.Config) *snapshot {
	s := old.Clone()
	s.fronts, s.endpoints = slices.Clone(old.fronts), slices.Clone(old.endpoints)
	s.timeouts, s.tunnel, s.dropL4 = newTimeouts(idleTimes(&c.Table)), newTunnel(c.Tunnel.GUEPort, c.Tunnel.Sources), c.Checksum == "drop"
	s.snat4, s.snat6 = nil, nil
	for _, a := range c.SNAT {
		n := g.reg.snat(s, a)
		if a.Is4() {
			s.snat4 = append(s.snat4, n)
		} else {
			s.snat6 = append(s.snat6, n)
		}
	}
	changed := g.changedServices(s, c)
	s.round = g.round
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
	s.limits, s.sources = g.buildLimits(s, c), g.buildSources(s, c)
	if len(changed) > 0 || g.reg.grown || !slices.Equal(g.indexed, c.SNAT) {
		g.indexed, g.reg.grown = c.SNAT, false
		s.Index(c.SNAT)
	}
	return s
}

func idleTimes(t *config.Table) IdleTimes {
	return IdleTimes{UDP: t.UDP, TCPSYN: t.TCPSYN, TCPEstablished: t.TCPEstablished, TCPFIN: t.TCPFIN}
}

// changedServices enters the services of c and returns the numbers of those that are new, not as
// they were, or gone.
func (g *Gateway) changedServices(s *snapshot, c *config.Config) (changed []uint32) {
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
func (g *Gateway) clearService(s *snapshot, id uint32) {
	o := g.origins[id]
	for _, n := range o.fronts {
		s.fronts[n].service = -1
	}
	for _, n := range o.ids {
		replace(s.backends, n).present = false
	}
}

// buildService enters the addresses and backends that a service is to have from now on, and what
// becomes of those that it had.
func (g *Gateway) buildService(s *snapshot, id uint32) {
	o, sv := g.origins[id], g.wanted[id]
	delete(g.wanted, id)
	was := o.config
	o.config, o.fronts = sv, nil
	if sv != nil {
		g.enterService(s, id)
	}
	for _, n := range o.ids {
		switch b := s.backends[n]; {
		case b.present:
			delete(g.cut, n)
		case was != nil && hadBackend(was, &g.reg.labels[n]):
			g.cut[n] = was.Removed == "drop"
			delete(g.down, n) // nobody looks any more
		}
	}
	g.keepMembers(id, was)
}

// enterService enters the addresses and backends of a service of the configuration.
func (g *Gateway) enterService(s *snapshot, id uint32) {
	o := g.origins[id]
	sv, proto := o.config, protoOf(o.config.Protocol)
	to := replace(s.services, id)
	to.way, to.fromClient, to.reject = wayOf(sv.Mode), sv.Mode.Direct() || sv.Source == config.SourceClient, sv.Reject
	to.mss = sv.MSS
	if sv.MSS == config.MSSAuto {
		to.mss = mssAuto
	}
	for _, ap := range sv.Addresses {
		n := g.reg.front(s, transport{ap, proto})
		s.fronts[n].service = int32(id)
		o.fronts = append(o.fronts, n)
	}
	for _, name := range backendsOf(sv) {
		n := g.reg.backend(s, name)
		if int(n) == len(g.seats) {
			g.seats = append(g.seats, seat{})
			o.ids = append(o.ids, n)
		}
		s.backends[n].present, s.backends[n].way = true, wayOf(sv.Mode)
	}
	g.enterRoute(s, to, o)
}

// enterRoute enters what the connection IDs of a service's packets say. The configuration has been
// checked: it makes a codec.
func (g *Gateway) enterRoute(s *snapshot, to *service, o *origin) {
	to.quic = nil
	if q := o.config.QUIC; q != nil {
		codec, err := quiclb.New(quiclb.Config{Rotation: q.Rotation, ServerID: q.ServerID, Nonce: q.Nonce, Key: q.Key})
		if err != nil {
			panic(err)
		}
		to.quic = NewRoute(codec)
		for i := range o.config.Backends {
			g.enterServer(to.quic, o.config, &o.config.Backends[i])
		}
	}
	for _, n := range o.ids {
		s.backends[n].quic = to.quic
	}
}

// buildSources returns the lists of a configuration for the services of s. Tables of unchanged lists
// are compiled once: the mark, which makes handlers look at open connections again, stays then.
func (g *Gateway) buildSources(s *snapshot, c *config.Config) sources {
	lists, services := c.Lists(), make([]*sourceTable, len(s.services))
	for name, t := range lists.Services {
		services[g.reg.services[name]] = sourcesOf(t)
	}
	changed := g.lists != lists && (s.sources.mark != 0 || lists.All != nil || len(lists.Services) > 0)
	g.lists = lists
	return s.sources.next(sourcesOf(lists.All), services, changed)
}

func sourcesOf(t *config.SourceTable) *sourceTable {
	if t == nil {
		return nil
	}
	return &sourceTable{prefixes: t.Prefixes, denied: config.SourceDeny, deny: t.Deny}
}

// buildLimits returns the limits of a configuration for the services of s.
func (g *Gateway) buildLimits(s *snapshot, c *config.Config) limitTable {
	services := make([]limits, len(s.services))
	for i := range c.Services {
		services[g.reg.services[c.Services[i].Name]] = limitsOf(&c.Services[i].Limits)
	}
	return newLimitTable(c.Limits.Clients, limitsOf(&c.Limits), services)
}

func limitsOf(l *config.Limits) limits { return newLimits(l.Packets, l.Connections, l.Burst) }

// enterServer enters the addresses of a backend by its server ID.
func (g *Gateway) enterServer(r *route, sv *config.Service, b *config.Backend) {
	for f := range families {
		for _, ap := range b.Addresses {
			if b.Serves(sv.Mode, ap, f == family4) {
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
func (g *Gateway) buildEndpoints(s *snapshot, id uint32) {
	for _, n := range g.origins[id].ids {
		to := s.backends[n].endpoint
		e := *s.endpoints[to]
		e.inUse, e.client = false, false
		for _, user := range g.reg.users[to] {
			b := s.backends[user]
			e.inUse = e.inUse || b.present
			sv := s.services[b.service]
			e.client = e.client || b.present && sv.fromClient && !sv.way.direct()
		}
		e.wasClient = e.wasClient || e.client
		e.hop = hopOf(g.hops[e.Addr()])
		if e != *s.endpoints[to] {
			s.endpoints[to] = &e
		}
	}
}

// backendAddrs returns the distinct addresses that need a next hop: those of the configuration's
// backends, and those that connections still go to.
func (g *Gateway) backendAddrs(s *snapshot) []netip.Addr {
	var list []netip.Addr
	for i, e := range s.endpoints {
		if e.inUse || g.endpointFlows(s, uint32(i)) > 0 {
			list = append(list, e.Addr())
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// endpointFlows returns the number of connections to an endpoint.
func (g *Gateway) endpointFlows(s *snapshot, endpoint uint32) (n uint64) {
	for _, user := range g.reg.users[endpoint] {
		n += s.backends[user].Flows()
	}
	return n
}

// wayOf returns the way of a checked configuration's mode.
func wayOf(m config.Mode) way {
	switch m {
	case config.ModeIPIP:
		return wayIPIP
	case config.ModeGUE:
		return wayGUE
	case config.ModeL2:
		return wayL2
	}
	return wayNAT
}
