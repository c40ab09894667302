package inspect

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"slices"
	"strconv"

	"github.com/millrace/millrace/filter/signature"
)

// httpFlow is the messages of HTTP/1 of one flow (RFC 9112).
type httpFlow struct {
	sides   [2]httpSide
	methods [][]byte // of requests without an answer yet
}

// httpState is where a direction is.
type httpState uint8

const (
	httpHead  httpState = iota
	httpBody            // need bytes more
	httpChunk           // the line with a chunk's size
	httpData            // of a chunk: need bytes more
	httpCRLF            // behind a chunk
	httpTrailer
	httpClose  // a body up to the end of the connection
	httpTunnel // behind a CONNECT that has succeeded: perhaps TLS
	httpStop   // no HTTP any more
)

// httpSide is one direction.
type httpSide struct {
	state httpState
	line  []byte // an incomplete head or line
	need  int
	msg   httpMessage
	sent  bool // the message was inspected: its body has reached the bound
}

// httpMessage is one request or response.
type httpMessage struct {
	head    []byte // as it came, with the empty line
	start   []byte // its first line
	headers []httpHeader
	body    []byte
	method  []byte // of the request that a response is for

	early earlyMessage
}

// httpHeader is a field of a head. Fields of one name are one, their values joined by commas (RFC 9110 5.3).
type httpHeader struct {
	name, value []byte
	own         bool // the value is a copy, not a part of the head
}

// add appends to the value.
func (h *httpHeader) add(separator string, text []byte) {
	if !h.own { // what is behind the value in the head stays
		h.value, h.own = h.value[:len(h.value):len(h.value)], true
	}
	h.value = append(append(h.value, separator...), text...)
}

// maxHead bounds the head of a message.
const maxHead = 64 << 10

// http reads messages out of bytes that are in order.
func (e *Engine) http(p *packet, b []byte) {
	h := p.flow.proto.http
	s := &h.sides[sideOf(p.dir)]
	for len(b) > 0 && s.state != httpStop {
		switch s.state {
		case httpHead:
			b = e.httpHeadBytes(p, h, s, b)
		case httpTunnel:
			e.httpTunnel(p, h, b)
			return
		case httpBody, httpData, httpClose:
			n := len(b)
			if s.state != httpClose {
				n = min(n, s.need)
				s.need -= n
			}
			e.httpBodyBytes(p, h, s, b[:n])
			b = b[n:]
			switch {
			case s.need > 0 || s.state == httpClose:
			case s.state == httpBody:
				e.httpDone(p, h, s)
			default:
				s.state = httpCRLF
			}
		default:
			b = e.httpLine(p, h, s, b)
		}
	}
}

// httpHeadBytes collects a head, and begins the body behind it.
func (e *Engine) httpHeadBytes(p *packet, h *httpFlow, s *httpSide, b []byte) []byte {
	if len(s.line) == 0 { // empty lines before a message are skipped (RFC 9112 2.2)
		b = bytes.TrimLeft(b, "\r\n")
		if len(b) == 0 {
			return nil
		}
	}
	before := len(s.line)
	s.line = append(s.line, b...)
	end := headEnd(s.line, max(0, before-3))
	if end < 0 {
		if len(s.line) > maxHead {
			s.state = httpStop
			e.giveUp(p.flow)
		}
		return nil
	}
	rest := b[end-before:]
	s.msg = parseHead(s.line[:end])
	s.line = nil
	e.httpFraming(p, h, s)
	return rest
}

// headEnd returns where the empty line behind a head ends, or -1.
func headEnd(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		if b[i] != '\n' {
			continue
		}
		switch {
		case i+1 < len(b) && b[i+1] == '\n':
			return i + 2
		case i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n':
			return i + 3
		}
	}
	return -1
}

// parseHead cuts a head into its first line and headers. A line that begins with a blank continues the one before
// (RFC 9112 5.2). One without a colon is a value without a name, as in the parser that the rules are written for.
func parseHead(b []byte) httpMessage {
	m := httpMessage{head: bytes.Clone(b)}
	first := true
	var named map[string]int
	last := -1
	for line := range bytes.Lines(m.head) {
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			m.start, first = line, false
		case len(line) == 0:
		case (line[0] == ' ' || line[0] == '\t') && last >= 0:
			m.headers[last].add(" ", bytes.TrimSpace(line))
		default:
			name, value, ok := bytes.Cut(line, []byte{':'})
			if !ok {
				name, value = nil, line
			}
			last, named = m.field(bytes.Trim(name, " \t"), bytes.Trim(value, " \t"), named)
		}
	}
	return m
}

// fewHeaders is how many are compared one by one; above it a table has their names.
const fewHeaders = 32

// field adds a field, to the one of its name where there is one, and returns its place. The first Content-Length counts, as
// in the parser that the rules are written for.
func (m *httpMessage) field(name, value []byte, named map[string]int) (int, map[string]int) {
	if named == nil && len(m.headers) == fewHeaders {
		named = map[string]int{}
		for i, h := range m.headers {
			named[string(lowered(h.name))] = i
		}
	}
	var key string // with a table
	i, found := 0, false
	if named == nil {
		i = slices.IndexFunc(m.headers, func(h httpHeader) bool { return len(h.name) == len(name) && equalNames(h.name, name) })
		found = i >= 0
	} else {
		key = string(lowered(name))
		i, found = named[key]
	}
	switch {
	case !found:
		i = len(m.headers)
		m.headers = append(m.headers, httpHeader{name: name, value: value})
		if named != nil {
			named[key] = i
		}
	case string(lowered(m.headers[i].name)) != "content-length":
		m.headers[i].add(", ", value)
	}
	return i, named
}

// value returns the value of a header; nil where there is none.
func (m *httpMessage) value(name string) []byte {
	for _, h := range m.headers {
		if len(h.name) == len(name) && equalFold(h.name, []byte(name)) {
			if h.value == nil {
				return []byte{}
			}
			return h.value
		}
	}
	return nil
}

// httpFraming decides how long the body is (RFC 9112 6.3).
func (e *Engine) httpFraming(p *packet, h *httpFlow, s *httpSide) {
	m := &s.msg
	s.sent = false
	chunked := bytes.Contains(lowered(m.value("transfer-encoding")), []byte("chunked"))
	length, known := bodyLength(m.value("content-length"))
	if p.dir == signature.ToServer {
		m.method, _, _ = requestLine(m.start)
		if len(h.methods) < 1000 {
			h.methods = append(h.methods, m.method)
		}
		switch {
		case chunked:
			s.state = httpChunk
		case length > 0:
			s.state, s.need = httpBody, length
		default:
			e.httpDone(p, h, s)
		}
		e.httpBegun(p, s)
		return
	}
	code := statusOf(m.start)
	if len(h.methods) > 0 {
		m.method = h.methods[0]
		if code >= 200 || code == 101 {
			h.methods = h.methods[1:]
		}
	}
	switch {
	case code == 101, string(m.method) == "CONNECT" && code/100 == 2:
		e.httpDone(p, h, s)
		h.sides[0].state, s.state = httpStop, httpStop
		if code != 101 {
			h.sides[0].state, s.state = httpTunnel, httpTunnel
			h.sides[0].line = nil
		}
	case code/100 == 1:
		s.msg = httpMessage{} // another response to the request follows
	case code == 204, code == 304, string(m.method) == "HEAD":
		e.httpDone(p, h, s)
	case chunked:
		s.state = httpChunk
	case length > 0:
		s.state, s.need = httpBody, length
	case known:
		e.httpDone(p, h, s)
	default:
		s.state = httpClose
	}
	e.httpBegun(p, s)
}

// bodyLength returns the number of a Content-Length: its first digits, whatever stands around them, as in the parser that the rules
// are written for.
func bodyLength(value []byte) (n int, ok bool) {
	at := bytes.IndexAny(value, "0123456789")
	if at < 0 {
		return 0, false
	}
	value = value[at:]
	end := 0
	for end < len(value) && digit(value[end]) < 10 {
		end++
	}
	n, err := strconv.Atoi(string(value[:end]))
	if err != nil {
		return 0, false
	}
	return n, true
}

// statusOf returns the code of a response's first line, 0 where it has none.
func statusOf(line []byte) int {
	_, rest, _ := bytes.Cut(line, []byte{' '})
	rest = bytes.TrimLeft(rest, " ")
	if len(rest) < 3 {
		return 0
	}
	n, _ := strconv.Atoi(string(rest[:3]))
	return n
}

// httpLine collects a line between chunks.
func (e *Engine) httpLine(p *packet, h *httpFlow, s *httpSide, b []byte) []byte {
	at := bytes.IndexByte(b, '\n')
	if at < 0 {
		if s.line = append(s.line, b...); len(s.line) > maxHead {
			s.state = httpStop
		}
		return nil
	}
	line := bytes.TrimSpace(append(s.line, b[:at]...))
	s.line = nil
	switch s.state {
	case httpCRLF:
		s.state = httpChunk
	case httpChunk:
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		switch {
		case err != nil:
			e.httpDone(p, h, s)
			s.state = httpStop
		case n == 0:
			s.state = httpTrailer
		default:
			s.state, s.need = httpData, int(n)
		}
	case httpTrailer:
		if len(line) == 0 {
			e.httpDone(p, h, s)
		}
	}
	return b[at+1:]
}

// httpBodyBytes keeps bytes of a body up to the bound, and inspects the message when that is reached.
func (e *Engine) httpBodyBytes(p *packet, h *httpFlow, s *httpSide, b []byte) {
	if s.sent {
		return
	}
	limit := e.cfg.bodyBytes()
	before := len(s.msg.body)
	s.msg.body = append(s.msg.body, b[:min(len(b), limit-before)]...)
	if len(s.msg.body) == limit {
		e.httpInspect(p, s)
	} else {
		e.httpGrown(p, s, before)
	}
}

// httpDone inspects a message that is complete, and waits for the next.
func (e *Engine) httpDone(p *packet, _ *httpFlow, s *httpSide) {
	if !s.sent {
		e.httpInspect(p, s)
	}
	s.msg, s.state, s.sent = httpMessage{}, httpHead, false
}

// httpTunnel collects the first bytes of a tunnel until they say whether it is TLS (RFC 9110 9.3.6), which is then the flow's
// protocol. The client speaks first.
func (e *Engine) httpTunnel(p *packet, h *httpFlow, b []byte) {
	s := &h.sides[sideOf(p.dir)]
	s.line = append(s.line, b...)
	switch {
	case p.dir == signature.ToClient && len(s.line) <= maxHead:
		return
	case p.dir == signature.ToServer && isTLS(s.line):
		p.flow.app, p.flow.proto = signature.AppTLS, &protocol{tls: &tlsFlow{}}
		e.tls(p, s.line)
		return
	case p.dir == signature.ToServer && len(s.line) < 6:
		return
	}
	h.sides[0].state, h.sides[1].state = httpStop, httpStop
}

// httpEnd inspects the messages that are not complete when a flow ends.
func (e *Engine) httpEnd(f *flow) {
	h := f.proto.http
	for i, d := range [2]signature.Direction{signature.ToServer, signature.ToClient} {
		s := &h.sides[i]
		if s.state == httpHead && len(s.line) > 0 {
			s.msg = parseHead(s.line)
			if d == signature.ToServer {
				s.msg.method, _, _ = requestLine(s.msg.start)
			}
			s.line, s.sent, s.state = nil, false, httpClose
		}
		if s.msg.start != nil && !s.sent && s.state != httpHead && s.state != httpStop {
			e.httpInspect(packetOf(f, d), s)
		}
		h.sides[i].state = httpStop
	}
}

// httpInspect fills the buffers of a message and evaluates the rules.
func (e *Engine) httpInspect(p *packet, s *httpSide) {
	s.sent = true
	e.httpBuffers(p, &s.msg)
	if s.msg.early.begun {
		e.tx.early = &s.msg.early
	}
	e.transact(p)
	e.tx.early = nil
}

// httpBuffers fills the buffers of a message.
func (e *Engine) httpBuffers(p *packet, m *httpMessage) {
	t := &e.tx
	t.reset(signature.AppHTTP)
	t.text = m.head
	e.httpCommon(m, p.dir)
	if p.dir == signature.ToServer {
		httpRequest(t, m)
	} else {
		httpResponse(t, m, e.cfg.bodyBytes())
	}
}

// httpCommon fills the buffers that requests and responses have.
func (e *Engine) httpCommon(m *httpMessage, d signature.Direction) {
	t := &e.tx
	cookie := "cookie"
	if d == signature.ToClient {
		cookie = "set-cookie"
	}
	normal, names := []byte{}, []byte("\r\n")
	start := append(bytes.Clone(m.start), "\r\n"...)
	for _, h := range m.headers {
		names = append(append(names, h.name...), "\r\n"...)
		start = h.appendTo(start)
		if len(h.name) != len(cookie) || !equalFold(h.name, []byte(cookie)) {
			normal = h.appendTo(normal)
		}
	}
	if len(normal) > 0 {
		t.put(signature.HTTPHeader, normal)
	}
	if len(m.headers) > 0 {
		t.put(signature.HTTPHeaderNames, append(names, "\r\n"...))
		start = append(start, "\r\n"...)
	}
	t.put(signature.HTTPStart, start)
	if i := bytes.IndexByte(m.head, '\n'); i >= 0 {
		t.put(signature.HTTPHeaderRaw, m.head[i+1:])
	}
	t.put(signature.HTTPCookie, m.value(cookie))
	for b, name := range map[signature.Buffer]string{signature.HTTPConnection: "connection", signature.HTTPContentLen: "content-length",
		signature.HTTPContentType: "content-type"} {
		t.put(b, m.value(name))
	}
}

// appendTo appends a field as a line.
func (h *httpHeader) appendTo(b []byte) []byte {
	return append(append(append(append(b, h.name...), ": "...), h.value...), "\r\n"...)
}

// requestLine cuts the first line of a request (RFC 9112 3). Blanks before it do not count, and version is nil where there is none.
func requestLine(line []byte) (method, uri, version []byte) {
	method, rest, _ := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte{' '})
	uri = bytes.TrimLeft(rest, " ")
	if i := bytes.IndexByte(uri, ' '); i >= 0 {
		uri, version = uri[:i], bytes.Trim(uri[i:], " ")
	}
	return method, uri, version
}

// httpRequest fills the buffers of a request.
func httpRequest(t *tx, m *httpMessage) {
	t.put(signature.HTTPRequestLine, m.start)
	t.put(signature.HTTPMethod, m.method)
	_, uri, version := requestLine(m.start)
	t.put(signature.HTTPProtocol, version)
	t.put(signature.HTTPURIRaw, uri)
	path, host := splitURI(uri)
	t.put(signature.HTTPURI, normalURI(path))
	if host == nil {
		host = m.value("host")
	}
	if len(host) > 0 {
		t.put(signature.HTTPHostRaw, host)
		t.put(signature.HTTPHost, normalHost(host))
	}
	for b, name := range map[signature.Buffer]string{signature.HTTPUserAgent: "user-agent", signature.HTTPAccept: "accept",
		signature.HTTPAcceptEnc: "accept-encoding", signature.HTTPAcceptLang: "accept-language", signature.HTTPReferer: "referer"} {
		t.put(b, m.value(name))
	}
	if len(m.body) > 0 {
		t.put(signature.HTTPRequestBody, m.body)
		t.put(signature.FileData, m.body)
	}
}

// httpResponse fills the buffers of a response. A body that is decoded has at most limit bytes.
func httpResponse(t *tx, m *httpMessage, limit int) {
	t.put(signature.HTTPResponseLine, m.start)
	version, rest, _ := bytes.Cut(m.start, []byte{' '})
	code, reason, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte{' '})
	t.put(signature.HTTPProtocol, version)
	t.put(signature.HTTPStatCode, code)
	t.put(signature.HTTPStatMsg, reason)
	t.put(signature.HTTPServer, m.value("server"))
	t.put(signature.HTTPLocation, m.value("location"))
	if len(m.body) > 0 {
		body := decoded(m.body, m.value("content-encoding"), limit)
		t.put(signature.HTTPResponseBody, body)
		t.put(signature.FileData, body)
	}
}

// splitURI returns what follows the authority of an absolute URI, and the authority; nil where there is none.
func splitURI(uri []byte) (path, host []byte) {
	scheme, rest, ok := bytes.Cut(uri, []byte("://"))
	if !ok || bytes.ContainsAny(scheme, "/?#") {
		return uri, nil
	}
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		return []byte("/"), rest
	}
	return rest[end:], rest[:end]
}

// normalHost returns a host in lower case, without its port.
func normalHost(host []byte) []byte {
	if host == nil {
		return nil
	}
	h := lowered(bytes.TrimSpace(host))
	if i := bytes.LastIndexByte(h, ':'); i >= 0 && !bytes.ContainsRune(h[i:], ']') {
		h = h[:i]
	}
	return h
}

// normalURI decodes a path and its query, and removes empty and dot segments of the path (RFC 3986 5.2.4), as the parser that the
// rules are written for: a slash behind the last dot segment goes with it.
func normalURI(uri []byte) []byte {
	path, query := uri, []byte(nil)
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		path, query = uri[:i], uri[i:]
	}
	p := urlDecode(bytes.Clone(path), false)
	out := make([]byte, 0, len(uri))
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == '\\' {
			c = '/'
		}
		if c == '/' && len(out) > 0 && out[len(out)-1] == '/' {
			continue
		}
		out = append(out, c)
	}
	out = withoutDots(out)
	return append(out, urlDecode(bytes.Clone(query), false)...)
}

// withoutDots removes "/./" and "/x/../".
func withoutDots(p []byte) []byte {
	if !bytes.Contains(p, []byte("/.")) {
		return p
	}
	var segments [][]byte
	parts := bytes.Split(p, []byte{'/'})
	dots := false // the segment before was one of dots
	for i, s := range parts {
		end := dots && i == len(parts)-1 && len(s) == 0
		dots = string(s) == "." || string(s) == ".."
		switch {
		case string(s) == ".." && len(segments) > 1:
			segments = segments[:len(segments)-1]
		case !dots && !end:
			segments = append(segments, s)
		}
	}
	return bytes.Join(segments, []byte{'/'})
}

// decoded returns the body that a content coding hides, as far as it can be decoded (RFC 9110 8.4), up to a limit: a small one
// may become gigabytes.
func decoded(body, coding []byte, limit int) []byte {
	var r io.Reader
	var err error
	switch c := string(lowered(bytes.TrimSpace(coding))); c {
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate": // with or without the header of zlib
		if r, err = zlib.NewReader(bytes.NewReader(body)); err != nil {
			r, err = flate.NewReader(bytes.NewReader(body)), nil
		}
	default:
		return body
	}
	if err != nil {
		return body
	}
	out, _ := io.ReadAll(io.LimitReader(r, int64(limit)))
	if len(out) == 0 {
		return body
	}
	return out
}
