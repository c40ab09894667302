package proxy

import (
	"slices"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// arrived handles the header of a response of a backend, before the client gets it. It reports whether the request was answered by
// what is stored.
func (x caching) arrived(m *semantics.Message, e side.Ending) (answered bool) {
	c := x.cached
	if c.mode == cachePass {
		return false
	}
	r := x.response(m)
	switch c.mode {
	case cacheUnsafe:
		c.use.Store.Changed(string(c.text[:c.url]), &r)
		return false
	case cacheHead:
		if c.entry != nil && c.entry.Differs(&r) {
			c.use.Store.Remove(c.entry)
		}
		return false
	case cacheValidate:
		if m.Status == 304 {
			return x.validated(&r, e)
		}
	}
	if old := c.entry; old != nil {
		switch {
		case cache.IsOutage(m.Status) && old.ServesErrors(r.Arrived):
			discardResponse(x.exchange, m.Status)
			x.serveInstead(old)
			return true
		case cache.Outdates(m.Status) && (c.mode == cacheValidate || !slices.ContainsFunc(x.request.Fields, cache.IsConditional)):
			c.use.Store.Remove(old) // whether this response is stored or not
		}
	}
	x.beginFill(&r, e)
	return false
}

// validated answers by the stored response, which the backend has found valid.
func (x caching) validated(r *cache.Response, e side.Ending) (answered bool) {
	c := x.cached
	q := x.asking()
	fresh, why, ok := c.entry.Freshen(&c.use.Policy, &q, r)
	x.leaveBack(e != side.EndsNow)
	x.status = 304
	x.account(nil)
	x.status, x.call = 0, 0
	if !ok { // of another version: the backend is asked for all of it
		c.use.Store.Remove(c.entry)
		c.entry, c.mode = nil, cacheFetch
		x.on(failed)
		x.up.message = min(x.up.message, allArrived)
		x.fetch()
		return true
	}
	if why == cache.Storable {
		c.endFlight(c.use.Store.Freshened(c.entry, fresh, c.mark))
	}
	c.endFlight(cache.Unshared)
	c.entry.EndRefresh()
	x.serveEntry(fresh, cache.CountRevalidated)
	return true
}

// serveInstead answers by a stale response in place of an error.
func (x caching) serveInstead(e *cache.Entry) {
	x.cached.endFlight(cache.Failed)
	x.serveEntry(e, cache.CountStale)
}

// rescue answers by a stale response in place of an error of the gateway, if there is one that may be used.
func (x caching) rescue(f *failure) bool {
	c := x.cached
	if c.entry == nil || f.status < 500 || !c.entry.ServesErrors(c.use.Store.Clock()) {
		return false
	}
	x.serveInstead(c.entry)
	return true
}

// beginFill prepares to store a response, if it may be stored.
func (x caching) beginFill(r *cache.Response, e side.Ending) {
	c := x.cached
	q := x.asking()
	fill, _ := c.use.Policy.New(&q, r)
	switch {
	case fill == nil && r.Status >= 500:
		c.endFlight(cache.Failed)
		return
	case fill == nil, x.endsByClose():
		c.endFlight(cache.Unshared)
		return
	case e == side.EndsNow, r.Status == 204:
		c.endFlight(c.use.Store.Put(fill.Complete(nil), c.mark))
		return
	case r.Length > c.use.MemoryBound():
		c.spill = c.use.Store.Spill(fill, c.mark)
		c.endFlight(cache.Unshared)
		return
	}
	if c.fill = c.use.Store.Begin(fill, c.mark, r.Length, c.use.MemoryBound()); c.fill == nil { // too many others are being gathered
		c.use.Store.Count(x.w.id, cache.CountFull)
		c.endFlight(cache.Failed)
	}
}

// endsByClose reports whether nothing but the end of the connection ends the content (RFC 9112 6.3, rule 8): whether that is all of
// it, a backend that fails leaves open.
func (x caching) endsByClose() bool {
	if x.direct == nil {
		return false
	}
	_, m := x.direct.Plain()
	return m.Message().Body == http1.UntilClose
}

// collect takes content of the response. It borrows p.
func (x caching) collect(p []byte) {
	c := x.cached
	x.progress = x.w.Now
	if c.spill != nil {
		if !c.spill.Add(p) {
			c.spill = nil
		}
		passOn(x.exchange, p)
		return
	}
	switch c.fill.Add(p) {
	case cache.Gathered:
		c.body = c.fill.Body()
		c.feedOn()
	case cache.TooLong:
		if c.spill = c.fill.Spill(); c.spill != nil && !c.spill.Add(p) {
			c.spill = nil
		}
		x.abandonFill(cache.Unshared, p)
	default:
		x.abandonFill(cache.Failed, p)
	}
}

// abandonFill goes on without storing the response: what the client has not got yet is sent, and the backend is read at the speed of
// the client from now on.
func (x caching) abandonFill(o cache.Outcome, p []byte) {
	c := x.cached
	rest := append(c.body[c.sent:len(c.body):len(c.body)], p...)
	c.fill.Drop()
	if c.endFlight(o); o == cache.Failed {
		c.use.Store.Count(x.w.id, cache.CountFull)
	}
	c.fill, c.body, c.feed = nil, nil, feedOver
	x.down.from, x.down.paused = x.back, false
	passOn(x.exchange, rest)
	if d := &x.down; len(d.held) > 0 && !d.paused {
		d.paused = true
		d.from.Pause(true)
	}
}

// filled stores the response, all of whose content has come. The client may still have to take some of it.
func (x caching) filled(trailers []semantics.Field) {
	c := x.cached
	if c.spill != nil { // its content has passed already
		c.spill.Commit()
		c.spill = nil
		endResponse(x.exchange, trailers)
		return
	}
	body, outcome := c.fill.Commit()
	c.fill, c.body, c.complete = nil, body, true
	c.endFlight(outcome)
	if len(trailers) > 0 {
		x.down.trailers = cloneFields(trailers)
	}
	x.on(complete)
	x.account(nil)
	x.leaveBack(false)
	x.down.from = c
	c.feedOn()
}
