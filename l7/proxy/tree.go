package proxy

import (
	ctls "crypto/tls"
	"net/netip"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/l7/udptunnel"
	"github.com/millrace/millrace/l7/waf"
)

// Tree is a configuration. It is not changed once workers have it: they read it without a lock, and for a moment of a reload some of
// them have the one before.
type Tree struct {
	Listeners []*Listener
	Pools     []*Pool
	Tracer    *trace.Tracer // nil: requests have no spans
}

// Listener is an address on which clients are served.
type Listener struct {
	Name    string
	Address netip.AddrPort
	// TLS ends TLS; nil is none. Its ALPN protocols are those of HTTP1 and HTTP2.
	TLS *ctls.Config
	// HTTP1 and HTTP2 configure the versions; nil does not serve one. Without TLS, HTTP2 is served to clients that
	// begin with its preface (RFC 9113 3.3).
	HTTP1 *http1.Options
	HTTP2 *http2.Options
	// Stream passes connections on as they are, in place of HTTP. Rules see no requests then: of the conditions of a
	// rule those hold that are about the connection, and Host is the server name.
	Stream StreamMode
	// ProxyProtocol are the peers whose connections begin with a header of the PROXY protocol, version 1 or 2; without it
	// they are reset. Connections of others have none.
	ProxyProtocol []netip.Prefix
	// ProxyDatagrams has each datagram of HTTP/3 of these peers begin with one, in version 2; without it the datagram is dropped.
	ProxyDatagrams bool
	// Serves reports whether a connection that was opened for a server name may carry requests for another host, which
	// clients do where the certificate has both names (RFC 9113 9.1.1). Others are answered 421. nil is any host; see
	// Store.Serves of package tls, and SameName.
	Serves func(serverName, host string) bool
	// Demand obtains certificates in handshakes over TCP; nil does not.
	Demand *Demand
	// ClientCert tells backends of the certificate that a client has shown.
	ClientCert rewrite.ClientCert
	// HTTP3 serves HTTP/3 on the UDP port of the address; nil does not. It needs TLS and Worker.Share.
	HTTP3 *HTTP3Options

	// Guard decides which requests are served; nil serves all.
	Guard *Guard

	Table *route.Table // of Rules
	Rules []*Rule      // by the numbers of the table

	Timeouts side.Timeouts
	Limits   Limits
	// Admission counts the connections; nil counts those of the worker alone, by the listener's name. It stays the same for as long
	// as there is a listener of the name and address.
	Admission *Admission
	// Forwarding selects what backends learn of clients.
	Forwarding rewrite.Forwarding
	// Names are the fields that rules set, remove or read; nil is those of every gateway. Colliding says what happens to fields
	// of clients that backends may take for one of these.
	Names     *rewrite.Names
	Colliding Colliding
	// Via is the name of the gateway in the field Via of requests, which RFC 9110 7.6.3 asks of it; "" leaves the field as it is.
	Via string
	// RequestID is the field that has the ID of each request, towards backends and clients; "" is none.
	RequestID string
	// Compression compresses responses; nil does not.
	Compression *Compression
	// Inspection has requests and responses inspected by rules; nil does not. It needs Worker.Inspect. RulesInspect reports whether some rule
	// has one in its place.
	Inspection   *Inspection
	RulesInspect bool
	// Challenge answers GET and HEAD for a path below /.well-known/acme-challenge/ before any rule, if it has an answer; nil: none.
	Challenge func(path string) (content string, ok bool)
	// CORS reports whether a rule has it: preflights are looked for.
	CORS bool
	// HSTS is the value of Strict-Transport-Security of responses, those of the gateway too; "" is none.
	HSTS string
	// Pages are the contents of responses of the gateway, where the rule has none.
	Pages Pages
	// AltSvc is the field of responses that refers clients to HTTP/3 (RFC 7838 3); "" is none.
	AltSvc string
}

// Colliding selects the handling of fields of requests that collide with Listener.Names.
type Colliding uint8

// Values of Colliding.
const (
	DropColliding   Colliding = iota // backends do not get them
	RejectColliding                  // the request gets 400
	AllowColliding                   // backends get them
)

// Timeouts of a listener's connections.
type Timeouts = side.Timeouts

// Refusal is the reason why input was refused without a look at the configuration.
type Refusal = side.Refusal

// Limits of a listener. 0 is none. They bound what one client, or many, can cost: descriptors and memory, a connection that a load
// balancer before the gateway can never move, content that a backend has to take.
type Limits struct {
	Connections int64 // open ones, of all that share the Admission
	Requests    int   // of one connection; then it is closed
	Body        int64 // bytes of a request
	Target      int   // bytes of a request's target; that of HTTP/1.1 has a bound of its own
}

// Rule is where requests lead.
type Rule struct {
	Name  string
	Route *Route // its counters; nil is none
	// Guard decides which requests are served; nil serves all.
	Guard *Guard
	// Inspection is in place of that of the listener, which then has RulesInspect; nil is the listener's.
	Inspection *Inspection
	// Firewall evaluates the messages of requests that Guard permits, before anything answers; nil evaluates nothing.
	Firewall *waf.Firewall
	// UDP relays datagrams of clients to targets that they name (RFC 9298), in place of all below; nil does not.
	UDP *udptunnel.Service
	// WebTransport lets sessions through to Backends; nil does not.
	WebTransport *WebTransport
	// Pages are the contents of responses of the gateway; they come before those of the listener.
	Pages Pages
	// Backends are the pools that requests are spread over by weight. None answers by Response, or 500.
	Backends []Weighted
	// Response and Redirect answer instead of a backend.
	Response *Response
	Redirect *rewrite.Redirect
	// Files answers out of a folder; what it does not have goes to Backends, if there are any.
	Files *files.Site
	// Cache answers out of a cache what Backends have answered before; nil does not.
	Cache *cache.Rule
	// RequestHeaders, Rewrite and ResponseHeaders change what is passed on; nil changes nothing.
	RequestHeaders, ResponseHeaders *rewrite.Headers
	Rewrite                         *rewrite.Rewrite
	// CORS lets scripts of other origins read responses; nil leaves that to the backend.
	CORS *rewrite.CORS
	// PathForm is the form of the path that the backend gets, and that Rewrite changes.
	PathForm PathForm
	// Upgrades are the protocols, beside WebSocket, that clients with HTTP/1.1 may change to at backends with HTTP/1.1.
	Upgrades []string
	// ForwardExpect passes Expect on, and 100 (Continue) of the backend; without it the gateway asks for the content by itself once
	// there is a connection.
	ForwardExpect bool
	// EarlyHints is sent before a backend answers; nil: nothing is.
	EarlyHints *EarlyHints
	// Mirror sends copies of requests to another pool; nil does not.
	Mirror *Mirror
	// Sticky keeps the requests of a session at one backend of each pool; nil does not.
	Sticky *rewrite.Sticky
	// RetryStatus are the statuses of responses after which another attempt is made.
	RetryStatus []int
	Request     time.Duration // from the header of the request to the end of the response; 0 is no bound
	Attempt     time.Duration // from the choice of a backend to the header of its response; 0 is Response of the pool
	Attempts    int           // in all; 0 is one
}

// PathForm is a form of a request's path.
type PathForm uint8

// Values of PathForm.
const (
	// NormalPath is the path as rules compare it.
	NormalPath PathForm = iota
	// RawPath is the path as the client sent it. A path that a backend may take for one of another rule is refused.
	RawPath
)

// Weighted is a pool with its share of requests, which is its part of the sum of all weights of a rule.
type Weighted struct {
	Pool   *Pool
	Weight int
}

// Response is a fixed response. All requests share its fields and its body, which are not changed.
type Response struct {
	Status int
	Fields rewrite.Headers // that it has: those to add
	Body   []byte
}

// PoolProtocol is the protocol of a pool's backends.
type PoolProtocol uint8

// Values of PoolProtocol.
const (
	HTTP1   PoolProtocol = iota
	HTTP2                // with TLS, or by prior knowledge
	HTTP3                // HTTP/3; it needs TLS
	Scripts              // FastCGI, by Pool.FastCGI
)

// shared reports whether a connection carries several requests at a time.
func (p PoolProtocol) shared() bool { return p == HTTP2 || p == HTTP3 }

// Pool is a pool of backends with what a worker needs to connect to them.
type Pool struct {
	*pool.Pool
	Places   *Places // of requests, which wait for one; nil is no bound
	Protocol PoolProtocol
	TLS      *ctls.Config      // nil is plain
	Connect  time.Duration     // until a connection is established, TLS included; 0 is DefaultConnect
	Wait     time.Duration     // for a connection, where a backend has as many as it may; 0 is DefaultWait, below 0 no bound
	Response time.Duration     // from the end of a request to the header of the response; 0 is no bound
	Body     time.Duration     // without a byte of content, of a response or of a request that goes on; 0 is no bound
	Idle     time.Duration     // how long an idle connection is kept; 0 is DefaultIdle
	MaxIdle  int               // idle connections of a worker to a backend; 0 is DefaultMaxIdle
	MaxUses  int               // requests of a connection; 0 is no bound
	Replay   int               // bytes of a request's content that are kept until the response begins, to be sent again; 0 is DefaultReplay, below 0 none
	Header   side.HeaderLimits // of responses
	// EarlyData sends requests that may be repeated before the handshake is complete, with HTTP/3 (RFC 8470). Sessions are those of
	// TLS.ClientSessionCache.
	EarlyData bool
	KeepCase  bool // names of fields are written as clients with HTTP/1.1 did, whose listener keeps them
	// ProxyHeader begins each connection.
	ProxyHeader ProxyHeader
	Key         *rewrite.Key // of requests, where the pool balances by consistent hashing
	Affinity    *Affinity    // keeps keys at one backend; nil does not
	FastCGI     *FastCGI     // with Scripts; nil otherwise
}

// Defaults of Pool.
const (
	DefaultConnect = 5 * time.Second
	DefaultWait    = 5 * time.Second
	DefaultIdle    = 60 * time.Second
	DefaultMaxIdle = 512
)
