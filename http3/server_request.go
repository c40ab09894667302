package http3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/quic"
)

// sender is the sending side of a stream: *quic.Stream of a request, *quic.SendStream of a push.
type sender interface {
	ID() quic.StreamID
	Write(b []byte) (int, error)
	Close() error
	CancelWrite(code uint64)
	SetPriority(urgency uint8, incremental bool)
	SetReliableBoundary()
	SetWriteDeadline(t time.Time) error
	Context() context.Context
}

// serverRequest is a request and its response.
type serverRequest struct {
	c    *serverConn
	out  sender
	r    *reader // nil of a push
	body requestBody
	w    response
	ctx  requestContext
}

// serve reads a request and calls the handler.
func (c *serverConn) serve(qs *quic.Stream) {
	r, err := c.newReader(qs, uint64(qs.ID()))
	if err != nil {
		_ = c.closed(err)
		return
	}
	ev, err := r.next()
	switch {
	case err != nil:
		// A client that has reset its side only still waits for ours.
		qs.CancelWrite(uint64(RequestCancelled))
		r.release()
		return
	case ev.Kind == WebTransport:
		c.incoming(r, qs, qs, ev.ID)
		return
	}
	x := &serverRequest{c: c, out: qs, r: r}
	x.w.x = x
	x.ctx = requestContext{Context: c.base, out: qs}
	if ev.Kind == TooLarge {
		qs.CancelRead(uint64(ExcessiveLoad))
		x.reply(http.StatusRequestHeaderFieldsTooLarge)
		r.release()
		return
	}
	x.run()
}

// run serves a request whose header is in the stream.
func (x *serverRequest) run() {
	c := x.c
	req := x.request()
	c.mu.Lock()
	c.active[x.r.s.id] = x
	p, found := c.priorities[x.r.s.id]
	delete(c.priorities, x.r.s.id)
	c.mu.Unlock()
	if !found {
		if v := req.Header["Priority"]; len(v) > 0 {
			p, found = ParsePriority(strings.Join(v, ","))
		}
	}
	if found {
		x.out.SetPriority(p.Urgency, p.Incremental)
	}
	x.w.req = req
	id := x.r.s.id
	switch {
	case x.tooEarly(req):
		x.reply(http.StatusTooEarly)
	case !x.c.server.serves(req):
		x.reply(http.StatusMisdirectedRequest)
	default:
		x.call(req)
	}
	c.mu.Lock()
	delete(c.active, id)
	c.mu.Unlock()
	x.finish()
}

// tooEarly reports whether a request came as early data and must not be served so (RFC 8470 5.2).
func (x *serverRequest) tooEarly(req *http.Request) bool {
	if req.TLS != nil {
		return false
	}
	state := x.c.q.State().TLS
	req.TLS = &state
	if state.HandshakeComplete {
		x.c.tls.Store(&state)
		return false
	}
	select {
	case <-x.c.q.HandshakeComplete():
		state = x.c.q.State().TLS
		return false
	default:
	}
	if x.c.server.EarlyData != nil {
		return !x.c.server.EarlyData(req)
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// serves reports whether the server answers for the authority of a request. That of a CONNECT is its target.
func (s *Server) serves(req *http.Request) bool {
	if s.Serves == nil || req.Method == http.MethodConnect && len(req.Header[":protocol"]) == 0 {
		return true
	}
	u := url.URL{Host: req.Host}
	return s.Serves(strings.ToLower(u.Hostname()))
}

// call runs the handler. After a panic the stream is reset, as net/http does it.
func (x *serverRequest) call(req *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			x.r.abort(InternalError)
			x.w.failed = errAborted
			if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares it
				x.c.server.panicked(req, v, debug.Stack())
			}
		}
	}()
	x.c.server.handler().ServeHTTP(&x.w, req)
}

var errAborted = errors.New("http3: the handler aborted the response")

// reply sends a response without content.
func (x *serverRequest) reply(status int) {
	x.w.req = &http.Request{Method: http.MethodGet}
	x.w.WriteHeader(status)
	x.w.finish()
}

// finish ends the response, and the reading of what the handler has left of the request.
func (x *serverRequest) finish() {
	x.w.finish()
	if x.r != nil {
		x.body.stop(x.r)
		x.r.release()
	}
	if x.w.failed == nil {
		x.c.mu.Lock()
		x.c.m.Completed()
		x.c.mu.Unlock()
	}
	x.w.release()
}

// request builds the request of net/http. The strings of the section become its own.
func (x *serverRequest) request() *http.Request {
	s := x.r.s
	m := &s.Message
	req := &http.Request{
		Method: m.Method, Proto: "HTTP/3.0", ProtoMajor: 3, Host: m.Authority, RequestURI: m.Path,
		RemoteAddr: x.c.remote, ContentLength: m.ContentLength, TLS: x.c.tls.Load(),
	}
	req.Header = headerOf(m.Fields, "host")
	switch {
	case m.Protocol != "":
		// As net/http has it in HTTP/2.
		req.Header[":protocol"] = []string{m.Protocol}
		fallthrough
	case m.Method != http.MethodConnect:
		req.URL = parsePath(m.Path)
	default:
		req.URL, req.RequestURI = &url.URL{Host: m.Authority}, m.Authority
	}
	s.Section.Detach()
	x.trailers(req)
	req.Body = http.NoBody
	if !x.empty() {
		x.body = requestBody{x: x, expect: strings.EqualFold(req.Header.Get("Expect"), "100-continue")}
		req.Body = &x.body
		x.body.req = req
	} else if req.ContentLength < 0 {
		req.ContentLength = 0
	}
	return req.WithContext(&x.ctx)
}

// empty reports whether the request ended with its header, as far as is known.
func (x *serverRequest) empty() bool {
	ev, err := x.r.tryEnd()
	return err == nil && ev.Kind == End
}

// trailers announces the trailers that the request names (RFC 9110 6.6.2).
func (x *serverRequest) trailers(req *http.Request) {
	for _, v := range req.Header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if req.Trailer == nil {
				req.Trailer = http.Header{}
			}
			req.Trailer[canonicalName(strings.ToLower(strings.TrimSpace(name)))] = nil
		}
	}
	delete(req.Header, "Trailer")
}

// parsePath parses the target of a request.
func parsePath(path string) *url.URL {
	if u, err := url.ParseRequestURI(path); err == nil {
		return u
	}
	return &url.URL{Path: path}
}

// requestBody is the content of a request.
type requestBody struct {
	x      *serverRequest
	req    *http.Request
	expect bool
	done   atomic.Bool
	mu     sync.Mutex
}

// Read reads content. Trailers are in Request.Trailer at its end.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.done.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expect {
		b.expect = false
		b.x.w.sendContinue()
	}
	n, err := b.x.r.read(p, b.event)
	return n, err
}

func (b *requestBody) event(ev Event) {
	if ev.Kind == Trailers {
		b.req.Trailer = mergeTrailers(b.req.Trailer, headerOf(b.x.r.s.Section.Fields, ""))
		b.x.r.s.Section.Detach()
	}
}

func mergeTrailers(to, from http.Header) http.Header {
	if to == nil {
		return from
	}
	for k, v := range from {
		to[k] = v
	}
	return to
}

// stop ends the reading, before the stream is released. A Read that another goroutine of the handler has
// left behind returns.
func (b *requestBody) stop(r *reader) {
	b.done.Store(true)
	if !b.mu.TryLock() {
		r.q.CancelRead(uint64(NoError))
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	if r.err == io.EOF { //nolint:errorlint // set by reader
		return
	}
	if ev, err := r.tryEnd(); err != nil || ev.Kind != End {
		r.q.CancelRead(uint64(NoError)) // RFC 9114 4.1: the response does not depend on the rest
	}
}

// Close ends the reading.
func (b *requestBody) Close() error {
	if !b.done.Swap(true) {
		b.x.r.q.CancelRead(uint64(NoError))
	}
	return nil
}

// requestContext is the context of a request. It ends with the response, or when the client gives up. Most
// handlers never wait for it: then it costs nothing.
type requestContext struct {
	context.Context // of the connection
	out             sender
}

// Done returns the channel of the stream's context.
func (c *requestContext) Done() <-chan struct{} { return c.out.Context().Done() }

// Err returns context.Canceled after the end.
func (c *requestContext) Err() error { return c.out.Context().Err() }

// panicked reports the panic of a handler, whose stream was reset.
func (s *Server) panicked(r *http.Request, v any, stack []byte) {
	if s.Panicked != nil {
		s.Panicked(r, v)
		return
	}
	_, _ = fmt.Fprintf(os.Stderr, "http3: panic serving %s: %v\n%s", r.RemoteAddr, v, stack)
}

func (x *serverRequest) setReadDeadline(t time.Time) error {
	if x.r == nil || x.r.both == nil {
		return http.ErrNotSupported
	}
	return x.r.both.SetReadDeadline(t)
}
