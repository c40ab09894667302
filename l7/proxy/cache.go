package proxy

import (
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
)

// cached is the part of an exchange that only requests of a rule with a cache have. The worker keeps free ones. It is also the side of
// the exchange that stored content comes from: the client is sent what is in body, and a backend that fills body is read at its own
// speed, so that a client that reads slowly keeps no other from the response.
type cached struct {
	noPeer
	free    *cached
	x       *exchange // nil between uses
	use     *cache.Rule
	control cache.Control // of the request
	kind    holdKind
	mode    cacheMode
	result  cache.Count
	miss    cache.Miss

	// The key, and what the request goes on with where it has waited.
	text        []byte
	url         int // bytes of text
	path, query string
	client      netip.Addr

	waitsEnd bool // of the request: whether it has content is not known

	entry      *cache.Entry // that was found
	mark       cache.Marks
	asked      time.Time
	flight     *cache.Flight // that it ends
	waiter     *cache.Waiter // that it waits by
	waited     time.Duration // so far,
	waitedFrom clock.Time    // and since when

	fill     *cache.Fill     // of the response that is to be stored
	spill    *cache.DiskFill // the same, past memory
	read     diskRead
	body     []byte // for the client
	sent     int    // of body
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
	c.path, c.query, c.client, c.result = path, query, client, cache.CountBypass
	x.appendKey(path, query)
	if safe(m.Method) && x.mayEnd() {
		x.awaitEnd()
		return
	}
	x.choose()
}

// choose looks the request up, where a cache may serve it, or sends it to the rule's pools.
func (x caching) choose() {
	c, m := x.cached, x.request
	switch {
	case !safe(m.Method):
		c.mode = cacheUnsafe
	case m.Method != "GET" && m.Method != "HEAD", m.Protocol != "", x.up.message == flowing, x.up.bytes > 0, len(x.up.trailers) > 0:
		// Content of a GET has no meaning for most backends, and has one for some: its response is none for others.
	case slices.ContainsFunc(m.Fields, cache.IsForOrigin):
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

// appendKey makes the key of the request.
func (x caching) appendKey(path, query string) {
	c, m, f := x.cached, x.request, &x.client.listener.Forwarding
	t := cache.Target{
		Secure: x.client.tls, Authority: m.Authority, Path: path, Query: query, Fields: m.Fields,
		Trusted: len(f.Trusted) > 0 && f.Trusts(x.client.addr.Addr()),
	}
	raw := x.rule.PathForm == RawPath
	if raw {
		t.Sent = m.Path
	}
	if r := x.rule.Rewrite; r != nil {
		if raw {
			path = m.Path[:len(m.Path)-len(query)]
		}
		x.outgoing = *m
		x.target = r.Apply(&x.outgoing, x.target[:0], path, query)
		x.scratch = append(append(x.scratch[:0], x.outgoing.Authority...), x.outgoing.Path...)
		t.Sent = view(x.scratch)
	}
	c.text, c.url = c.use.AppendKey(c.text[:0], &t)
	if i := (inspecting{x.exchange}).ofRule(); i != nil && i.Policy != 0 { // a response that no rule has inspected is none for a listener that inspects
		c.text = append(append(c.text, '\n', i.Policy), i.kind...)
	}
	if evaluates(x.rule.Firewall) {
		c.text = append(c.text, "\nwaf"...)
	}
}

// leave ends the use with the exchange.
func (c *cached) leave() {
	x := c.x
	if c.kind == clientHold {
		c.use.Store.Count(x.w.id, c.result)
	}
	if c.fill != nil {
		c.fill.Drop()
	}
	if c.spill != nil {
		c.spill.Drop()
	}
	c.read.leave()
	c.endFlight(cache.Failed)
	c.x, c.entry, c.fill, c.spill, c.body, c.feed, c.use, c.waiter, c.read = nil, nil, nil, nil, nil, feedOver, nil, nil, diskRead{}
	c.free, x.w.cached = x.w.cached, c
}

// endFlight wakes the requests that wait for this one.
func (c *cached) endFlight(o cache.Outcome) {
	if f := c.flight; f != nil {
		c.flight = nil
		f.End(o, c.use.Store.Clock())
	}
}
