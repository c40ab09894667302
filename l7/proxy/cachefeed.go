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
func (x caching) serveEntry(e *cache.Entry, result cache.Count) {
	c := x.cached
	c.result = result
	a := e.Answer(x.request.Method, x.request.Fields)
	x.on(refused)
	x.status, x.progress = a.Status, x.w.Now
	x.up.forget(x.w)
	c.values = c.values[:0]
	x.fields = a.AppendFields(x.fields[:0], &c.values, c.use.Store.Clock())
	c.entry, c.body, c.sent, c.complete = e, a.Body, 0, true
	x.reply = semantics.Message{Status: a.Status, ContentLength: a.Length, Fields: x.fields}
	ending := side.EndsByLength
	if len(a.Body) == 0 && (a.Left == 0 || c.kind == internalHold) {
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
	if a.Left > 0 && c.kind != internalHold {
		x.feedFromDisk(&a)
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
	x.serveEntry(e, cache.CountStale)
	if r != nil {
		r.begin()
	}
}

// announce appends Cache-Status (RFC 9211) to the fields of the response.
func (x caching) announce() {
	c, at := x.cached, len(x.cached.values)
	st := cache.Status{
		Result: c.result, Miss: c.miss, Stale: c.entry != nil, Stored: c.gathers(), Method: x.request.Method, NoStore: c.control.Has(cache.NoStore),
	}
	c.values = st.Append(c.values)
	x.fields = append(x.fields, semantics.Field{Name: "cache-status", Value: view(c.values[at:])})
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

// refresh validates an entry in the background: the client's side of an exchange, in memory. The exchange is an internal one: it is not
// counted as a request, and not in the access log.
type refresh struct {
	noPeer
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
	r.message.Fields = slices.DeleteFunc(r.message.Fields, cache.IsConditional)
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
	c.use.Store.Count(r.w.id, cache.CountRefresh)
	caching{a}.fetch()
}

// Release implements side.Stream: the next request that finds the entry stale may try again.
func (r *refresh) Release() { r.entry.EndRefresh() }
