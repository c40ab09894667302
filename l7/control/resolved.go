package control

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/resolve"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/stack"
)

// NameStatus describes a name that backends of a pool come from.
type NameStatus struct {
	Name    string     `json:"name"`
	State   string     `json:"state"`     // "pending", "resolved", "stale" (the last look-up has failed) or "unresolved" (none has succeeded)
	Targets int        `json:"addresses"` // that it stands for
	Since   *time.Time `json:"since,omitempty"`
	Next    *time.Time `json:"next_lookup,omitempty"`
	Error   string     `json:"error,omitempty"` // of the last look-up
	Lookups uint64     `json:"lookups"`
	Failed  uint64     `json:"failed_lookups"`
}

// firstLookups bounds the time that a start or a reload waits for names that were not looked up before. Their pools are empty until
// they are: requests would get 503 that a moment later are served.
const firstLookups = 5 * time.Second

// watchNames has the names of a configuration looked up, beside those in use, and waits for those that are new. The caller does not
// hold s.mu: what the watcher finds is entered under it.
func (s *Set) watchNames(cfg *config.Config) {
	names := cfg.Names()
	s.mu.Lock()
	all := names
	if s.cfg != nil {
		for _, n := range s.cfg.Names() {
			if !slices.Contains(all, n) {
				all = append(slices.Clone(all), n)
			}
		}
	}
	s.names.Set(cfg.Resolver.Options(), all)
	s.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, firstLookups)
	defer cancel()
	s.names.Wait(ctx, names)
}

// settleNames leaves the names of the configuration in use.
func settleNames(names *resolve.Watcher, cfg *config.Config) {
	names.Set(cfg.Resolver.Options(), cfg.Names())
}

// nameChanged enters a change of a name: new addresses become backends, and those that are gone drain as after a reload.
func (s *Set) nameChanged(c resolve.Change) {
	logName(s.opt.Log, c)
	if slices.Equal(c.Old, c.New) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, changed := stack.Now(), false
	for _, p := range s.order {
		if !slices.ContainsFunc(p.cfg.Backends, func(b config.PoolBackend) bool { return b.Named == c.Name }) {
			continue
		}
		changed = true
		if err := s.update(now, p, s.cfg); err != nil {
			s.opt.Log.Error("names", "pool", p.cfg.Name, "name", c.Name.String(), "error", err.Error())
		}
	}
	if !changed {
		return
	}
	s.probe(now)
	for _, l := range s.loops { // without waiting: they may not run yet
		l.Do(l.worker.DropGone)
	}
}

// logName logs what a change is, at the level at which it needs someone.
func logName(log *slog.Logger, c resolve.Change) {
	of := []any{"name", c.Name.String(), "state", c.State.String()}
	switch c.State {
	case resolve.Unresolved:
		log.Error("names", append(of, "error", c.Err.Error(), "result", "no backend comes from it until it resolves",
			"remedy", "check the name, and with `dig` the servers of resolver.servers or /etc/resolv.conf")...)
	case resolve.Stale:
		log.Warn("names", append(of, "error", c.Err.Error(), "result", "its last addresses stay")...)
	default:
		log.Info("names", append(of, "addresses", len(c.New), "came", missing(c.New, c.Old), "went", missing(c.Old, c.New))...)
	}
}

// missing returns the addresses of a that b has not.
func missing(a, b []resolve.Target) (list []string) {
	for _, t := range a {
		if !slices.ContainsFunc(b, func(o resolve.Target) bool { return o.At == t.At }) {
			list = append(list, t.At.String())
		}
	}
	return list
}

// maxWeight is the largest weight of a backend in package pool.
const maxWeight = 1_000_000

// members returns the backends that one of the configuration stands for: itself, or one for each address of its name. Those of a name
// are called by their address, behind the name that the file gives them.
func members(names *resolve.Watcher, b *config.PoolBackend) (list []pool.BackendOptions) {
	one := pool.BackendOptions{
		Name: b.Name, Address: b.Address, Path: b.Path, Weight: none(b.Weight), State: states[b.State],
		Limits: pool.Limits{Requests: b.MaxRequests, Connections: b.MaxConnections},
	}
	if b.Named == (resolve.Name{}) {
		return append(list, one)
	}
	prefix := ""
	if b.Name != b.Where() {
		prefix = b.Name + "/"
	}
	targets := names.Targets(b.Named)
	most := 1
	for _, t := range targets {
		most = max(most, t.Weight*b.Weight)
	}
	for _, t := range targets {
		o := one
		o.Name, o.Address = prefix+t.At.String(), t.At
		if w := t.Weight * b.Weight; w > 0 {
			o.Weight = max(1, w*min(maxWeight, most)/most)
		}
		list = append(list, o)
	}
	return list
}

// backendsOf returns the backends of a pool. An address that several names lead to is the backend of the first.
func backendsOf(names *resolve.Watcher, c *config.Pool) (list []pool.BackendOptions) {
	type place struct{ where, name string }
	seen := map[place]bool{}
	for i := range c.Backends {
		for _, o := range members(names, &c.Backends[i]) {
			at, name := place{where: o.Path + o.Address.String()}, place{name: o.Name}
			if !seen[at] && !seen[name] {
				seen[at], seen[name] = true, true
				list = append(list, o)
			}
		}
	}
	return list
}

// namesOfPool returns what is known of the names of a pool.
func namesOfPool(names *resolve.Watcher, c *config.Pool) (list []resolve.Status) {
	for i := range c.Backends {
		if n := c.Backends[i].Named; n != (resolve.Name{}) {
			list = append(list, names.Status(n))
		}
	}
	return list
}

func poolStatus(names *resolve.Watcher, p *pooled, now clock.Time) PoolStatus {
	out := p.status(now)
	for _, n := range namesOfPool(names, &p.cfg) {
		one := NameStatus{Name: n.Name.String(), State: n.State.String(), Targets: len(n.Targets), Lookups: n.Lookups, Failed: n.Failed}
		if n.State != resolve.Pending {
			one.Since, one.Next = &n.Since, &n.Next
		}
		if n.Err != nil {
			one.Error = n.Err.Error()
		}
		out.Names = append(out.Names, one)
	}
	return out
}

func writeNames(w *metrics.Writer, pool string, list []resolve.Status) {
	for _, n := range list {
		of := []metrics.Label{{Name: "pool", Value: pool}, {Name: "name", Value: n.Name.String()}}
		w.Gauge("millrace_pool_name_up", "1 while the last look-up of a name that backends come from has succeeded.", truth(n.State == resolve.Resolved), of...)
		w.Gauge("millrace_pool_name_addresses", "Addresses that a name stands for.", float64(len(n.Targets)), of...)
		w.Counter("millrace_pool_name_lookups_total", "Look-ups of a name.", n.Lookups, of...)
		w.Counter("millrace_pool_name_failed_lookups_total", "Look-ups of a name that have failed: its last addresses stay.", n.Failed, of...)
	}
}
