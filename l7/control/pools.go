package control

import (
	"cmp"
	"crypto/sha256"
	ctls "crypto/tls"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/tls"
)

// pooled is a pool of the configuration. Its pool.Pool stays over reloads.
type pooled struct {
	*pool.Pool
	*drains
	cfg   config.Pool
	proxy *proxy.Pool
	files []tls.Reloader
	fresh bool // its options and backends are those of cfg already

	affinity *pool.Affinity // nil: none
}

// planPool returns a pool for a configuration: with the state of the one of the name, if there is one.
func (s *Set) planPool(cfg *config.Config, c *config.Pool) (*pooled, error) {
	p := &pooled{cfg: *c}
	old := s.pools[c.Name]
	if old != nil && c.FastCGI == nil && reflect.DeepEqual(old.cfg.Affinity, c.Affinity) && sameConnections(&old.cfg, c) && reflect.DeepEqual(old.proxy.Key, keyOf(cfg, c)) {
		p.proxy, p.files = old.proxy, old.files
	} else if err := p.connections(s, cfg); err != nil {
		return nil, err
	}
	if old != nil {
		if p.Pool, p.drains = old.Pool, old.drains; p.proxy != old.proxy { // requests that began before count, too
			p.proxy.Places = old.proxy.Places
		}
	} else {
		made, err := pool.New(p.options(s, cfg), s.opt.Inherited.down(c.Name, backendsOf(s.names, c)), rand.Uint64())
		if err != nil {
			return nil, err
		}
		p.Pool, p.drains, p.fresh = made, &drains{timers: map[*pool.Backend]*time.Timer{}}, true
	}
	if p.proxy.Pool != p.Pool { // workers read it
		p.proxy.Pool = p.Pool
	}
	if c.Affinity != nil {
		if p.affinity = affinityOf(old, c.Affinity); p.proxy.Affinity == nil { // workers read the one of before
			p.proxy.Affinity = &proxy.Affinity{Table: p.affinity, Key: affinityKey(c.Affinity)}
		}
	}
	return p, nil
}

// affinityOf returns the table of a pool: that which it had, if it is the same.
func affinityOf(old *pooled, c *config.Affinity) *pool.Affinity {
	if old != nil && old.affinity != nil && reflect.DeepEqual(old.cfg.Affinity, c) {
		return old.affinity
	}
	return pool.NewAffinity(c.Entries, c.TTL)
}

// affinityKey returns what of requests is a key of the table. Its hash is of this process: clients cannot compute which keys meet in a
// bucket, and drive others out.
func affinityKey(c *config.Affinity) *rewrite.Key {
	k := &rewrite.Key{By: keys[c.By], Name: c.Name, Secret: affinitySecret}
	if k.By == rewrite.ByHeader {
		k.Name = strings.ToLower(k.Name)
	}
	return k
}

var affinitySecret = random.Key{rand.Uint64(), rand.Uint64()}

// connections sets how the pool connects to its backends.
func (p *pooled) connections(s *Set, cfg *config.Config) (err error) {
	c := &p.cfg
	p.proxy = &proxy.Pool{
		Places:  proxy.NewPlaces(proxy.PlacesOptions{}),
		Connect: c.Timeouts.Connect, Wait: bound(c.Timeouts.Wait), Response: c.Timeouts.Response, Body: c.Timeouts.Body, Idle: c.Timeouts.Idle, MaxIdle: c.Idle, MaxUses: c.Uses,
		Replay:      none(c.RetryContent),
		Header:      side.HeaderLimits{Bytes: c.Limits.HeaderBytes, Fields: c.Limits.HeaderFields},
		ProxyHeader: proxyHeaders[c.ProxyProtocol], Key: keyOf(cfg, c), KeepCase: c.FieldNames == config.FieldNamesPreserve,
		EarlyData: c.EarlyData,
	}
	p.proxy.Protocol = protocols[c.Protocol]
	if c.FastCGI != nil {
		if p.proxy.FastCGI, err = fastCGI(s, cfg, c); err != nil {
			return err
		}
	}
	if c.TLS != nil {
		p.proxy.TLS, p.files, err = backendTLS(cfg, c)
	}
	return err
}

// check returns the health check of the pool. Probes of the backends' own port connect as the pool does.
func (p *pooled) check() *health.Check {
	c := p.cfg.Health
	if c == nil || c.Port != 0 {
		return c
	}
	check := *c
	check.Conn = health.Conn{Preamble: p.proxy.ProxyHeader.Local(), HTTP2: p.proxy.Protocol == proxy.HTTP2, TLS: p.proxy.TLS}
	if f := p.proxy.FastCGI; f != nil {
		check.Conn.FastCGI = f.Root
	}
	return &check
}

// unqueued returns the bound of requests at which the pool refuses: none where they wait.
func unqueued(c *config.Pool) int {
	if c.Limits.Queued > 0 {
		return 0
	}
	return c.Limits.Requests
}

// longestWait is the wait where timeouts.wait is 0.
const longestWait = time.Hour

// queueOf returns the bounds of requests that wait, the zero value where none does.
func queueOf(c *config.Pool) (o proxy.PlacesOptions) {
	if c.Limits.Queued > 0 {
		o = proxy.PlacesOptions{Requests: c.Limits.Requests, Pending: c.Limits.Queued, Wait: cmp.Or(c.Timeouts.Wait, longestWait)}
	}
	return o
}

var protocols = map[config.PoolProtocol]proxy.PoolProtocol{
	config.PoolH2: proxy.HTTP2, config.PoolH2C: proxy.HTTP2, config.PoolH3: proxy.HTTP3, config.PoolFastCGI: proxy.Scripts,
}

// sameConnections reports whether connections to backends may stay.
func sameConnections(a, b *config.Pool) bool {
	return a.Protocol == b.Protocol && reflect.DeepEqual(a.TLS, b.TLS) && a.Timeouts == b.Timeouts && a.Idle == b.Idle && a.Uses == b.Uses && a.RetryContent == b.RetryContent &&
		a.ProxyProtocol == b.ProxyProtocol && a.Limits.HeaderBytes == b.Limits.HeaderBytes && a.Limits.HeaderFields == b.Limits.HeaderFields &&
		a.FieldNames == b.FieldNames && a.EarlyData == b.EarlyData
}

var proxyHeaders = map[config.ProxyVersion]proxy.ProxyHeader{
	config.ProxyV1: {Version: 1}, config.ProxyV2: {Version: 2, TLVs: true},
}

var keys = map[config.HashBy]rewrite.KeyBy{
	config.HashClient: rewrite.ByClient, config.HashHeader: rewrite.ByHeader, config.HashCookie: rewrite.ByCookie,
	config.HashQuery: rewrite.ByQuery, config.HashPath: rewrite.ByPath,
}

// keyOf returns what of requests a pool hashes; nil is nothing.
func keyOf(cfg *config.Config, c *config.Pool) *rewrite.Key {
	if c.Balance != config.PoolConsistentHash {
		return nil
	}
	k := &rewrite.Key{By: keys[c.Hash.By], Name: c.Hash.Name}
	if len(cfg.HashKey.Key) > 0 {
		sum := sha256.Sum256(append([]byte("consistent hash of pools\x00"), cfg.HashKey.Key...))
		k.Secret = random.KeyFrom(sum[:])
	}
	if k.By == rewrite.ByHeader {
		k.Name = strings.ToLower(k.Name)
	}
	return k
}

// backendTLS returns how connections to the backends of a pool are encrypted, and the files that it is made of.
func backendTLS(cfg *config.Config, c *config.Pool) (*ctls.Config, []tls.Reloader, error) {
	o := tls.ClientOptions{ServerName: c.TLS.ServerName, Protocols: []string{"http/1.1"}, Sessions: ctls.NewLRUClientSessionCache(1024)}
	switch c.Protocol {
	case config.PoolH2:
		o.Protocols = []string{"h2"}
	case config.PoolH3:
		o.Protocols = []string{http3.NextProto}
	}
	var files []tls.Reloader
	if len(c.TLS.CAFiles) > 0 {
		roots, err := tls.LoadRoots(beside(cfg, c.TLS.CAFiles)...)
		if err != nil {
			return nil, nil, err
		}
		o.Roots, files = roots, append(files, roots)
	}
	if c.TLS.Certificate != nil {
		o.Certificates = &tls.Store{}
		pair := cfg.KeyPair(*c.TLS.Certificate)
		pair.Client = true
		if err := o.Certificates.Load(pair); err != nil {
			return nil, nil, err
		}
		files = append(files, o.Certificates)
	}
	conf, err := tls.NewClientConfig(o)
	if err == nil && c.TLS.Insecure {
		conf.InsecureSkipVerify, conf.VerifyConnection = true, nil // as the file says
	}
	return conf, files, err
}

// beside returns the paths of files that a configuration names.
func beside(cfg *config.Config, files []string) (paths []string) {
	for _, f := range files {
		paths = append(paths, cfg.Beside(f))
	}
	return paths
}

var balances = map[config.PoolBalance]pool.Balance{
	config.PoolRoundRobin: pool.RoundRobin, config.PoolLeastRequest: pool.LeastRequest, config.PoolRandom: pool.Random,
	config.PoolConsistentHash: pool.ConsistentHash,
}

// options returns the settings of a pool.
func (p *pooled) options(s *Set, cfg *config.Config) pool.Options {
	c := &p.cfg
	o := pool.Options{
		Name: c.Name, Balance: balances[c.Balance], SlowStart: c.SlowStart, PanicThreshold: c.Panic, Check: p.check(), Notify: s.opt.OnEvent,
		Limits:      pool.Limits{Requests: unqueued(c), Connections: c.Limits.Connections, Pending: c.Limits.Pending},
		RetryBudget: pool.RetryBudget{Percent: none(c.RetryBudget.Percent), MinPerSecond: none(c.RetryBudget.MinRate), Window: c.RetryBudget.Interval},
		Secret:      cfg.HashKey.Key,
	}
	if x := c.Passive; x != nil {
		o.Outlier = &pool.Outlier{Errors: none(x.Errors), GatewayErrors: x.GatewayErrors, Down: x.Down, MaxDown: x.MaxDown, MaxEjected: none(x.MaxEjected)}
		if r := x.SuccessRate; r != nil {
			o.Outlier.SuccessRate = &pool.SuccessRate{
				Interval: r.Interval, MinBackends: r.MinBackends, MinRequests: r.MinRequests, Factor: float64(r.Factor) / 100,
			}
		}
	}
	return o
}

// bound returns a time in the form in which 0 is the default, and less no bound.
func bound(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// none returns a number in the form in which 0 is the default, and -1 none.
func none(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

var states = map[config.State]pool.State{
	config.StateActive: pool.Active, config.StateDraining: pool.Draining, config.StateInactive: pool.Inactive,
}
