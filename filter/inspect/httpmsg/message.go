// Package httpmsg reads the heads and bodies of requests and responses of HTTP, and fills the buffers that inspection rules name with
// them. Where messages begin and end on a connection is the caller's to know.
//
// It is lenient as receivers are, and has more than one reading of what they read differently: a rule sees each.
//
// The package is pure.
package httpmsg

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/inspect/inflate"
)

// Message is one request or response.
type Message struct {
	Head    []byte // as it came, with the empty line
	Start   []byte // its first line; nil while there is no message
	Headers []Header
	Body    []byte          // as it came
	Coding  *inflate.Coding // decodes it; nil without one that is implemented
	Unread  bool            // it has codings that are not
	Method  []byte          // of the request that a response is for
	URI     []byte          // of a request, as it came
	File    []byte          // name of the file that the request asks for, in a response
	Host    []byte          // of a request, where it is not a header
	Version []byte          // of a request; nil for one without

	repeats bool // a field came in several lines
}

// Decode prepares the decoding of the body that follows, up to limit bytes.
func (m *Message) Decode(limit int) {
	m.Coding, m.Unread = inflate.NewCoding(m.Value("content-encoding"), limit)
}

// Growing returns the body that is evaluated as it grows: decoded, where it can be.
func (m *Message) Growing() []byte {
	if m.Coding != nil && !m.Coding.Failed() {
		return m.Coding.Text()
	}
	return m.Body
}

// Bodies returns the body in each form in which a receiver may read it: decoded, and as it came where it is no content
// coding after all, or a request, since few servers decode those.
func (m *Message) Bodies(request bool) (list [][]byte) {
	if m.Coding != nil && len(m.Coding.Text()) > 0 {
		list = append(list, m.Coding.Text())
	}
	if len(m.Body) > 0 && (len(list) == 0 || request || m.Coding.Partial || m.Coding.Failed()) {
		list = append(list, m.Body)
	}
	return list
}

// Header is a field of a head. Fields of one name are one, their values joined by commas (RFC 9110 5.3).
type Header struct {
	name, value []byte
	own         bool // the value is a copy, not a part of the head
	several     bool // it was sent more than once
	odd         bool // a blank before the colon, or a value in several lines: some recipients do not take it for this field
}

// add appends to the value.
func (h *Header) add(separator string, text []byte) {
	if !h.own { // what is behind the value in the head stays
		h.value, h.own = h.value[:len(h.value):len(h.value)], true
	}
	h.value = append(append(h.value, separator...), text...)
}

// ParseHead cuts a head into its first line and headers. A line that begins with a blank continues the one before
// (RFC 9112 5.2). One without a colon is a value without a name, as in the parser that the rules are written for.
func ParseHead(b []byte) Message {
	m := Message{Head: bytes.Clone(b), Headers: make([]Header, 0, min(max(bytes.Count(b, []byte{'\n'})-2, 0), fewHeaders))}
	var named map[string]int
	m.readLines(func(name, value []byte) (place int) {
		place, named = m.field(name, value, named)
		return place
	})
	return m
}

// readLines reads the lines of a head. add enters one into Headers and returns its place.
func (m *Message) readLines(add func(name, value []byte) (place int)) {
	first, last := true, -1
	for line := range bytes.Lines(m.Head) {
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			m.Start, first = line, false
		case len(line) == 0:
		case (line[0] == ' ' || line[0] == '\t') && last >= 0:
			h := &m.Headers[last]
			if h.odd = true; len(h.value) == 0 { // blanks around a value are none of it (RFC 9112 5.1)
				h.add("", bytes.TrimSpace(line))
			} else {
				h.add(" ", bytes.TrimSpace(line))
			}
		default:
			name, value, ok := bytes.Cut(line, []byte{':'})
			if !ok {
				name, value = nil, line
			}
			word := bytes.Trim(name, " \t")
			last = add(word, bytes.Trim(value, " \t"))
			m.Headers[last].odd = m.Headers[last].odd || len(word) != len(name)
		}
	}
}

// lines returns the fields as they came, where some came in several lines; nil otherwise. Recipients take the first line, the last or
// all of them.
func (m *Message) lines() []Header {
	if !m.repeats {
		return nil
	}
	sent := Message{Head: m.Head}
	sent.readLines(func(name, value []byte) int {
		sent.Headers = append(sent.Headers, Header{name: name, value: value})
		return len(sent.Headers) - 1
	})
	return sent.Headers
}

// fewHeaders bounds the headers that are compared one by one; above it a table has their names.
const fewHeaders = 32

// field adds a field, to the one of its name where there is one, and returns its place. The first Content-Length counts, as
// in the parser that the rules are written for.
func (m *Message) field(name, value []byte, named map[string]int) (int, map[string]int) {
	if named == nil && len(m.Headers) == fewHeaders {
		named = map[string]int{}
		for i, h := range m.Headers {
			named[string(ascii.Lower(h.name))] = i
		}
	}
	var key string // with a table
	i, found := 0, false
	if named == nil {
		i = slices.IndexFunc(m.Headers, func(h Header) bool { return len(h.name) == len(name) && ascii.EqualNames(h.name, name) })
		found = i >= 0
	} else {
		key = string(ascii.Lower(name))
		i, found = named[key]
	}
	switch {
	case !found:
		i = len(m.Headers)
		m.Headers = append(m.Headers, Header{name: name, value: value})
		if named != nil {
			named[key] = i
		}
	case string(ascii.Lower(m.Headers[i].name)) != "content-length":
		m.Headers[i].add(", ", value)
		m.Headers[i].several, m.repeats = true, true
	case !bytes.Equal(m.Headers[i].value, value):
		m.Headers[i].several = true
	}
	return i, named
}

// Value returns the value of a header; nil where there is none.
func (m *Message) Value(name string) []byte {
	h := m.Header(name)
	switch {
	case h == nil:
		return nil
	case h.value == nil:
		return []byte{}
	}
	return h.value
}

// Header returns a header, nil where there is none.
func (m *Message) Header(name string) *Header {
	for i := range m.Headers {
		if h := &m.Headers[i]; ascii.IsWord(h.name, name) {
			return h
		}
	}
	return nil
}

// ParseRequestLine reads the first line of a request.
func (m *Message) ParseRequestLine() { m.Method, m.URI, m.Version = requestLine(m.Start) }

// Ambiguous reports whether recipients may read the length of a request's body differently: they would take different bytes
// for the next request. RFC 9112 6.1 and 6.3 have servers refuse such requests, and no client sends them.
func (m *Message) Ambiguous() bool {
	length, coding := m.Header("content-length"), m.Header("transfer-encoding")
	switch {
	case length == nil && coding == nil:
		return false
	case length != nil && (coding != nil || length.several || length.odd || !isNumber(length.value)):
		return true
	case coding == nil:
		return false
	}
	return coding.odd || coding.several || !ascii.IsWord(coding.value, "chunked") || bytes.HasSuffix(m.Version, []byte("/1.0"))
}

func isNumber(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// BodyLength returns the number of a Content-Length: its first digits, whatever stands around them, as in the parser that the rules
// are written for.
func BodyLength(value []byte) (n int, ok bool) {
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

// StatusOf returns the code of a response's first line, 0 where it has none.
func StatusOf(line []byte) int {
	_, rest, _ := bytes.Cut(line, []byte{' '})
	rest = bytes.TrimLeft(rest, " ")
	if len(rest) < 3 {
		return 0
	}
	n, _ := strconv.Atoi(string(rest[:3]))
	return n
}

// AppendTo appends a field as a line.
func (h *Header) AppendTo(b []byte) []byte {
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

// Add adds a field of a message that has no lines, as those of HTTP/2.
func (m *Message) Add(name, value []byte) { m.field(name, value, nil) }

// headerSize is the size of a Header without its texts.
const headerSize = 56

// Size returns how many bytes the message holds.
func (m *Message) Size() int {
	n := cap(m.Head) + cap(m.File) + cap(m.Body) + m.Coding.Size() + cap(m.Headers)*headerSize
	for i := range m.Headers {
		if h := &m.Headers[i]; h.own {
			n += cap(h.value)
		}
	}
	return n
}

// IsPreface reports whether a first line is that of HTTP/2's connection preface (RFC 9113 3.4).
func IsPreface(line []byte) bool { return string(line) == "PRI * HTTP/2.0" }
