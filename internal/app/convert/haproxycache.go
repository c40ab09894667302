package convert

import "slices"

// readCache reads a section `cache`.
func (h *haproxy) readCache(c *section) {
	k := &cache{at: c.at, memory: leastMemory}
	for _, x := range c.lines {
		switch n := int64(atoi(x.arg(1))); x.words[0] {
		case "total-max-size":
			k.memory = min(max(n<<20, leastMemory), mostMemory<<2)
			h.l.ok(x.at, "caches[].memory")
		case "max-object-size":
			k.maxObject = n
			h.l.ok(x.at, "caches[].max_object")
		case "max-age":
			h.l.changed(x.at, "", "what a response says of its age is not bounded")
		case "process-vary", "max-secondary-entries":
			h.l.unneeded(x.at, "Vary keeps responses apart")
		}
	}
	if k.maxObject = min(k.maxObject, k.memory/4); c.name == "" || h.caches[c.name] != nil || len(h.caches) >= 64 {
		h.l.left(c.at, "the cache has no name of its own", "")
		return
	}
	h.caches[c.name] = k
	k.name = h.m.unique("cache", c.name)
	h.m.caches = append(h.m.caches, k)
	h.l.ok(c.at, "caches[]")
}

// cacheOf returns the cache that a section uses for all of its requests, nil for none.
func (h *haproxy) cacheOf(p *proxy) *ruleCache {
	use, store := p.last("http-request cache-use"), p.last("http-response cache-store")
	if use == nil || store == nil {
		return nil
	}
	for _, x := range []*line{use, store} {
		if slices.Contains(x.words, "if") || slices.Contains(x.words, "unless") || h.caches[x.arg(2)] == nil || x.arg(2) != use.arg(2) {
			h.l.left(use.at, "its cache is not known, or has a condition", "write cache in rules with the condition as their match")
			h.l.left(store.at, "its cache is not known, or has a condition", "")
			return nil
		}
	}
	h.l.ok(use.at, "routes[].rules[].cache")
	h.l.ok(store.at, "routes[].rules[].cache")
	return &ruleCache{name: h.caches[use.arg(2)].name}
}

// backend returns the rule that leads to a backend, with the cache of one of the two.
func (f *frontend) backend(x *line, name string) *rule {
	r := f.h.toBackend(x, name)
	if r == nil || len(r.pools) == 0 {
		return r
	}
	if r.cache = f.h.cacheOf(f.p); r.cache == nil {
		r.cache = f.h.cacheOf(f.h.backends[name])
	}
	return r
}
