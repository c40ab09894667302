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

// checkUsers reports limits by user of a route that knows none.
func checkUsers(d *checker, c *Config, r *Route, at *guardPlace, byUser map[string]bool) {
	if r.Auth != nil && (r.Auth.Basic != nil || r.Auth.JWT != nil) {
		return
	}
	for _, l := range r.listenersOf(c) {
		if l.TLS != nil && l.TLS.ClientAuth != nil {
			return
		}
	}
	const remedy = "add auth.basic or auth.jwt to the route, or tls.client_auth to its listener"
	for k, name := range r.RateLimits {
		if byUser[name] {
			d.Fail(at.rateLimits[k], remedy, "rate limit %q is by user, and nothing names the users of route %q", name, r.Name)
		}
	}
	if at.perUser != nil {
		d.Fail(at.perUser, remedy, "per_user has no effect: nothing names the users of route %q", r.Name)
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
	byUser := map[string]bool{}
	for i := range c.RateLimits {
		byUser[c.RateLimits[i].Name] = c.RateLimits[i].Key.By == RateByUser
	}
	for i := range c.Listeners {
		at := d.places.listeners[i].guard.rateLimits
		refer(c.Listeners[i].RateLimits, at)
		for k, name := range c.Listeners[i].RateLimits {
			if byUser[name] {
				d.Fail(at[k], "name it in rate_limits of routes", "rate limit %q is by user, who is known once a route has asked for credentials", name)
			}
		}
	}
	for i := range c.Routes {
		r, at := &c.Routes[i], d.places.routes[i].guard.rateLimits
		refer(r.RateLimits, at)
		checkUsers(d, c, r, &d.places.routes[i].guard, byUser)
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
