package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace/millrace/l4/datapath"
)

// rank holds the properties of a service by which a short status selects it.
type rank struct {
	place       int // in the configuration
	backends    int
	down        int // of them, by their checks or ejected
	connections uint64
}

// add adds the counts of another service.
func (r *rank) add(o *rank) {
	r.backends += o.backends
	r.down += o.down
	r.connections += o.connections
}

// rank returns the rank of the service in place i, as serviceStatus would show its backends of a name; "" is all.
// The caller holds g.mu.
func (g *Gateway) rank(s *datapath.Snapshot, i int, backend string) rank {
	r := rank{place: i}
	for _, n := range g.services[g.reg.services.of[g.cfg.Services[i].Name]].ids {
		b := s.Backends[n]
		flows := b.Flows()
		if !b.Configured && flows == 0 || backend != "" && g.reg.labels[n].Name != backend {
			continue
		}
		r.backends++
		r.connections += flows
		if g.down[n] || g.ejected[n] != nil {
			r.down++
		}
	}
	return r
}

// foremost narrows chosen to at most limit services: those with the most backends that are down, then those with the
// most connections. It returns the counts of the others, and how many these are. The caller holds g.mu.
func (g *Gateway) foremost(chosen func(i int) bool, backend string, limit int) (narrowed func(i int) bool, others rank, n int) {
	s, all := g.snap.Load(), []rank(nil)
	for i := range g.cfg.Services {
		if chosen(i) {
			all = append(all, g.rank(s, i, backend))
		}
	}
	if len(all) <= limit {
		return chosen, others, 0
	}
	slices.SortStableFunc(all, func(a, b rank) int {
		return cmp.Or(cmp.Compare(b.down, a.down), cmp.Compare(b.connections, a.connections))
	})
	for i := range all[limit:] {
		others.add(&all[limit+i])
	}
	shown := make(map[int]bool, limit)
	for _, r := range all[:limit] {
		shown[r.place] = true
	}
	return func(i int) bool { return shown[i] }, others, len(all) - limit
}

// ServiceNames returns the names of the services, in the order of the configuration.
func (g *Gateway) ServiceNames() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, len(g.cfg.Services))
	for i := range names {
		names[i] = g.cfg.Services[i].Name
	}
	return names
}

// BackendNames returns the names of the backends of a service, or of all services for "", sorted, each once. The error
// wraps ErrUnknownService.
func (g *Gateway) BackendNames(service string) ([]string, error) {
	if err := g.Known(service, ""); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names := map[string]bool{}
	for i := range g.cfg.Services {
		if s := &g.cfg.Services[i]; service == "" || s.Name == service {
			for k := range s.Backends {
				names[s.Backends[k].Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
