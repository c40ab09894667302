package http3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/semantics"
)

// response is the http.ResponseWriter of a request. Header and content that fit one buffer are sent by one
// write.
type response struct {
	x      *serverRequest
	req    *http.Request
	header http.Header

	mu       sync.Mutex // a handler may read the request, which sends 100, beside writing
	status   int        // 0 until WriteHeader
	sent     bool       // the header was sent
	length   int64      // Content-Length of the handler, -1 for none
	written  int64      // content that the handler has written
	content  *[]byte    // that was not sent yet
	trailers []string   // that the handler announced
	failed   error
	finished bool
	tunnel   *Tunnel // of a CONNECT that was accepted
}

// Header returns the header, which can be changed until WriteHeader, and then its trailers.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader sets the status. One below 200, such as 103 Early Hints (RFC 8297), is sent at once.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("http3: invalid status %d", status))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status != 0 || w.finished {
		return
	}
	if status < 200 {
		if status != http.StatusSwitchingProtocols { // RFC 9114 4.5
			w.sendInterim(status)
		}
		return
	}
	w.setStatus(status)
}

// setStatus fixes the header. The content's length and the names of trailers are in it.
func (w *response) setStatus(status int) {
	w.status, w.length = status, -1
	h := w.Header()
	if v := h.Get("Content-Length"); v != "" {
		if n, valid := semantics.ParseLength(v); valid && !noBody(status) {
			w.length = n
		} else {
			h.Del("Content-Length")
		}
	}
	for _, v := range h["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			w.trailers = append(w.trailers, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
}

// sendContinue asks for the content, if the handler has not answered yet.
func (w *response) sendContinue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 && !w.finished {
		w.sendFields([]qpack.Field{{Name: ":status", Value: "100"}})
	}
}

// sendInterim sends an interim response with the header as it is.
func (w *response) sendInterim(status int) {
	fields := []qpack.Field{{Name: ":status", Value: statusText(status)}}
	w.sendFields(appendHeader(fields, w.Header(), false, func(name string) bool { return name == "Content-Length" }))
}

func (w *response) sendFields(fields []qpack.Field) {
	b := getBuffer()
	defer putBuffer(b)
	c := w.x.c
	c.mu.Lock()
	*b = c.m.AppendHeaders(*b, uint64(w.x.out.ID()), fields)
	c.flushLocked()
	c.mu.Unlock()
	w.write(*b)
}

// Write sends content, after the header.
func (w *response) Write(p []byte) (int, error) { return writeContent(w, p) }

// WriteString is Write.
func (w *response) WriteString(p string) (int, error) { return writeContent(w, p) }

func writeContent[T []byte | string](w *response, p T) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.finished:
		return 0, errReleased
	case w.status == 0:
		w.setStatus(http.StatusOK)
	}
	switch {
	case w.failed != nil:
		return 0, w.failed
	case noBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.req.Method == http.MethodHead {
		return len(p), nil
	}
	if w.content == nil {
		w.content = getBuffer()
	}
	if len(*w.content)+len(p) <= bufferSize-128 { // so that a header fits beside it
		*w.content = append(*w.content, p...)
		return len(p), nil
	}
	w.sendFrame([]byte(p), false)
	if w.failed != nil {
		return 0, w.failed
	}
	return len(p), nil
}

// sendFrame sends the header, if that was not done, and a DATA frame of what waits and p.
func (w *response) sendFrame(p []byte, last bool) {
	out := getBuffer()
	defer putBuffer(out)
	if !w.sent {
		w.appendHeader(out, p, last)
	}
	size := len(p)
	if w.content != nil {
		size += len(*w.content)
	}
	if size > 0 {
		*out = AppendDataHeader(*out, size)
	}
	if w.content != nil {
		*out = append(*out, *w.content...)
		*w.content = (*w.content)[:0]
	}
	if len(*out) > 0 {
		w.write(*out)
	}
	if len(p) > 0 {
		w.write(p)
	}
}

// fieldLists are scratch for headers.
var fieldLists = sync.Pool{New: func() any { return new([]qpack.Field) }}

// appendHeader appends the header of the response. p is content beside what waits, and last says that it is
// all.
func (w *response) appendHeader(out *[]byte, p []byte, last bool) {
	w.sent = true
	list := fieldLists.Get().(*[]qpack.Field)
	fields := append((*list)[:0], qpack.Field{Name: ":status", Value: statusText(w.status)})
	h := w.Header()
	fields = appendHeader(fields, h, false, func(name string) bool {
		return strings.HasPrefix(name, http.TrailerPrefix) || w.isTrailer(name)
	})
	if _, found := h["Date"]; !found {
		fields = append(fields, qpack.Field{Name: "date", Value: dateHeader()})
	}
	if !noBody(w.status) {
		fields = w.appendContentFields(fields, p, last)
	}
	c := w.x.c
	c.mu.Lock()
	*out = c.m.AppendHeaders(*out, uint64(w.x.out.ID()), fields)
	c.flushLocked()
	c.mu.Unlock()
	clear(fields)
	*list = fields
	fieldLists.Put(list)
}

// appendContentFields appends Content-Length, where all is known, and Content-Type, as net/http does.
func (w *response) appendContentFields(fields []qpack.Field, p []byte, last bool) []qpack.Field {
	content := p
	if w.content != nil && len(*w.content) > 0 {
		content = *w.content
	}
	if last && w.length < 0 && (w.written > 0 || w.req.Method != http.MethodHead) && w.req.Method != http.MethodConnect {
		fields = append(fields, qpack.Field{Name: "content-length", Value: strconv.FormatInt(w.written, 10)})
	}
	_, typed := w.header["Content-Type"]
	if _, coded := w.header["Content-Encoding"]; !typed && !coded && len(content) > 0 {
		fields = append(fields, qpack.Field{Name: "content-type", Value: http.DetectContentType(content)})
	}
	return fields
}

func (w *response) isTrailer(name string) bool {
	for _, t := range w.trailers {
		if t == name {
			return true
		}
	}
	return false
}

// write sends bytes. The first error stays.
func (w *response) write(p []byte) {
	if w.failed != nil {
		return
	}
	if _, err := w.x.out.Write(p); err != nil {
		err = converted(err)
		w.failed = err
		var se *StreamError
		if errors.As(err, &se) && se.Remote {
			w.cancelled()
		}
	}
}

// cancelled has the machine count that the client wants no response any more.
func (w *response) cancelled() {
	c := w.x.c
	c.mu.Lock()
	var err error
	if r := w.x.r; r != nil && r.s != nil {
		err = c.m.Cancelled(r.s, true)
	}
	c.mu.Unlock()
	_ = c.closed(err)
}

// Flush sends what waits.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.setStatus(http.StatusOK)
	}
	if !w.finished && (!w.sent || w.content != nil && len(*w.content) > 0) {
		w.sendFrame(nil, false)
	}
	return w.failed
}

// finish sends the rest of the response and ends it.
func (w *response) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	if w.tunnel != nil {
		w.tunnel.gone(errReleased)
	}
	if w.failed == nil && w.status == 0 {
		w.setStatus(http.StatusOK)
	}
	if w.failed == nil && w.length >= 0 && w.written != w.length && w.req.Method != http.MethodHead {
		// The client would find the message malformed. A reset says whose fault it is.
		w.failed = errAborted
		w.x.out.CancelWrite(uint64(InternalError))
	}
	if w.failed == nil {
		trailers := w.trailerFields()
		if !w.sent || w.content != nil && len(*w.content) > 0 {
			w.sendFrame(nil, len(trailers) == 0)
		}
		if len(trailers) > 0 {
			w.sendFields(trailers)
		}
	}
	if w.failed == nil {
		_ = w.x.out.Close()
	}
}

// trailerFields returns the trailers (RFC 9110 6.5): those that were announced, and those with
// http.TrailerPrefix.
func (w *response) trailerFields() []qpack.Field {
	var h http.Header
	for name, v := range w.header {
		after, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || w.isTrailer(name) {
			if h == nil {
				h = http.Header{}
			}
			h[http.CanonicalHeaderKey(after)] = v
		}
	}
	return appendHeader(nil, h, false, nil)
}

// release returns the buffer. The response is not used any more, or its user gets an error.
func (w *response) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.content != nil {
		putBuffer(w.content)
		w.content = nil
	}
}

// SetReadDeadline is for http.ResponseController.
func (w *response) SetReadDeadline(t time.Time) error { return w.x.setReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error { return w.x.out.SetWriteDeadline(t) }

// EnableFullDuplex is for http.ResponseController: HTTP/3 always is.
func (w *response) EnableFullDuplex() error { return nil }

// ReadFrom copies from r, without a second buffer.
func (w *response) ReadFrom(r io.Reader) (n int64, err error) {
	b := make([]byte, 32<<10)
	for {
		m, err := r.Read(b)
		if m > 0 {
			k, werr := w.Write(b[:m])
			n += int64(k)
			if werr != nil {
				return n, werr
			}
		}
		if err == io.EOF { //nolint:errorlint // io.Reader returns it as it is
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

var (
	_ http.Flusher    = (*response)(nil)
	_ http.Pusher     = (*response)(nil)
	_ io.StringWriter = (*response)(nil)
	_ io.ReaderFrom   = (*response)(nil)
)
