package httpmsg

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// Fill fills the buffers of a message of a direction.
func (m *Message) Fill(t *applayer.Message, d signature.Direction) {
	t.Reset()
	t.Text = m.Head
	m.common(t, d)
	if d == signature.ToServer {
		m.request(t)
	} else {
		m.response(t)
	}
}

// common fills the buffers that requests and responses have. http.header has the fields as receivers use them, one of each name
// and without cookies, and where a name came twice also line by line; http.header.raw has the head as it came, for rules about its form.
func (m *Message) common(t *applayer.Message, d signature.Direction) {
	cookie := "cookie"
	if d == signature.ToClient {
		cookie = "set-cookie"
	}
	b := append(append(t.Scratch[:0], m.Start...), "\r\n"...)
	for i := range m.Headers {
		b = m.Headers[i].AppendTo(b)
	}
	if len(m.Headers) > 0 {
		b = append(b, "\r\n"...)
	}
	from := len(b)
	t.Put(signature.HTTPStart, b[:from:from])
	sent := m.lines()
	for _, list := range [][]Header{m.Headers, sent} {
		from = len(b)
		for i := range list {
			if h := &list[i]; len(h.name) != len(cookie) || !ascii.EqualFold(h.name, []byte(cookie)) {
				b = h.AppendTo(b)
			}
		}
		if len(b) > from {
			t.Put(signature.HTTPHeader, b[from:len(b):len(b)])
		}
	}
	if from = len(b); len(m.Headers) > 0 {
		b = append(b, "\r\n"...)
		for i := range m.Headers {
			b = append(append(b, m.Headers[i].name...), "\r\n"...)
		}
		b = append(b, "\r\n"...)
		t.Put(signature.HTTPHeaderNames, b[from:len(b):len(b)])
	}
	t.Scratch = b // where it grows, the buffers before keep the array that they have
	if i := bytes.IndexByte(m.Head, '\n'); i >= 0 {
		t.Put(signature.HTTPHeaderRaw, m.Head[i+1:])
	}
	m.putField(t, signature.HTTPCookie, cookie, sent)
	m.values(t, commonFields, sent)
	if d == signature.ToServer {
		m.values(t, requestFields, sent)
	} else {
		m.values(t, responseFields, sent)
	}
}

// fieldBuffer is a buffer that has the value of one field.
type fieldBuffer struct {
	buffer signature.Buffer
	name   string
}

var (
	commonFields = []fieldBuffer{
		{signature.HTTPConnection, "connection"}, {signature.HTTPContentLen, "content-length"}, {signature.HTTPContentType, "content-type"},
	}
	requestFields = []fieldBuffer{
		{signature.HTTPUserAgent, "user-agent"},
		{signature.HTTPAccept, "accept"},
		{signature.HTTPAcceptEnc, "accept-encoding"},
		{signature.HTTPAcceptLang, "accept-language"},
		{signature.HTTPReferer, "referer"},
	}
	responseFields = []fieldBuffer{{signature.HTTPServer, "server"}, {signature.HTTPLocation, "location"}}
)

// values fills the buffers that are fields.
func (m *Message) values(t *applayer.Message, list []fieldBuffer, sent []Header) {
	for _, f := range list {
		m.putField(t, f.buffer, f.name, sent)
	}
}

// maxLines bounds the lines of a field that are compared one by one. Each is an instance of a buffer that all rules on it are evaluated on.
const maxLines = 8

// putField fills the buffer of a field: with all of its lines as one value, and where there are several with each, but for some in the
// middle where there are many: recipients take the first or the last.
func (m *Message) putField(t *applayer.Message, buffer signature.Buffer, name string, sent []Header) {
	h := m.Header(name)
	t.Put(buffer, m.Value(name))
	if h == nil || !h.several || sent == nil {
		return
	}
	var last []byte
	lines := 0
	for i := range sent {
		if !ascii.IsWord(sent[i].name, name) {
			continue
		}
		if last = sent[i].value; lines < maxLines-1 {
			t.Put(buffer, last)
		}
		lines++
	}
	if lines >= maxLines {
		t.Put(buffer, last)
	}
}

// request fills the buffers of a request. The host of an absolute URI comes before the field Host (RFC 9112 3.2.2): a client
// could otherwise show rules another host than the server takes.
func (m *Message) request(t *applayer.Message) {
	t.Put(signature.HTTPRequestLine, m.Start)
	t.Put(signature.HTTPMethod, m.Method)
	uri := m.URI
	t.Put(signature.HTTPProtocol, m.Version)
	t.Put(signature.HTTPURIRaw, uri)
	path, host := splitURI(uri)
	normal := normalURI(path)
	t.Put(signature.HTTPURI, normal)
	for _, other := range otherReadings(m, normal) {
		t.Put(signature.HTTPURI, other)
	}
	if host == nil {
		if host = m.Host; host == nil {
			host = m.Value("host")
		}
	}
	if len(host) > 0 {
		t.Put(signature.HTTPHostRaw, host)
		t.Put(signature.HTTPHost, normalHost(host))
	}
	for _, body := range m.Bodies(true) {
		t.Put(signature.HTTPRequestBody, body)
		m.files(t, body)
	}
}

// response fills the buffers of a response.
func (m *Message) response(t *applayer.Message) {
	t.Put(signature.HTTPResponseLine, m.Start)
	version, rest, _ := bytes.Cut(m.Start, []byte{' '})
	code, reason, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte{' '})
	t.Put(signature.HTTPProtocol, version)
	t.Put(signature.HTTPStatCode, code)
	t.Put(signature.HTTPStatMsg, reason)
	for _, body := range m.Bodies(false) {
		t.Put(signature.HTTPResponseBody, body)
		m.files(t, body)
	}
}
