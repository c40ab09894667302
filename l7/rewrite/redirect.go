package rewrite

import (
	"strconv"

	"github.com/millrace/millrace/semantics"
)

// Redirect describes the answer of a RequestRedirect.
type Redirect struct {
	Scheme   string // "http" or "https"; "" is that of the request
	Hostname string // "" is that of the request
	Path     PathModifier
	Regex    *Regex // in place of Path; nil: none
	Port     uint16 // 0 is that of Scheme, or without Scheme that of the listener
	Status   int    // 301, 302, 303, 307 or 308; 0 is 302
	// Location is the URL as a whole, in place of all of these but Status; nil is none.
	Location *Template
}

// Target is where a request was sent to.
type Target struct {
	TLS       bool
	Port      uint16 // of the listener, which is not always what the client calls it
	Authority string
	Path      string
	Query     string // begins with the question mark, or is empty
}

// Code returns the status of the response.
func (r *Redirect) Code() int {
	if r.Status == 0 {
		return 302
	}
	return r.Status
}

// AppendLocation appends the URL that the client is sent to (RFC 9110 10.2.2). A port that is the scheme's own is left out. For
// a request without a host (HTTP/1.0), and without Hostname, it is a path.
func (r *Redirect) AppendLocation(dst []byte, t *Target) []byte {
	host := r.Hostname
	if host == "" {
		host = semantics.Host(t.Authority)
	}
	if host != "" {
		dst = r.appendOrigin(dst, host, t)
	}
	start := len(dst)
	if dst = r.appendPath(dst, t); host == "" {
		return semantics.AppendReference(dst[:start], string(dst[start:]))
	}
	return dst
}

// appendPath appends the path and the query.
func (r *Redirect) appendPath(dst []byte, t *Target) []byte {
	start := len(dst)
	if r.Regex != nil {
		if made, matched, ok := r.Regex.Apply(dst, t.Path, t.Query); matched && ok {
			return made
		}
	}
	path, dst := r.Path.Apply(dst, t.Path)
	switch {
	case t.Path == "*": // OPTIONS of the server as a whole has no path
		path = "/"
	case len(dst) > start: // it is there already
		path = ""
	}
	return append(append(dst, path...), t.Query...)
}

// appendOrigin appends scheme, host and port.
func (r *Redirect) appendOrigin(dst []byte, host string, t *Target) []byte {
	scheme, port := r.Scheme, r.Port
	if scheme == "" {
		scheme = schemeOf(t.TLS)
		if port == 0 {
			port = t.Port
		}
	}
	dst = append(append(append(dst, scheme...), "://"...), host...)
	if port == 0 || scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		return dst
	}
	return strconv.AppendUint(append(dst, ':'), uint64(port), 10)
}

func schemeOf(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}
