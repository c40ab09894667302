package cache

import (
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// Rule holds the settings by which a rule of the gateway uses a cache. Loops share it, and nothing changes it.
type Rule struct {
	Store  *Named
	Policy Policy
	// Name is that of the rule: others have responses of their own for the same URL.
	Name string
	// Headers and Cookies are the names of fields, in lower case, and of cookies of the request that are part of the key.
	Headers, Cookies []string
	// InMemory bounds the content of a response in memory. Longer ones, up to the Policy's bound, are on disk alone; 0 is
	// the Policy's.
	InMemory int64
	// Wait bounds the time for which a request waits for the response that another one fetches; 0 is not at all.
	Wait time.Duration
	// Foreground validates nothing in the background: connections to backends are those of a client.
	Foreground bool
}

// MemoryBound returns the most bytes of the content of a response in memory.
func (r *Rule) MemoryBound() int64 {
	if r.InMemory == 0 {
		return r.Policy.MaxObject
	}
	return r.InMemory
}

// Target holds the parts of a request that its key is made of.
type Target struct {
	// Secure reports whether the connection has TLS. The scheme that a client writes is believed by no backend.
	Secure    bool
	Authority string
	Path      string // in its normal form, which the rule has matched
	Query     string // with the question mark
	// Sent is the target that the backend gets, with the authority, where that can differ for the same URL.
	Sent   string
	Fields []semantics.Field
	// Trusted reports whether fields of a proxy about the client's own connection reach backends, which make URLs of them.
	Trusted bool
}

// AppendKey appends the key of a request, and returns how many bytes of it are the URL. The rest is the variant.
func (r *Rule) AppendKey(b []byte, t *Target) (key []byte, url int) {
	start := len(b)
	host := semantics.Host(t.Authority)
	normal, _ := semantics.NormalizeHost(host) // which the gateway has found valid
	b = appendOrigin(b, t.Secure, normal, t.Authority[len(host):])
	b = append(append(b, t.Path...), t.Query...)
	url = len(b) - start
	b = append(b, r.Name...)
	if t.Sent != "" {
		b = append(append(b, '\n'), t.Sent...)
	}
	for _, name := range r.Headers {
		b = appendValues(append(append(b, '\n'), name...), t.Fields, name)
	}
	for _, name := range r.Cookies {
		value, _ := rewrite.Cookie(t.Fields, name)
		b = append(append(append(append(b, '\n'), name...), '='), value...)
	}
	if t.Trusted {
		for _, name := range [...]string{"x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"} {
			b = appendValues(append(b, '\n'), t.Fields, name)
		}
		b = appendForwarded(append(b, '\n'), t.Fields)
	}
	return b, url
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

// URL returns a URL as the key of a request for it has it.
func URL(u *url.URL) (string, bool) {
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

// Changed removes what a request with an unsafe method may have changed: the resource, and those that the response names, if they are of
// the same origin (RFC 9111 4.4).
func (c *Named) Changed(target string, r *Response) {
	if r.Status < 200 || r.Status >= 400 {
		return
	}
	c.Invalidate(target)
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
		if other, ok := URL(base.ResolveReference(ref)); ok && strings.HasPrefix(other, origin) {
			c.Invalidate(other)
		}
	}
}

// Status is the outcome of a request at a cache.
type Status struct {
	Result Count
	Miss   Miss
	Stale  bool // with CountMiss: a response is stored, and was not used
	Stored bool // with CountMiss
	Method string
	// NoStore reports whether the client has asked for that.
	NoStore bool
}

// Append appends the value of Cache-Status (RFC 9211).
func (s *Status) Append(b []byte) []byte {
	b = append(b, "millrace; "...)
	switch s.Result {
	case CountHit, CountStale:
		return append(b, "hit"...)
	case CountRevalidated:
		return append(b, "fwd=stale; fwd-status=304"...)
	case CountCollapsed:
		return append(b, "fwd=uri-miss; collapsed"...)
	}
	why := "bypass"
	switch miss := s.Result == CountMiss; {
	case miss && s.Stale:
		why = "stale"
	case miss && s.Miss == VariantMiss:
		why = "vary-miss"
	case miss:
		why = "uri-miss"
	case s.Method != "GET" && s.Method != "HEAD":
		why = "method"
	case s.NoStore:
		why = "request"
	}
	if b = append(append(b, "fwd="...), why...); s.Stored {
		b = append(b, "; stored"...)
	}
	return b
}

// IsOutage reports whether a status is one in whose place a stale response is used (RFC 5861 4).
func IsOutage(status int) bool { return status == 500 || status >= 502 && status <= 504 }

// Outdates reports whether a status shows that a stored response is out of date. Other errors may be for one client alone.
func Outdates(status int) bool {
	return status >= 200 && status < 400 && status != 206 && status != 304 || status == 404 || status == 410
}
