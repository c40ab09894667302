package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// This file has the requests that may have content: a stream of HTTP/2 or HTTP/3 may end by an empty frame behind HEADERS, or by FIN in a
// later packet (RFC 9114 4.1), and chunks may be none. Until the end comes such a request can be told from one with content by nothing.

// endWait is how long a request without announced content waits for its end, before it passes the cache as one with content does. It covers
// a FIN that is lost once: the client sends it again after a probe timeout, about three round trips (RFC 9002 6.2.1).
const endWait = 500 * time.Millisecond

// mayEnd reports whether the request may turn out to have no content, so that a cache may serve it. One that announces content, or whose
// client waits to be asked for it, has some.
func (x caching) mayEnd() bool {
	m := x.request
	return x.up.message == flowing && x.up.bytes == 0 && m.ContentLength <= 0 && m.Protocol == "" && !x.expects &&
		(m.Method == "GET" || m.Method == "HEAD")
}

// awaitEnd holds the request until it ends, has content, or has waited for endWait. What comes meanwhile is held by its relay.
func (x caching) awaitEnd() {
	x.cached.waitsEnd = true
	guarding{x.exchange}.holding()
	guarding{x.exchange}.holdUntil(endWait, func(x guarding) { caching{x.exchange}.ended() })
}

// ended goes on with a request that has waited for its end, whatever has come.
func (x caching) ended() {
	x.cached.waitsEnd = false
	x.hold.until, x.hold.late = clock.Never, nil
	x.on(admitted)
	x.choose()
}
