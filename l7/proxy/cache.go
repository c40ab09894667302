package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/semantics"
)

// CacheStore is a cache of the configuration. Workers share it, also over reloads.
type CacheStore struct {
	Name string
	*cache.Cache
	// Clock returns the time; nil is time.Now.
	Clock  func() time.Time
	counts []*metrics.Block // of each worker
}

// CacheCount is a counter of a CacheStore.
type CacheCount int

// Values of CacheCount. The first are results of requests, each of which has one.
const (
	CacheHits        CacheCount = iota // a fresh response was stored
	CacheStale                         // a stale one was used
	CacheRevalidated                   // the backend has said that it is valid
	CacheCollapsed                     // another request has fetched the response meanwhile
	CacheMisses                        // the backend has answered
	CacheBypassed                      // the same, as the request is none for a cache
	CacheResults
	CacheRefreshes = CacheResults // validations in the background
	CacheFull      = CacheRefreshes + 1
	CacheCounts    = CacheFull + 1
)

// String returns a name for labels and logs.
func (c CacheCount) String() string {
	return [...]string{"hit", "stale", "revalidated", "collapsed", "miss", "bypass", "refresh", "full"}[c]
}

// NewCacheStore returns a cache for a number of workers.
func NewCacheStore(name string, o cache.Options, workers int) *CacheStore {
	s := &CacheStore{Name: name, Cache: cache.New(o)}
	for range workers {
		s.counts = append(s.counts, metrics.NewBlock(int(CacheCounts)))
	}
	return s
}

// Counts returns the counters, summed over the workers. Any goroutine may call it.
func (s *CacheStore) Counts() (sum [CacheCounts]uint64) {
	for _, b := range s.counts {
		b.AddTo(sum[:])
	}
	return sum
}

func (s *CacheStore) now() time.Time {
	if s.Clock != nil {
		return s.Clock()
	}
	return time.Now()
}

// CacheUse holds the settings by which a rule uses a cache. Workers share it, and nothing changes it.
type CacheUse struct {
	Store  *CacheStore
	Policy cache.Policy
	// Rule names the rule: others have responses of their own for the same URL.
	Rule string
	// Headers and Cookies are the names of fields, in lower case, and of cookies of the request that are part of the key.
	Headers, Cookies []string
	// Wait bounds the time for which a request waits for the response that another one fetches; 0 is not at all.
	Wait time.Duration
	// Foreground validates nothing in the background: connections to backends are those of a client.
	Foreground bool
}

// cached is the part of an exchange that only requests of a rule with a cache have. The worker keeps free ones. It is also the side of
// the exchange that stored content comes from: the client is sent what is in body, and a backend that fills body is read at its own
// speed, so that a client that reads slowly keeps no other from the response.
type cached struct {
	free    *cached
	x       *exchange // nil between uses
	use     *CacheUse
	control cache.Control // of the request
	kind    holdKind
	mode    cacheMode
	result  CacheCount
	miss    cache.Miss

	// The key, and what the request goes on with where it has waited.
	text        []byte
	url         int // bytes of text
	path, query string
	client      netip.Addr

	entry      *cache.Entry // that was found
	mark       cache.Mark
	asked      time.Time
	flight     *cache.Flight // that it ends
	waiter     *cache.Waiter // that it waits by
	waited     time.Duration // so far,
	waitedFrom clock.Time    // and since when

	fill     *cache.Entry // whose content comes
	body     []byte
	reserved int64
	sent     int // of body
	complete bool
	feed     feedState
	tasks    link.TaskSet // it outlives the request
	values   []byte       // of fields
}

// cacheMode selects the effect of a backend's response on the cache.
type cacheMode uint8

const (
	cachePass     cacheMode = iota // nothing
	cacheFetch                     // its response may be stored
	cacheValidate                  // the same, and the stored one may turn out to be valid
	cacheHead                      // its response may show that the stored one is not
	cacheUnsafe                    // its response may invalidate what is stored
)

// feedState is the state of content on its way from body to the client.
type feedState uint8

const (
	feedNone  feedState = iota
	feedFlows           // what is there is sent
	feedHeld            // the client takes nothing more for now
	feedOver
)

// caching is an exchange of a rule with a cache: the methods are of the files cache*.go.
type caching struct{ *exchange }

// errNotCached answers only-if-cached (RFC 9111 5.2.1.7).
var errNotCached = &failure{status: 504, name: "http_request_denied", class: pool.Canceled}

// key returns the key of the request.
func (c *cached) key() cache.Key {
	return cache.Key{URL: view(c.text[:c.url]), Variant: view(c.text[c.url:])}
}

// newCached gives the exchange its part.
func (x caching) newCached() *cached {
	c := x.w.cached
	if c == nil {
		c = &cached{}
	} else {
		x.w.cached = c.free
	}
	text, values, tasks := c.text[:0], c.values[:0], c.tasks
	*c = cached{text: text, values: values, tasks: tasks, x: x.exchange, use: x.rule.Cache}
	x.cached = c
	return c
}

// begin answers a request out of the cache of its rule, or sends it to the rule's pools.
func (x caching) begin(path, query string, client netip.Addr) {
	c, m := x.newCached(), x.request
	c.path, c.query, c.client, c.result = path, query, client, CacheBypassed
	x.appendKey(path, query)
	switch {
	case !safe(m.Method):
		c.mode = cacheUnsafe
	case m.Method != "GET" && m.Method != "HEAD", m.Protocol != "", x.up.message == flowing, m.ContentLength > 0:
		// Content of a GET has no meaning for most backends, and has one for some: its response is none for others.
	case slices.ContainsFunc(m.Fields, isOriginCondition):
		// The backend alone evaluates these (RFC 9111 4.3.2).
	default:
		c.control = cache.ParseControl(m.Fields)
		if c.use.Policy.IgnoreClient || !c.control.Has(cache.NoStore) {
			x.look()
			return
		}
	}
	x.fetch()
}

// isOriginCondition reports whether a field is a condition that no cache evaluates.
func isOriginCondition(f semantics.Field) bool {
	return f.Name == "if-match" || f.Name == "if-unmodified-since"
}

// appendKey makes the key of the request. The URL is the client's, in its normal form: the scheme is that of the connection, since the
// one that the client writes is believed by no backend. What a backend gets instead of it, where that can differ for the same URL,
// is part of the variant: so are fields of a trusted proxy about the client's own connection, by which backends make URLs.
func (x caching) appendKey(path, query string) {
	c, m, use := x.cached, x.request, x.rule.Cache
	host := semantics.Host(m.Authority)
	normal, _ := semantics.NormalizeHost(host) // which route has found valid
	b := appendOrigin(c.text[:0], x.client.tls, normal, m.Authority[len(host):])
	b = append(append(b, path...), query...)
	c.url = len(b)
	b = append(b, use.Rule...)
	switch {
	case x.rule.Rewrite != nil:
		x.outgoing = *m
		x.target = x.rule.Rewrite.Apply(&x.outgoing, x.target[:0], x.sentPath(path, query), query)
		b = append(append(append(b, '\n'), x.outgoing.Authority...), x.outgoing.Path...)
	case x.rule.PathForm == RawPath:
		b = append(append(b, '\n'), m.Path...)
	}
	for _, name := range use.Headers {
		b = appendValues(append(append(b, '\n'), name...), m.Fields, name)
	}
	for _, name := range use.Cookies {
		value, _ := rewrite.Cookie(m.Fields, name)
		b = append(append(append(append(b, '\n'), name...), '='), value...)
	}
	if f := &x.client.listener.Forwarding; len(f.Trusted) > 0 && f.Trusts(x.client.addr.Addr()) {
		for _, name := range [...]string{"x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"} {
			b = appendValues(append(b, '\n'), m.Fields, name)
		}
		b = appendForwarded(append(b, '\n'), m.Fields)
	}
	c.text = b
}

// sentPath returns the path that a rewrite changes.
func (x caching) sentPath(path, query string) string {
	if x.rule.PathForm == RawPath {
		return x.request.Path[:len(x.request.Path)-len(query)]
	}
	return path
}

// appendValues appends the lines of a field, each behind a colon.
func appendValues(b []byte, fields []semantics.Field, name string) []byte {
	for i := range fields {
		if f := &fields[i]; f.Name == name {
			b = append(append(b, ':'), f.Value...)
		}
	}
	return b
}

// appendForwarded appends the parts of Forwarded (RFC 7239) that name host and protocol.
func appendForwarded(b []byte, fields []semantics.Field) []byte {
	for i := range fields {
		f := &fields[i]
		if f.Name != "forwarded" {
			continue
		}
		for part := range strings.FieldsFuncSeq(f.Value, func(r rune) bool { return r == ';' || r == ',' }) {
			part = strings.TrimSpace(part)
			if name, _, _ := strings.Cut(part, "="); strings.EqualFold(name, "host") || strings.EqualFold(name, "proto") {
				b = append(append(b, ':'), part...)
			}
		}
	}
	return b
}

// leave ends the use with the exchange.
func (c *cached) leave() {
	x := c.x
	if c.kind == clientHold {
		c.use.Store.counts[x.w.id].Add(int(c.result), 1)
	}
	if c.fill != nil {
		c.giveUp()
	}
	c.endFlight(cache.Failed)
	c.x, c.entry, c.body, c.feed, c.use, c.waiter = nil, nil, nil, feedOver, nil, nil
	c.free, x.w.cached = x.w.cached, c
}

// giveUp ends the gathering of content that is not stored.
func (c *cached) giveUp() {
	c.use.Store.Reserve(-c.reserved)
	c.fill, c.reserved = nil, 0
}

// endFlight wakes the requests that wait for this one.
func (c *cached) endFlight(o cache.Outcome) {
	if f := c.flight; f != nil {
		c.flight = nil
		f.End(o, c.use.Store.now())
	}
}
