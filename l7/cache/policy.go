package cache

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Policy holds the settings by which a rule of the gateway uses a cache. The zero Policy is RFC 9111 for a shared cache, without heuristics.
type Policy struct {
	// DefaultTTL is the time for which responses are fresh that do not say for how long; 0 does not store them. It is for the statuses
	// of heuristics alone, so that no error is kept that the backend has not asked to be.
	DefaultTTL time.Duration
	// Heuristic is the part of the time since its last modification, in percent, for which such a response is fresh (RFC 9111 4.2.2).
	Heuristic int
	// StaleWhileRevalidate and StaleIfError are those of responses that do not have them (RFC 5861).
	StaleWhileRevalidate, StaleIfError time.Duration
	// IgnoreClient serves requests whose Cache-Control asks for less than the cache has as all others.
	IgnoreClient bool
	// MaxObject bounds the content of a response.
	MaxObject int64
	// Changed are the names of fields of requests that the gateway sets: responses that vary by one are not stored, as it has another
	// value at the backend than at the cache.
	Changed []string
}

// Request holds the parts of a request that decide whether its response is stored.
type Request struct {
	Key        Key
	Fields     []semantics.Field // as the client sent them
	Outgoing   []semantics.Field // as the backend got them
	Authorized bool              // it has credentials elsewhere than in Authorization
	NoStore    bool              // the client asks for that
}

func (q *Request) authorized() bool {
	return q.Authorized || slices.ContainsFunc(q.Fields, func(f semantics.Field) bool { return f.Name == "authorization" })
}

// Response is a response whose header has arrived.
type Response struct {
	Status  int
	Fields  []semantics.Field
	Length  int64     // of the content; -1 where it is not known
	Asked   time.Time // when the request left
	Arrived time.Time
}

// Reason classifies responses that are not stored.
type Reason uint8

// Values of Reason.
const (
	Storable      Reason = iota
	ByStatus             // one that no cache stores, or parts of the content
	ByDirective          // no-store, private
	ByCredentials        // the request had some, and the response does not permit it (RFC 9111 3.5)
	ByCookie             // it sets a cookie
	ByVary               // no other request would get it
	NoFreshness          // it does not say for how long, and cannot be validated
	ByLength             // it is too long
)

// String returns a name for logs.
func (r Reason) String() string {
	return [...]string{"storable", "status", "directive", "credentials", "set-cookie", "vary", "freshness", "length"}[r]
}

// dropped are fields that are not stored: those of one connection (RFC 9111 3.1), and those that are made anew for each response.
var dropped = []string{
	"age", "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "proxy-connection",
	"te", "trailer", "transfer-encoding", "upgrade",
}

// New returns the entry for a response, to which its content is still missing, or why it must not be stored (RFC 9111 3).
func (p *Policy) New(q *Request, r *Response) (*Entry, Reason) {
	c := ControlOf(r.Fields)
	if why := p.permits(q, r, &c); why != Storable {
		return nil, why
	}
	names, ok := parseVary(r.Fields)
	if !ok || slices.ContainsFunc(names, func(name string) bool { return p.changes(q, name) }) {
		return nil, ByVary
	}
	e := &Entry{Key: q.Key.clone(), Status: r.Status, vary: varying(names, q.Fields), Fields: stored(r.Fields, c.Listed)}
	if slices.ContainsFunc(e.Fields, func(f semantics.Field) bool { return f.Name == "set-cookie" || f.Name == "set-cookie2" }) {
		return nil, ByCookie
	}
	e.date(r)
	e.describe(p, &c)
	if e.lifetime <= 0 && !e.Validates() && max(e.staleRevalidate, e.staleError) <= 0 || !e.explicit {
		return nil, NoFreshness
	}
	return e, Storable
}

// permits reports whether status, directives and credentials permit to store a response.
func (p *Policy) permits(q *Request, r *Response, c *Control) Reason {
	understood := c.Has(MustUnderstand) && understands(r.Status)
	switch {
	case r.Status < 200, r.Status == 206, r.Status == 304, r.Status == 416, c.Has(MustUnderstand) && !understood:
		return ByStatus
	case c.Has(NoStore) && !understood, c.Has(Private), q.NoStore && !p.IgnoreClient:
		return ByDirective
	case q.authorized() && !c.Has(Public|MustRevalidate) && c.SMaxAge == unset:
		return ByCredentials
	case r.Length > p.MaxObject:
		return ByLength
	}
	return Storable
}

// changes reports whether the backend gets another value of a field than the client has sent: of those that the gateway sets by its
// configuration, and of those that every gateway sets.
func (p *Policy) changes(q *Request, name string) bool {
	return strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "via" || slices.Contains(p.Changed, name) ||
		selecting(q.Fields, name) != selecting(q.Outgoing, name)
}

// understands reports whether this cache knows what the caching rules of a status are: those of RFC 9110 15 that are stored whole.
func understands(status int) bool {
	switch status {
	case 200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 451, 500, 501, 502, 503, 504:
		return true
	}
	return false
}

// heuristic reports whether a response of a status is stored though it does not say for how long. RFC 9110 15.1 permits it of errors as
// well: these are kept only where the backend asks for it, since one that passes would last.
func heuristic(status int) bool {
	switch status {
	case 200, 203, 204, 300, 301, 308:
		return true
	}
	return false
}

// stored returns the fields of a response that are stored, in memory of their own.
func stored(fields []semantics.Field, listed []string) []semantics.Field {
	kept := make([]semantics.Field, 0, len(fields)+1)
	size := 0
	for i := range fields {
		if f := &fields[i]; !slices.Contains(dropped, f.Name) && !slices.Contains(listed, f.Name) {
			kept = append(kept, *f)
			size += len(f.Name) + len(f.Value)
		}
	}
	var text strings.Builder // one piece of memory for all
	text.Grow(size)
	for i := range kept {
		text.WriteString(kept[i].Name)
		text.WriteString(kept[i].Value)
	}
	all := text.String()
	for i := range kept {
		n, v := len(kept[i].Name), len(kept[i].Value)
		kept[i] = semantics.Field{Name: all[:n], Value: all[n : n+v]}
		all = all[n+v:]
	}
	return kept
}

// field returns the first line of a field.
func field(fields []semantics.Field, name string) (value string, ok bool) {
	for i := range fields {
		if fields[i].Name == name {
			return fields[i].Value, true
		}
	}
	return "", false
}

// ageOf returns the age that a response had when it arrived (RFC 9111 4.2.3). Of several values of Age the first counts; what is no
// number is ignored (RFC 9111 5.1).
func ageOf(r *Response, date time.Time) time.Duration {
	value, _ := field(r.Fields, "age")
	value, _, _ = strings.Cut(value, ",")
	age, _ := seconds(strings.Trim(value, " \t"))
	return max(r.Arrived.Sub(date), age+r.Arrived.Sub(r.Asked), 0)
}

// lifetime returns for how long a response is fresh (RFC 9111 4.2.1), and whether it says so by itself or the policy does.
func (p *Policy) lifetime(e *Entry, c *Control) (t time.Duration, explicit bool) {
	if c.SMaxAge != unset {
		return c.SMaxAge, true
	}
	if c.MaxAge != unset {
		return c.MaxAge, true
	}
	if expires, ok := field(e.Fields, "expires"); ok && !c.Targeted { // what is no date is a time in the past (RFC 9111 5.3)
		t, ok := semantics.ParseDate(expires)
		if !ok {
			return 0, true
		}
		return min(t.Sub(e.generated), maxSeconds*time.Second), true
	}
	if heuristic(e.Status) {
		if at := e.modified; p.Heuristic > 0 && !at.IsZero() && at.Before(e.generated) {
			return min(e.generated.Sub(at)/100*time.Duration(p.Heuristic), maxHeuristic), true
		}
		if p.DefaultTTL > 0 {
			return p.DefaultTTL, true
		}
	}
	return 0, c.Has(NoCache | Public | MustRevalidate | ProxyRevalidate)
}

// maxHeuristic bounds a heuristic time: RFC 9111 4.2.2 has warned of more than a day for long.
const maxHeuristic = 24 * time.Hour

// appendAge appends the value of the field Age.
func appendAge(dst []byte, age time.Duration) []byte {
	return strconv.AppendInt(dst, min(int64(age/time.Second), maxSeconds), 10)
}
