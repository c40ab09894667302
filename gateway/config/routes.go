package config

import (
	"net/netip"
	"time"
)

// Route configures where requests of some hosts go: HTTPRoute of Gateway API.
type Route struct {
	Name      string   // key "name", required and unique
	Listeners []string // key "listeners": names; absent: all that speak HTTP
	Hostnames []string // key "hostnames": names, or "*.example.org" for all below; absent: every host
	Rules     []Rule   // key "rules", required

	ForwardPath    ForwardPath      // key "forward_path": "normalized" (default) or "raw"
	ExpectContinue ExpectContinue   // key "expect_continue": "answer" (default) or "forward"
	Upgrades       []string         // key "upgrades": protocols, beside WebSocket, that clients may change to; default none
	Sources        Sources          // key "sources": clients whose requests are served, looked at after those of the listener
	RateLimits     []string         // key "rate_limits": names of limits that count its requests, in this order
	Maintenance    *Maintenance     // key "maintenance": nil serves requests
	Limits         RouteLimits      // key "limits"
	ErrorPages     []ErrorPage      // key "error_pages": they come before those of the listener
	Auth           *Auth            // key "auth": credentials that requests need; nil asks for none
	WAF            *WAF             // key "waf": in place of that of the listener; nil is that
	Inspection     *RouteInspection // key "inspection": by the policy of its requests; nil is as that says
	Concurrency    *Concurrency     // key "concurrency": requests at a time; nil is no bound
}

// ExpectContinue selects who answers a client that waits for 100 (Continue) before it sends content.
type ExpectContinue string

// The values of ExpectContinue.
const (
	// ExpectAnswer is the gateway, once it has a connection to a backend.
	ExpectAnswer ExpectContinue = "answer"
	// ExpectForward is the backend, which gets the field Expect.
	ExpectForward ExpectContinue = "forward"
)

// ForwardPath is the form of the path that backends get.
type ForwardPath string

// The values of ForwardPath.
const (
	// ForwardNormalized is the path as rules compare it (RFC 3986 6.2.2).
	ForwardNormalized ForwardPath = "normalized"
	// ForwardRaw is the path as the client sent it. Paths that backends read in different ways get 400.
	ForwardRaw ForwardPath = "raw"
)

// Rule configures the handling of requests that one of its matches holds for.
type Rule struct {
	Name         string        // key "name", unique in its route; default its number from 1
	Matches      []Match       // key "matches"; absent: every request
	Filters      []Filter      // key "filters"
	BackendRefs  []BackendRef  // key "backend_refs": pools; required unless static or a filter answers
	Static       *Static       // key "static": files that answer; absent: none
	Cache        *RuleCache    // key "cache": of the responses of backends; absent: none
	ConnectUDP   *ConnectUDP   // key "connect_udp": tunnels of UDP that clients ask for; absent: none
	WebTransport *WebTransport // key "webtransport": sessions that reach the backends, over HTTP/3; absent: none
	Timeouts     RuleTimeouts  // key "timeouts"
	Retry        Retry         // key "retry"
	EarlyHints   []string      // key "early_hints": values of Link that clients get before a backend answers (103); default none
}

// Match is the conditions on a request: all that are there must hold.
type Match struct {
	Path        PathMatch      // key "path"; default the prefix /
	Method      string         // key "method"; "" is any
	Headers     []ValueMatch   // key "headers"
	QueryParams []ValueMatch   // key "query_params"
	SNI         []string       // key "sni": server names that TLS was opened with, as Hostnames
	JA4         []string       // key "ja4": fingerprints of the client's hello
	ALPN        []string       // key "alpn": protocols of which the client's hello offers one
	Clients     []netip.Prefix // key "clients": addresses of the client
}

// MatchType selects how a value is compared.
type MatchType string

// The values of MatchType.
const (
	MatchExact  MatchType = "Exact"
	MatchPrefix MatchType = "PathPrefix"        // of paths: whole segments
	MatchRegexp MatchType = "RegularExpression" // RE2, for all of the value
)

// PathMatch is a condition on the path.
type PathMatch struct {
	Type  MatchType // key "type": "PathPrefix" (default), "Exact" or "RegularExpression"
	Value string    // key "value", default "/"
}

// ValueMatch is a condition on a field, or on a parameter of the query.
type ValueMatch struct {
	Type  MatchType // key "type": "Exact" (default) or "RegularExpression"
	Name  string    // key "name", required
	Value string    // key "value", required
}

// FilterType defines what a filter does.
type FilterType string

// The values of FilterType. All but FilterFixed are Gateway API's.
const (
	FilterRequestHeaders  FilterType = "RequestHeaderModifier"
	FilterResponseHeaders FilterType = "ResponseHeaderModifier"
	FilterRedirect        FilterType = "RequestRedirect"
	FilterRewrite         FilterType = "URLRewrite"
	FilterCORS            FilterType = "CORS"
	FilterFixed           FilterType = "FixedResponse"
	FilterMirror          FilterType = "RequestMirror"
)

// Filter changes a request or a response, or answers.
type Filter struct {
	Type FilterType // key "type", required

	Set    []Header // key "set", of modifiers: in place of all lines of the name
	Add    []Header // key "add", of modifiers: beside the lines that are there; of FixedResponse: fields of the response
	Remove []string // key "remove", of modifiers: names

	Scheme   string        // key "scheme", of RequestRedirect: "http" or "https"; default the request's
	Hostname string        // key "hostname", of RequestRedirect and URLRewrite; default the request's
	Path     *PathModifier // key "path", of RequestRedirect and URLRewrite
	Location string        // key "location", of RequestRedirect: a URL with variables, in place of Scheme, Hostname, Path and Port
	Port     uint16        // key "port", of RequestRedirect; default that of Scheme, without Scheme the listener's
	Status   int           // key "status_code", of RequestRedirect, default 302, and FixedResponse, default 200

	AllowOrigins     []string      // key "allow_origins", of CORS, required: "https://a.example", "https://*.a.example", or "*" alone
	AllowCredentials bool          // key "allow_credentials", of CORS: also requests with cookies, default false
	AllowMethods     []string      // key "allow_methods", of CORS: beside GET, HEAD and POST, or "*"
	AllowHeaders     []string      // key "allow_headers", of CORS: names of fields of requests, or "*"
	ExposeHeaders    []string      // key "expose_headers", of CORS: names of fields of responses
	MaxAge           time.Duration // key "max_age", of CORS: how long browsers keep the answer to a preflight, default 5s

	Body string // key "body", of FixedResponse: text, which an Add of content-type describes; default none

	Pool         string // key "pool", of RequestMirror, required: gets copies of requests
	Percent      int    // key "percent", of RequestMirror: of requests, default 100
	ContentBytes int    // key "content_bytes", of RequestMirror: of a request; one with more is not copied, default 65536
}

// Header is a field line to set or to add.
type Header struct {
	Name  string // key "name", required; in lower case here
	Value string // key "value", required
}

// PathModifier replaces a path or its prefix.
type PathModifier struct {
	Type    PathModifierType // key "type", required
	Value   string           // key "value", required: with ReplaceRegexMatch it has $1 and ${name} for groups
	Pattern string           // key "pattern", of ReplaceRegexMatch, required there: RE2, for all of the path
}

// PathModifierType defines what of a path is replaced.
type PathModifierType string

// The values of PathModifierType.
const (
	ReplaceFullPath    PathModifierType = "ReplaceFullPath"
	ReplacePrefixMatch PathModifierType = "ReplacePrefixMatch" // the prefix that matched
	ReplaceRegexMatch  PathModifierType = "ReplaceRegexMatch"  // all of a path that Pattern matches
)

// BackendRef is a pool and its share.
type BackendRef struct {
	Name   string // key "name", required: of a pool
	Weight int    // key "weight": share of requests, 0 to 1000000, default 1
}

// RuleTimeouts are time-outs of a request. 0 is none.
type RuleTimeouts struct {
	Request        time.Duration // key "request": from the end of the request's header to the end of the response, default 0
	BackendRequest time.Duration // key "backend_request": the same of one attempt, default 0
}

// Retry defines when a request is sent to another backend. One that a backend may have got is only sent again with a method
// that is idempotent (RFC 9110 9.2.2), and none whose content has been sent in part.
type Retry struct {
	Attempts int   // key "attempts": beyond the first, default 1
	Codes    []int // key "codes": statuses of a backend that are worth another attempt, default none
}

// StreamRoute configures where streams go that are passed through: TLSRoute and TCPRoute of Gateway API.
type StreamRoute struct {
	Name        string         // key "name", required and unique
	Listeners   []string       // key "listeners": names; absent: all of the protocol
	Hostnames   []string       // key "hostnames", of tls_routes, as Route.Hostnames: server names
	JA4         []string       // key "ja4", of tls_routes, as Match.JA4
	ALPN        []string       // key "alpn", of tls_routes, as Match.ALPN
	Clients     []netip.Prefix // key "clients", of tls_routes, as Match.Clients
	BackendRefs []BackendRef   // key "backend_refs", required: pools with `protocol: TCP`
}

// maxRefWeight is Gateway API's bound.
const maxRefWeight = 1_000_000

func newRule() Rule { return Rule{Retry: Retry{Attempts: 1}} }

func newMatch() Match { return Match{Path: PathMatch{Type: MatchPrefix, Value: "/"}} }

// Answers reports whether the filter makes the response itself.
func (f *Filter) Answers() bool { return f.Type == FilterRedirect || f.Type == FilterFixed }
