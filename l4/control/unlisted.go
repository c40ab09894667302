package control

import (
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
)

// A scrape sums up the services that it does not list as "_other". Reloads list other services and remove some, but a
// counter must not fall, nor jump by what had been counted elsewhere: a rate would show packets that never were. So a
// service counts in the sums only while it is not listed, also after it has gone from the configuration, and what it
// has added stays.

// serviceSums are sums of what only grows of services.
type serviceSums struct {
	dropped [packet.Verdicts]uint64
	evicted Evicted
	counts  backendCounts
}

// add adds the growth of a service from base to now.
func (s *serviceSums) add(now, base *serviceSums) {
	for v := range s.dropped {
		s.dropped[v] += now.dropped[v] - base.dropped[v]
	}
	s.evicted.HalfOpen += now.evicted.HalfOpen - base.evicted.HalfOpen
	s.evicted.Confirmed += now.evicted.Confirmed - base.evicted.Confirmed
	s.counts.sum(&now.counts)
	s.counts.subtract(&base.counts)
}

// sumsOf returns the sums of a service, with its backends that have gone. The caller holds g.mu.
func (g *Gateway) sumsOf(s *datapath.Snapshot, id uint32) (sums serviceSums) {
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		sums.dropped[v] = s.Services[id].Drops(v)
	}
	sums.evicted.HalfOpen, sums.evicted.Confirmed = s.Services[id].Evictions()
	for _, n := range g.services[id].ids {
		sums.counts.add(s.Backends[n])
	}
	sums.counts.sum(&g.services[id].released)
	return sums
}

// maxListed is the number of backends that have series of their own unless a scrape wants all: 1.3 MB of text. The
// services whose backends fit, in the order of the configuration, are listed as a whole.
const maxListed = 1000

// list notes which services scrapes list from now on: those of configuration c, which are in s already. The caller holds
// g.mu.
func (g *Gateway) list(s *datapath.Snapshot, c *config.Config) {
	listed, backends := make([]bool, len(g.services)), 0
	for i := range c.Services {
		for k := range c.Services[i].Backends {
			backends += len(c.Services[i].Backends[k].Addresses)
		}
		if backends > maxListed {
			break
		}
		listed[g.reg.services.of[c.Services[i].Name]] = true
	}
	for id, o := range g.services {
		if listed[id] != o.unlisted {
			continue // as before
		}
		now := g.sumsOf(s, uint32(id))
		if o.unlisted {
			g.departed.add(&now, &o.base)
		}
		o.unlisted, o.base = !o.unlisted, now
	}
}

// listed returns which services a scrape lists, by their place in the configuration. The caller holds g.mu.
func (g *Gateway) listed(sel *metrics.Selection) func(i int) bool {
	return func(i int) bool {
		name := g.cfg.Services[i].Name
		if sel.Names != nil {
			_, found := slices.BinarySearch(sel.Names, name)
			return found
		}
		return sel.All || !g.services[g.reg.services.of[name]].unlisted
	}
}

// depart keeps what a service has added to the sums whose number is released. The caller holds g.mu.
func (g *Gateway) depart(s *datapath.Snapshot, id uint32) {
	if o := g.services[id]; o.unlisted {
		now := g.sumsOf(s, id)
		g.departed.add(&now, &o.base)
	}
}

// others returns the sums of what scrapes do not list. The caller holds g.mu.
func (g *Gateway) others(s *datapath.Snapshot) serviceSums {
	sums := g.departed
	for id, o := range g.services {
		if o.unlisted {
			now := g.sumsOf(s, uint32(id))
			sums.add(&now, &o.base)
		}
	}
	return sums
}
