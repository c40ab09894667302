package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/suggest"
)

// Drain makes a backend take no new connections. Those that it has go on until they end or, when
// deadline is above 0, until that time has passed; deadline 0 is the service's `drain`. Then the
// backend is inactive. This outlives reloads, until Undrain or until the file changes the backend's
// state. Draining again sets another deadline. Errors wrap ErrUnknownService or ErrUnknownBackend.
func (g *Gateway) Drain(service, backend string, deadline time.Duration) error {
	return g.operate(service, backend, func(o *serviceState, m *backendState) {
		if deadline <= 0 {
			deadline = o.config.Drain
		}
		m.drained = true
		m.drain(time.Now(), deadline)
	})
}

// Undrain takes back what Drain said; the configuration's state counts again. A backend that was
// inactive starts slowly if the service says so.
func (g *Gateway) Undrain(service, backend string) error {
	return g.operate(service, backend, func(o *serviceState, m *backendState) {
		m.drained, m.drainOver, m.drainSince = false, false, time.Time{}
		m.settle(time.Now(), o.config.Drain)
	})
}

// SetWeight gives a backend another weight than the configuration's, 0 to 1000, or with one below 0
// the configuration's again. This outlives reloads until the file changes the backend's weight.
func (g *Gateway) SetWeight(service, backend string, weight int) error {
	if weight > config.MaxWeight {
		return fmt.Errorf("weight is %d; it must lie between 0 and %d", weight, config.MaxWeight)
	}
	return g.operate(service, backend, func(_ *serviceState, m *backendState) { m.weight = max(weight, -1) })
}

// operate changes what an operator wants of a backend.
func (g *Gateway) operate(service, backend string, change func(*serviceState, *backendState)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, m, err := g.find(service, backend)
	if err != nil {
		return err
	}
	o, weight := g.services[id], m.share()
	was := m.want()
	change(o, m)
	s := g.snap.Load().Clone()
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

// find returns the number of a service and the state of a backend of it.
func (g *Gateway) find(service, backend string) (uint32, *backendState, error) {
	if g.closed {
		return 0, nil, ErrClosed
	}
	id, ok := g.reg.services[service]
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

// unknownService is what is wrong with a name that no service of the configuration has.
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
// a name, has the backend. Empty names are always known. The error says what may have been meant.
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
