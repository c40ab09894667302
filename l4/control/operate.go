package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/suggest"
	"github.com/millrace/millrace/l4/datapath"
)

// DrainOptions say how Drain drains.
type DrainOptions struct {
	Deadline time.Duration // after it connections end; 0 is the service's `drain`
	Force    bool          // also the last backend that takes connections
}

// Drain makes a backend take no new connections. Those that it has go on until they end or until the
// deadline. Then the backend is inactive. This outlives reloads, until Undrain or until the file changes the
// backend's state. Draining again sets another deadline. Errors wrap ErrUnknownService, ErrUnknownBackend or,
// without Force, ErrLastBackend.
func (g *Gateway) Drain(service, backend string, d DrainOptions) error {
	return g.operate(service, backend, d.Force, func(o *serviceState, m *backendState) {
		m.drained = true
		m.drain(time.Now(), cmp.Or(d.Deadline, o.config.Drain))
	})
}

// Undrain takes back what Drain said; the configuration's state counts again. A backend that was
// inactive starts slowly if the service has `slow_start`.
func (g *Gateway) Undrain(service, backend string) error {
	return g.operate(service, backend, true, func(o *serviceState, m *backendState) {
		m.drained, m.drainOver, m.drainSince = false, false, time.Time{}
		m.settle(time.Now(), o.config.Drain)
	})
}

// SetWeight sets the weight of a backend in place of the configuration's, 0 to 1000, or with one below 0
// the configuration's again. This outlives reloads until the file changes the backend's weight. Errors wrap
// ErrUnknownService, ErrUnknownBackend or, of weight 0 without force, ErrLastBackend.
func (g *Gateway) SetWeight(service, backend string, weight int, force bool) error {
	if weight > config.MaxWeight {
		return fmt.Errorf("weight is %d; it must lie between 0 and %d", weight, config.MaxWeight)
	}
	return g.operate(service, backend, force, func(_ *serviceState, m *backendState) { m.weight = max(weight, -1) })
}

// operate changes what an operator wants of a backend. Without force a change is refused that takes the last
// backend for new connections from a service.
func (g *Gateway) operate(service, backend string, force bool, change func(*serviceState, *backendState)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, m, err := g.find(service, backend)
	if err != nil {
		return err
	}
	o, before := g.services[id], *m
	s := g.snap.Load().Clone()
	was, weight := m.want(), m.share()
	change(o, m)
	if !force && !m.takesNew() {
		if family, last := g.lastBackend(s, o, backend); last {
			*m = before
			return fmt.Errorf("%w: no other takes new %s connections of service %q", ErrLastBackend, family, service)
		}
	}
	for _, n := range o.ids {
		if g.reg.labels[n].Name != backend || !s.Backends[n].Configured {
			continue
		}
		if was == config.StateInactive && m.want() == config.StateActive {
			g.startSlow(n, true)
		}
		if e := g.event(n, "weight", nil); m.share() != weight {
			e.Weight, e.Why = m.share(), "operator"
			g.report(e)
		}
	}
	g.reconcile(s, id, "operator")
	g.snap.Store(s)
	return nil
}

// lastBackend reports whether new connections of an address family have a backend of this name and no other,
// and names the family. Backends that are down, ejected or without a next hop are no others.
func (g *Gateway) lastBackend(s *datapath.Snapshot, o *serviceState, backend string) (family string, last bool) {
	other := func(id uint32) bool { return g.reg.labels[id].Name != backend }
	for f, family := range []string{datapath.Family4: "IPv4", datapath.Family6: "IPv6"} {
		ids := s.Services[g.reg.services.of[o.config.Name]].NewFlow[f].Backends()
		if len(ids) > 0 && !slices.ContainsFunc(ids, other) {
			return family, true
		}
	}
	return "", false
}

// find returns the number of a service and the state of a backend of it.
func (g *Gateway) find(service, backend string) (uint32, *backendState, error) {
	if g.closed {
		return 0, nil, ErrClosed
	}
	id, ok := g.reg.services.of[service]
	if !ok || g.services[id].config == nil {
		return 0, nil, g.unknownService(service)
	}
	backends := g.services[id].backends
	m := backends[backend]
	if m == nil {
		all := slices.Sorted(maps.Keys(backends))
		return 0, nil, fmt.Errorf("%w %q of service %q: %s", ErrUnknownBackend, backend, service, nearby(backend, all))
	}
	return id, m, nil
}

// unknownService returns the error for a name that no service of the configuration has.
func (g *Gateway) unknownService(name string) error {
	var all []string
	for i := range g.cfg.Services {
		all = append(all, g.cfg.Services[i].Name)
	}
	return fmt.Errorf("%w %q: %s", ErrUnknownService, name, nearby(name, all))
}

// nearby returns the name that is most like word, if one is, and up to nearbyNames of all.
func nearby(word string, all []string) string {
	best := suggest.Nearest(word, len(word)/3, all...)
	list := "there is " + strings.Join(all[:min(len(all), nearbyNames)], ", ")
	if more := len(all) - nearbyNames; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	if best == "" {
		return list
	}
	return fmt.Sprintf("did you mean %q? %s", best, list)
}

const nearbyNames = 8

// Known reports whether the configuration has the service, and whether that, or any service without
// a name, has the backend. Empty names are always known. The error suggests similar names.
func (g *Gateway) Known(service, backend string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, backends := service == "", []string(nil)
	for i := range g.cfg.Services {
		s := &g.cfg.Services[i]
		if service != "" && service != s.Name {
			continue
		}
		found = true
		for _, b := range s.Backends {
			backends = append(backends, b.Name)
		}
	}
	if !found {
		return g.unknownService(service)
	}
	if backend != "" && !slices.Contains(backends, backend) {
		slices.Sort(backends)
		return fmt.Errorf("%w %q: %s", ErrUnknownBackend, backend, nearby(backend, slices.Compact(backends)))
	}
	return nil
}
