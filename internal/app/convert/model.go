package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// model holds the translation of a source: the sections of the gateway's configuration, with places in the source. Fields are
// those of gateway/config; what is zero is left out by the writer.
type model struct {
	accessLog *accessLog
	resolvers []string
	maxTTL    time.Duration
	limits    []*rateLimit
	caches    []*cache
	listeners []*listener
	routes    []*siteRoute
	tlsRoutes []*streamRoute
	tcpRoutes []*streamRoute
	pools     []*pool

	names map[string]map[string]bool // that are taken, by kind
}

func newModel() *model { return &model{names: map[string]map[string]bool{}} }

// Values of listener.protocol.
const (
	protoHTTP  = "HTTP"
	protoHTTPS = "HTTPS"
	protoTLS   = "TLS"
	protoTCP   = "TCP"
)

type listener struct {
	at          pos
	name        string
	addresses   []string
	protocol    string
	versions    []string
	proxyFrom   []string
	trusted     []string
	noForwarded bool // style: none
	compression *compression
	tls         *serverTLS
	timeouts    times
	limits      counts
	bodyBytes   int64
	hsts        time.Duration
	errorPages  []errorPage
	sources     *sources
}

// times and counts are keys with values, in the order of their names.
type (
	times  map[string]time.Duration
	counts map[string]int64
)

type compression struct {
	codings, types []string
	minBytes       int64 // -1 is the gateway's default
}

type serverTLS struct {
	certificates []certificate
	acme         []string // names
	acmeDir      string
	contact      string
	directory    string
	minVersion   string
	clientCA     []string
	crl          []string
	optional     bool
	anyHost      bool // misdirected: off
}

type certificate struct {
	cert, key string
	fallback  bool
}

type errorPage struct {
	statuses []int
	file     string
}

type sources struct {
	deny, allow []string
	denyOthers  bool
}

type rateLimit struct {
	at       pos
	name     string
	by       string // "" is client
	key      string // name of the header and so on, or the value
	prefix6  int
	requests int64
	interval time.Duration
	burst    int64
	dryRun   bool
}

// guard is the settings of a route that rules of one server may differ in.
type guard struct {
	sources     *sources
	rateLimits  []string
	bodyBytes   int64
	users       string // file of auth.basic
	realm       string
	askPool     string // of auth.forward
	askPath     string
	askFields   []string // response_headers
	concurrency int64
	errorPages  []errorPage
}

// key returns a text that equal guards have in common.
func (g *guard) key() string {
	src := ""
	if g.sources != nil {
		src = fmt.Sprint(*g.sources)
	}
	return fmt.Sprint(src, g.rateLimits, g.bodyBytes, g.users, g.realm, g.askPool, g.askPath, g.askFields, g.concurrency, g.errorPages)
}

type siteRoute struct {
	at        pos
	name      string
	listeners []string
	hosts     []string
	guard     guard
	upgrades  []string
	rules     []*rule
}

// Values of match.path.
const (
	pathPrefix = "PathPrefix"
	pathExact  = "Exact"
	pathRegexp = "RegularExpression"
)

type match struct {
	kind, path string // "" is the prefix /
	method     string
	headers    []condition
	query      []condition
	clients    []string
}

type condition struct {
	name, value string
	regexp      bool
}

type header struct{ name, value string }

type edits struct {
	set, add []header
	remove   []string
}

func (e *edits) empty() bool { return len(e.set)+len(e.add)+len(e.remove) == 0 }

// put sets a field, once.
func (e *edits) put(name, value string) {
	name = strings.ToLower(name)
	e.drop(name)
	e.set = append(e.set, header{name, value})
}

// more adds a field beside others: a second line of a name that is set or added cannot be expressed, and is false.
func (e *edits) more(name, value string) bool {
	name = strings.ToLower(name)
	if slices.ContainsFunc(slices.Concat(e.set, e.add), func(h header) bool { return h.name == name }) {
		return false
	}
	e.add = append(e.add, header{name, value})
	return true
}

// without removes a field.
func (e *edits) without(name string) {
	name = strings.ToLower(name)
	e.drop(name)
	e.remove = append(e.remove, name)
}

func (e *edits) drop(name string) {
	is := func(h header) bool { return h.name == name }
	e.set, e.add = slices.DeleteFunc(e.set, is), slices.DeleteFunc(e.add, is)
	e.remove = slices.DeleteFunc(e.remove, func(s string) bool { return s == name })
}

func (e *edits) clone() edits {
	return edits{slices.Clone(e.set), slices.Clone(e.add), slices.Clone(e.remove)}
}

// Values of modifier.kind.
const (
	replaceFull   = "ReplaceFullPath"
	replacePrefix = "ReplacePrefixMatch"
)

type modifier struct{ kind, value string }

type redirect struct {
	status   int
	location string    // a URL with variables, or
	scheme   string    // these
	path     *modifier //
	hostname string
	port     uint16
}

type fixed struct {
	status int
	body   string
	kind   string // content-type; "" is none
}

type static struct {
	root          string
	index         []string
	try           []string
	listing       bool
	precompressed []string
	hidden        bool
	cacheControl  string
}

type rule struct {
	at        pos
	note      string // a comment beside the place
	matches   []match
	request   edits
	response  edits
	rewrite   *modifier
	hostname  string
	redirect  *redirect
	fixed     *fixed
	static    *static
	pools     []weighted
	timeout   time.Duration
	attempts  int // -1 is the default
	codes     []int
	cache     *ruleCache
	streaming bool // WebSocket is passed on, in the source's words
}

func newRule(at pos) *rule { return &rule{at: at, attempts: -1} }

// clone returns a copy whose matches and edits may be changed.
func (r *rule) clone() *rule {
	c := *r
	c.matches, c.request, c.response = slices.Clone(r.matches), r.request.clone(), r.response.clone()
	return &c
}

// answers reports whether the rule needs no backend.
func (r *rule) answers() bool {
	return r.redirect != nil || r.fixed != nil || r.static != nil && len(r.pools) == 0
}

type weighted struct {
	name   string
	weight int
}

type streamRoute struct {
	at        pos
	name      string
	listeners []string
	hosts     []string
	clients   []string
	pools     []weighted
}

type pool struct {
	at         pos
	name       string
	protocol   string // "" is HTTP
	balance    string
	hashBy     string
	hashName   string
	sticky     string // cookie
	tls        *poolTLS
	proxy      string // v1 or v2
	backends   []backend
	health     *health
	errors     int64 // of passive: gateway_errors
	down       time.Duration
	slowStart  time.Duration
	idle       int64 // -1 is the default
	uses       int64
	header     int64
	timeouts   times
	connection int64 // limits.connections
	fast       *fastCGI
}

func (p *pool) tcp() bool { return p.protocol == protoTCP }

type poolTLS struct {
	serverName string
	ca         string
	cert, key  string
	insecure   bool
}

type backend struct {
	at       pos
	name     string
	address  string
	weight   int // -1 is the default
	state    string
	most     int64 // max_connections
	requests int64 // max_requests
}

type health struct {
	kind         string // tcp, http, https
	interval     time.Duration
	timeout      time.Duration
	rise, fall   int64
	port         int64
	method, path string
	host         string
	status, body string
	insecure     bool
}
