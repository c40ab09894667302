package control

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/metrics"
)

// ErrUnknownCache is the error for a name that no cache has.
var ErrUnknownCache = errors.New("unknown cache")

// Caches are those of a configuration, in its order.
type Caches []*cache.Named

// planCaches returns the caches of a configuration. Those that were there keep what they have: use sets their bounds.
func planCaches(cfg *config.Config, old Caches, loops int) (all Caches) {
	for i := range cfg.Caches {
		c := &cfg.Caches[i]
		store := old.named(c.Name)
		if store == nil {
			store = cache.NewNamed(c.Name, cache.Options{Memory: c.Memory}, loops, time.Now)
		}
		all = append(all, store)
	}
	return all
}

// named returns the cache of a name, nil for none.
func (all Caches) named(name string) *cache.Named {
	if i := slices.IndexFunc(all, func(c *cache.Named) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// use sets the bounds of a configuration.
func (all Caches) use(cfg *config.Config) {
	for i := range cfg.Caches {
		all[i].SetMemory(cfg.Caches[i].Memory)
	}
}

// Caches returns the caches of the configuration in use.
func (s *Set) Caches() Caches {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caches
}

// chosen returns the cache of a name, all for "". The error is ErrUnknownCache.
func (all Caches) chosen(name string) (Caches, error) {
	if name == "" {
		return all, nil
	}
	if c := all.named(name); c != nil {
		return Caches{c}, nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("%w %q%s", ErrUnknownCache, name, near(name, names))
}

// cacheUse returns how a rule uses a cache, nil where it does not.
func (n *plan) cacheUse(ref *config.RuleRef) *cache.Rule {
	c := ref.Rule.Cache
	if c == nil || len(ref.Rule.BackendRefs) == 0 {
		return nil
	}
	u := &cache.Rule{
		Store: n.caches.named(c.Name), Name: ref.Route.Name + "/" + ref.Rule.Name, Headers: c.KeyHeaders, Cookies: c.KeyCookies, Wait: c.CollapseWait,
		Policy: cache.Policy{
			DefaultTTL: c.DefaultTTL, Heuristic: c.Heuristic, StaleWhileRevalidate: c.StaleWhileRevalidate, StaleIfError: c.StaleIfError,
			IgnoreClient: c.ClientControl == config.ClientIgnore, Changed: n.changedNames(ref),
		},
	}
	for i := range n.cfg.Caches {
		if n.cfg.Caches[i].Name == c.Name {
			u.Policy.MaxObject, u.InMemory = n.cfg.Caches[i].MaxObject, n.cfg.Caches[i].MaxObject
		}
	}
	if d := diskOf(n.cfg, c.Name); d != nil {
		u.Policy.MaxObject = max(u.Policy.MaxObject, d.MaxObject)
	}
	for _, b := range ref.Rule.BackendRefs {
		u.Foreground = u.Foreground || n.pools[b.Name].cfg.ProxyProtocol != config.ProxyNone
	}
	return u
}

// changedNames returns the names of fields that backends get in place of the client's.
func (n *plan) changedNames(ref *config.RuleRef) (names []string) {
	for i := range n.cfg.Listeners {
		if id := n.cfg.Listeners[i].RequestID; id != "" {
			names = append(names, id)
		}
	}
	if a := n.authOf(ref.Route); a != nil {
		names = append(names, a.Names()...)
	}
	for i := range ref.Rule.Filters {
		f := &ref.Rule.Filters[i]
		if f.Type != config.FilterRequestHeaders {
			continue
		}
		names = append(names, f.Remove...)
		for _, h := range slices.Concat(f.Set, f.Add) {
			names = append(names, h.Name)
		}
	}
	return append(names, "x-real-ip", "client-cert", "client-cert-chain", "early-data")
}

// CacheStatus is the state of a cache.
type CacheStatus struct {
	Name        string            `json:"name"`
	Bytes       int64             `json:"bytes"`
	Memory      int64             `json:"memory"` // that it may take
	Objects     int64             `json:"objects"`
	Requests    map[string]uint64 `json:"requests"`  // by result
	Refreshes   uint64            `json:"refreshes"` // validations in the background
	Stored      uint64            `json:"stored"`
	Evicted     uint64            `json:"evicted"`
	Invalidated uint64            `json:"invalidated"`
	Full        uint64            `json:"full"` // responses that were not stored, as too many were gathered
	Disk        *DiskStatus       `json:"disk,omitempty"`
}

// CacheStatuses is the list of all caches.
type CacheStatuses struct {
	Caches []CacheStatus `json:"caches"`
}

// Status returns the state of the caches.
func (all Caches) Status() CacheStatuses {
	list := CacheStatuses{Caches: []CacheStatus{}}
	for _, c := range all {
		list.Caches = append(list.Caches, cacheStatus(c))
	}
	return list
}

func cacheStatus(c *cache.Named) CacheStatus {
	st, n := c.Stats(), c.Counts()
	out := CacheStatus{
		Name: c.Name, Bytes: st.Bytes, Memory: st.Limit, Objects: st.Objects, Requests: map[string]uint64{}, Refreshes: n[cache.CountRefresh],
		Stored: st.Stored, Evicted: st.Evicted, Invalidated: st.Invalidated, Full: n[cache.CountFull], Disk: diskStatus(c),
	}
	for r := range cache.Results {
		out.Requests[r.String()] = n[r]
	}
	return out
}

// CacheObject is a stored response.
type CacheObject struct {
	Cache   string  `json:"cache"`
	URL     string  `json:"url"`
	Rule    string  `json:"rule"`
	Status  int     `json:"status"`
	Bytes   int64   `json:"bytes"` // of memory, or of the disk
	Age     float64 `json:"age_seconds"`
	Left    float64 `json:"fresh_seconds"` // below 0: it is stale
	Content int64   `json:"content_bytes"`
	Disk    bool    `json:"disk"` // it is in a file, and not in memory
}

// CacheList is a part of what caches have.
type CacheList struct {
	Objects []CacheObject `json:"objects"`
	More    int64         `json:"more"` // that begin with the prefix and are left out
}

// Objects returns stored responses whose URL begins with a prefix: at most so many, of a cache, or of all for "".
func (all Caches) Objects(name, prefix string, limit int) (list CacheList, err error) {
	list.Objects = []CacheObject{}
	if all, err = all.chosen(name); err != nil {
		return list, err
	}
	now := time.Now()
	for _, c := range all {
		c.Each(func(e *cache.Entry) bool {
			switch {
			case !strings.HasPrefix(e.URL, prefix):
			case len(list.Objects) >= limit:
				list.More++
			default:
				rule, _, _ := strings.Cut(e.Variant, "\n")
				list.Objects = append(list.Objects, CacheObject{
					c.Name, e.URL, rule, e.Status, e.Size(), e.Age(now).Seconds(), e.Left(now).Seconds(), e.Length(), e.OnDisk(),
				})
			}
			return true
		})
	}
	return list, nil
}

// Purge removes what is stored of a URL, or all whose URL begins with it, of a cache, or of all for "". It returns how many responses
// these were.
func (all Caches) Purge(name, target string, prefix bool) (n int, err error) {
	if all, err = all.chosen(name); err != nil {
		return 0, err
	}
	if !prefix {
		u, err := url.Parse(target)
		if err != nil {
			return 0, fmt.Errorf("%w: %q", ErrQuery, target)
		}
		normal, ok := cache.URL(u)
		if !ok {
			return 0, fmt.Errorf("%w: %q: write such as https://shop.example.org/a.css", ErrQuery, target)
		}
		target = normal
	}
	for _, c := range all {
		if prefix {
			n += c.Purge(target)
		} else {
			n += c.Invalidate(target)
			c.Sync()
		}
	}
	return n, nil
}

// write writes the counters of caches.
func (all Caches) write(w *metrics.Writer) {
	for i, c := range all {
		if !wanted(&w.Selection, i, c.Name) {
			continue
		}
		of, st, n := metrics.Label{Name: "cache", Value: c.Name}, c.Stats(), c.Counts()
		for r := range cache.Results {
			w.Counter("millrace_http_cache_requests_total", "Requests of rules with a cache, by result.", n[r], of, metrics.Label{Name: "result", Value: r.String()})
		}
		w.Counter("millrace_http_cache_refreshes_total", "Stale responses that were validated in the background.", n[cache.CountRefresh], of)
		w.Counter("millrace_http_cache_full_total", "Responses that were not stored since too many were gathered at once.", n[cache.CountFull], of)
		w.Gauge("millrace_http_cache_bytes", "Memory of stored responses.", float64(st.Bytes), of)
		w.Gauge("millrace_http_cache_limit_bytes", "Memory that stored responses may take.", float64(st.Limit), of)
		w.Gauge("millrace_http_cache_objects", "Stored responses.", float64(st.Objects), of)
		w.Counter("millrace_http_cache_stored_total", "Responses that were stored.", st.Stored, of)
		w.Counter("millrace_http_cache_evicted_total", "Stored responses that made room for others.", st.Evicted, of)
		w.Counter("millrace_http_cache_invalidated_total", "Stored responses that unsafe methods or an operator have removed.", st.Invalidated, of)
		if d := diskStatus(c); d != nil {
			d.write(w, of)
		}
	}
}
