package config

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// checkAuth reports a pool that is not there, and notes files.
func (d *checker) checkAuth(c *Config, r *Route, at *guardPlace) {
	d.noteFiles(c, nil, at.files)
	if r.Auth == nil || r.Auth.Forward == nil || r.Auth.Forward.Pool == "" {
		return
	}
	known := namesOf(c)
	switch i, ok := known.pools[r.Auth.Forward.Pool]; {
	case !ok:
		d.Fail(at.authPool, d.nearest(r.Auth.Forward.Pool, known.poolNames), "unknown pool %q", r.Auth.Forward.Pool)
	case c.Pools[i].Protocol == PoolTCP:
		d.Fail(at.authPool, "requests go to pools that speak HTTP", "pool %q speaks %s", r.Auth.Forward.Pool, c.Pools[i].Protocol)
	}
}

// checkGuards reports limits that are not there or not used.
func (d *checker) checkGuards(c *Config) {
	lines, known := map[string]int{}, []string(nil)
	for i := range c.RateLimits {
		d.unique(lines, c.RateLimits[i].Name, d.places.rateLimits[i].name, "rate limit")
		known = append(known, c.RateLimits[i].Name)
	}
	slices.Sort(known)
	used := map[string]bool{}
	refer := func(names []string, at []*yaml.Node) {
		for i, name := range names {
			if used[name] = true; !slices.Contains(known, name) {
				d.Fail(at[i], d.nearest(name, known), "unknown rate limit %q", name)
			}
		}
	}
	for i := range c.Listeners {
		refer(c.Listeners[i].RateLimits, d.places.listeners[i].guard.rateLimits)
	}
	for i := range c.Routes {
		r, at := &c.Routes[i], d.places.routes[i].guard.rateLimits
		refer(r.RateLimits, at)
		for _, l := range r.listenersOf(c) {
			for k, name := range r.RateLimits {
				if slices.Contains(l.RateLimits, name) {
					d.Fail(at[k], "leave it out here or there", "requests of listener %q count in rate limit %q already", l.Name, name)
				}
			}
		}
	}
	for i := range c.Routes {
		d.checkAuth(c, &c.Routes[i], &d.places.routes[i].guard)
	}
	for i := range c.RateLimits {
		if l := &c.RateLimits[i]; l.Name != "" && !used[l.Name] {
			d.Fail(d.places.rateLimits[i].node, "name it in rate_limits of a listener or a route, or leave it out", "rate limit %q has no effect: nothing uses it", l.Name)
		}
	}
}
