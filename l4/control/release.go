package control

import (
	"net/netip"
	"slices"

	"github.com/millrace/millrace/l4/datapath"
)

// What is gone from the configuration keeps its number, its counters and its connections until its last connection has
// ended. Then its number is released: retire publishes the numbers, each loop reports which of them it holds, and
// release gives back the others. See datapath.Numbers for why that is safe.

// retire publishes the numbers in s that the configuration has no use for, unless the loops are still looking for earlier
// ones. The caller holds g.mu.
func (g *Gateway) retire(s *datapath.Snapshot) {
	all := g.unused(s)
	if s.Retired != nil && !all.Empty() {
		again := s.Retired.Clone()
		if again.Remove(all); again.Empty() { // none is in use again
			return
		}
	}
	if s.Retired = all; all.Empty() {
		s.Retired = nil
	}
}

// unused returns the numbers that the configuration has no use for. Those of ranges are for good, and an endpoint is used
// while a range leads there. A backend with connections is left out until they
// have ended.
func (g *Gateway) unused(s *datapath.Snapshot) *datapath.Numbers {
	all := &datapath.Numbers{}
	for i := range s.VIPs {
		if v := &s.VIPs[i]; v.Service < 0 && !v.Free() && !v.Range {
			all.VIPs.Add(uint32(i))
		}
	}
	for i, b := range s.Backends {
		if !b.Configured && !b.Free() && b.Flows() == 0 {
			all.Backends.Add(uint32(i))
		}
	}
	for i, e := range s.Endpoints {
		used := func(n uint32) bool { return !all.Backends.Has(n) }
		if !e.Free() && !e.Range && !e.InUse && !slices.ContainsFunc(g.reg.users[i], used) {
			all.Endpoints.Add(uint32(i))
		}
	}
	for n, a := range s.SNATs() {
		if !slices.Contains(g.cfg.SNAT, a) {
			all.SNATs.Add(n)
		}
	}
	return all
}

// release gives back the retired numbers that no loop holds, and retires those that have come since. The caller holds g.mu.
func (g *Gateway) release() {
	old := g.snap.Load()
	if g.closed || old.Retired == nil && !g.unreleased {
		return
	}
	gone, ok := g.unheld(old)
	if !ok {
		return // a loop has not looked at all yet
	}
	s := old
	if !gone.Empty() {
		s = old.CloneAll()
		g.free(s, gone)
	}
	g.unreleased = g.hasRemoved(s)
	all := g.unused(s)
	if s == old && (all.Empty() || all.Equal(old.Retired)) {
		return
	}
	if s == old {
		c := *old
		s = &c
	}
	if s.Retired = all; all.Empty() {
		s.Retired = nil
	}
	g.snap.Store(s)
}

// unheld returns the retired numbers that no loop holds; false while a loop is looking for them. A connection holds its
// backend and the endpoint of that, so an endpoint goes with the last of its backends, or later where ports rest.
func (g *Gateway) unheld(s *datapath.Snapshot) (gone *datapath.Numbers, ok bool) {
	if s.Retired == nil {
		return &datapath.Numbers{}, true
	}
	gone = s.Retired.Clone()
	for _, h := range g.handlers {
		held, ok := h.Holds(s.Retired)
		if !ok {
			return nil, false
		}
		gone.Remove(held)
	}
	return gone, true
}

// hasRemoved reports whether a backend that the configuration lacks has its number, so that release has to look again.
func (g *Gateway) hasRemoved(s *datapath.Snapshot) bool {
	return slices.ContainsFunc(s.Backends, func(b *datapath.Backend) bool { return !b.Configured && !b.Free() })
}

// free takes numbers from what has them, and those of services without backends that the configuration lacks.
func (g *Gateway) free(s *datapath.Snapshot, gone *datapath.Numbers) {
	r := g.reg
	for n := range gone.VIPs.All() {
		v := &s.VIPs[n]
		r.vips.release(transport{at: netip.AddrPortFrom(v.Addr(), v.Port), proto: v.Proto})
		key := rangeKey{v.Addr(), v.Proto}
		if r.singles[key] = slices.DeleteFunc(r.singles[key], func(k uint32) bool { return k == n }); len(r.singles[key]) == 0 {
			delete(r.singles, key)
		}
	}
	for n := range gone.Backends.All() {
		g.freeBackend(s, n)
	}
	for n := range gone.Endpoints.All() {
		e := s.Endpoints[n]
		r.endpoints.release(transport{at: netip.AddrPortFrom(e.Addr(), e.Port), proto: e.Proto})
		of := slices.DeleteFunc(r.byAddr[e.Addr()], func(k uint32) bool { return k == n })
		if r.byAddr[e.Addr()] = of; len(of) == 0 {
			delete(r.byAddr, e.Addr())
		}
	}
	for n, a := range s.SNATs() {
		if gone.SNATs.Has(n) {
			r.snats.release(a)
		}
	}
	var services []uint32
	for name, id := range r.services.of {
		if o := g.services[id]; o.config == nil && len(o.ids) == 0 {
			services = append(services, id)
			r.services.release(name)
			g.depart(s, id)
			g.services[id] = newServiceState()
		}
	}
	s.Free(gone, services, r.loops)
	s.Index(g.cfg.SNAT)
	g.enterOwn(s, g.cfg)
}

// freeBackend takes the number from a backend. Its health was forgotten when a reload removed it.
func (g *Gateway) freeBackend(s *datapath.Snapshot, n uint32) {
	r, b := g.reg, s.Backends[n]
	r.backends.release(backendName{r.serves[n], r.labels[n].Name, r.labels[n].Address.First(), s.Endpoints[b.Endpoint].Proto})
	is := func(k uint32) bool { return k == n }
	for _, place := range r.byAddr[s.Endpoints[b.Endpoint].Addr()] { // it may have had another endpoint before
		r.users[place] = slices.DeleteFunc(r.users[place], is)
	}
	r.serves[n], r.labels[n] = "", label{}
	o := g.services[b.Service]
	o.ids = slices.DeleteFunc(o.ids, is)
	o.released.add(b)
	for _, d := range g.detectors {
		d.forget(n)
	}
}

// backendCounts are sums of what only grows of backends.
type backendCounts struct{ opened, toPackets, toBytes, fromPackets, fromBytes uint64 }

// add adds the counts of a backend.
func (c *backendCounts) add(b *datapath.Backend) {
	c.opened += b.Count(datapath.Opened)
	c.toPackets += b.Count(datapath.ToPackets)
	c.toBytes += b.Count(datapath.ToBytes)
	c.fromPackets += b.Count(datapath.FromPackets)
	c.fromBytes += b.Count(datapath.FromBytes)
}

// sum adds other sums.
func (c *backendCounts) sum(o *backendCounts) {
	c.opened += o.opened
	c.toPackets += o.toPackets
	c.toBytes += o.toBytes
	c.fromPackets += o.fromPackets
	c.fromBytes += o.fromBytes
}

// subtract subtracts other sums, which are no larger.
func (c *backendCounts) subtract(o *backendCounts) {
	c.opened -= o.opened
	c.toPackets -= o.toPackets
	c.toBytes -= o.toBytes
	c.fromPackets -= o.fromPackets
	c.fromBytes -= o.fromBytes
}

// status returns the counts as those of a backend.
func (c *backendCounts) status() BackendStatus {
	return BackendStatus{
		Opened: c.opened, ToPackets: c.toPackets, ToBytes: c.toBytes, FromPackets: c.fromPackets, FromBytes: c.fromBytes,
	}
}
