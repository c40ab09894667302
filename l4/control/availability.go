package control

import (
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
)

// Availability tells whether new connections of a service have a backend.
type Availability uint8

// The values of Availability. A later one counts where several backends, or services of one address, differ.
const (
	Unavailable Availability = iota // no backend: all have failed, or are inactive
	Unsettled                       // not known yet: no probe has succeeded, or no next hop is known
	Draining                        // backends keep their connections and take no new ones
	Available                       // a backend takes new connections
)

// ServiceAvailability is the availability of a service by the family of its clients.
type ServiceAvailability struct {
	Service  *config.Service // not to be changed
	Families [datapath.Families]Availability
}

// AvailabilityOf returns the availability of the services that are announced, in the order of the configuration. Options.OnAvailability
// is called when one may have changed, but for the first probe that succeeds.
func AvailabilityOf(g *Gateway) (list []ServiceAvailability) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, now := g.snap.Load(), time.Now()
	for i := range g.cfg.Services {
		sv := &g.cfg.Services[i]
		if sv.Announce == nil || g.closed {
			continue
		}
		a := ServiceAvailability{Service: sv}
		for f := range datapath.Families {
			a.Families[f] = g.available(s, g.services[g.reg.services.of[sv.Name]], f, now)
		}
		list = append(list, a)
	}
	return list
}

// available returns the availability of a service for a family. The caller holds g.mu.
func (g *Gateway) available(s *datapath.Snapshot, o *serviceState, f int, now time.Time) (best Availability) {
	for i := range o.config.Backends {
		b := &o.config.Backends[i]
		c, ok := g.candidate(s, o, b, f, now)
		if !ok {
			continue
		}
		is := Unavailable
		switch opens := c.state == config.StateFilling || c.state == config.StateActive; {
		case c.state == config.StateInactive || c.ejected:
		case !c.ready || o.config.Health != nil && !g.probed(c.ID):
			is = Unsettled
		case opens && o.backends[b.Name].share() > 0: // with slow start, the weight at present may be 0
			is = Available
		default:
			is = Draining
		}
		best = max(best, is)
	}
	return best
}

// probed reports whether the last probe of a backend has succeeded.
func (g *Gateway) probed(id uint32) bool {
	st, ok := g.checks.State(id)
	return ok && st.Cause == nil && !st.Asked.IsZero()
}
