package control

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/stack"
)

// newChecker returns the checker of g's backends. What it finds wakes watch.
func (g *Gateway) newChecker() *health.Checker {
	return health.NewChecker(health.Options{Dialer: g.opt.Dialer, Notify: func() {
		select {
		case g.wake <- struct{}{}:
		default: // it is awake already, and takes all there is
		}
	}})
}

// watch enters what probes and clients' connections say of backends, and releases the numbers of those that are gone,
// until ctx ends.
func (g *Gateway) watch(ctx context.Context) {
	tick := time.NewTicker(passiveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
			g.mu.Lock()
			g.healthChanged(g.checks.Take())
			g.mu.Unlock()
		case <-tick.C:
			g.mu.Lock()
			g.evaluateOutliers(stack.Now())
			g.warnOfPorts(time.Now())
			g.release()
			g.mu.Unlock()
		}
	}
}

// forgetHealth forgets the health of backends that c no longer probes or watches. The caller
// holds g.mu, and builds a snapshot after it.
func (g *Gateway) forgetHealth(c *config.Config) {
	probed, passive := map[uint32]bool{}, map[uint32]bool{}
	for i := range c.Services {
		s := &c.Services[i]
		for _, b := range backendsOf(s) {
			if id, ok := g.reg.backends.of[b]; ok {
				j := g.detectors[poolKey{g.reg.services.of[s.Name], b.at.Addr().Is4()}]
				probed[id], passive[id] = s.Health != nil, j != nil && s.Passive != nil && j.settings == *s.Passive
			}
		}
	}
	for id := range g.down {
		if !probed[id] {
			delete(g.down, id)
		}
	}
	for id := range g.ejected {
		if !passive[id] {
			delete(g.ejected, id)
		}
	}
}

// startChecks makes the probes those of the configuration. Equal ones of one address are one,
// however many services want them. The caller holds g.mu.
func (g *Gateway) startChecks() {
	g.inheritHealth()
	var list []health.Watch
	for i := range g.cfg.Services {
		s := &g.cfg.Services[i]
		if s.Health == nil {
			continue
		}
		for _, b := range backendsOf(s) {
			id := g.reg.backends.of[b]
			list = append(list, health.Watch{
				ID: id, Target: health.Target{At: b.at, Backend: b.name, Service: b.service}, Check: s.Health, Down: g.down[id],
			})
		}
	}
	g.checks.Set(list)
	g.healthChanged(g.checks.Take())
}

// healthChanged enters what probes found. The caller holds g.mu.
func (g *Gateway) healthChanged(list []health.Change) {
	list = slices.DeleteFunc(list, func(c health.Change) bool { return c.Healthy != g.down[c.ID] })
	if len(list) == 0 || g.closed {
		return
	}
	for _, c := range list {
		if c.Healthy {
			delete(g.down, c.ID)
		} else {
			g.down[c.ID] = true
		}
	}
	for _, c := range list {
		what := "healthy"
		if !c.Healthy {
			what = "unhealthy"
		}
		g.report(g.event(c.ID, what, c.Cause))
	}
	back := map[uint32]bool{}
	for _, c := range list {
		back[c.ID] = c.Healthy
	}
	g.usableChanged(back, "health")
}

// event returns an event of a backend. The caller holds g.mu.
func (g *Gateway) event(id uint32, what string, cause error) Event {
	label := &g.reg.labels[id]
	return Event{Service: g.reg.serves[id], Backend: label.Name, Address: label.Address, What: what, Cause: cause}
}
