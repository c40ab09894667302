package control

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/auth"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/metrics"
)

// guards hold the parts by which listeners and routes refuse requests, as far as they outlive reloads.
type guards struct {
	limits    map[string]*rateLimit
	listeners map[string]*proxy.GuardCounts // by the listener's name
	routes    map[string]*proxy.GuardCounts // by the route's
	places    map[string]*proxy.Places      // the same
	perUser   map[string]*proxy.UserPlaces  // by route
	users     map[string]*auth.Users        // the same
	issuers   map[string]*issuer            // the same
	auths     map[string]proxy.Authority    // the same, but for those that need pools
}

// rateLimit is a limit with the configuration that it was made by.
type rateLimit struct {
	cfg config.RateLimit
	*proxy.RateLimit
}

// planGuards returns the guards of a configuration. What it leaves as it was keeps its state: what clients have spent, and counters.
func (s *Set) planGuards(cfg *config.Config) (guards, error) {
	g := guards{
		limits: map[string]*rateLimit{}, listeners: map[string]*proxy.GuardCounts{}, routes: map[string]*proxy.GuardCounts{}, places: map[string]*proxy.Places{}, perUser: map[string]*proxy.UserPlaces{},
		users: map[string]*auth.Users{}, issuers: map[string]*issuer{}, auths: map[string]proxy.Authority{},
	}
	for i := range cfg.RateLimits {
		c := &cfg.RateLimits[i]
		old := s.guards.limits[c.Name]
		if old != nil && old.cfg == *c {
			g.limits[c.Name] = old
			continue
		}
		l := &rateLimit{*c, nil}
		key, err := rateKey(&c.Key)
		if err != nil {
			return g, err
		}
		l.RateLimit = proxy.NewRateLimit(c.Name, key, ratelimit.Options{Requests: c.Requests, Interval: c.Interval, Burst: c.Burst, Keys: c.Keys}, len(s.loops))
		if l.Announce = announces[c.Announce]; c.DryRun {
			l.Mode = proxy.RateDryRun
		}
		if old != nil {
			l.Continue(old.RateLimit)
		}
		g.limits[c.Name] = l
	}
	for i := range cfg.Listeners {
		name := cfg.Listeners[i].Name
		g.listeners[name] = s.countsOf(s.guards.listeners[name])
	}
	for i := range cfg.Routes {
		name := cfg.Routes[i].Name
		g.routes[name] = s.countsOf(s.guards.routes[name])
		a, err := s.planAuth(cfg, &g, &cfg.Routes[i])
		if err != nil {
			return g, err
		}
		if a != nil {
			g.auths[name] = a
		}
		if c := cfg.Routes[i].Concurrency; c != nil && c.PerUser > 0 {
			if g.perUser[name] = s.guards.perUser[name]; g.perUser[name] == nil {
				g.perUser[name] = proxy.NewUserPlaces(c.PerUser)
			}
		}
		if c := cfg.Routes[i].Concurrency; c != nil && c.Requests > 0 {
			if g.places[name] = s.guards.places[name]; g.places[name] == nil {
				g.places[name] = proxy.NewPlaces(placesOf(c))
			}
		}
	}
	return g, nil
}

func placesOf(c *config.Concurrency) proxy.PlacesOptions {
	return proxy.PlacesOptions{Requests: c.Requests, Pending: c.Pending, Wait: c.Wait}
}

// useGuards sets the bounds of a configuration that is used. The caller holds s.mu.
func (s *Set) useGuards(n *plan) {
	s.useIssuers(s.guards.issuers, n.guards.issuers)
	s.guards = n.guards
	for i := range n.cfg.Routes {
		c, name := n.cfg.Routes[i].Concurrency, n.cfg.Routes[i].Name
		if p := s.guards.places[name]; p != nil {
			p.Set(placesOf(c))
		}
		if p := s.guards.perUser[name]; p != nil {
			p.Set(c.PerUser)
		}
	}
}

// sourcesOf returns the clients of a listener or a route, nil for all.
func sourcesOf(t *config.SourceTable) *proxy.Sources {
	if t == nil {
		return nil
	}
	return &proxy.Sources{Prefixes: t.Prefixes, Denied: config.SourceDeny, Deny: t.Deny}
}

// countsOf returns counters of a guard: those that were there, or new ones.
func (s *Set) countsOf(old *proxy.GuardCounts) *proxy.GuardCounts {
	if old != nil {
		return old
	}
	return proxy.NewGuardCounts(len(s.loops))
}

var announces = map[config.Announce]proxy.Announce{
	config.AnnounceRefused: proxy.AnnounceRefused, config.AnnounceAlways: proxy.AnnounceAlways, config.AnnounceNever: proxy.AnnounceNever,
}

var rateBys = map[config.RateBy]rewrite.KeyBy{
	config.RateByClient: rewrite.ByClient, config.RateByHeader: rewrite.ByHeader, config.RateByCookie: rewrite.ByCookie,
	config.RateByQuery: rewrite.ByQuery, config.RateByPath: rewrite.ByPath,
}

// rateKey returns what requests count by. The error is that of a value that config has not checked.
func rateKey(c *config.RateKey) (k proxy.RateKey, err error) {
	k = proxy.RateKey{Key: rewrite.Key{By: rateBys[c.By], Name: c.Name}, All: c.By == config.RateByAll, User: c.By == config.RateByUser, Prefix4: c.Prefix4, Prefix6: c.Prefix6}
	if c.By == config.RateByValue {
		k.Value, err = rewrite.ParseTemplate(c.Value)
	}
	return k, err
}

// listenerGuard returns the guard of a listener, nil if it refuses nothing.
func (n *plan) listenerGuard(l *config.Listener) *proxy.Guard {
	return guardOf(&proxy.Guard{Limits: n.limitsOf(l.RateLimits), Sources: sourcesOf(n.cfg.Lists().Listeners[l.Name]), Counts: n.guards.listeners[l.Name]})
}

// routeGuard returns the guard of a route, nil if it refuses nothing.
func (n *plan) routeGuard(r *config.Route) *proxy.Guard {
	return guardOf(&proxy.Guard{
		Limits: n.limitsBy(r.RateLimits, false), UserLimits: n.limitsBy(r.RateLimits, true), PerUser: n.guards.perUser[r.Name], Sources: sourcesOf(n.cfg.Lists().Routes[r.Name]), Places: n.guards.places[r.Name], Counts: n.guards.routes[r.Name],
		Auth: n.authOf(r), Maintenance: maintenanceOf(r.Maintenance),
	})
}

// authOf returns how requests of a route are asked for credentials, nil if they are not.
func (n *plan) authOf(r *config.Route) proxy.Authority {
	if a := n.guards.auths[r.Name]; a != nil {
		return a
	}
	return n.forwardAuth(r)
}

func maintenanceOf(m *config.Maintenance) *proxy.Maintenance {
	if m == nil {
		return nil
	}
	return &proxy.Maintenance{RetryAfter: m.RetryAfter, Allow: m.Allow}
}

// guardOf returns nil for a guard without parts: requests then cost nothing.
func guardOf(g *proxy.Guard) *proxy.Guard {
	if len(g.Limits) == 0 && g.Sources == nil && g.Places == nil && g.Auth == nil && g.Maintenance == nil && len(g.UserLimits) == 0 && g.PerUser == nil {
		return nil
	}
	return g
}

// limitsBy returns those of limits that are by user, or the others.
func (n *plan) limitsBy(names []string, user bool) []*proxy.RateLimit {
	return slices.DeleteFunc(n.limitsOf(names), func(l *proxy.RateLimit) bool { return l.Key.User != user })
}

func (n *plan) limitsOf(names []string) (list []*proxy.RateLimit) {
	for _, name := range names {
		list = append(list, n.guards.limits[name].RateLimit)
	}
	return list
}

// authNames appends the names of fields that credentials are read from, or that say whom they name.
func (n *plan) authNames(names []string, r *config.Route) []string {
	if a := n.authOf(r); a != nil {
		names = append(append(names, a.Names()...), "authorization")
	}
	return names
}

// guardNames appends the names of fields that limits read.
func (n *plan) guardNames(names, limits []string) []string {
	for _, name := range limits {
		if k := &n.guards.limits[name].cfg.Key; k.By == config.RateByHeader {
			names = append(names, k.Name)
		}
	}
	return names
}

// write writes the counters of limits, and of what listeners and routes refuse by others.
func (g *guards) write(w *metrics.Writer) {
	for i, name := range slices.Sorted(maps.Keys(g.limits)) {
		if !wanted(&w.Selection, i, name) {
			continue
		}
		l, of := g.limits[name], metrics.Label{Name: "limit", Value: name}
		for c, n := range l.Counts() {
			w.Counter("millrace_http_rate_limit_requests_total", "Requests that a rate limit has counted, by result.", n, of,
				metrics.Label{Name: "result", Value: proxy.RateCount(c).String()})
		}
		w.Counter("millrace_http_rate_limit_evicted_keys_total", "Keys in use that made room for others: keys is too small.", l.Evicted(), of)
	}
	for i, name := range slices.Sorted(maps.Keys(g.places)) {
		if !wanted(&w.Selection, i, name) {
			continue
		}
		st, of := g.places[name].Status(), metrics.Label{Name: "route", Value: name}
		w.Gauge("millrace_http_route_concurrent_requests", "Requests of a route with concurrency that are served.", float64(st.Used), of)
		w.Gauge("millrace_http_route_pending_requests", "Requests of a route with concurrency that wait.", float64(st.Pending), of)
		for _, r := range [...]struct {
			reason string
			n      uint64
		}{{"full", st.Full}, {"timeout", st.Timeouts}} {
			w.Counter("millrace_http_route_wait_failures_total", "Requests that concurrency has refused: as many waited as may, or they waited for too long.", r.n, of,
				metrics.Label{Name: "reason", Value: r.reason})
		}
	}
	for i, name := range slices.Sorted(maps.Keys(g.issuers)) {
		one := g.issuers[name]
		if one.client == nil || !wanted(&w.Selection, i, name) {
			continue
		}
		of := metrics.Label{Name: "route", Value: name}
		w.Counter("millrace_http_jwks_reads_total", "Reads of an issuer's keys, by result.", one.read.Load(), of, metrics.Label{Name: "result", Value: "ok"})
		w.Counter("millrace_http_jwks_reads_total", "Reads of an issuer's keys, by result.", one.failed.Load(), of, metrics.Label{Name: "result", Value: "failed"})
	}
	eachRefused(w, g.listeners, func(of string, n uint64, reason metrics.Label) {
		w.Counter("millrace_http_listener_guard_refusals_total", "Requests that a listener has refused, by reason.", n, metrics.Label{Name: "listener", Value: of}, reason)
	})
	eachRefused(w, g.routes, func(of string, n uint64, reason metrics.Label) {
		w.Counter("millrace_http_route_guard_refusals_total", "Requests that a route has refused, by reason.", n, metrics.Label{Name: "route", Value: of}, reason)
	})
}

// eachRefused calls write for the counters of each guard that a scrape lists.
func eachRefused(w *metrics.Writer, all map[string]*proxy.GuardCounts, write func(of string, n uint64, reason metrics.Label)) {
	for i, of := range slices.Sorted(maps.Keys(all)) {
		if !wanted(&w.Selection, i, of) {
			continue
		}
		for r, n := range all[of].Refused() {
			write(of, n, metrics.Label{Name: "reason", Value: proxy.GuardReason(r).String()})
		}
	}
}
