package http3

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// clientRequest is a request and its response.
type clientRequest struct {
	c    *clientConn
	req  *http.Request
	qs   *quic.Stream
	r    *reader
	stop func() bool // of the request's context
	gzip bool        // we have asked for it

	continued chan struct{} // closed by 100, nil without Expect
	once      sync.Once
	resp      *http.Response
}

// do sends the request and reads the header of the response.
func (x *clientRequest) do() (*http.Response, error) {
	if x.req.Method == http.MethodHead {
		x.r.s.ExpectNoContent()
	}
	if x.req.Method == http.MethodConnect {
		x.r.s.ExpectTunnel()
	}
	hasBody := x.req.Body != nil && x.req.Body != http.NoBody
	if hasBody && strings.EqualFold(x.req.Header.Get("Expect"), "100-continue") {
		x.continued = make(chan struct{})
	}
	// A server may have answered and want no more of the request: its response counts, and an error of
	// sending does not (RFC 9114 4.1). If the connection has failed, reading says so.
	if err := x.sendHeader(); err != nil {
		closeBody(x.req)
		return nil, err
	}
	if hasBody {
		go x.sendBody()
	} else {
		_ = x.qs.Close()
	}
	if trace := httptrace.ContextClientTrace(x.req.Context()); !hasBody && trace != nil && trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	return x.response()
}

// sendHeader sends the header, unless it exceeds what the server accepts.
func (x *clientRequest) sendHeader() error {
	list := fieldLists.Get().(*[]qpack.Field)
	fields := x.fields((*list)[:0])
	defer func() {
		clear(fields)
		*list = fields
		fieldLists.Put(list)
	}()
	b := getBuffer()
	defer putBuffer(b)
	c := x.c
	c.mu.Lock()
	if most := c.m.peer.MaxFieldSection; most > 0 && semantics.Size(fields) > most {
		c.mu.Unlock()
		return &StreamError{Code: RequestCancelled, Text: "the header exceeds what the server accepts"}
	}
	*b = c.m.AppendHeaders(*b, uint64(x.qs.ID()), fields)
	c.flushLocked()
	c.mu.Unlock()
	_, _ = x.qs.Write(*b)
	return nil
}

// fields appends the header of the request.
func (x *clientRequest) fields(fields []qpack.Field) []qpack.Field {
	req := x.req
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	fields = append(fields, qpack.Field{Name: ":method", Value: method}, qpack.Field{Name: ":authority", Value: authority(req)})
	protocol := req.Header[":protocol"]
	if method != http.MethodConnect || len(protocol) > 0 {
		fields = append(fields, qpack.Field{Name: ":scheme", Value: "https"}, qpack.Field{Name: ":path", Value: target(req)})
	}
	if len(protocol) > 0 {
		name := protocol[0]
		if len(protocol) > 1 { // sessionProtocols
			name = x.c.m.SessionProtocol()
		}
		fields = append(fields, qpack.Field{Name: ":protocol", Value: name})
	}
	fields = appendHeader(fields, req.Header, true, func(name string) bool {
		return name == "Host" || name == "Content-Length" || name == "Trailer" || name[:min(1, len(name))] == ":"
	})
	if _, found := req.Header["User-Agent"]; !found {
		fields = append(fields, qpack.Field{Name: "user-agent", Value: "millrace-http3"})
	}
	if n := contentLength(req); n > 0 || n == 0 && (method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch) {
		fields = append(fields, qpack.Field{Name: "content-length", Value: strconv.FormatInt(n, 10)})
	}
	for name := range req.Trailer {
		fields = append(fields, qpack.Field{Name: "trailer", Value: lowerName(name)})
	}
	if !x.c.t.DisableCompression && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == "" && method != http.MethodHead && method != http.MethodConnect {
		x.gzip = true
		fields = append(fields, qpack.Field{Name: "accept-encoding", Value: "gzip"})
	}
	return fields
}

// target returns :path.
func target(req *http.Request) string {
	p := req.URL.RequestURI()
	if req.URL.Opaque != "" || p == "" || p[0] != '/' && p != "*" {
		return "/" + strings.TrimLeft(p, "/")
	}
	return p
}

// contentLength returns the length of the body, -1 if it is not known.
func contentLength(req *http.Request) int64 {
	if req.Body == nil || req.Body == http.NoBody {
		return 0
	}
	if req.ContentLength > 0 {
		return req.ContentLength
	}
	return -1
}

// continueTimeout is the time that a request with Expect waits for 100.
const continueTimeout = time.Second

// sendBody sends the body, and ends the sending.
func (x *clientRequest) sendBody() {
	defer closeBody(x.req)
	if x.continued != nil {
		select {
		case <-x.continued:
		case <-time.After(continueTimeout):
		case <-x.qs.Context().Done():
			return
		}
	}
	b := make([]byte, 16+32<<10)
	length, sent := contentLength(x.req), int64(0)
	for {
		n, err := x.req.Body.Read(b[16:])
		if n > 0 {
			sent += int64(n)
			if length >= 0 && sent > length {
				x.r.abort(RequestCancelled)
				return
			}
			// The frame's header goes right before its payload.
			header := AppendDataHeader(make([]byte, 0, 16), n)
			at := 16 - len(header)
			copy(b[at:], header)
			if _, err := x.qs.Write(b[at : 16+n]); err != nil {
				return // the server wants no more of it, and may answer nevertheless
			}
		}
		if err == io.EOF { //nolint:errorlint // io.Reader returns it as it is
			break
		}
		if err != nil {
			x.r.abort(RequestCancelled)
			return
		}
	}
	if length >= 0 && sent < length {
		x.r.abort(RequestCancelled)
		return
	}
	x.sendTrailers()
	_ = x.qs.Close()
}

func (x *clientRequest) sendTrailers() {
	fields := appendHeader(nil, x.req.Trailer, false, nil)
	if len(fields) == 0 {
		return
	}
	c := x.c
	c.mu.Lock()
	b := c.m.AppendHeaders(nil, uint64(x.qs.ID()), fields)
	c.flushLocked()
	c.mu.Unlock()
	_, _ = x.qs.Write(b)
}

// response reads the header of the response.
func (x *clientRequest) response() (*http.Response, error) {
	trace := httptrace.ContextClientTrace(x.req.Context())
	for first := true; ; first = false {
		ev, err := x.r.next()
		if err != nil {
			return nil, err
		}
		switch ev.Kind {
		case PushPromise:
			x.c.promised(ev.ID, &x.r.s.Message, &x.r.s.Section)
			continue
		case Headers:
		default:
			return nil, x.r.fail(errNoHeaders)
		}
		if first && trace != nil && trace.GotFirstResponseByte != nil {
			trace.GotFirstResponseByte()
		}
		m := &x.r.s.Message
		if m.Status >= 200 {
			return x.build(m), nil
		}
		header := headerOf(m.Fields, "")
		x.r.s.Section.Detach()
		if m.Status == http.StatusContinue && x.continued != nil {
			x.once.Do(func() { close(x.continued) })
		}
		if trace != nil && m.Status == http.StatusContinue && trace.Got100Continue != nil {
			trace.Got100Continue()
		}
		if trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(m.Status, textproto.MIMEHeader(header)); err != nil {
				x.r.abort(RequestCancelled)
				return nil, err
			}
		}
	}
}

// build returns the response of net/http. The strings of the section become its own.
func (x *clientRequest) build(m *Message) *http.Response {
	resp := &http.Response{
		StatusCode: m.Status, Status: statusLine(m.Status), Proto: "HTTP/3.0", ProtoMajor: 3,
		Header: headerOf(m.Fields, ""), ContentLength: m.ContentLength, Request: x.req,
	}
	resp.TLS = x.c.state()
	x.r.s.Section.Detach()
	for _, v := range resp.Header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if resp.Trailer == nil {
				resp.Trailer = http.Header{}
			}
			resp.Trailer[canonicalName(strings.ToLower(strings.TrimSpace(name)))] = nil
		}
	}
	delete(resp.Header, "Trailer")
	x.resp = resp
	if ev, err := x.r.tryEnd(); err == nil && ev.Kind == End {
		x.end()
		resp.Body = http.NoBody
		if resp.ContentLength < 0 {
			resp.ContentLength = 0
		}
		return resp
	}
	resp.Body = &responseBody{x: x}
	if x.gzip && resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
		resp.Body = &gzipBody{body: resp.Body}
	}
	return resp
}

func statusLine(status int) string {
	if status == http.StatusOK {
		return "200 OK"
	}
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// end returns the stream, once.
func (x *clientRequest) end() {
	if x.r.s == nil {
		return
	}
	if x.stop != nil {
		x.stop()
	}
	x.r.release()
	x.c.active.Add(-1)
}
