package control

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/quiclb"
)

// serviceState is the configuration that a service was built from, to find what a reload changes, and the
// wanted state of its backends.
type serviceState struct {
	config   *config.Service // nil: not in the configuration
	round    int             // the reload that saw it last
	vips     []uint32        // its addresses
	ids      []uint32        // its backends, those that are gone included
	backends map[string]*backendState
	released backendCounts // of backends whose numbers are released, so that sums of the service only grow
	unlisted bool          // scrapes do not list it: since its sums were base it counts in those of others
	base     serviceSums
}

func newServiceState() *serviceState { return &serviceState{backends: map[string]*backendState{}} }

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
	s := old.CloneAll()
	s.Timeouts, s.Tunnel, s.DropL4 = datapath.NewTimeouts(idleTimes(&c.Table)), datapath.NewTunnel(c.Tunnel.GUEPort, c.Tunnel.Sources, c.Tunnel.TooBig == config.TooBigFragment), c.Checksum == "drop"
	s.Selection = selectionOf(c)
	s.SNAT4, s.SNAT6 = nil, nil
	for _, a := range c.SNAT {
		n := g.reg.snat(s, a)
		if a.Is4() {
			s.SNAT4 = append(s.SNAT4, n)
		} else {
			s.SNAT6 = append(s.SNAT6, n)
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
	g.buildRanges(s, c)
	for _, id := range changed {
		g.buildEndpoints(s, id)
		g.reconcile(s, id, "configuration")
	}
	g.buildInspection(s, c)
	s.Limits, s.Sources = g.buildLimits(s, c), g.buildSources(s, c)
	if len(changed) > 0 || g.reg.grown || !slices.Equal(g.indexed, c.SNAT) {
		g.indexed, g.reg.grown = c.SNAT, false
		s.Index(c.SNAT)
	}
	g.enterOwn(s, c)
	g.list(s, c)
	g.retire(s)
	g.unreleased = g.hasRemoved(s)
	return s
}

// selectionOf returns how a configuration selects backends.
func selectionOf(c *config.Config) datapath.Selection {
	now := datapath.NewSelectionKey(c.HashKey.Key)
	before := now
	if c.HashKey.Changed {
		before = datapath.NewSelectionKey(c.HashKey.Before)
	}
	return datapath.Selection{Now: now, Before: before}
}

func idleTimes(t *config.Table) datapath.IdleTimes {
	return datapath.IdleTimes{
		UDP: t.UDP, TCPSYN: t.TCPSYN, TCPSYNReceived: t.TCPSYNReceived, TCPEstablished: t.TCPEstablished,
		TCPHalfClosed: t.TCPHalfClosed, TCPFIN: t.TCPFIN, TCPReset: t.TCPReset,
	}
}

// changedServices enters the services of c and returns the numbers of those that are new, not as
// they were, or gone.
func (g *Gateway) changedServices(s *datapath.Snapshot, c *config.Config) (changed []uint32) {
	g.round++
	for i := range c.Services {
		sv := &c.Services[i]
		id := g.reg.service(s, sv.Name)
		if int(id) == len(g.services) {
			g.services = append(g.services, newServiceState())
		}
		o := g.services[id]
		o.round = g.round
		if o.config == nil || !reflect.DeepEqual(o.config, sv) {
			changed = append(changed, id)
			g.wanted[id] = sv
			continue
		}
		o.config = sv // equal; the old configuration can be freed
	}
	for id, o := range g.services {
		if o.config != nil && o.round != g.round {
			changed = append(changed, uint32(id))
		}
	}
	return changed
}

// clearService takes the addresses and backends of a service out of s, as far as its connections
// do not need them.
func (g *Gateway) clearService(s *datapath.Snapshot, id uint32) {
	o := g.services[id]
	for _, n := range o.vips {
		if !datapath.IsRange(n) {
			s.VIPs[n].Service = -1
		}
	}
	for _, n := range o.ids {
		replace(s.Backends, n).Configured = false
	}
}

// buildService enters the addresses and backends that a service is to have from now on, and what
// happens to those that it had.
func (g *Gateway) buildService(s *datapath.Snapshot, id uint32) {
	o, sv := g.services[id], g.wanted[id]
	delete(g.wanted, id)
	was := o.config
	o.config, o.vips = sv, nil
	if sv != nil {
		g.enterService(s, id)
	}
	for _, n := range o.ids {
		switch b := s.Backends[n]; {
		case b.Configured:
			delete(g.cut, n)
		case was != nil && hadBackend(was, &g.reg.labels[n]):
			g.cut[n] = was.Removed == "drop"
			delete(g.down, n) // no longer probed
		}
	}
	g.reconcileBackends(id, was)
}

// enterService enters the addresses and backends of a service of the configuration.
func (g *Gateway) enterService(s *datapath.Snapshot, id uint32) {
	o := g.services[id]
	sv, proto := o.config, protoOf(o.config.Protocol)
	to := replace(s.Services, id)
	to.Mode, to.Transparent, to.Reject = modeOf(sv.Mode), sv.Mode.Direct() || sv.Source == config.SourceClient, sv.Reject
	to.PickUp, to.ResetUnknown = sv.PicksUp(), sv.Unknown == config.UnknownReset || sv.Unknown == config.UnknownAuto && !sv.PicksUp()
	to.AnswerClosed = sv.Unknown != config.UnknownDrop
	to.MSS = sv.MSS
	if sv.MSS == config.MSSAuto {
		to.MSS = datapath.MSSAuto
	}
	to.Persistence = nil
	if p := sv.Persistence; p != nil {
		to.Persistence = datapath.NewPersistence(p.Prefix4, p.Prefix6)
	}
	to.LeastConnections = sv.Balance == config.BalanceLeastConnections
	to.WhenFull = map[config.WhenFull]datapath.FullAction{config.FullReset: datapath.FullReset, config.FullDrop: datapath.FullDrop}[sv.WhenFull]
	for _, ap := range sv.Addresses {
		if ap.IsRange() {
			o.vips = append(o.vips, datapath.RangeNumber(g.reg.vipRange(s, rangeKey{ap.Addr(), proto})))
			continue
		}
		n := g.reg.vip(s, transport{at: ap.First(), proto: proto})
		if !datapath.IsRange(n) {
			s.VIPs[n].Service = int32(id)
		}
		o.vips = append(o.vips, n)
	}
	for i := range sv.Backends {
		for _, ap := range sv.Backends[i].Addresses {
			n, fresh := g.reg.backend(s, nameOfBackend(sv, sv.Backends[i].Name, ap), sv, ap)
			if fresh {
				g.endpoints = datapath.Place(g.endpoints, n, endpointState{})
				o.ids = append(o.ids, n)
			}
			s.Backends[n].Configured, s.Backends[n].Mode = true, modeOf(sv.Mode)
		}
	}
	g.enterLimits(s, to, sv)
	g.enterRoute(s, to, o)
}

// enterLimits enters how many connections the backends of a service may have.
func (g *Gateway) enterLimits(s *datapath.Snapshot, to *datapath.Service, sv *config.Service) {
	to.Limited = false
	for i := range sv.Backends {
		b := &sv.Backends[i]
		var limit *datapath.ConnLimit
		if b.MaxConnections > 0 {
			limit, to.Limited = &datapath.ConnLimit{Max: int64(b.MaxConnections)}, true
		}
		for _, ap := range b.Addresses {
			n := g.reg.backends.of[nameOfBackend(sv, b.Name, ap)]
			if s.Backends[n].Limit = limit; limit != nil {
				limit.Of = append(limit.Of, n)
			}
		}
	}
}

// enterRoute enters what the connection IDs of a service's packets say. The configuration has been
// checked: it makes a codec.
func (g *Gateway) enterRoute(s *datapath.Snapshot, to *datapath.Service, o *serviceState) {
	to.QUIC = nil
	if q := o.config.QUIC; q != nil {
		codec, err := quiclb.New(quiclb.Config{Rotation: q.Rotation, ServerID: q.ServerID, Nonce: q.Nonce, Key: q.Key})
		if err != nil {
			panic(err)
		}
		to.QUIC = datapath.NewQUICRoute(codec)
		for i := range o.config.Backends {
			g.enterServer(to.QUIC, o.config, &o.config.Backends[i])
		}
	}
	for _, n := range o.ids {
		s.Backends[n].QUIC = to.QUIC
	}
}

// buildSources returns the lists of a configuration for the services of s. Tables of unchanged lists
// are compiled once: the mark, which makes handlers look at open connections again, stays then.
func (g *Gateway) buildSources(s *datapath.Snapshot, c *config.Config) datapath.Sources {
	lists, services := c.Lists(), make([]*datapath.SourceTable, len(s.Services))
	for name, t := range lists.Services {
		services[g.reg.services.of[name]] = sourcesOf(t)
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

// buildInspection enters the inspection policies of services.
func (g *Gateway) buildInspection(s *datapath.Snapshot, c *config.Config) {
	for i := range c.Services {
		id := g.reg.services.of[c.Services[i].Name]
		if of := g.inspectionOf(c, c.Services[i].Name); !slices.Equal(of, s.Services[id].Inspection) {
			replace(s.Services, id).Inspection = of
		}
	}
}

// inspectionOf returns the numbers of a service's policies, by device.
func (g *Gateway) inspectionOf(c *config.Config, service string) (of []uint8) {
	if g.opt.Policy == nil || len(c.Inspection.Policies) == 0 {
		return nil
	}
	for i := range c.Devices {
		n := uint8(0)
		if at := c.Inspection.PolicyOf(service, c.Devices[i].Name); at > 0 {
			n = g.opt.Policy(c.Inspection.Policies[at-1].Name)
		}
		of = append(of, n)
	}
	return of
}

// buildLimits returns the limits of a configuration for the services of s.
func (g *Gateway) buildLimits(s *datapath.Snapshot, c *config.Config) datapath.LimitTable {
	services := make([]datapath.Limits, len(s.Services))
	for i := range c.Services {
		id := g.reg.services.of[c.Services[i].Name]
		services[id] = limitsOf(&c.Services[i].Limits, g.reg.serials[id])
	}
	return datapath.NewLimitTable(c.Limits.Clients, limitsOf(&c.Limits, 0), services)
}

func limitsOf(l *config.Limits, meters uint32) datapath.Limits {
	return datapath.NewLimits(l.Packets, l.Connections, l.Burst, meters)
}

// enterServer enters the addresses of a backend by its server ID.
func (g *Gateway) enterServer(r *datapath.QUICRoute, sv *config.Service, b *config.Backend) {
	for f := range datapath.Families {
		for _, ap := range b.Addresses {
			if b.Serves(sv.Mode, ap, f == datapath.Family4) {
				r.Set(quiclb.NewServerID(b.ServerID), f, g.reg.backends.of[nameOfBackend(sv, b.Name, ap)])
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

// placesOf returns the endpoints of a service, and those of the same addresses where one has a range.
func (g *Gateway) placesOf(s *datapath.Snapshot, id uint32) (places []uint32) {
	for _, n := range g.services[id].ids {
		to := s.Backends[n].Endpoint
		places = append(places, to)
		if e := s.Endpoints[to]; g.reg.hasEndpointRange(rangeKey{e.Addr(), e.Proto}) {
			places = append(places, g.reg.byAddr[e.Addr()]...)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// buildEndpoints enters what the endpoints of a service are used for.
func (g *Gateway) buildEndpoints(s *datapath.Snapshot, id uint32) {
	for _, to := range g.placesOf(s, id) {
		e := *s.Endpoints[to]
		e.InUse, e.Transparent, e.ResetUnknown = false, false, false
		own, ranges := g.usersOf(s, to)
		e.Spans = g.spansOf(s, to, ranges)
		if e.Range {
			g.buildRangeEndpoint(s, &e)
		}
		e.InUse = e.InUse || len(e.Spans) > 0
		for _, user := range own {
			b := s.Backends[user]
			e.InUse = e.InUse || b.Configured
			sv := s.Services[b.Service]
			e.ResetUnknown = e.ResetUnknown || b.Configured && sv.ResetUnknown
			e.Transparent = e.Transparent || b.Configured && sv.Transparent && !sv.Mode.Direct()
		}
		e.PickUp = g.pickUpOf(s, to, own)
		e.WasTransparent = e.WasTransparent || e.Transparent
		e.Hop = hopOf(g.hops[e.Addr()])
		if !e.Equal(s.Endpoints[to]) {
			s.Endpoints[to] = &e
		}
	}
}

// pickUpOf returns what packets of an endpoint belong to where no connection is known: to the one service address of
// its family that leads there with clients' own addresses. users are its own backends.
func (g *Gateway) pickUpOf(s *datapath.Snapshot, endpoint uint32, users []uint32) (p datapath.PickUp) {
	is4 := s.Endpoints[endpoint].Addr().Is4()
	for _, user := range users {
		b := s.Backends[user]
		if sv := s.Services[b.Service]; !b.Configured || sv.Mode.Direct() || !sv.Transparent || !sv.PickUp {
			continue
		}
		for _, vip := range g.services[b.Service].vips {
			switch {
			case s.VIPAddr(vip).Is4() != is4:
			case p.Known || datapath.IsWholeRange(vip): // several ports lead to the one of the endpoint
				return datapath.PickUp{Several: true}
			default:
				p = datapath.PickUp{VIP: vip, Backend: user, Known: true}
			}
		}
	}
	return p
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

// modeOf returns the forwarding mode of a checked configuration's mode.
func modeOf(m config.Mode) datapath.Mode {
	switch m {
	case config.ModeIPIP:
		return datapath.ModeIPIP
	case config.ModeGUE:
		return datapath.ModeGUE
	case config.ModeL2:
		return datapath.ModeL2
	}
	return datapath.ModeNAT
}
