package http3

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/millrace/millrace/http3/qpack"
)

var errClosedBody = errors.New("http3: read on a closed response body")

// ErrPushCancelled is returned for a push that an end has cancelled.
var ErrPushCancelled = errors.New("http3: the push was cancelled")

// Push is a response that a server sends without a request (RFC 9114 4.6).
type Push struct {
	// Request is the one that the server has made up.
	Request *http.Request

	id       uint64
	c        *clientConn
	promised bool
	stream   chan *reader
	gone     chan struct{} // closed when it is cancelled
}

// get returns the push with an ID, whose promise and stream come in any order.
func (c *clientConn) get(id uint64) *Push {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pushes[id]
	if p == nil {
		if c.pushes == nil {
			c.pushes = map[uint64]*Push{}
		}
		p = &Push{id: id, c: c, stream: make(chan *reader, 1), gone: make(chan struct{})}
		c.pushes[id] = p
	}
	return p
}

// promised reports a push to the program. A second promise of it, with another request, is not reported.
func (c *clientConn) promised(id uint64, m *Message, s *qpack.Section) {
	p := c.get(id)
	if p.promised {
		return
	}
	p.promised = true
	p.Request = &http.Request{
		Method: m.Method, Host: m.Authority, URL: &url.URL{Scheme: m.Scheme, Host: m.Authority}, Proto: "HTTP/3.0", ProtoMajor: 3,
		Header: headerOf(m.Fields, "host"),
	}
	if u, err := url.ParseRequestURI(m.Path); err == nil {
		u.Scheme, u.Host = m.Scheme, m.Authority
		p.Request.URL = u
	}
	s.Detach()
	if c.t.Push == nil {
		p.Cancel()
		return
	}
	c.t.Push(p)
}

// pushStream takes the stream of a push.
func (c *clientConn) pushStream(r *reader, id uint64) {
	p := c.get(id)
	select {
	case p.stream <- r:
	default:
		_ = c.closed(connError(IDError, "two streams of one push")) // RFC 9114 4.6
	}
}

func (c *clientConn) pushCancelled(id uint64) {
	p := c.get(id)
	select {
	case <-p.gone:
	default:
		close(p.gone)
	}
}

// Cancel sends the server a CANCEL_PUSH frame.
func (p *Push) Cancel() {
	p.c.mu.Lock()
	p.c.m.CancelPush(p.id)
	p.c.flushLocked()
	p.c.mu.Unlock()
	select {
	case r := <-p.stream:
		r.abort(RequestCancelled)
		r.release()
	default:
	}
}

// Response waits for the header of the response. Its body is the caller's.
func (p *Push) Response(ctx context.Context) (*http.Response, error) {
	select {
	case r := <-p.stream:
		x := &clientRequest{c: p.c, req: p.Request.WithContext(ctx), r: r}
		p.c.active.Add(1)
		resp, err := x.response()
		if err != nil {
			x.end()
		}
		return resp, err
	case <-p.gone:
		return nil, ErrPushCancelled
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.c.ctx.Done():
		return nil, converted(context.Cause(p.c.ctx))
	}
}
