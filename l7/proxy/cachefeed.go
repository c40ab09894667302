package proxy

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// serveEntry answers a request by a stored response. It may end the exchange.
func (x caching) serveEntry(e *cache.Entry, result CacheCount) {
	c := x.cached
	c.result = result
	a := e.Answer(x.request.Method, x.request.Fields)
	x.on(refused)
	x.status, x.progress = a.Status, x.w.Now
	x.up.forget(x.w)
	c.values = c.values[:0]
	x.fields = a.AppendFields(x.fields[:0], &c.values)
	at := len(c.values)
	c.values = cache.AppendAge(c.values, e.Age(c.use.Store.now()))
	x.fields = append(x.fields, semantics.Field{Name: "age", Value: view(c.values[at:])})
	c.entry, c.body, c.sent, c.complete = e, a.Body, 0, true
	x.reply = semantics.Message{Status: a.Status, ContentLength: a.Length, Fields: x.fields}
	ending := side.EndsByLength
	if len(a.Body) == 0 {
		ending = side.EndsNow
	}
	out := x.responseMessage(&x.reply, ending == side.EndsNow)
	if x.encoder != nil {
		ending = side.EndsLater
	}
	if err := x.front.Head(out, ending); err != nil {
		x.frontFailed()
		return
	}
	x.down.from, c.feed = c, feedFlows
	c.feedOn()
	if c.x == x.exchange && x.phase == answering {
		x.deadline() // of a client that does not take it
	}
}

// serveStale answers by a stale response, and validates it in the background (RFC 5861 3).
func (x caching) serveStale(e *cache.Entry) {
	var r *refresh
	if !x.w.draining && e.BeginRefresh() {
		r = x.newRefresh(e)
	}
	x.serveEntry(e, CacheStale)
	if r != nil {
		r.begin()
	}
}

// announce appends Cache-Status (RFC 9211) to the fields of the response.
func (x caching) announce() {
	c, at := x.cached, len(x.cached.values)
	b := append(c.values, "millrace"...)
	switch c.result {
	case CacheHits, CacheStale:
		b = append(b, "; hit"...)
	case CacheRevalidated:
		b = append(b, "; fwd=stale; fwd-status=304"...)
	case CacheCollapsed:
		b = append(b, "; fwd=uri-miss; collapsed"...)
	case CacheMisses:
		why := "uri-miss"
		switch {
		case c.entry != nil:
			why = "stale"
		case c.miss == cache.VariantMiss:
			why = "vary-miss"
		}
		if b = append(append(b, "; fwd="...), why...); c.fill != nil {
			b = append(b, "; stored"...)
		}
	default:
		why := "bypass"
		switch {
		case x.request.Method != "GET" && x.request.Method != "HEAD":
			why = "method"
		case c.control.Has(cache.NoStore):
			why = "request"
		}
		b = append(append(b, "; fwd="...), why...)
	}
	c.values = b
	x.fields = append(x.fields, semantics.Field{Name: "cache-status", Value: view(b[at:])})
}

const (
	// feedPart bounds what the client is offered at a time: what it does not take is copied.
	feedPart = 64 << 10
	// feedTurn bounds the bytes that a response sends in one batch of events: others have their turn between.
	feedTurn = 512 << 10
)

// feedOn sends what there is of the content, as far as the client takes it.
func (c *cached) feedOn() {
	x := c.x
	for sent := 0; c.feed == feedFlows && c.sent < len(c.body); {
		if sent >= feedTurn {
			x.w.Run.Add(link.Later, c, &c.tasks)
			return
		}
		p := c.body[c.sent:min(c.sent+feedPart, len(c.body))]
		c.sent, sent = c.sent+len(p), sent+len(p)
		passOn(x, p)
	}
	if c.feed == feedFlows && c.complete && c.sent == len(c.body) {
		c.endFeed()
	}
}

// endFeed ends the response.
func (c *cached) endFeed() {
	x := c.x
	c.feed = feedOver
	if x.encoder != nil {
		coder{x}.endEncoder()
	}
	x.down.message = max(x.down.message, allArrived)
	x.down.end(x.w)
	x.finishIfDone()
	if c.x == x && x.phase != done {
		x.deadline()
	}
}

// Run implements link.Runnable: it sends on.
func (c *cached) Run(t link.Task) {
	if c.tasks.Clear(t); c.x != nil && c.feed == feedFlows {
		c.feedOn()
	}
}

// Pause implements side.Stream: nothing is sent while the client does not take what was.
func (c *cached) Pause(on bool) {
	switch {
	case on && c.feed == feedFlows:
		c.feed = feedHeld
	case !on && c.feed == feedHeld:
		c.feed = feedFlows
		c.x.w.Run.Add(link.Restart, c, &c.tasks)
	}
}

// The rest of side.Stream is of peers that get something.

func (c *cached) Head(*semantics.Message, side.Ending) error { return nil }
func (c *cached) Write(p []byte) int                         { return len(p) }
func (c *cached) End([]semantics.Field)                      {}
func (c *cached) Cancel(bool)                                {}
func (c *cached) Release()                                   {}

// refresh validates an entry in the background: the client's side of an exchange, in memory. The exchange is an internal one: it is not
// counted as a request, and not in the access log.
type refresh struct {
	w       *Worker
	client  *clientInfo
	rule    *Rule
	entry   *cache.Entry
	caps    side.Caps
	message semantics.Message
	path    string
	query   string
	text    []byte // of the key
	url     int
	id      []byte

	// What credentials of the client have brought.
	names    []string
	identity []semantics.Field
}

// newRefresh copies what it needs of a request, which ends before.
func (x caching) newRefresh(e *cache.Entry) *refresh {
	c, m := x.cached, x.request
	r := &refresh{
		w: x.w, client: x.client, rule: x.rule, entry: e, caps: side.Caps{Protocol: x.caps.Protocol, Shared: true},
		path: strings.Clone(c.path), query: strings.Clone(c.query), text: slices.Clone(c.text), url: c.url, id: slices.Clone(x.id),
	}
	r.message = semantics.Message{
		Method: "GET", Scheme: strings.Clone(m.Scheme), Authority: strings.Clone(m.Authority), Path: strings.Clone(m.Path), ContentLength: -1,
		Fields: cloneFields(m.Fields),
	}
	r.message.Fields = slices.DeleteFunc(r.message.Fields, isConditional)
	if h := x.hold; h != nil {
		r.names, r.identity = slices.Clone(h.names), cloneFields(h.identity)
	}
	return r
}

// begin begins the exchange. It may end at once.
func (r *refresh) begin() {
	a := r.w.newExchange(r.client, &side.Event{Stream: r, Message: &r.message, Ending: side.EndsNow, Caps: r.caps})
	h := guarding{a}.holding()
	h.kind, h.names, h.identity = internalHold, append(h.names, r.names...), append(h.identity, r.identity...)
	a.id, a.rule = append(a.id[:0], r.id...), r.rule
	c := caching{a}.newCached()
	c.text, c.url = append(c.text, r.text...), r.url
	c.path, c.query, c.client = r.path, r.query, r.client.listener.Forwarding.Client(r.message.Fields, r.client.addr.Addr())
	c.entry, c.mode, c.kind, c.mark = r.entry, cacheFetch, internalHold, c.use.Store.Mark(c.key().URL)
	if r.entry.Validates() {
		c.mode = cacheValidate
	}
	c.use.Store.counts[r.w.id].Add(int(CacheRefreshes), 1)
	caching{a}.fetch()
}

// The client's side: it takes everything.

// Head implements side.Stream.
func (r *refresh) Head(*semantics.Message, side.Ending) error { return nil }

// Write implements side.Stream.
func (r *refresh) Write(p []byte) int { return len(p) }

// End implements side.Stream.
func (r *refresh) End([]semantics.Field) {}

// Pause implements side.Stream.
func (r *refresh) Pause(bool) {}

// Cancel implements side.Stream.
func (r *refresh) Cancel(bool) {}

// Release implements side.Stream: the next request that finds the entry stale may try again.
func (r *refresh) Release() { r.entry.EndRefresh() }
