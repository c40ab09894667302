package config

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/gateway/resolve"
)

// Pool is backends that serve the same, to which rules refer by name.
type Pool struct {
	Name          string        // key "name", required and unique, also among services: the label of logs and metrics
	Protocol      PoolProtocol  // key "protocol": "HTTP" (default), "H2C", "HTTPS", "H2", "H3", "FASTCGI" or "TCP"
	Balance       PoolBalance   // key "balance": "round_robin" (default), "least_request", "random" or "consistent_hash"
	Hash          PoolHash      // key "hash": what consistent_hash hashes
	Sticky        *Sticky       // key "sticky"; absent: each request is selected for by itself
	Affinity      *Affinity     // key "affinity": a table of the gateway; absent: none
	TLS           *BackendTLS   // key "tls", of HTTPS, H2 and H3, required there
	ProxyProtocol ProxyVersion  // key "proxy_protocol": header at the begin of connections to backends: "none" (default), "v1" or "v2"
	Backends      []PoolBackend // key "backends", required
	Health        *health.Check // key "health"; absent: every backend counts as healthy
	Passive       *PoolPassive  // key "passive"; absent: no backend is ejected
	SlowStart     time.Duration // key "slow_start": how long the share of a backend that comes (back) grows from nothing; default 0
	Drain         time.Duration // key "drain": how long a draining backend takes requests of its sticky clients, and its streams go on; default 0 is without an end
	Idle          int           // key "idle_connections": kept to each backend by each loop, default 512
	Uses          int           // key "connection_requests": requests of a connection, after which it is closed; default 0 is no limit
	RetryContent  int           // key "retry_content": bytes of a request's content that are kept until its response begins, to be sent again; default 16384, 0 is none
	Panic         int           // key "panic_threshold": percent of backends that must be up; with fewer, health is ignored. Default 0 is never
	Limits        PoolLimits    // key "limits": circuit breaking
	EarlyData     bool          // key "early_data", of H3: send safe requests before the handshake is complete, which may be executed twice (RFC 8470); default false
	FastCGI       *FastCGI      // key "fastcgi", of FASTCGI, required there
	FieldNames    FieldNames    // key "field_names", of HTTP and HTTPS: "lower" (default) or "preserve"
	Timeouts      PoolTimeouts  // key "timeouts"
	RetryBudget   RetryBudget   // key "retry_budget"
}

// PoolProtocol is the protocol of backends.
type PoolProtocol string

// The values of PoolProtocol.
const (
	PoolHTTP  PoolProtocol = "HTTP"  // HTTP/1.1
	PoolH2C   PoolProtocol = "H2C"   // HTTP/2 by prior knowledge
	PoolHTTPS PoolProtocol = "HTTPS" // HTTP/1.1 over TLS
	PoolH2    PoolProtocol = "H2"    // HTTP/2 over TLS
	PoolH3    PoolProtocol = "H3"
	PoolTCP   PoolProtocol = "TCP" // streams of listeners that pass through

	PoolFastCGI PoolProtocol = "FASTCGI" // FastCGI 1.0: scripts, as those of php-fpm
)

// HasTLS reports whether connections to backends are encrypted.
func (p PoolProtocol) HasTLS() bool { return p == PoolHTTPS || p == PoolH2 || p == PoolH3 }

// IsHTTP1 reports whether backends speak HTTP/1.1.
func (p PoolProtocol) IsHTTP1() bool { return p == PoolHTTP || p == PoolHTTPS }

// FieldNames selects the case of field names in requests of HTTP/1.1.
type FieldNames string

// The values of FieldNames.
const (
	FieldNamesLower    FieldNames = "lower"
	FieldNamesPreserve FieldNames = "preserve" // as the client wrote them; names that the gateway adds, or come by HTTP/2 and HTTP/3, have capitals
)

// PoolBalance configures how a backend is selected.
type PoolBalance string

// The values of PoolBalance.
const (
	PoolRoundRobin     PoolBalance = "round_robin"     // in turn, by weight
	PoolLeastRequest   PoolBalance = "least_request"   // of two drawn by weight, the one with fewer requests for its weight
	PoolRandom         PoolBalance = "random"          // drawn by weight
	PoolConsistentHash PoolBalance = "consistent_hash" // by Hash: all gateways agree, and a backend that comes or goes moves only its share
)

// HashBy defines what a consistent hash is of.
type HashBy string

// The values of HashBy.
const (
	HashClient HashBy = "client" // the client's address
	HashHeader HashBy = "header" // a field of the request, by Name
	HashCookie HashBy = "cookie" // a cookie, by Name
	HashQuery  HashBy = "query"  // a parameter of the query, by Name
	HashPath   HashBy = "path"
)

// PoolHash selects the input of a consistent hash. A request that lacks it is hashed by the client's address.
type PoolHash struct {
	By   HashBy // key "by": "client" (default), "header", "cookie", "query" or "path"
	Name string // key "name", required by header, cookie and query
}

// Sticky sends a client back to its backend by a cookie that the gateway sets. A backend that is down, removed or drained
// to the end yields to another.
type Sticky struct {
	Cookie string        // key "cookie": its name, default "millrace"
	MaxAge time.Duration // key "max_age": how long clients keep it; default 0 is until the browser ends
}

// BackendTLS is TLS towards backends. Names of files are relative to the configuration file's folder.
type BackendTLS struct {
	ServerName  string       // key "server_name": SNI, and the name that certificates must have; required unless Insecure
	CAFiles     []string     // key "ca_file": PEM files of authorities; default the system's
	Certificate *Certificate // key "certificate": shown to backends that ask for one; absent: none
	Insecure    bool         // key "insecure": take any certificate
}

// ProxyVersion is a version of the PROXY protocol.
type ProxyVersion string

// The values of ProxyVersion.
const (
	ProxyNone ProxyVersion = "none"
	ProxyV1   ProxyVersion = "v1"
	ProxyV2   ProxyVersion = "v2"
)

// PoolBackend is one server of a pool.
type PoolBackend struct {
	Name           string         // key "name", unique in its pool; default the address
	Address        netip.AddrPort // key "address", required: IP:port; the zero value where one of the two that follow is set
	Named          resolve.Name   // the same, "name:port" or "srv:name": addresses that DNS knows, each of which is a backend
	Path           string         // the same, "unix:/path": a socket of this machine
	Weight         int            // key "weight": share of requests, 0 to 1000, default 1; 0 takes no new ones
	State          State          // key "state": "active" (default), "draining" or "inactive"
	MaxConnections int            // key "max_connections": open ones of all loops, default 0 is no limit
	MaxRequests    int            // key "max_requests": requests at a time of all loops, default 0 is no limit
}

// PoolPassive defines when the outcomes of requests show that a backend does not serve. A failure is a response 500 to 599, a
// connection that fails, a reset or a time-out; a gateway error is one with 502, 503 or 504, or without a response.
type PoolPassive struct {
	Errors        int           // key "errors": failures in a row that eject a backend, default 5; 0 is never
	GatewayErrors int           // key "gateway_errors": gateway errors in a row, default 0 is never
	SuccessRate   *SuccessRate  // key "success_rate"; absent: backends are not compared
	Down          time.Duration // key "down": how long the first ejection lasts, default 30s; it doubles with each repetition
	MaxDown       time.Duration // key "max_down": but not beyond this, default 5m
	MaxEjected    int           // key "max_ejected": most percent of a pool's backends out at once, default 50
}

// SuccessRate ejects backends whose share of successes is far below that of the others.
type SuccessRate struct {
	Interval    time.Duration // key "interval": over which requests count, default 10s
	MinBackends int           // key "min_backends": that have MinRequests, for a comparison, default 5
	MinRequests int           // key "min_requests": of a backend in the interval, for it to be compared, default 100
	Factor      int           // key "factor_percent": how many hundredths of the standard deviation below the mean, default 190
}

// PoolLimits bound what all backends of a pool have at a time, where 0 is no limit, and what a response has.
type PoolLimits struct {
	Requests    int // key "requests": in progress, default 0; more are answered by 503
	Connections int // key "connections": open ones, default 0
	Queued      int // key "queued": requests beyond Requests that wait for one to end, for Timeouts.Wait at most; default 0: they are answered by 503
	Pending     int // key "pending": requests and streams that wait for a connection, default 1024

	HeaderBytes  int // key "header_bytes": of the header of a response, default 65536
	HeaderFields int // key "header_fields": lines of the header of a response, default 200
}

// PoolTimeouts are time-outs towards backends. 0 is none.
type PoolTimeouts struct {
	Connect  time.Duration // key "connect": of TCP, TLS and QUIC, default 5s
	Wait     time.Duration // key "wait": for a connection, where a backend has as many as it may, default 5s
	Response time.Duration // key "response": from the end of the request to the header of the response, default 60s
	Body     time.Duration // key "body": without a byte of the response's content, default 60s
	Idle     time.Duration // key "idle": of a connection without a request, default 60s
}

// RetryBudget bounds the share of retries, so that they do not add to the load of a pool that is overloaded.
type RetryBudget struct {
	Percent  int           // key "percent": of the requests in Interval, default 20
	Interval time.Duration // key "interval": default 10s
	MinRate  int           // key "min_rate": retries per second that are allowed either way, default 10
}

func newPool() Pool {
	return Pool{
		Protocol: PoolHTTP, Balance: PoolRoundRobin, Hash: PoolHash{By: HashClient}, ProxyProtocol: ProxyNone, FieldNames: FieldNamesLower, Idle: 512, RetryContent: 16 << 10,
		Timeouts: PoolTimeouts{
			Connect: 5 * time.Second, Wait: 5 * time.Second, Response: time.Minute, Body: time.Minute, Idle: time.Minute,
		},
		Limits:      PoolLimits{Pending: 1024, HeaderBytes: 64 << 10, HeaderFields: 200},
		RetryBudget: RetryBudget{Percent: 20, Interval: 10 * time.Second, MinRate: 10},
	}
}

func newPoolBackend() PoolBackend { return PoolBackend{Weight: 1, State: StateActive} }

func newSticky() *Sticky { return &Sticky{Cookie: "millrace"} }

func newPoolPassive() *PoolPassive {
	return &PoolPassive{Errors: 5, Down: 30 * time.Second, MaxDown: 5 * time.Minute, MaxEjected: 50}
}

func newSuccessRate() *SuccessRate {
	return &SuccessRate{Interval: 10 * time.Second, MinBackends: 5, MinRequests: 100, Factor: 190}
}
