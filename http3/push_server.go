package http3

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/millrace/millrace/http3/qpack"
)

// Push promises the response to a GET or HEAD of a path on the same server, and serves it from the handler
// (http.Pusher, RFC 9114 4.6). It returns ErrPush unless the client permits it, and browsers do not.
func (w *response) Push(path string, o *http.PushOptions) error {
	x := w.x
	if x.r == nil {
		return errors.New("http3: a push of a push")
	}
	req, err := x.pushed(path, o)
	if err != nil {
		return err
	}
	fields := []qpack.Field{
		{Name: ":method", Value: req.Method},
		{Name: ":authority", Value: req.Host},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: req.RequestURI},
	}
	fields = appendHeader(fields, req.Header, false, func(name string) bool { return name == "Host" })
	w.mu.Lock()
	if w.finished {
		w.mu.Unlock()
		return errReleased
	}
	b := getBuffer()
	x.c.mu.Lock()
	var id uint64
	*b, id, err = x.c.m.AppendPush(*b, uint64(x.out.ID()), fields)
	x.c.flushLocked()
	x.c.mu.Unlock()
	w.write(*b)
	putBuffer(b)
	failed := w.failed
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	x.c.handlers.Add(1)
	go x.c.servePush(id, req)
	return nil
}

// pushed builds the request of a push.
func (x *serverRequest) pushed(path string, o *http.PushOptions) (*http.Request, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil || u.Host != "" && u.Host != x.w.req.Host {
		return nil, errors.New("http3: the push is not for a path of this server")
	}
	req := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}, Proto: "HTTP/3.0", ProtoMajor: 3,
		Header: http.Header{}, Host: x.w.req.Host, RemoteAddr: x.c.remote, TLS: x.c.tls.Load(), Body: http.NoBody,
	}
	if o != nil {
		if o.Method != "" {
			req.Method = o.Method
		}
		if o.Header != nil {
			req.Header = o.Header.Clone()
		}
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, errors.New("http3: a push of a method other than GET and HEAD")
	}
	req.RequestURI = req.URL.RequestURI()
	return req, nil
}

// servePush sends the response of a push on a stream of its own.
func (c *serverConn) servePush(id uint64, req *http.Request) {
	defer c.ended()
	qs, err := c.q.OpenUniStream(c.ctx)
	if err != nil {
		return
	}
	if _, err := qs.Write(AppendPushStream(nil, id)); err != nil {
		return
	}
	x := &serverRequest{c: c, out: qs}
	x.w.x = x
	x.ctx = requestContext{Context: c.base, out: qs}
	req = req.WithContext(&x.ctx)
	x.w.req = req
	c.mu.Lock()
	if c.pushes == nil {
		c.pushes = map[uint64]*serverRequest{}
	}
	c.pushes[id] = x
	c.mu.Unlock()
	x.call(req)
	c.mu.Lock()
	delete(c.pushes, id)
	c.mu.Unlock()
	x.w.finish()
	x.w.release()
}
