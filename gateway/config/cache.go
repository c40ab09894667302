package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/semantics"
)

// Cache is a shared cache of responses (RFC 9111), which rules of routes name. It is one for all loops.
type Cache struct {
	Name      string     // key "name", required and unique: the label of metrics
	Memory    int64      // key "memory", required: bytes of all stored responses
	MaxObject int64      // key "max_object": bytes of the content of one, default 1 MiB, at most a quarter of Memory
	Disk      *CacheDisk // key "disk": a second level in files, nil for none
}

// CacheDisk is the second level of a cache: responses in files, which a restart keeps.
type CacheDisk struct {
	Dir       string // key "dir", required: a folder of its own, which the gateway makes with mode 0700
	Bytes     int64  // key "bytes", required: of all files
	MaxObject int64  // key "max_object": bytes of the content of one, default 64 MiB, at most a quarter of Bytes
	Objects   int64  // key "objects": files, default 262144; each takes about 1.5 KiB of memory besides
}

// RuleCache configures how a rule uses a cache. Its defaults are those of RFC 9111: the fields of a response decide.
type RuleCache struct {
	Name                 string        // key "name", required: of a cache
	DefaultTTL           time.Duration // key "default_ttl": how long responses are fresh that do not say so, default 0: they are not stored
	Heuristic            int           // key "heuristic_percent": the part of the time since Last-Modified for which such a response is fresh, default 0
	StaleWhileRevalidate time.Duration // key "stale_while_revalidate": of responses that do not have it, default 0
	StaleIfError         time.Duration // key "stale_if_error": the same
	ClientControl        ClientControl // key "client_control": "honor" (default) or "ignore"
	KeyHeaders           []string      // key "key_headers": fields of the request that are part of the key, in lower case here
	KeyCookies           []string      // key "key_cookies": the same of cookies
	CollapseWait         time.Duration // key "collapse_wait": how long a request waits for another one that fetches the same, default 5s; 0 is not at all
}

// ClientControl selects whether Cache-Control of requests counts.
type ClientControl string

// The values of ClientControl.
const (
	ClientHonor  ClientControl = "honor"
	ClientIgnore ClientControl = "ignore"
)

func newCache() Cache { return Cache{MaxObject: 1 << 20} }

func newRuleCache() *RuleCache {
	return &RuleCache{ClientControl: ClientHonor, CollapseWait: 5 * time.Second}
}

const (
	maxCaches    = 64
	minCache     = 1 << 20
	maxCache     = 1 << 40
	maxCacheKeys = 16

	minCacheDisk     = 16 << 20
	maxCacheDisk     = 1 << 50
	defaultDiskFile  = 64 << 20
	defaultDiskFiles = 1 << 18
)

// cachePlace is where the parts of a cache stand.
type cachePlace struct{ node, name, object, dir *yaml.Node }

// cacheDecoder reads the keys of caches.
type cacheDecoder struct{ *l7Decoder }

func (d cacheDecoder) caches(n *yaml.Node, c *Config) {
	d.List(n, "caches", maxCaches, func(n *yaml.Node) {
		k, at := newCache(), cachePlace{node: n}
		d.Mapping(n, "a cache",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &k.Name) }),
			strictyaml.Required("memory", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "memory", &k.Memory, minCache, maxCache) }),
			strictyaml.Optional("max_object", func(n *yaml.Node) {
				at.object = n
				strictyaml.Integer(d.Decoder, n, "max_object", &k.MaxObject, 1, maxCache/4)
			}),
			strictyaml.Optional("disk", func(n *yaml.Node) { k.Disk = d.disk(n, &at) }),
		)
		if k.MaxObject > k.Memory/4 && k.Memory > 0 {
			if at.object != nil {
				d.Fail(at.object, "at most a quarter of memory", "max_object %d is too large for memory %d", k.MaxObject, k.Memory)
			}
			k.MaxObject = k.Memory / 4
		}
		d.places.caches = append(d.places.caches, at)
		c.Caches = append(c.Caches, k)
	})
}

// disk decodes the second level of a cache.
func (d cacheDecoder) disk(n *yaml.Node, at *cachePlace) *CacheDisk {
	k, object := &CacheDisk{MaxObject: defaultDiskFile, Objects: defaultDiskFiles}, (*yaml.Node)(nil)
	d.Mapping(n, "disk",
		strictyaml.Required("dir", func(n *yaml.Node) { at.dir = n; d.Text(n, "dir", &k.Dir) }),
		strictyaml.Required("bytes", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "bytes", &k.Bytes, minCacheDisk, maxCacheDisk) }),
		strictyaml.Optional("max_object", func(n *yaml.Node) {
			object = n
			strictyaml.Integer(d.Decoder, n, "max_object", &k.MaxObject, 1, maxCacheDisk/4)
		}),
		strictyaml.Optional("objects", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "objects", &k.Objects, 1, 1<<28) }),
	)
	if k.MaxObject > k.Bytes/4 && k.Bytes > 0 {
		if object != nil {
			d.Fail(object, "at most a quarter of bytes", "max_object %d is too large for bytes %d", k.MaxObject, k.Bytes)
		}
		k.MaxObject = k.Bytes / 4
	}
	return k
}

func (d cacheDecoder) ruleCache(n *yaml.Node, k *RuleCache, at *rulePlace) {
	at.cache = n
	d.Mapping(n, "cache",
		strictyaml.Required("name", func(n *yaml.Node) { at.cacheName = n; d.Text(n, "name", &k.Name) }),
		strictyaml.Optional("default_ttl", func(n *yaml.Node) { d.Duration(n, "default_ttl", &k.DefaultTTL, 0, 366*24*time.Hour) }),
		strictyaml.Optional("heuristic_percent", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "heuristic_percent", &k.Heuristic, 0, 100) }),
		strictyaml.Optional("stale_while_revalidate", func(n *yaml.Node) {
			d.Duration(n, "stale_while_revalidate", &k.StaleWhileRevalidate, 0, 366*24*time.Hour)
		}),
		strictyaml.Optional("stale_if_error", func(n *yaml.Node) { d.Duration(n, "stale_if_error", &k.StaleIfError, 0, 366*24*time.Hour) }),
		strictyaml.Optional("client_control", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "client_control", &k.ClientControl, ClientHonor, ClientIgnore)
		}),
		strictyaml.Optional("key_headers", func(n *yaml.Node) {
			d.eachText(n, "key_headers", maxCacheKeys, func(n *yaml.Node, text string) {
				if text = strings.ToLower(text); !semantics.IsName(text) {
					d.Fail(n, "", "%q is not a name of a field", text)
				}
				k.KeyHeaders = append(k.KeyHeaders, text)
			})
		}),
		strictyaml.Optional("key_cookies", func(n *yaml.Node) {
			d.eachText(n, "key_cookies", maxCacheKeys, func(n *yaml.Node, text string) {
				if !semantics.IsToken(text) {
					d.Fail(n, "", "%q is not a name of a cookie", text)
				}
				k.KeyCookies = append(k.KeyCookies, text)
			})
		}),
		strictyaml.Optional("collapse_wait", func(n *yaml.Node) { d.Duration(n, "collapse_wait", &k.CollapseWait, 0, time.Minute) }),
	)
}

// checkCaches reports caches that are not there or not used.
func (d *checker) checkCaches(c *Config) {
	lines, known := map[string]int{}, []string(nil)
	for i := range c.Caches {
		d.unique(lines, c.Caches[i].Name, d.places.caches[i].name, "cache")
		known = append(known, c.Caches[i].Name)
	}
	d.checkCacheDisks(c)
	slices.Sort(known)
	used := map[string]bool{}
	for i := range c.Routes {
		for j := range c.Routes[i].Rules {
			k, at := c.Routes[i].Rules[j].Cache, &d.places.routes[i].rules[j]
			if k == nil || k.Name == "" {
				continue
			}
			if used[k.Name] = true; !slices.Contains(known, k.Name) {
				d.Fail(at.cacheName, d.nearest(k.Name, known), "unknown cache %q", k.Name)
			}
		}
	}
	for i := range c.Caches {
		if name := c.Caches[i].Name; name != "" && !used[name] {
			d.Fail(d.places.caches[i].node, "name it in cache of a rule, or leave it out", "cache %q has no effect: nothing uses it", name)
		}
	}
}

// checkCacheDisks reports folders that are those of two caches, or of ACME, since each locks its own, and such that a gateway would refuse.
func (d *checker) checkCacheDisks(c *Config) {
	used := map[string]string{}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil && t.ACME != nil {
			used[c.Beside(t.ACME.Dir)] = "acme of listener " + c.Listeners[i].Name
		}
	}
	for i := range c.Caches {
		k := &c.Caches[i]
		if k.Disk == nil || k.Disk.Dir == "" {
			continue
		}
		dir, at := c.Beside(k.Disk.Dir), d.places.caches[i].dir
		for other, by := range used {
			if within(dir, other) || within(other, dir) {
				where := "is that of"
				if dir != other {
					where = "is within that of, or has within it that of,"
				}
				d.Fail(at, "give each a folder of its own", "the folder %q %s %s", k.Disk.Dir, where, by)
			}
		}
		used[dir] = "cache " + k.Name
		switch st, err := os.Lstat(dir); {
		case err != nil: // it is made, or a gateway of this machine says what is missing
		case !st.IsDir():
			d.Fail(at, "name a folder that is the cache's alone", "%q is not a folder, or is a link", k.Disk.Dir)
		case st.Mode()&0o077 != 0:
			d.Fail(at, "name a folder that is the cache's alone: it is made with mode 0700", "others may use the folder %q (mode %#o)", k.Disk.Dir, st.Mode().Perm())
		}
	}
}

// within reports whether a path is that of a folder, or of something in it.
func within(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}
