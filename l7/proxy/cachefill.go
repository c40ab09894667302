package proxy

import (
	"net/url"
	"slices"
	"strings"

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
		x.invalidate(&r)
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
		case isOutage(m.Status) && old.ServesErrors(r.Arrived):
			discardResponse(x.exchange, m.Status)
			x.serveInstead(old)
			return true
		case isChange(m.Status) && (c.mode == cacheValidate || !slices.ContainsFunc(x.request.Fields, isConditional)):
			c.use.Store.Remove(old) // whether this response is stored or not
		}
	}
	x.beginFill(&r, e)
	return false
}

// isOutage reports whether a status is one in whose place a stale response is used (RFC 5861 4).
func isOutage(status int) bool { return status == 500 || status >= 502 && status <= 504 }

// isChange reports whether a status shows that a stored response is out of date. Other errors may be for one client alone.
func isChange(status int) bool {
	return status >= 200 && status < 400 && status != 206 && status != 304 || status == 404 || status == 410
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
		x.commit(fresh)
	}
	c.endFlight(cache.Unshared)
	c.entry.EndRefresh()
	x.serveEntry(fresh, CacheRevalidated)
	return true
}

// serveInstead answers by a stale response in place of an error.
func (x caching) serveInstead(e *cache.Entry) {
	x.cached.endFlight(cache.Failed)
	x.serveEntry(e, CacheStale)
}

// rescue answers by a stale response in place of an error of the gateway, if there is one that may be used.
func (x caching) rescue(f *failure) bool {
	c := x.cached
	if c.entry == nil || f.status < 500 || !c.entry.ServesErrors(c.use.Store.now()) {
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
		x.commit(fill.Complete(nil))
		return
	}
	if r.Length > 0 {
		if !c.use.Store.Reserve(r.Length) {
			x.full()
			return
		}
		c.reserved = r.Length
		c.body = make([]byte, 0, r.Length)
	}
	c.fill = fill
}

// full notes that a response is not stored since too many others are being gathered.
func (x caching) full() {
	x.cached.use.Store.counts[x.w.id].Add(int(CacheFull), 1)
	x.cached.endFlight(cache.Failed)
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

// commit stores a response that is whole. Those that wait for one that each has to validate go their own way at once.
func (x caching) commit(e *cache.Entry) {
	c := x.cached
	outcome := cache.Failed
	switch stored := c.use.Store.Store(e, c.mark); {
	case !e.Shared(c.use.Store.now()):
		outcome = cache.Unshared
	case stored:
		outcome = cache.Landed
	}
	c.endFlight(outcome)
}

// collect takes content of the response. It borrows p.
func (x caching) collect(p []byte) {
	c := x.cached
	x.progress = x.w.Now
	n := int64(len(c.body) + len(p))
	if n > c.use.Policy.MaxObject {
		x.abandonFill(cache.Unshared, p)
		return
	}
	if more := n - c.reserved; more > 0 {
		if more = max(more, min(n, c.use.Policy.MaxObject-c.reserved)); !c.use.Store.Reserve(more) {
			x.abandonFill(cache.Failed, p)
			return
		}
		c.reserved += more
	}
	c.body = append(c.body, p...)
	c.feedOn()
}

// abandonFill goes on without storing the response: what the client has not got yet is sent, and the backend is read at the speed of
// the client from now on.
func (x caching) abandonFill(o cache.Outcome, p []byte) {
	c := x.cached
	rest := append(c.body[c.sent:len(c.body):len(c.body)], p...)
	c.giveUp()
	if c.endFlight(o); o == cache.Failed {
		x.full()
	}
	c.body, c.feed = nil, feedOver
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
	e := c.fill.Complete(c.body)
	c.body = e.Body
	x.commit(e)
	c.giveUp()
	c.complete = true
	if len(trailers) > 0 {
		x.down.trailers = cloneFields(trailers)
	}
	x.on(complete)
	x.account(nil)
	x.leaveBack(false)
	x.down.from = c
	c.feedOn()
}

// invalidate removes what an unsafe method may have changed: the resource, and those that the response names, if they are of the same
// origin (RFC 9111 4.4).
func (x caching) invalidate(r *cache.Response) {
	if r.Status < 200 || r.Status >= 400 {
		return
	}
	c := x.cached
	target := string(c.text[:c.url])
	c.use.Store.Invalidate(target)
	base, err := url.Parse(target)
	if err != nil {
		return
	}
	const scheme = len("https://") // as long as http:// and a letter of the host
	origin := target[:scheme+strings.IndexByte(target[scheme:], '/')+1]
	for i := range r.Fields {
		f := &r.Fields[i]
		if f.Name != "location" && f.Name != "content-location" {
			continue
		}
		ref, err := url.Parse(f.Value)
		if err != nil {
			continue
		}
		if other, ok := CacheURL(base.ResolveReference(ref)); ok && strings.HasPrefix(other, origin) {
			c.use.Store.Invalidate(other)
		}
	}
}

// CacheURL returns a URL in the form in which a CacheStore has it: as the key of a request for it.
func CacheURL(u *url.URL) (string, bool) {
	name := semantics.Host(u.Host)
	host, ok := semantics.NormalizeHost(name)
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	normal, _, err := semantics.NormalizePath(nil, path)
	if !ok || host == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", false
	}
	b := appendOrigin(nil, u.Scheme == "https", host, u.Host[len(name):])
	b = append(b, normal...)
	if u.RawQuery != "" || u.ForceQuery {
		b = append(append(b, '?'), u.RawQuery...)
	}
	return string(b), true
}

// appendOrigin appends scheme, host and port of a key. The port begins with its colon, and that of the scheme is left out.
func appendOrigin(b []byte, secure bool, host, port string) []byte {
	b, usual := append(b, "http"...), ":80"
	if secure {
		b, usual = append(b, 's'), ":443"
	}
	b = append(append(b, "://"...), host...)
	if port != usual && port != ":" {
		b = append(b, port...)
	}
	return b
}
