package control

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gateway/health"
)

// BackendState is the state of a backend that the configuration does not have: what probes have found, and what an operator has set. A
// process that replaces another takes it over.
type BackendState struct {
	Service string `json:"service"`
	Backend string `json:"backend"`
	Address string `json:"address"`
	Down    bool   `json:"down,omitempty"`
	Drained bool   `json:"drained,omitempty"`
	Weight  *int   `json:"weight,omitempty"`
}

// BackendStates returns the states of the backends that have one.
func BackendStates(g *Gateway) (list []BackendState) {
	st := g.Status()
	for i := range st.Services {
		for _, b := range st.Services[i].Backends {
			one := BackendState{Service: st.Services[i].Name, Backend: b.Name, Address: b.Address.String(), Down: !b.Healthy, Drained: b.OperatorDrained}
			if b.OperatorWeight {
				one.Weight = &b.Weight
			}
			if !b.Removed && (one.Down || one.Drained || one.Weight != nil) {
				list = append(list, one)
			}
		}
	}
	return list
}

// Restore enters what an operator had set, where services and backends are still there.
func Restore(g *Gateway, list []BackendState) (err error) {
	for _, b := range list {
		var e error
		if b.Drained {
			e = g.Drain(b.Service, b.Backend, DrainOptions{Force: true})
		}
		if b.Weight != nil {
			e = errors.Join(e, g.SetWeight(b.Service, b.Backend, *b.Weight, true))
		}
		if e != nil && !errors.Is(e, ErrUnknownBackend) && !errors.Is(e, ErrUnknownService) {
			err = errors.Join(err, fmt.Errorf("%s of %s: %w", b.Backend, b.Service, e))
		}
	}
	return err
}

// errInherited is the cause of what probes of another process have found.
var errInherited = errors.New("the process that this one replaces has found it unhealthy")

// inheritHealth enters what probes of another process have found, once: a gateway that took all backends for healthy would send them
// connections until its own probes have failed. The caller holds g.mu.
func (g *Gateway) inheritHealth() {
	down := map[BackendState]bool{}
	for _, b := range g.opt.Inherited {
		if b.Down {
			down[BackendState{Service: b.Service, Backend: b.Backend, Address: b.Address}] = true
		}
	}
	if g.opt.Inherited = nil; len(down) == 0 {
		return
	}
	var list []health.Change
	for i := range g.cfg.Services {
		s := &g.cfg.Services[i]
		for _, b := range backendsOf(s) {
			id := g.reg.backends.of[b]
			key := BackendState{Service: s.Name, Backend: b.name, Address: g.reg.labels[id].Address.String()}
			if s.Health != nil && down[key] {
				list = append(list, health.Change{ID: id, State: health.State{Cause: errInherited}})
			}
		}
	}
	g.healthChanged(list)
}
