package gateway

import (
	"fmt"
	"slices"
)

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
