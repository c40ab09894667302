package inspect

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// httpInspect fills the buffers of a message and evaluates the rules.
func (e *Engine) httpInspect(p *packet, s *httpSide) {
	s.sent = true
	e.httpBuffers(p, &s.msg)
	if s.msg.early.stage > earlyNothing {
		e.tx.early = &s.msg.early
	}
	e.transact(p)
	e.tx.early = nil
}

// httpBuffers fills the buffers of a message.
func (e *Engine) httpBuffers(p *packet, m *httpMessage) {
	t := &e.tx
	t.Reset()
	t.Text = m.head
	e.httpCommon(m, p.dir)
	if p.dir == signature.ToServer {
		httpRequest(t, m)
	} else {
		httpResponse(t, m)
	}
}

// httpCommon fills the buffers that requests and responses have. http.header has the fields as receivers use them, one of each name
// and without cookies; http.header.raw has the head as it came, for rules about its form.
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
		if len(h.name) != len(cookie) || !ascii.EqualFold(h.name, []byte(cookie)) {
			normal = h.appendTo(normal)
		}
	}
	if len(normal) > 0 {
		t.Put(signature.HTTPHeader, normal)
	}
	if len(m.headers) > 0 {
		t.Put(signature.HTTPHeaderNames, append(names, "\r\n"...))
		start = append(start, "\r\n"...)
	}
	t.Put(signature.HTTPStart, start)
	if i := bytes.IndexByte(m.head, '\n'); i >= 0 {
		t.Put(signature.HTTPHeaderRaw, m.head[i+1:])
	}
	t.Put(signature.HTTPCookie, m.value(cookie))
	for b, name := range map[signature.Buffer]string{
		signature.HTTPConnection: "connection", signature.HTTPContentLen: "content-length",
		signature.HTTPContentType: "content-type",
	} {
		t.Put(b, m.value(name))
	}
}

// httpRequest fills the buffers of a request. The host of an absolute URI comes before the field Host (RFC 9112 3.2.2): a client
// could otherwise show rules another host than the server takes.
func httpRequest(t *tx, m *httpMessage) {
	t.Put(signature.HTTPRequestLine, m.start)
	t.Put(signature.HTTPMethod, m.method)
	uri := m.uri
	t.Put(signature.HTTPProtocol, m.version)
	t.Put(signature.HTTPURIRaw, uri)
	path, host := splitURI(uri)
	normal := normalURI(path)
	t.Put(signature.HTTPURI, normal)
	for _, other := range otherReadings(m, normal) {
		t.Put(signature.HTTPURI, other)
	}
	if host == nil {
		if host = m.host; host == nil {
			host = m.value("host")
		}
	}
	if len(host) > 0 {
		t.Put(signature.HTTPHostRaw, host)
		t.Put(signature.HTTPHost, normalHost(host))
	}
	for b, name := range map[signature.Buffer]string{
		signature.HTTPUserAgent: "user-agent", signature.HTTPAccept: "accept",
		signature.HTTPAcceptEnc: "accept-encoding", signature.HTTPAcceptLang: "accept-language", signature.HTTPReferer: "referer",
	} {
		t.Put(b, m.value(name))
	}
	for _, body := range m.bodies(true) {
		t.Put(signature.HTTPRequestBody, body)
		t.files(m, body)
	}
}

// httpResponse fills the buffers of a response.
func httpResponse(t *tx, m *httpMessage) {
	t.Put(signature.HTTPResponseLine, m.start)
	version, rest, _ := bytes.Cut(m.start, []byte{' '})
	code, reason, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte{' '})
	t.Put(signature.HTTPProtocol, version)
	t.Put(signature.HTTPStatCode, code)
	t.Put(signature.HTTPStatMsg, reason)
	t.Put(signature.HTTPServer, m.value("server"))
	t.Put(signature.HTTPLocation, m.value("location"))
	for _, body := range m.bodies(false) {
		t.Put(signature.HTTPResponseBody, body)
		t.files(m, body)
	}
}

// splitURI returns what follows the authority of an absolute URI, and the authority; nil where there is none. A "://" in a path or a
// query is no scheme.
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

// normalHost returns a host in lower case, without its port. Colons within the brackets of an IPv6 address are no port (RFC 3986 3.2.2).
func normalHost(host []byte) []byte {
	if host == nil {
		return nil
	}
	h := ascii.Lower(bytes.TrimSpace(host))
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

// withoutDots removes "/./" and "/x/../". The first segment is the empty text before the first slash, which ".." does not remove.
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
	return append([]byte{}, bytes.Join(segments, []byte{'/'})...) // not nil, which is no path
}
