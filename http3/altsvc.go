package http3

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AltSvcTransport is an http.RoundTripper that uses HTTP/3 for servers which have said, by the header Alt-Svc
// of an earlier response, that they speak it (RFC 7838).
type AltSvcTransport struct {
	// HTTP3 is the transport of such servers.
	HTTP3 *Transport
	// Fallback is used for all others, and while HTTP/3 fails; nil is http.DefaultTransport.
	Fallback http.RoundTripper
	// Broken is the time that an alternative that failed is not used; 0 is DefaultBroken.
	Broken time.Duration

	mu     sync.Mutex
	origin map[string]alternative // by host and port
}

const (
	// DefaultBroken is the default of AltSvcTransport.Broken.
	DefaultBroken = 5 * time.Minute
	// maxAlternatives bounds the servers that are remembered.
	maxAlternatives = 1024
	defaultMaxAge   = 24 * time.Hour // RFC 7838 3.1
)

// alternative is where an origin serves HTTP/3.
type alternative struct {
	addr    string
	expires time.Time
	broken  time.Time // not to be used until then
}

// RoundTrip sends a request the way that its server prefers.
func (t *AltSvcTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	fallback := t.Fallback
	if fallback == nil {
		fallback = http.DefaultTransport
	}
	if req.URL == nil || req.URL.Scheme != "https" {
		return fallback.RoundTrip(req)
	}
	origin := hostPort(req)
	if addr, found := t.lookup(origin); found {
		used := req.Clone(req.Context())
		if addr != origin {
			used.Header.Set("Alt-Used", addr) // RFC 7838 5
		}
		resp, err := t.HTTP3.roundTrip(used, addr)
		if err == nil {
			t.learn(origin, resp.Header.Values("Alt-Svc"))
			return resp, nil
		}
		var se *StreamError
		if req.Context().Err() != nil || errors.As(err, &se) {
			return nil, err // the server works, the request failed
		}
		t.fail(origin)
		if req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				return nil, err
			}
			if used.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
			req = used
			req.Header.Del("Alt-Used")
		}
	}
	resp, err := fallback.RoundTrip(req)
	if err == nil {
		t.learn(origin, resp.Header.Values("Alt-Svc"))
	}
	return resp, err
}

func (t *AltSvcTransport) lookup(origin string) (addr string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, found := t.origin[origin]
	now := time.Now()
	if found && now.After(a.expires) {
		delete(t.origin, origin)
		return "", false
	}
	return a.addr, found && now.After(a.broken)
}

func (t *AltSvcTransport) fail(origin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	broken := t.Broken
	if broken == 0 {
		broken = DefaultBroken
	}
	if a, found := t.origin[origin]; found {
		a.broken = time.Now().Add(broken)
		t.origin[origin] = a
	}
}

// learn takes what a response of the origin says. No header changes nothing (RFC 7838 3).
func (t *AltSvcTransport) learn(origin string, values []string) {
	if len(values) == 0 {
		return
	}
	host, _, err := net.SplitHostPort(origin)
	if err != nil {
		return
	}
	addr, age, found := parseAltSvc(strings.Join(values, ","), host)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !found {
		delete(t.origin, origin) // clear, or other protocols only
		return
	}
	if t.origin == nil {
		t.origin = map[string]alternative{}
	}
	a := t.origin[origin]
	if a.addr != addr {
		a.broken = time.Time{}
	}
	a.addr, a.expires = addr, time.Now().Add(age)
	t.origin[origin] = a
	for other := range t.origin {
		if len(t.origin) <= maxAlternatives {
			break
		}
		if other != origin {
			delete(t.origin, other)
		}
	}
}

// parseAltSvc returns the first alternative for HTTP/3 in the value of Alt-Svc (RFC 7838 3). host is the
// origin's, which an alternative without a host means.
func parseAltSvc(value, host string) (addr string, age time.Duration, found bool) {
	for rest := strings.Trim(value, " \t"); rest != "" && rest != ","; {
		var member string
		member, rest = cutMember(rest)
		parts := strings.Split(member, ";")
		protocol, authority, ok := strings.Cut(strings.TrimSpace(parts[0]), "=")
		authority = strings.Trim(authority, `"`)
		altHost, port, err := net.SplitHostPort(authority)
		if !ok || protocol != NextProto || err != nil {
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			continue
		}
		if altHost == "" {
			altHost = host
		}
		age = defaultMaxAge
		for _, p := range parts[1:] {
			name, v, _ := strings.Cut(strings.TrimSpace(p), "=")
			if seconds, err := strconv.ParseUint(strings.Trim(v, `"`), 10, 31); name == "ma" && err == nil {
				age = time.Duration(seconds) * time.Second
			}
		}
		return net.JoinHostPort(altHost, port), age, true
	}
	return "", 0, false
}
