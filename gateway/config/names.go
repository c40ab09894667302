package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/resolve"
)

// Where returns where a backend is, as the file has it.
func (b *PoolBackend) Where() string {
	switch {
	case b.Path != "":
		return unixPrefix + b.Path
	case b.Named != resolve.Name{}:
		return b.Named.String()
	case b.Address.IsValid():
		return b.Address.String()
	}
	return "" // it could not be read
}

// Resolver configures how names of backends are looked up.
type Resolver struct {
	Servers  []netip.AddrPort // key "servers"; default those of /etc/resolv.conf
	Timeout  time.Duration    // key "timeout": of one question to one server, default 2s
	Attempts int              // key "attempts": how often all servers are asked, default 2
	Family   resolve.Family   // key "family": which addresses count: "any" (default), "ipv4" or "ipv6"
	MinTTL   time.Duration    // key "min_ttl": a shorter time to live counts as this, default 1s
	MaxTTL   time.Duration    // key "max_ttl": a longer one as this, default 5m
}

func newResolver() Resolver {
	return Resolver{Timeout: 2 * time.Second, Attempts: 2, Family: resolve.AnyFamily, MinTTL: time.Second, MaxTTL: 5 * time.Minute}
}

// Options returns the settings of look-ups.
func (r *Resolver) Options() resolve.Options {
	return resolve.Options{Servers: r.Servers, Timeout: r.Timeout, Attempts: r.Attempts, Family: r.Family, MinTTL: r.MinTTL, MaxTTL: r.MaxTTL}
}

// Names returns the names that backends of pools have, each once.
func (c *Config) Names() (list []resolve.Name) {
	for i := range c.Pools {
		for k := range c.Pools[i].Backends {
			if n := c.Pools[i].Backends[k].Named; n != (resolve.Name{}) && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}
