package http3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrNotHTTP3 is returned for a request or a response writer that is not of this package.
var ErrNotHTTP3 = errors.New("http3: the request did not come over this package's HTTP/3")

// AcceptTunnel answers a CONNECT with 200 and the header of w, and returns its stream. It works until the
// handler returns.
func AcceptTunnel(w http.ResponseWriter, r *http.Request) (*Tunnel, error) {
	rw, ok := unwrap(w).(*response)
	if !ok || r.Method != http.MethodConnect || rw.x.r == nil {
		return nil, ErrNotHTTP3
	}
	x := rw.x
	t := x.c.newTunnel(uint64(x.out.ID()))
	w.WriteHeader(http.StatusOK)
	if err := rw.FlushError(); err != nil {
		t.gone(err)
		return nil, err
	}
	t.read = r.Body.Read
	t.write = func(p []byte) (int, error) {
		n, err := rw.Write(p)
		if err == nil {
			err = rw.FlushError()
		}
		return n, err
	}
	t.closeWrite, t.abort = x.out.Close, x.r.abort
	t.end = func(err error) { x.r.q.CancelRead(uint64(codeOf(err))) }
	rw.tunnel = t
	return t, nil
}

// unwrap undoes the wrappers that http.ResponseController knows.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

func codeOf(err error) ErrorCode {
	var se *StreamError
	if errors.As(err, &se) {
		return se.Code
	}
	return NoError
}

// DialTunnel sends a CONNECT, extended if the header has :protocol, and returns its stream when the server has
// accepted it. ctx bounds that, not the stream. Without a tunnel the response, if there is one, has the
// beginning of its content.
func (t *Transport) DialTunnel(ctx context.Context, req *http.Request) (*Tunnel, *http.Response, error) {
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	pr, pw := io.Pipe()
	req = req.Clone(lifetime)
	req.Method, req.Body, req.ContentLength, req.GetBody = http.MethodConnect, pr, -1, nil
	resp, err := t.RoundTrip(req)
	if !stop() && err == nil {
		_ = resp.Body.Close()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		_ = resp.Body.Close()
		cancel()
		resp.Body = io.NopCloser(bytes.NewReader(b))
		return nil, resp, fmt.Errorf("http3: the server answered CONNECT with %s", resp.Status)
	}
	body, ok := resp.Body.(*responseBody)
	if !ok { // it ended at once
		cancel()
		return nil, resp, io.ErrUnexpectedEOF
	}
	x := body.x
	tunnel := x.c.newTunnel(uint64(x.qs.ID()))
	tunnel.read, tunnel.write, tunnel.closeWrite, tunnel.abort = body.Read, pw.Write, pw.Close, x.r.abort
	tunnel.end = func(error) {
		_ = pw.Close()
		_ = body.Close()
		cancel()
	}
	return tunnel, resp, nil
}
