package convert

import (
	"slices"
	"strings"
	"time"
)

// cache is a cache of responses, which rules name.
type cache struct {
	at        pos
	name      string
	memory    int64
	maxObject int64
	disk      *cacheDisk // nil for none
}

// cacheDisk is the second level of a cache.
type cacheDisk struct {
	dir            string
	bytes, objects int64
}

// object returns the keys of a second level; nil for none.
func (k *cacheDisk) object() *object {
	if k == nil {
		return nil
	}
	return (&object{}).put("dir", k.dir).put("bytes", k.bytes).put("objects", k.objects)
}

// ruleCache holds how a rule uses a cache.
type ruleCache struct {
	name                  string
	ttl                   time.Duration
	revalidating, onError time.Duration // stale_while_revalidate, stale_if_error
	ignores               bool          // client_control: ignore
	headers, cookies      []string
	wait                  time.Duration // collapse_wait
}

// cacheZone is a proxy_cache_path.
type cacheZone struct {
	cache    *cache
	inactive time.Duration
}

// Bounds of a cache.
const (
	leastMemory   = 1 << 20
	defaultMemory = 256 << 20 // of what nginx has in files
	mostMemory    = 1 << 30

	leastDisk   = 16 << 20
	defaultDisk = 1 << 30 // in place of as much as there is room for
	mostDisk    = 1 << 46
	diskFolder  = "/var/cache/millrace/" // that the unit of the packages makes
	keySize     = 128                    // bytes of a zone for a key: 8000 in a MiB
)

// memoryFolders hold files in memory: a cache there has no second level.
var memoryFolders = []string{"/dev/shm/", "/run/", "/var/run/"}

// readCaches reads the zones of caches.
func (n *nginx) readCaches(sc *scope) {
	for _, d := range slices.Concat(sc.own("proxy_cache_path"), sc.own("fastcgi_cache_path")) {
		name, zone, z := "", int64(0), &cacheZone{&cache{at: d.at, memory: defaultMemory}, 10 * time.Minute}
		bytes := int64(defaultDisk)
		for _, a := range d.texts() {
			key, value, _ := strings.Cut(a, "=")
			switch key {
			case "keys_zone":
				name, value, _ = strings.Cut(value, ":")
				zone, _ = size(value)
			case "max_size":
				if b, ok := size(value); ok && b > 0 {
					bytes = b
				}
			case "inactive":
				if t, ok := nginxTime(value); ok {
					z.inactive = t
				}
			}
		}
		if name == "" || n.caches[name] != nil || len(n.caches) >= 64 {
			n.l.left(d.at, "the cache has no name of its own", "write keys_zone=NAME:SIZE")
			continue
		}
		n.caches[name] = z
		z.cache.name = n.m.unique("cache", name)
		n.m.caches = append(n.m.caches, z.cache)
		n.sizes(d, z.cache, bytes, zone)
	}
}

// sizes chooses the sizes of a cache for bytes of files, whose keys have a zone of so many bytes. The folder is a new one: nginx removes files
// that are not its own, and its files cannot be read.
func (n *nginx) sizes(d *directive, k *cache, bytes, zone int64) {
	inMemory := func(folder string) bool { return strings.HasPrefix(d.arg(0), folder) }
	if slices.ContainsFunc(memoryFolders, inMemory) {
		k.memory = min(max(bytes, leastMemory), mostMemory)
		n.l.changed(d.at, "caches[]", "responses are kept in memory, as its folder is: set memory and max_object")
		return
	}
	k.memory = min(max(bytes, leastMemory), defaultMemory)
	k.disk = &cacheDisk{dir: diskFolder + k.name, bytes: min(max(bytes, leastDisk), mostDisk)}
	if zone > 0 {
		k.disk.objects = max(zone/keySize, 1)
	}
	n.l.changed(d.at, "caches[].disk", "the cache begins empty, in a folder of its own, and memory holds a part of it: set disk.dir for another disk, whose parent has to be there")
}

// caching is the translation of the cache of a location.
type caching struct {
	*site
	l    *loc
	kind string // proxy or fastcgi
	k    ruleCache
	safe bool // what keeps responses apart could be translated
}

// cached translates the cache of a location: nil where there is none. What keeps responses of one client from others must be
// expressed, or nothing is stored.
func (s *site) cached(l *loc, kind string) *ruleCache {
	d := l.sc.last(kind + "_cache")
	if d == nil || d.arg(0) == "off" {
		if d != nil {
			s.n.l.ok(d.at, "")
		}
		for _, o := range l.sc.list {
			if strings.HasPrefix(o.name, kind+"_cache_") || o.name == kind+"_no_cache" {
				s.n.l.unneeded(o.at, "the location has no cache")
			}
		}
		return nil
	}
	z := s.n.caches[d.arg(0)]
	if z == nil {
		s.n.l.left(d.at, "the cache is not known", "write caches, and cache of the rule")
		return nil
	}
	c := &caching{site: s, l: l, kind: kind, safe: true, k: ruleCache{name: z.cache.name, ignores: true}}
	c.key()
	c.conditions()
	c.times(z)
	c.rest()
	if !c.safe || len(c.k.headers) > 16 || len(c.k.cookies) > 16 {
		s.n.l.left(d.at, "what keeps responses apart cannot be expressed: nothing is stored", "write cache in rules whose paths need no condition")
		return nil
	}
	s.n.l.ok(d.at, "routes[].rules[].cache")
	return &c.k
}

// same reports whether the key of the gateway has what a variable of nginx has.
func (c *caching) same(name string) bool {
	return slices.Contains([]string{"scheme", "host", "http_host", "server_name", "server_port", "proxy_host", "request_uri", "uri", "document_uri", "args", "is_args", "query_string", "request_method"}, name) || strings.HasPrefix(name, "arg_")
}

// part keeps responses apart by a variable of the request. It reports whether that can be expressed.
func (c *caching) part(name string) bool {
	add := func(list *[]string, name string) bool {
		if !validToken(name) {
			return false
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
		return true
	}
	if field, ok := strings.CutPrefix(name, "http_"); ok {
		return add(&c.k.headers, strings.ReplaceAll(strings.ToLower(field), "_", "-"))
	}
	cookie, ok := strings.CutPrefix(name, "cookie_")
	return ok && add(&c.k.cookies, cookie)
}

// key translates proxy_cache_key.
func (c *caching) key() {
	d := c.l.sc.last(c.kind + "_cache_key")
	if d == nil {
		return
	}
	for i, p := range pieces(d.arg(0)) {
		if i%2 == 1 && !c.same(p) && !c.part(p) {
			c.safe = false
			c.n.l.left(d.at, "the key has no variable $"+p, "see key_headers and key_cookies")
		}
	}
	c.n.l.changed(d.at, "routes[].rules[].cache", "the key has scheme, host, path and query, and what key_headers and key_cookies name")
}

// conditions translates proxy_cache_bypass and proxy_no_cache: responses are kept apart by what they look at.
func (c *caching) conditions() {
	for _, d := range slices.Concat(c.l.sc.find(c.kind+"_cache_bypass"), c.l.sc.find(c.kind+"_no_cache")) {
		for _, a := range d.texts() {
			list := pieces(a)
			switch name := ""; {
			case len(list) == 1:
				c.n.l.ok(d.at, "")
				continue
			case len(list) == 3:
				name = list[1]
				fallthrough
			default:
				switch {
				case name == "http_pragma" || name == "http_cache_control":
					c.k.ignores = false
					c.n.l.changed(d.at, "routes[].rules[].cache.client_control", "Cache-Control of requests counts, as RFC 9111 has it")
				case name == "http_authorization" || name == "http_upgrade" || c.same(name):
					c.n.l.changed(d.at, "", "the gateway decides as RFC 9111 has it, and its key has the query")
				case c.part(name):
					c.n.l.changed(d.at, "routes[].rules[].cache", "responses are stored apart for each value, and not passed by")
				default:
					c.safe = false
					c.n.l.left(d.at, "the cache has no such condition", "")
				}
			}
		}
	}
}

// times translates for how long responses are used.
func (c *caching) times(z *cacheZone) {
	led := c.n.l
	for _, d := range c.l.sc.find(c.kind + "_cache_valid") {
		words := d.texts()
		t, ok := nginxTime(words[len(words)-1])
		codes := words[:len(words)-1]
		switch plain := len(codes) == 0 || slices.Contains(codes, "200") || slices.Contains(codes, "any"); {
		case !ok:
			led.left(d.at, "it is no time", "")
		case !plain || slices.Contains(codes, "any") && c.k.ttl > 0:
			led.changed(d.at, "routes[].rules[].cache", "responses of these statuses are stored if they say for how long")
		default:
			c.k.ttl = min(t, 366*24*time.Hour)
			led.changed(d.at, "routes[].rules[].cache.default_ttl", "it is for 200, 203, 204, 300, 301 and 308")
		}
	}
	for _, d := range c.l.sc.find(c.kind + "_cache_use_stale") {
		for _, a := range d.texts() {
			switch a {
			case "updating":
				c.k.revalidating = min(z.inactive, 366*24*time.Hour)
			case "off":
			default:
				c.k.onError = min(z.inactive, 366*24*time.Hour)
			}
		}
		led.changed(d.at, "routes[].rules[].cache.stale_if_error", "responses are used for the time of inactive after they are stale")
	}
	if d := c.l.sc.last(c.kind + "_cache_lock_timeout"); d != nil {
		if t, ok := nginxTime(d.arg(0)); ok && t > 0 {
			c.k.wait = min(t, time.Minute)
		}
		led.ok(d.at, "routes[].rules[].cache.collapse_wait")
	}
}

// rest notes the directives that the gateway needs none for.
func (c *caching) rest() {
	for _, name := range []string{"_cache_lock", "_cache_lock_age", "_cache_revalidate", "_cache_background_update", "_cache_convert_head", "_cache_max_range_offset"} {
		for _, d := range c.l.sc.find(c.kind + name) {
			c.n.l.unneeded(d.at, "it is what the gateway does")
		}
	}
	for _, name := range []string{"_cache_min_uses", "_cache_methods"} {
		for _, d := range c.l.sc.find(c.kind + name) {
			c.n.l.changed(d.at, "", "responses to GET are stored at their first use")
		}
	}
	for _, d := range c.l.sc.find(c.kind + "_ignore_headers") {
		c.n.l.changed(d.at, "", "what a response says of caching counts, and Set-Cookie keeps it out of the cache")
	}
}

// object returns the keys of a rule's cache.
func (k *ruleCache) object() *object {
	if k == nil {
		return nil
	}
	o := (&object{}).put("name", k.name).put("default_ttl", k.ttl).put("stale_while_revalidate", k.revalidating).put("stale_if_error", k.onError)
	if k.ignores {
		o.put("client_control", "ignore")
	}
	return o.put("key_headers", k.headers).put("key_cookies", k.cookies).put("collapse_wait", k.wait)
}
