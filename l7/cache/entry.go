package cache

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Key names a resource in a cache. All requests with one URL are invalidated together; what the gateway makes of a request apart from it
// is in Variant: the rule, the target that the backend gets, fields and cookies that the configuration adds.
type Key struct{ URL, Variant string }

// clone returns the key in memory of its own.
func (k Key) clone() Key {
	both := k.URL + k.Variant
	return Key{both[:len(k.URL)], both[len(k.URL):]}
}

// Entry is a stored response. It is not changed once it is in a Cache.
type Entry struct {
	Key
	Status int
	Fields []semantics.Field // without those of a connection, Age and Content-Length
	Body   []byte

	vary      []semantics.Field // with the values of the request
	tag       string            // "" is none
	modified  time.Time         // the zero time is none
	generated time.Time         // Date
	arrived   time.Time
	initial   time.Duration // age when it arrived
	lifetime  time.Duration

	staleRevalidate, staleError time.Duration
	stale                       staleness
	explicit                    bool // it, or the policy, says for how long it is fresh
	always                      bool // it is validated before each use (no-cache)

	refreshing atomic.Bool // in the background
	hits       atomic.Uint32
	place      place   // in the queues of a Cache
	disk       *onDisk // where the content is, if it is in a file and not in Body
}

// staleness selects who permits the use of a stale response without validation.
type staleness uint8

const (
	byAnyone   staleness = iota // as the policy and clients like
	byResponse                  // as the response says alone: with s-maxage (RFC 9111 5.2.2.10)
	never                       // must-revalidate, proxy-revalidate, no-cache
)

// overhead is the memory of an entry beside its content and text.
const overhead = 640

// Length returns the bytes of the content.
func (e *Entry) Length() int64 {
	if e.disk != nil {
		return e.disk.length
	}
	return int64(len(e.Body))
}

// OnDisk reports whether the content is in a file.
func (e *Entry) OnDisk() bool { return e.disk != nil }

// Size returns the bytes that an entry takes: of memory, or of the disk where its content is there.
func (e *Entry) Size() int64 {
	if e.disk != nil {
		return e.disk.bytes
	}
	n := overhead + len(e.Key.URL) + len(e.Key.Variant) + cap(e.Body)
	for _, list := range [][]semantics.Field{e.Fields, e.vary} {
		for i := range list {
			n += len(list[i].Name) + len(list[i].Value) + 32
		}
	}
	return int64(n)
}

// Complete sets the content, all of which has arrived, and returns the entry. It takes content.
func (e *Entry) Complete(content []byte) *Entry {
	if cap(content)-len(content) > len(content)/8 {
		content = slices.Clip(append([]byte(nil), content...))
	}
	e.Body = content
	return e
}

// date sets the times of a response. One without a date gets that of its arrival (RFC 9110 6.6.1).
func (e *Entry) date(r *Response) {
	value, ok := field(e.Fields, "date")
	at, valid := semantics.ParseDate(value)
	if !valid {
		at = r.Arrived.Truncate(time.Second)
		if !ok {
			e.Fields = append(e.Fields, semantics.Field{Name: "date", Value: r.Arrived.UTC().Format(httpDate)})
		}
	}
	e.generated, e.arrived, e.initial = at, r.Arrived, ageOf(r, at)
}

// httpDate is the form of dates (RFC 9110 5.6.7).
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// describe sets what follows from the fields.
func (e *Entry) describe(p *Policy, c *Control) {
	e.tag, _ = field(e.Fields, "etag")
	value, _ := field(e.Fields, "last-modified")
	e.modified, _ = semantics.ParseDate(value)
	e.lifetime, e.explicit = p.lifetime(e, c)
	e.always = c.Has(NoCache)
	e.staleRevalidate, e.staleError = c.StaleWhileRevalidate, c.StaleIfError
	switch {
	case c.Has(NoCache | MustRevalidate | ProxyRevalidate):
		e.stale, e.staleRevalidate, e.staleError = never, 0, 0
		return
	case c.SMaxAge != unset:
		e.stale = byResponse
		return
	}
	if e.staleRevalidate == unset {
		e.staleRevalidate = p.StaleWhileRevalidate
	}
	if e.staleError == unset {
		e.staleError = p.StaleIfError
	}
}

// Validates reports whether a backend can say that the response is still valid: it has a tag or a date of modification.
func (e *Entry) Validates() bool { return e.tag != "" || !e.modified.IsZero() }

// Age returns the age of the response (RFC 9111 4.2.3).
func (e *Entry) Age(now time.Time) time.Duration { return e.initial + max(now.Sub(e.arrived), 0) }

// Left returns for how long the response is still fresh, below 0 where it is stale.
func (e *Entry) Left(now time.Time) time.Duration { return e.lifetime - e.Age(now) }

// Use selects the handling of an entry by a request.
type Use uint8

// Values of Use.
const (
	Fresh        Use = iota // it is the response
	Stale                   // the same, since the client takes it so
	StaleRefresh            // the same, and it is validated in the background
	Validate                // the backend is asked whether it is valid
)

// Use returns what a request with a Cache-Control does with the entry (RFC 9111 4.2.4, 5.2.1, RFC 5861 3).
func (e *Entry) Use(p *Policy, c *Control, now time.Time) Use {
	left := e.Left(now)
	if e.always {
		return Validate
	}
	if !p.IgnoreClient && (c.Has(NoCache) || c.MaxAge != unset && e.Age(now) > c.MaxAge || c.MinFresh != unset && left < c.MinFresh) {
		return Validate
	}
	switch {
	case left > 0:
		return Fresh
	case e.staleRevalidate > 0 && -left <= e.staleRevalidate:
		return StaleRefresh
	case e.stale == byAnyone && !p.IgnoreClient && (c.Has(AnyStale) || c.MaxStale != unset && -left <= c.MaxStale):
		return Stale
	}
	return Validate
}

// Shared reports whether requests that come now may use the response without asking the backend first.
func (e *Entry) Shared(now time.Time) bool {
	left := e.Left(now)
	return !e.always && (left > 0 || e.staleRevalidate > 0 && -left <= e.staleRevalidate)
}

// ServesErrors reports whether the response is used in place of an error (RFC 5861 4).
func (e *Entry) ServesErrors(now time.Time) bool {
	left := e.Left(now)
	return !e.always && (left > 0 || e.staleError > 0 && -left <= e.staleError)
}

// BeginRefresh reports whether the caller is the one who validates the entry in the background. EndRefresh ends that.
func (e *Entry) BeginRefresh() bool {
	return !e.refreshing.Load() && e.refreshing.CompareAndSwap(false, true)
}

// EndRefresh is called where the entry was not replaced.
func (e *Entry) EndRefresh() { e.refreshing.Store(false) }

// AppendConditions appends the fields by which a backend is asked whether the response is valid (RFC 9111 4.3.1).
func (e *Entry) AppendConditions(fields []semantics.Field) []semantics.Field {
	if e.tag != "" {
		fields = append(fields, semantics.Field{Name: "if-none-match", Value: e.tag})
	}
	if value, ok := field(e.Fields, "last-modified"); ok && !e.modified.IsZero() {
		fields = append(fields, semantics.Field{Name: "if-modified-since", Value: value})
	}
	return fields
}

// IsForOrigin reports whether a field is a condition that no cache evaluates (RFC 9111 4.3.2).
func IsForOrigin(f semantics.Field) bool {
	return f.Name == "if-match" || f.Name == "if-unmodified-since"
}

// IsConditional reports whether a field makes a request conditional, or one for a part.
func IsConditional(f semantics.Field) bool {
	switch f.Name {
	case "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range":
		return true
	}
	return false
}

// unchanged are the fields of a 304 that say nothing of the stored content, whose own stay (RFC 9111 3.2).
var unchanged = []string{"content-encoding", "content-length", "content-range", "set-cookie", "set-cookie2"}

// Freshen returns the entry with the fields of a response 304 (RFC 9111 4.3.4), and why it must not be stored from now on: the
// response is valid either way. ok is false where the 304 is for another version than the one that is stored.
func (e *Entry) Freshen(p *Policy, q *Request, r *Response) (fresh *Entry, why Reason, ok bool) {
	if tag, has := field(r.Fields, "etag"); has && e.tag != "" && strings.TrimPrefix(tag, "W/") != strings.TrimPrefix(e.tag, "W/") {
		return nil, Storable, false
	}
	next := make([]semantics.Field, 0, len(e.Fields)+len(r.Fields))
	for _, f := range e.Fields {
		if _, again := field(r.Fields, f.Name); f.Name != "date" && (!again || slices.Contains(unchanged, f.Name)) {
			next = append(next, f)
		}
	}
	setsCookie := false
	for _, f := range r.Fields {
		setsCookie = setsCookie || f.Name == "set-cookie"
		if !slices.Contains(unchanged, f.Name) && !slices.Contains(dropped, f.Name) {
			next = append(next, f)
		}
	}
	if age, has := field(r.Fields, "age"); has {
		next = append(next, semantics.Field{Name: "age", Value: age})
	}
	of := *r
	of.Status, of.Fields, of.Length = e.Status, next, e.Length()
	fresh, why = p.New(q, &of)
	if fresh == nil { // it is the answer to this request, and to no other
		fresh = &Entry{Key: e.Key, Status: e.Status, vary: e.vary, Fields: stored(next, nil)}
		fresh.date(&of)
		fresh.tag, fresh.modified = e.tag, e.modified
	} else if setsCookie {
		why = ByCookie
	}
	fresh.Body, fresh.disk = e.Body, e.disk
	return fresh, why, true
}

// Differs reports whether the response to a HEAD shows that the stored one is out of date (RFC 9111 4.3.5).
func (e *Entry) Differs(r *Response) bool {
	tag, hasTag := field(r.Fields, "etag")
	modified, hasModified := field(r.Fields, "last-modified")
	was, _ := field(e.Fields, "last-modified")
	return r.Status == 200 && (hasTag && tag != e.tag || hasModified && modified != was || r.Length >= 0 && r.Length != e.Length())
}
