package proxy

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/semantics"
)

// look answers a request by what is stored, or goes on to a backend, perhaps once another request has been there.
func (x caching) look() {
	c, now := x.cached, x.rule.Cache.Store.Clock()
	c.mode, c.entry = cacheFetch, nil
	if x.request.Method == "HEAD" {
		c.mode = cacheHead // what it brings fills nothing: a backend may answer HEAD by other fields than GET
	}
	c.mark = c.use.Store.Mark(c.key().URL)
	e, miss := x.lookup()
	if c.miss = miss; e != nil {
		if x.needsDisk(e) {
			x.fromDisk(e)
			return
		}
		switch use := e.Use(&c.use.Policy, &c.control, now); {
		case use == cache.Fresh && c.waited > 0:
			x.serveEntry(e, cache.CountCollapsed)
			return
		case use == cache.Fresh:
			x.serveEntry(e, cache.CountHit)
			return
		case use == cache.Stale:
			x.serveEntry(e, cache.CountStale)
			return
		case use == cache.StaleRefresh && !c.use.Foreground && x.inspected == nil && !evaluates(x.rule.Firewall): // what that brings would not be inspected
			x.serveStale(e)
			return
		}
		if c.entry = e; e.Validates() && c.mode == cacheFetch {
			c.mode = cacheValidate
		}
	}
	if c.result = cache.CountMiss; c.control.Has(cache.OnlyIfCached) && !c.use.Policy.IgnoreClient {
		c.entry = nil
		x.answer(errNotCached)
		return
	}
	if c.flight != nil || !x.joins() { // it leads already where it has read a stale response from disk
		x.fetch()
	}
}

// joins has a request wait for the response that another one fetches, and reports whether it does. The first of them becomes the one
// that fetches.
//
// A request for a part, and one with a condition of its client, may bring what is none for others: it neither waits nor has others wait. Nor
// does one whose client wants to have the backend asked.
func (x caching) joins() bool {
	c := x.cached
	left := c.use.Wait - c.waited
	if left <= 0 || c.mode == cacheHead || !c.use.Policy.IgnoreClient && c.control.Demands() ||
		c.mode == cacheFetch && slices.ContainsFunc(x.request.Fields, cache.IsConditional) {
		return false
	}
	v, w := &cache.Waiter{}, x.w
	f, how := c.use.Store.Join(c.key(), x.request.Fields, c.use.Store.Clock(), v, func() {
		w.Loop.Do(func() { c.arrive(v) })
	})
	if c.flight = f; how != cache.Waits {
		return false
	}
	guarding{x.exchange}.holding()
	c.waiter, x.waits = v, c
	c.waitedFrom = x.w.Now
	guarding{x.exchange}.holdUntil(left, func(x guarding) { // it has waited for long enough: withdraw was called
		x.cached.waited = x.cached.use.Wait
		caching{x.exchange}.goOn()
	})
	return true
}

// arrive goes on with a request whose wait is over. It runs on the loop of the request.
func (c *cached) arrive(v *cache.Waiter) {
	if c.waiter != v { // it has left, or c is another request's
		return
	}
	x := c.x
	x.w.Enter()
	c.waiter, x.waits = nil, nil
	c.waited += max(x.w.Now.Sub(c.waitedFrom), 1)
	caching{x}.goOn()
}

// goOn looks again.
func (x caching) goOn() {
	x.hold.until, x.hold.late = clock.Never, nil
	x.on(admitted)
	x.look()
}

// withdraw implements awaited.
func (c *cached) withdraw(*exchange) {
	v := c.waiter
	c.waiter = nil
	v.Leave()
}

// fetch sends the request to the rule's pools. It may fail at once: nothing of the exchange may follow.
func (x caching) fetch() {
	c := x.cached
	c.asked = c.use.Store.Clock()
	x.toPool(c.path, c.query, c.client)
}

// condition changes the fields of the request that a backend gets: a stored response is validated by its own validators, whatever
// those of the client are (RFC 9111 4.3.1). The client's are compared with the response that comes of it.
func (x caching) condition() {
	if x.cached.mode != cacheValidate {
		return
	}
	x.fields = x.cached.entry.AppendConditions(slices.DeleteFunc(x.fields, cache.IsConditional))
}

// response returns the response of a backend as package cache reads it.
func (x caching) response(m *semantics.Message) cache.Response {
	return cache.Response{Status: m.Status, Fields: m.Fields, Length: m.ContentLength, Asked: x.cached.asked, Arrived: x.cached.use.Store.Clock()}
}

// asking returns the request as package cache reads it. Credentials may also be in a cookie, or be a certificate, where the route asks
// for them: then they are as good as Authorization (RFC 9111 3.5).
func (x caching) asking() cache.Request {
	g := x.rule.Guard
	return cache.Request{
		Key: x.cached.key(), Fields: x.request.Fields, Outgoing: x.fields, NoStore: x.cached.control.Has(cache.NoStore),
		Authorized: g != nil && g.Auth != nil || x.client.peer != nil,
	}
}
