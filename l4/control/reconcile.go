package control

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
)

// reconcileBackends makes the backends of a service those of its configuration. The addresses of a backend
// that is new in a service that was there before start slowly.
func (g *Gateway) reconcileBackends(id uint32, was *config.Service) {
	o, now := g.services[id], time.Now()
	if o.config == nil {
		clear(o.backends)
		return
	}
	names := map[string]bool{}
	for _, b := range o.config.Backends {
		names[b.Name] = true
		m := o.backends[b.Name]
		if m == nil {
			m = &backendState{config: b, weight: -1}
			o.backends[b.Name] = m
		}
		m.follow(b)
		m.settle(now, o.config.Drain)
	}
	maps.DeleteFunc(o.backends, func(name string, _ *backendState) bool { return !names[name] })
	for _, n := range o.ids {
		if g.endpoints[n].state == "" {
			g.startSlow(n, was != nil)
		}
	}
}

// startSlow lets the share of a backend's address grow from nothing if its service has a slow start.
func (g *Gateway) startSlow(n uint32, slow bool) {
	t := &g.endpoints[n]
	t.slow, t.from = slow, time.Time{}
}

// reconcile brings the backends and pools of a service to what is known now, reports what changed, and
// plans when time alone will change something. why is for the events. The caller holds g.mu.
func (g *Gateway) reconcile(s *datapath.Snapshot, id uint32, why string) {
	now, o := time.Now(), g.services[id]
	for _, n := range o.ids {
		g.reconcileEndpoint(s, n, now, why)
	}
	next := *s.Services[id]
	for f := range datapath.Families {
		next.NewFlow[f], next.MidFlow[f] = g.poolsOf(s, id, f, now)
	}
	if next.NewFlow != s.Services[id].NewFlow || next.MidFlow != s.Services[id].MidFlow {
		s.Services[id] = &next
	}
	g.plan(id, now)
	if g.opt.OnAvailability != nil && o.config != nil && o.config.Announce != nil {
		g.opt.OnAvailability()
	}
}

// reconcileEndpoint brings one address of a backend to what is known now.
func (g *Gateway) reconcileEndpoint(s *datapath.Snapshot, n uint32, now time.Time, why string) {
	b, t := s.Backends[n], &g.endpoints[n]
	state := g.stateOf(s, n, now)
	sv := g.services[b.Service].config
	ended := state == config.StateInactive || g.cut[n] || g.down[n] && sv != nil && sv.Unhealthy == "drop"
	usable, ejected := g.usable(n) && !ended, g.ejected[n] != nil
	if b.Usable != usable || b.Inactive != ended || b.Ejected != ejected {
		b = replace(s.Backends, n)
		b.Usable, b.Inactive, b.Ejected = usable, ended, ejected
	}
	if state == t.state {
		return
	}
	was := t.state
	t.state, t.since = state, now
	switch {
	case len(g.handlers) == 0: // the start
		return
	case was == config.StateFilling && state == config.StateActive:
		why = "slow start is over"
	case was == config.StateDraining && state == config.StateInactive && why == "time":
		why = "drained"
	}
	e := g.event(n, string(state), nil)
	if state == "" {
		e.What = "removed"
	}
	e.Why = why
	g.report(e)
}

// alive reports whether a backend passes its checks, and a reload did not cut it off.
func (g *Gateway) alive(id uint32) bool { return !g.down[id] && !g.cut[id] }

// usable reports whether packets may go to a backend that is not inactive. One that is ejected keeps
// its TCP connections: that it refuses new ones does not say that it is dead.
func (g *Gateway) usable(id uint32) bool {
	e := g.ejected[id]
	return g.alive(id) && (e == nil || !e.all)
}

// usableChanged publishes which backends are usable now, where that changed: those that are back,
// and those that are not. The caller holds g.mu.
func (g *Gateway) usableChanged(back map[uint32]bool, why string) {
	s, touched := g.snap.Load().Clone(), map[uint32]bool{}
	for id, is := range back {
		touched[s.Backends[id].Service] = true
		if is && s.Backends[id].Configured {
			g.startSlow(id, true)
		}
	}
	for id := range touched {
		g.reconcile(s, id, why)
	}
	g.snap.Store(s)
}

// stateOf returns the state of a backend's address, "" when it is not in the configuration, and
// starts the growth of its share when it can take connections.
func (g *Gateway) stateOf(s *datapath.Snapshot, n uint32, now time.Time) config.State {
	b, t := s.Backends[n], &g.endpoints[n]
	o := g.services[b.Service]
	if !b.Configured || o.config == nil {
		return ""
	}
	state := o.backends[g.reg.labels[n].Name].want()
	if state == config.StateFilling && t.state != config.StateFilling {
		t.slow, t.from = true, time.Time{}
	}
	if state != config.StateFilling && state != config.StateActive {
		t.slow = false
		return state
	}
	if t.slow && t.from.IsZero() && !g.down[n] && s.Endpoints[b.Endpoint].Hop.State == datapath.HopReady {
		t.from = now
	}
	if part, of := t.fraction(now, o.config.SlowStart); part == of {
		t.slow = false
	}
	if t.slow {
		return config.StateFilling
	}
	return state
}

// candidate is a backend that may be in a pool.
type candidate struct {
	datapath.Share
	state   config.State
	ready   bool // its next hop is known
	ejected bool // it takes nothing new, but keeps what it has
}

// poolsOf returns the pools of a service for packets of a family, those that it has when they stay
// the same.
func (g *Gateway) poolsOf(s *datapath.Snapshot, id uint32, f int, now time.Time) (pool, before *datapath.Pool) {
	o, sv := g.services[id], s.Services[id]
	if o.config == nil {
		return datapath.EmptyPool, datapath.EmptyPool
	}
	var opens, goesOn []candidate
	for i := range o.config.Backends {
		c, ok := g.candidate(s, o, &o.config.Backends[i], f, now)
		if !ok {
			continue
		}
		if !c.ejected && (c.state == config.StateFilling || c.state == config.StateActive) {
			opens = append(opens, c)
		}
		if c.state == config.StateActive || c.state == config.StateDraining {
			goesOn = append(goesOn, c)
		}
	}
	size := o.config.HashSize
	pool = g.pools.Get(sharesReady(opens), size, sv.NewFlow[datapath.Family4], sv.NewFlow[datapath.Family6])
	return pool, g.pools.Get(sharesReady(goesOn), size, pool, sv.MidFlow[datapath.Family4], sv.MidFlow[datapath.Family6])
}

// candidate returns a backend as it stands for packets of a family, false when it takes none.
func (g *Gateway) candidate(s *datapath.Snapshot, o *serviceState, b *config.Backend, f int, now time.Time) (c candidate, ok bool) {
	at := slices.IndexFunc(b.Addresses, func(ap config.AddrPorts) bool { return b.Serves(o.config.Mode, ap, f == datapath.Family4) })
	if at < 0 {
		return c, false
	}
	c.ID = g.reg.backends.of[nameOfBackend(o.config, b.Name, b.Addresses[at])]
	if !s.Backends[c.ID].Usable {
		return c, false
	}
	c.ejected = g.ejected[c.ID] != nil
	t := &g.endpoints[c.ID]
	part, _ := t.fraction(now, o.config.SlowStart)
	c.Name, c.Weight, c.state = b.Name, o.backends[b.Name].share()*part, t.state
	c.ready = s.Endpoints[s.Backends[c.ID].Endpoint].Hop.State == datapath.HopReady
	return c, true
}

// sharesReady returns the shares of the candidates whose next hop is known. A backend joins when it
// is: its first packets would be dropped. While no next hop is known all are in the table, so that
// drops say why (no_neighbor, no_route).
func sharesReady(list []candidate) (shares []datapath.Share) {
	ready := slices.ContainsFunc(list, func(c candidate) bool { return c.ready && c.Weight > 0 })
	for _, c := range list {
		if c.ready || !ready {
			shares = append(shares, c.Share)
		}
	}
	return shares
}

// plan enters when time alone will change something of a service.
func (g *Gateway) plan(id uint32, now time.Time) {
	o, at := g.services[id], time.Time{}
	if o.config != nil {
		for _, n := range o.ids {
			at = earlier(at, g.endpoints[n].next(now, o.config.SlowStart))
		}
		for _, m := range o.backends {
			at = earlier(at, m.next(now))
		}
	}
	if at.IsZero() {
		delete(g.planned, id)
		return
	}
	g.planned[id] = at
	g.arm(at, now)
}

// arm lets elapse run at the given time, if it does not run before.
func (g *Gateway) arm(at, now time.Time) {
	if !g.alarm.IsZero() && !at.Before(g.alarm) {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.alarm, g.timer = at, time.AfterFunc(at.Sub(now), g.elapse)
}

// elapse does what time alone makes due.
func (g *Gateway) elapse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	now, due := time.Now(), []uint32(nil)
	g.alarm = time.Time{}
	for id, at := range g.planned {
		if !at.After(now) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	s := g.snap.Load().Clone()
	for _, id := range due {
		g.expire(s, id, now)
		g.reconcile(s, id, "time")
	}
	g.snap.Store(s)
	for _, at := range g.planned {
		g.arm(at, now)
	}
}

// expire ends the draining of backends of a service whose time has come.
func (g *Gateway) expire(s *datapath.Snapshot, id uint32, now time.Time) {
	o := g.services[id]
	flows := map[string]uint64{}
	for _, n := range o.ids {
		flows[g.reg.labels[n].Name] += s.Backends[n].Flows()
	}
	for name, m := range o.backends {
		m.expire(now, flows[name])
	}
}
