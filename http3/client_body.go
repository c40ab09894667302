package http3

import (
	"compress/gzip"
	"io"
	"sync"
)

// responseBody is the content of a response. Close may be called beside Read.
type responseBody struct {
	x   *clientRequest
	mu  sync.Mutex
	err error // of the end, once it was read
}

// Read reads content. Trailers are in Response.Trailer at its end.
func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.x.r.read(p, b.event)
	if err != nil && !isTimeout(err) {
		b.err = err
		if cause := b.x.req.Context().Err(); cause != nil && err != io.EOF { //nolint:errorlint // reader returns it as it is
			b.err = cause
		}
		b.x.end()
		return n, b.err
	}
	return n, err
}

func (b *responseBody) event(ev Event) {
	x := b.x
	switch ev.Kind {
	case Trailers:
		x.resp.Trailer = mergeTrailers(x.resp.Trailer, headerOf(x.r.s.Section.Fields, ""))
		x.r.s.Section.Detach()
	case PushPromise:
		x.c.promised(ev.ID, &x.r.s.Message, &x.r.s.Section)
	}
}

// Close ends the reading, and asks the server to send no more.
func (b *responseBody) Close() error {
	// A Read that waits returns after this.
	b.x.r.q.CancelRead(uint64(RequestCancelled))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = errClosedBody
		b.x.r.abort(RequestCancelled)
		b.x.c.mu.Lock()
		if b.x.r.s != nil {
			_ = b.x.c.m.Cancelled(b.x.r.s, false)
		}
		b.x.c.mu.Unlock()
		b.x.end()
	}
	return nil
}

// gzipBody decompresses a body that we have asked to be compressed.
type gzipBody struct {
	body io.ReadCloser
	z    *gzip.Reader
	err  error
}

func (b *gzipBody) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.z == nil {
		if b.z, b.err = gzip.NewReader(b.body); b.err != nil {
			return 0, b.err
		}
	}
	n, b.err = b.z.Read(p)
	return n, b.err
}

func (b *gzipBody) Close() error { return b.body.Close() }
