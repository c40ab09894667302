package config

import (
	"net/netip"
	"time"
)

// RateLimit bounds how often requests of one key are served. Listeners and routes name the limits that count their requests; one
// that several name counts the requests of all of them.
type RateLimit struct {
	Name     string        // key "name", required and unique: the label of logs, metrics and the field RateLimit
	Key      RateKey       // key "key": which requests count together
	Requests int           // key "requests", required: that a key may make in Interval, 1 to 1000000
	Interval time.Duration // key "interval", whole seconds, default 1s
	Burst    int           // key "burst": requests of a key that may come at once; default 0 is Requests
	Keys     int           // key "keys": that are followed at a time, of all loops, default 65536
	Announce Announce      // key "announce": which responses have the fields RateLimit and RateLimit-Policy
	DryRun   bool          // key "dry_run": requests beyond the limit are counted and served, default false
}

// RateKey selects which requests of a RateLimit count together. A request that lacks the header, cookie or parameter counts by its
// client.
type RateKey struct {
	By      RateBy // key "by", default "client"
	Name    string // key "name": of the header, in lower case here, the cookie or the parameter
	Value   string // key "value", with `by: value`: text with variables
	Prefix4 int    // key "prefix4", bits of an IPv4 address that make a client, default 32
	Prefix6 int    // key "prefix6", the same of IPv6, default 64
}

// RateBy selects a part of a request.
type RateBy string

// The values of RateBy.
const (
	RateByClient RateBy = "client" // the prefix of its address
	RateByUser   RateBy = "user"   // who the credentials of the route or the certificate of the client name
	RateByHeader RateBy = "header" // the first line of a field
	RateByCookie RateBy = "cookie"
	RateByQuery  RateBy = "query" // a parameter
	RateByPath   RateBy = "path"
	RateByValue  RateBy = "value" // text with variables
	RateByAll    RateBy = "all"   // nothing: all requests count together
)

// Announce selects the responses that have fields about a limit.
type Announce string

// The values of Announce.
const (
	AnnounceRefused Announce = "refused" // those to requests that are refused
	AnnounceAlways  Announce = "always"
	AnnounceNever   Announce = "never"
)

// Concurrency bounds the requests of a route that are served at a time, by all loops together. Those beyond it wait.
type Concurrency struct {
	Requests int           // key "requests": 0 (default) is no bound; this or PerUser is required
	PerUser  int           // key "per_user": of each user; more get 429. 0 (default) is no bound
	Pending  int           // key "pending": requests that wait, default 1024
	Wait     time.Duration // key "wait": of each of them, default 5s
}

// HSTS has browsers use TLS alone for a host (RFC 6797).
type HSTS struct {
	MaxAge     time.Duration // key "max_age", required: whole seconds
	Subdomains bool          // key "include_subdomains", default false
	Preload    bool          // key "preload", default false: the host may enter the lists of browsers
}

// ErrorPage is the content of responses that the gateway makes by itself.
type ErrorPage struct {
	Statuses []int  // key "status", required: one or more
	File     string // key "file", required
	Type     string // key "content_type", default by the file's name
}

// Maintenance answers all requests of a route by 503.
type Maintenance struct {
	RetryAfter time.Duration  // key "retry_after": that clients are to wait, whole seconds; default 0 says nothing of it
	Allow      []netip.Prefix // key "allow": clients who are served all the same
}

// RouteLimits bound requests of a route, in place of the limits of its listeners.
type RouteLimits struct {
	BodyBytes int64 // key "body_bytes": of the content of a request, default that of the listener
}

// Auth asks requests of a route for credentials: in one of three ways.
type Auth struct {
	Basic   *BasicAuth   // key "basic"
	JWT     *JWTAuth     // key "jwt"
	Forward *ForwardAuth // key "forward"
}

// BasicAuth asks for a name and a password (RFC 7617).
type BasicAuth struct {
	File  string // key "file", required: in the form of htpasswd, with hashes of bcrypt
	Realm string // key "realm", default "restricted"
}

// JWTAuth asks for a JSON Web Token (RFC 7519) in Authorization: Bearer.
type JWTAuth struct {
	Issuer    string        // key "issuer", required: "iss" of tokens
	Audiences []string      // key "audiences", required: of which "aud" has one
	File      string        // key "jwks_file": the issuer's keys; this or URL is required
	URL       string        // key "jwks_url": where they are read in the background
	CAFile    string        // key "ca_file", with URL: authorities of its certificate; default the system's
	Refresh   time.Duration // key "refresh", with URL: how often they are read again, default 10m
	Leeway    time.Duration // key "leeway": by which clocks may differ, default 30s
	Cookie    string        // key "cookie": that has the token where there is no Authorization; default none
	Realm     string        // key "realm", default "restricted"
	Claims    []ClaimField  // key "claims": fields of the request that have claims
	UserClaim string        // key "user_claim": names the user for limits and the access log, default "sub"
}

// ClaimField is a field of requests that has a claim of the token, in place of what the client has sent under its name.
type ClaimField struct {
	Name  string // key "name", required: of the field, in lower case here
	Claim string // key "claim", required
}

// ForwardAuth asks a server whether a request is served.
type ForwardAuth struct {
	Pool            string        // key "pool", required
	Path            string        // key "path", default "/": of the request to the server
	Timeout         time.Duration // key "timeout", default 5s
	RequestHeaders  []string      // key "request_headers": of the request, that the server gets; default all
	ResponseHeaders []string      // key "response_headers": of the server's response, that the request gets in place of the client's
}

func newBasicAuth() *BasicAuth { return &BasicAuth{Realm: "restricted"} }

func newJWTAuth() *JWTAuth {
	return &JWTAuth{UserClaim: "sub", Refresh: 10 * time.Minute, Leeway: 30 * time.Second, Realm: "restricted"}
}

func newForwardAuth() *ForwardAuth { return &ForwardAuth{Path: "/", Timeout: 5 * time.Second} }

const (
	maxRateLimits = 1024
	maxRateKeys   = 1 << 24 // of one limit: 512 MiB
	// mostSpent bounds the time that a burst takes to be given back, so that no time overflows.
	mostSpent = 366 * 24 * time.Hour
)

func newRateLimit() RateLimit {
	return RateLimit{Key: newRateKey(), Interval: time.Second, Keys: 1 << 16, Announce: AnnounceRefused}
}

func newConcurrency() *Concurrency { return &Concurrency{Pending: 1024, Wait: 5 * time.Second} }

func newRateKey() RateKey { return RateKey{By: RateByClient, Prefix4: 32, Prefix6: 64} }
