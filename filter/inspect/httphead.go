package inspect

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/inspect/inflate"
)

// httpMessage is one request or response.
type httpMessage struct {
	head    []byte // as it came, with the empty line
	start   []byte // its first line
	headers []httpHeader
	body    []byte          // as it came
	coding  *inflate.Coding // decodes it; nil without one that is implemented
	method  []byte          // of the request that a response is for
	uri     []byte          // of a request, as it came
	name    []byte          // of the file that the request asks for, in a response
	host    []byte          // of a request, where it is not a header
	version []byte          // of a request; nil for one without

	early earlyMessage
}

// growing returns the body that is evaluated as it grows: decoded, where it can be.
func (m *httpMessage) growing() []byte {
	if m.coding != nil && !m.coding.Failed() {
		return m.coding.Text()
	}
	return m.body
}

// bodies returns the body in each form in which a receiver may read it: decoded, and as it came where it is no content
// coding after all, or a request, since few servers decode those.
func (m *httpMessage) bodies(request bool) (list [][]byte) {
	if m.coding != nil && len(m.coding.Text()) > 0 {
		list = append(list, m.coding.Text())
	}
	if len(m.body) > 0 && (len(list) == 0 || request || m.coding.Failed()) {
		list = append(list, m.body)
	}
	return list
}

// httpHeader is a field of a head. Fields of one name are one, their values joined by commas (RFC 9110 5.3).
type httpHeader struct {
	name, value []byte
	own         bool // the value is a copy, not a part of the head
	several     bool // it was sent more than once
	odd         bool // a blank before the colon, or a value in several lines: some recipients do not take it for this field
}

// add appends to the value.
func (h *httpHeader) add(separator string, text []byte) {
	if !h.own { // what is behind the value in the head stays
		h.value, h.own = h.value[:len(h.value):len(h.value)], true
	}
	h.value = append(append(h.value, separator...), text...)
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
			m.headers[last].odd = true
		default:
			name, value, ok := bytes.Cut(line, []byte{':'})
			if !ok {
				name, value = nil, line
			}
			word := bytes.Trim(name, " \t")
			last, named = m.field(word, bytes.Trim(value, " \t"), named)
			m.headers[last].odd = m.headers[last].odd || len(word) != len(name)
		}
	}
	return m
}

// fewHeaders bounds the headers that are compared one by one; above it a table has their names.
const fewHeaders = 32

// field adds a field, to the one of its name where there is one, and returns its place. The first Content-Length counts, as
// in the parser that the rules are written for.
func (m *httpMessage) field(name, value []byte, named map[string]int) (int, map[string]int) {
	if named == nil && len(m.headers) == fewHeaders {
		named = map[string]int{}
		for i, h := range m.headers {
			named[string(ascii.Lower(h.name))] = i
		}
	}
	var key string // with a table
	i, found := 0, false
	if named == nil {
		i = slices.IndexFunc(m.headers, func(h httpHeader) bool { return len(h.name) == len(name) && ascii.EqualNames(h.name, name) })
		found = i >= 0
	} else {
		key = string(ascii.Lower(name))
		i, found = named[key]
	}
	switch {
	case !found:
		i = len(m.headers)
		m.headers = append(m.headers, httpHeader{name: name, value: value})
		if named != nil {
			named[key] = i
		}
	case string(ascii.Lower(m.headers[i].name)) != "content-length":
		m.headers[i].add(", ", value)
		m.headers[i].several = true
	case !bytes.Equal(m.headers[i].value, value):
		m.headers[i].several = true
	}
	return i, named
}

// value returns the value of a header; nil where there is none.
func (m *httpMessage) value(name string) []byte {
	h := m.header(name)
	switch {
	case h == nil:
		return nil
	case h.value == nil:
		return []byte{}
	}
	return h.value
}

// header returns a header, nil where there is none.
func (m *httpMessage) header(name string) *httpHeader {
	for i := range m.headers {
		if h := &m.headers[i]; ascii.IsWord(h.name, name) {
			return h
		}
	}
	return nil
}

// parseRequestLine reads the first line of a request.
func (m *httpMessage) parseRequestLine() { m.method, m.uri, m.version = requestLine(m.start) }

// ambiguous reports whether recipients may read the length of a request's body differently: they would take different bytes
// for the next request. RFC 9112 6.1 and 6.3 have servers refuse such requests, and no client sends them.
func (m *httpMessage) ambiguous() bool {
	length, coding := m.header("content-length"), m.header("transfer-encoding")
	switch {
	case length == nil && coding == nil:
		return false
	case length != nil && (coding != nil || length.several || length.odd || !isNumber(length.value)):
		return true
	case coding == nil:
		return false
	}
	return coding.odd || coding.several || !ascii.IsWord(coding.value, "chunked") || bytes.HasSuffix(m.version, []byte("/1.0"))
}

func isNumber(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
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
	for end < len(value) && ascii.Digit(value[end]) < 10 {
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

// appendTo appends a field as a line.
func (h *httpHeader) appendTo(b []byte) []byte {
	return append(append(append(append(b, h.name...), ": "...), h.value...), "\r\n"...)
}

// requestLine cuts the first line of a request (RFC 9112 3). White space before it does not count, and version is nil where there
// is none. Other white space than blanks parts the words too, as recipients may read it; in a URI it does where no blank follows.
func requestLine(line []byte) (method, uri, version []byte) {
	line = bytes.TrimLeft(line, ascii.WhiteSpace)
	end := bytes.IndexAny(line, ascii.WhiteSpace)
	if end < 0 {
		return line, []byte{}, nil
	}
	method, uri = line[:end], bytes.TrimLeft(line[end:], ascii.WhiteSpace)
	if end = bytes.IndexByte(uri, ' '); end < 0 {
		end = bytes.IndexAny(uri, ascii.WhiteSpace)
	}
	if end >= 0 {
		uri, version = uri[:end], bytes.Trim(uri[end:], ascii.WhiteSpace)
	}
	return method, uri, version
}
