package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/strictyaml"
)

// poolPlace is where the parts of a pool stand that are compared with others.
type poolPlace struct {
	node, name, protocol *yaml.Node
	tls, hash, hashName  *yaml.Node
	serverName, sticky   *yaml.Node
	affinity             *yaml.Node
	proxyProtocol        *yaml.Node
	fieldNames           *yaml.Node
	earlyData            *yaml.Node
	queued               *yaml.Node
	fastCGI              *yaml.Node
	backends             []poolBackendPlace
	health               keyPlaces
	certificates         []certificatePlace
	files                []filePlace
}

// maxRetryContent bounds retry_content: each request in progress may have as much.
const maxRetryContent = 1 << 20

type poolBackendPlace struct{ node, name, address *yaml.Node }

func (d *l7Decoder) pools(n *yaml.Node, c *Config) {
	d.List(n, "pools", maxPools, func(n *yaml.Node) {
		p, at := newPool(), poolPlace{node: n}
		d.Mapping(n, "a pool",
			strictyaml.Required("name", func(n *yaml.Node) { at.name = n; d.name(n, "name", &p.Name) }),
			strictyaml.Optional("protocol", func(n *yaml.Node) {
				at.protocol = n
				strictyaml.Choice(d.Decoder, n, "protocol", &p.Protocol, PoolHTTP, PoolH2C, PoolHTTPS, PoolH2, PoolH3, PoolFastCGI, PoolTCP)
			}),
			strictyaml.Optional("balance", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "balance", &p.Balance, PoolRoundRobin, PoolLeastRequest, PoolRandom, PoolConsistentHash)
			}),
			strictyaml.Optional("hash", func(n *yaml.Node) { d.poolHash(n, &p.Hash, &at) }),
			strictyaml.Optional("sticky", func(n *yaml.Node) { at.sticky = n; p.Sticky = newSticky(); d.sticky(n, p.Sticky) }),
			strictyaml.Optional("affinity", func(n *yaml.Node) { at.affinity, p.Affinity = n, newAffinity(); decodeAffinity(d, n, p.Affinity) }),
			strictyaml.Optional("tls", func(n *yaml.Node) { at.tls = n; p.TLS = &BackendTLS{}; d.backendTLS(n, p.TLS, &at) }),
			strictyaml.Optional("proxy_protocol", func(n *yaml.Node) {
				at.proxyProtocol = n
				strictyaml.Choice(d.Decoder, n, "proxy_protocol", &p.ProxyProtocol, ProxyNone, ProxyV1, ProxyV2)
			}),
			strictyaml.Optional("field_names", func(n *yaml.Node) {
				at.fieldNames = n
				strictyaml.Choice(d.Decoder, n, "field_names", &p.FieldNames, FieldNamesLower, FieldNamesPreserve)
			}),
			strictyaml.Optional("early_data", func(n *yaml.Node) { at.earlyData = n; d.Truth(n, "early_data", &p.EarlyData) }),
			strictyaml.Optional("fastcgi", func(n *yaml.Node) { at.fastCGI, p.FastCGI = n, newFastCGI(); d.fastCGI(n, p.FastCGI, &at) }),
			strictyaml.Required("backends", func(n *yaml.Node) { d.poolBackends(n, &p, &at) }),
			strictyaml.Optional("health", func(n *yaml.Node) {
				var place servicePlace
				p.Health = health.New()
				d.health(n, p.Health, &place)
				at.health = place.health
			}),
			strictyaml.Optional("passive", func(n *yaml.Node) { p.Passive = newPoolPassive(); d.poolPassive(n, p.Passive) }),
			strictyaml.Optional("slow_start", func(n *yaml.Node) { d.Duration(n, "slow_start", &p.SlowStart, 0, 24*time.Hour) }),
			strictyaml.Optional("drain", func(n *yaml.Node) { d.Duration(n, "drain", &p.Drain, 0, maxTimeout) }),
			strictyaml.Optional("idle_connections", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "idle_connections", &p.Idle, 0, 65536) }),
			limit(d.decoder, "connection_requests", &p.Uses, maxRate), limit(d.decoder, "retry_content", &p.RetryContent, maxRetryContent),
			limit(d.decoder, "panic_threshold", &p.Panic, 100),
			strictyaml.Optional("limits", func(n *yaml.Node) {
				d.Mapping(n, "limits", limit(d.decoder, "requests", &p.Limits.Requests, maxRate),
					limit(d.decoder, "connections", &p.Limits.Connections, maxRate), limit(d.decoder, "pending", &p.Limits.Pending, 1<<20), strictyaml.Optional("queued", func(n *yaml.Node) {
						at.queued = n
						strictyaml.Integer(d.Decoder, n, "queued", &p.Limits.Queued, 0, 1<<20)
					}),
					headerBytes(d, &p.Limits.HeaderBytes), headerFields(d, &p.Limits.HeaderFields))
			}),
			strictyaml.Optional("timeouts", func(n *yaml.Node) {
				t := &p.Timeouts
				d.Mapping(n, "timeouts", d.timeout("connect", &t.Connect), d.timeout("wait", &t.Wait), d.timeout("response", &t.Response), d.timeout("body", &t.Body),
					d.timeout("idle", &t.Idle))
			}),
			strictyaml.Optional("retry_budget", func(n *yaml.Node) { d.retryBudget(n, &p.RetryBudget) }),
		)
		c.Pools = append(c.Pools, p)
		d.places.pools = append(d.places.pools, at)
	})
}

func (d *l7Decoder) poolHash(n *yaml.Node, h *PoolHash, at *poolPlace) {
	at.hash = n
	d.Mapping(n, "hash",
		strictyaml.Required("by", func(n *yaml.Node) {
			strictyaml.Choice(d.Decoder, n, "by", &h.By, HashClient, HashHeader, HashCookie, HashQuery, HashPath)
		}),
		strictyaml.Optional("name", func(n *yaml.Node) { at.hashName = n; d.Text(n, "name", &h.Name) }),
	)
}

func (d *l7Decoder) sticky(n *yaml.Node, s *Sticky) {
	d.Mapping(n, "sticky",
		strictyaml.Optional("cookie", func(n *yaml.Node) { d.token(n, "cookie", &s.Cookie) }),
		strictyaml.Optional("max_age", func(n *yaml.Node) { d.Duration(n, "max_age", &s.MaxAge, 0, 365*24*time.Hour) }),
	)
}

func (d *l7Decoder) backendTLS(n *yaml.Node, t *BackendTLS, at *poolPlace) {
	d.Mapping(n, "tls",
		strictyaml.Optional("server_name", func(n *yaml.Node) { at.serverName = n; d.oneHost(n, &t.ServerName) }),
		strictyaml.Optional("ca_file", func(n *yaml.Node) { d.files(n, "ca_file", fileRoots, &t.CAFiles, &at.files) }),
		strictyaml.Optional("certificate", func(n *yaml.Node) {
			var c Certificate
			d.Mapping(n, "certificate",
				strictyaml.Required("cert", func(n *yaml.Node) { d.Text(n, "cert", &c.Cert) }),
				strictyaml.Optional("key", func(n *yaml.Node) { d.Text(n, "key", &c.Key) }),
			)
			t.Certificate = &c
			at.certificates = append(at.certificates, certificatePlace{value: c, node: n, ofClient: true})
		}),
		strictyaml.Optional("insecure", func(n *yaml.Node) { d.Truth(n, "insecure", &t.Insecure) }),
	)
}

func (d *l7Decoder) poolBackends(n *yaml.Node, p *Pool, at *poolPlace) {
	d.List(n, "backends", maxBackends, func(n *yaml.Node) {
		b, place := newPoolBackend(), poolBackendPlace{node: n, name: n}
		d.Mapping(n, "a backend",
			strictyaml.Optional("name", func(n *yaml.Node) { place.name = n; d.name(n, "name", &b.Name) }),
			strictyaml.Required("address", func(n *yaml.Node) {
				if d.backendAddress(n, &b) {
					place.address = n
				}
			}),
			strictyaml.Optional("weight", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "weight", &b.Weight, 0, MaxWeight) }),
			strictyaml.Optional("state", func(n *yaml.Node) {
				strictyaml.Choice(d.Decoder, n, "state", &b.State, StateActive, StateDraining, StateInactive)
			}),
			limit(d.decoder, "max_connections", &b.MaxConnections, maxRate), limit(d.decoder, "max_requests", &b.MaxRequests, maxRate),
		)
		if b.Name == "" {
			b.Name = b.Where()
		}
		p.Backends, at.backends = append(p.Backends, b), append(at.backends, place)
	})
}

func (d *l7Decoder) poolPassive(n *yaml.Node, p *PoolPassive) {
	k := keyPlaces{"": n}
	d.Mapping(n, "passive", k.under("",
		limit(d.decoder, "errors", &p.Errors, 1_000_000), limit(d.decoder, "gateway_errors", &p.GatewayErrors, 1_000_000),
		strictyaml.Optional("success_rate", func(n *yaml.Node) { p.SuccessRate = newSuccessRate(); d.successRate(n, p.SuccessRate) }),
		strictyaml.Optional("down", func(n *yaml.Node) { d.Duration(n, "down", &p.Down, time.Second, 24*time.Hour) }),
		strictyaml.Optional("max_down", func(n *yaml.Node) { d.Duration(n, "max_down", &p.MaxDown, time.Second, 24*time.Hour) }),
		strictyaml.Optional("max_ejected", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "max_ejected", &p.MaxEjected, 0, 100) }),
	)...)
	if k["max_down"] == nil {
		p.MaxDown = max(p.MaxDown, p.Down)
	}
	if p.MaxDown < p.Down {
		d.Fail(k["max_down"], "", "max_down %v is shorter than down %v", p.MaxDown, p.Down)
	}
	if p.Errors == 0 && p.GatewayErrors == 0 && p.SuccessRate == nil {
		d.Fail(n, "set errors, gateway_errors or success_rate, or leave passive out", "passive ejects nothing")
	}
}

func (d *l7Decoder) successRate(n *yaml.Node, r *SuccessRate) {
	d.Mapping(n, "success_rate",
		strictyaml.Optional("interval", func(n *yaml.Node) { d.Duration(n, "interval", &r.Interval, time.Second, time.Hour) }),
		strictyaml.Optional("min_backends", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "min_backends", &r.MinBackends, 2, maxBackends) }),
		strictyaml.Optional("min_requests", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "min_requests", &r.MinRequests, 1, maxRate) }),
		strictyaml.Optional("factor_percent", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "factor_percent", &r.Factor, 1, 10000) }),
	)
}

func (d *l7Decoder) retryBudget(n *yaml.Node, b *RetryBudget) {
	d.Mapping(n, "retry_budget",
		strictyaml.Optional("percent", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "percent", &b.Percent, 0, 100) }),
		strictyaml.Optional("interval", func(n *yaml.Node) { d.Duration(n, "interval", &b.Interval, time.Second, time.Hour) }),
		strictyaml.Optional("min_rate", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "min_rate", &b.MinRate, 0, maxRate) }),
	)
}
