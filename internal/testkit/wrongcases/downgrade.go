package wrongcases

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Field is a name and a value, as they are sent.
type Field = [2]string

// FieldCase is a request of HTTP/2 or HTTP/3 that a proxy translates to HTTP/1.1: its fields are length-prefixed, and can have
// bytes that end a line in HTTP/1.1 (RFC 9113 10.3). Bytes of the case are a connection of HTTP/2.
type FieldCase struct {
	Case
	Fields, Trailers []Field
	Data             []string // the content, by frames
	Open             bool     // the client does not end its stream
}

// downgrades makes field cases.
type downgrades struct{ cases []FieldCase }

// Downgrades returns all cases that are fields.
func Downgrades() []FieldCase {
	d := &downgrades{}
	d.pseudo()
	d.injections()
	d.connection()
	d.lengths()
	d.names()
	for i := range d.cases {
		c := &d.cases[i]
		c.Bytes = string(c.http2())
		c.Gateway = strings.Contains(c.Origin, "open proxy") || c.Origin == "9110 4.2"
	}
	return d.cases
}

var getFields = []Field{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/case"}}

var postFields = []Field{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/case"}}

// with returns base with other values, and fields behind it.
func with(base []Field, more ...Field) []Field {
	out := slices.Clone(base)
	for _, f := range more {
		i := slices.IndexFunc(out, func(o Field) bool { return o[0] == f[0] && f[0][0] == ':' })
		if i < 0 {
			out = append(out, f)
		} else {
			out[i][1] = f[1]
		}
	}
	return out
}

func (d *downgrades) add(passed int, origin, name string, fields []Field, data ...string) *FieldCase {
	d.cases = append(d.cases, FieldCase{
		Case:   Case{Group: "downgrade", Name: "downgrade: " + name, Origin: origin, Passed: passed},
		Fields: fields, Data: data,
	})
	return &d.cases[len(d.cases)-1]
}

// refusedGet adds a GET with fields for which it must be refused.
func (d *downgrades) refusedGet(origin string, fields ...Field) {
	d.add(0, origin, fmt.Sprintf("GET with %s", quoted(fields)), with(getFields, fields...))
}

func quoted(fields []Field) string {
	var s []string
	for _, f := range fields {
		s = append(s, fmt.Sprintf("%q: %q", shorten(f[0]), shorten(f[1])))
	}
	return strings.Join(s, ", ")
}

// pseudo are cases of pseudo-headers (RFC 9113 8.3).
func (d *downgrades) pseudo() {
	d.add(1, "9113 8.3.1", "GET", getFields)
	d.add(1, "9113 8.3.1", "POST", postFields, "hello").Present = []string{"hello"}
	d.add(1, "9113 8.3.1", "Host in place of :authority", with(append(slices.Clone(getFields[:2]), getFields[3]), Field{"host", "a"}))
	for i, f := range getFields {
		if f[0] != ":authority" {
			d.add(0, "9113 8.3.1", "without "+f[0], slices.Delete(slices.Clone(getFields), i, i+1))
		}
		d.add(0, "9113 8.3", "twice "+f[0], append(slices.Clone(getFields), f))
		d.add(0, "9113 8.3", "twice, different, "+f[0], append(slices.Clone(getFields), Field{f[0], f[1] + "x"}))
		d.add(0, "9113 8.3", "behind a field: "+f[0], append(append(slices.Delete(slices.Clone(getFields), i, i+1), Field{"x", "y"}), f))
		d.add(0, "9113 8.3.1", "empty "+f[0], with(getFields, Field{f[0], ""}))
	}
	d.add(0, "9113 8.3.1", "without a host", append(slices.Clone(getFields[:2]), getFields[3]))
	for _, f := range []Field{{":status", "200"}, {":fake", "x"}, {":", "x"}, {":protocol", "websocket"}, {":Method", "GET"}, {":host", "b"}} {
		d.refusedGet("9113 8.3", f)
	}
	for _, v := range []string{"GET /smuggled HTTP/1.1\r\nX:", "GET ", " GET", "G ET", "GET\t", "G(T", "GET\x00", "GET /case HTTP/1.1\r\n\r\nGET", "GET\n"} {
		d.refusedGet("PortSwigger: h2method", Field{":method", v})
	}
	for _, v := range []string{
		"case", "//../..\\x y", "/case HTTP/1.1\r\nX: y", "/case HTTP/1.1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "/a b", "/a\tb", "/case\x00", "/case\n", "/case\r",
		"*", "http://b/case", "/case#fragment", "/case\x7f", "/\x01", "/\xc3\xa9",
	} {
		d.refusedGet("PortSwigger: h2path", Field{":path", v})
	}
	for _, v := range []string{"http://a/case HTTP/1.1\r\nX: y", "ht tp", "http:", "http\x00", "://", "1http"} {
		d.refusedGet("PortSwigger: h2scheme", Field{":scheme", v})
	}
	for _, v := range []string{"javascript", "file", "ftp", "ws"} {
		d.refusedGet("9110 4.2", Field{":scheme", v})
	}
	for _, v := range []string{"a\r\nX: y", "a\nX: y", "user@a", "a/b", "a b", "a\x00", "a:x", "[::1", "a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "a?b", "a#b"} {
		d.refusedGet("PortSwigger: h2auth", Field{":authority", v})
	}
	d.refusedGet("9113 8.3.1", Field{"host", "b"})
	d.refusedGet("9113 8.3.1", Field{"host", "a"}, Field{"host", "b"})
	d.refusedGet("9113 8.3.1", Field{"host", ""})
	d.refusedGet("9110 9.3.6, open proxy", Field{":method", "CONNECT"})
	d.add(0, "9110 9.3.6, open proxy", "CONNECT", []Field{{":method", "CONNECT"}, {":authority", "192.0.2.1:25"}})
	d.add(0, "9113 8.3.1", "PRI", with(getFields, Field{":method", "PRI"}, Field{":path", "*"}))
	d.add(1, "9113 8.3.1", "a method that is not known", with(getFields, Field{":method", "BREW"})).Stricter = "RFC 9110 9.1: methods are an open set of tokens"
}

// injections are lines in values and names (RFC 9113 8.2.1).
func (d *downgrades) injections() {
	for _, v := range []string{
		"a\r\nTransfer-Encoding: chunked", "a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "a\nX: y", "a\rX: y", "a\x00b", "\r\n", "a\r\n", " a", "a ", "\ta", "a\t", "a\x00", "\n",
	} {
		d.refusedGet("PortSwigger: http2hide", Field{"x", v})
	}
	d.add(0, "PortSwigger: H2.TE", "transfer-encoding by a line in a value", with(postFields, Field{"x", "a\r\ntransfer-encoding: chunked"}), "0\r\n\r\n"+smuggled)
	d.add(0, "PortSwigger: h2name", "transfer-encoding by a line in a name", with(postFields, Field{"x: y\r\ntransfer-encoding", "chunked"}), "0\r\n\r\n"+smuggled)
	d.add(0, "PortSwigger: H2.X", "a request in the value of cookie", with(getFields, Field{"cookie", "a=b\r\n\r\n" + smuggled}))
}

// names are cases of field names (RFC 9113 8.2).
func (d *downgrades) names() {
	for _, n := range []string{
		"X", "transfer-Encoding", "x y", "x:", "x: y", "", " x", "x ", "x\r\ny", "x\x00", "x\ny", "\xc3\xa9", "x\x7f", "x(y", "transfer-encoding ", "transfer-encoding: chunked\r\nx",
		"x`y z", "get /smuggled http/1.1\r\nhost",
	} {
		d.refusedGet("PortSwigger: h2colon, h2space", Field{n, "y"})
	}
	d.refusedGet("9113 10.5.1", Field{"x", strings.Repeat("y", 200<<10)})
	var lots []Field
	for i := range 5000 {
		lots = append(lots, Field{fmt.Sprintf("x-%d", i), "y"})
	}
	d.add(0, "9113 10.5.1", "5000 fields", with(getFields, lots...))
	var cookies []Field
	for i := range 4 {
		cookies = append(cookies, Field{"cookie", fmt.Sprintf("c%d=x", i)})
	}
	c := d.add(1, "9113 8.2.3", "cookies in four fields", with(getFields, cookies...))
	c.Present, c.Absent = []string{"c0=x; c1=x; c2=x; c3=x"}, []string{"\r\ncookie: c1"}
	c = d.add(0, "9113 8.1", "pseudo-header in trailers", postFields, "hello")
	c.Trailers = []Field{{":path", "/smuggled"}}
	c = d.add(0, "9113 8.1", ":status in trailers", postFields, "hello")
	c.Trailers = []Field{{":status", "200"}}
	for _, f := range []Field{
		{"transfer-encoding", "chunked"}, {"connection", "close"}, {"x", "a\r\nb"}, {"X", "y"}, {"upgrade", "h2c"}, {"x: y\r\nz", "a"},
	} {
		c = d.add(0, "9113 8.1", fmt.Sprintf("trailer %s", quoted([]Field{f})), postFields, "hello")
		c.Trailers = []Field{f}
	}
	for _, f := range []Field{{"content-length", "5"}, {"host", "b"}, {"te", "trailers"}, {"trailer", "host"}} {
		c = d.add(0, "9110 6.5.1", fmt.Sprintf("trailer %s", quoted([]Field{f})), postFields, "hello")
		c.Trailers = []Field{f}
	}
	for _, f := range []Field{{"authorization", "secret"}, {"x-forwarded-for", "192.0.2.66"}, {"cookie", "secret"}} {
		c = d.add(Either, "9110 6.5.1", fmt.Sprintf("trailer %s", quoted([]Field{f})), postFields, "hello")
		c.Trailers, c.Absent, c.Stricter = []Field{f}, []string{f[1]}, "RFC 9110 6.5.1: a recipient may discard trailers; these are not passed on"
	}
	c = d.add(1, "9113 8.1", "trailer", postFields, "hello")
	c.Trailers, c.Stricter = []Field{{"x-sum", "1"}}, "RFC 9113 8.1: a request may have trailers"
}

// connection are cases of fields that HTTP/2 does not have (RFC 9113 8.2.2).
func (d *downgrades) connection() {
	for _, f := range []Field{
		{"connection", "close"},
		{"connection", "x-forwarded-for"},
		{"connection", "upgrade"},
		{"keep-alive", "timeout=5"},
		{"proxy-connection", "keep-alive"},
		{"upgrade", "h2c"},
		{"upgrade", "websocket"},
		{"transfer-encoding", "chunked"},
		{"transfer-encoding", "identity"},
		{"transfer-encoding", ""},
		{"te", "chunked"},
		{"te", "gzip"},
		{"te", "trailers, chunked"},
	} {
		d.refusedGet("9113 8.2.2", f)
	}
	d.add(0, "PortSwigger: H2.TE", "transfer-encoding: chunked with content", with(postFields, Field{"transfer-encoding", "chunked"}), "0\r\n\r\n"+smuggled)
	d.add(1, "9113 8.2.2", "te: trailers", with(getFields, Field{"te", "trailers"}))
	c := d.add(1, "9113 3.1", "http2-settings", with(getFields, Field{"http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"}))
	c.Absent = []string{"http2-settings"}
}

// lengths are cases of content-length beside DATA (RFC 9113 8.1.1).
func (d *downgrades) lengths() {
	// More content than the length: a proxy that streams may have passed on as much as the length says, which is whole.
	for _, data := range [][]string{{smuggled}, {"hello"}, {"he", "llo"}} {
		for _, length := range []string{"0", "4"} {
			d.add(Either, "PortSwigger: H2.CL", fmt.Sprintf("content-length %s with more in %d frames of %d bytes", length, len(data), len(data[0])), with(postFields, Field{"content-length", length}), data...)
		}
	}
	for _, v := range []struct{ length, data string }{
		{"6", "hello"},
		{"500", "hello"},
		{"5", ""},
		{"+5", "hello"},
		{"0x5", "hello"},
		{"5,5", "hello"},
		{"", "hello"},
		{"-1", "hello"},
		{"5 ", "hello"},
		{"18446744073709551621", "hello"},
		{"5\r\nx: y", "hello"},
		{"99999999999999999999999", "hello"},
	} {
		d.add(0, "PortSwigger: H2.CL", fmt.Sprintf("content-length %q with %d bytes", v.length, len(v.data)), with(postFields, Field{"content-length", v.length}), v.data)
	}
	d.add(0, "9113 8.1.1", "two lengths", with(postFields, Field{"content-length", "5"}, Field{"content-length", "0"}), "hello")
	c := d.add(1, "9110 8.6", "twice the same length", with(postFields, Field{"content-length", "5"}, Field{"content-length", "5"}), "hello")
	c.Present, c.Stricter = []string{"hello"}, "one length is meant (RFC 9110 8.6)"
	d.add(Either, "9110 8.6", "twice a length that does not fit", with(postFields, Field{"content-length", "4"}, Field{"content-length", "4"}), "hello")
	d.add(0, "9113 8.1.1", "a length of a GET without content", with(getFields, Field{"content-length", "5"}))
	d.add(1, "9113 8.1.1", "a length that fits", with(postFields, Field{"content-length", "5"}), "he", "", "llo").Present = []string{"hello"}
	d.add(1, "9113 8.1", "GET with content", getFields, smuggled)
	c = d.add(0, "9113 8.1", "content without an end", postFields, "hello")
	c.Open, c.Unfinished = true, true
}

// Types and flags of frames (RFC 9113 6).
const (
	frameData, frameHeaders, frameSettings, frameContinuation = 0, 1, 4, 9

	endStream, endHeaders = 1, 4
)

// Preface is what a client of HTTP/2 sends first, with its settings.
var Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(frameSettings, 0, 0, "")

// Frame encodes a frame of HTTP/2.
func Frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// HPACK encodes fields as literals that are not indexed, without Huffman code (RFC 7541 6.2.2).
func HPACK(fields []Field) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString("\x00" + prefixed(len(f[0])) + f[0] + prefixed(len(f[1])) + f[1])
	}
	return b.String()
}

// prefixed encodes an integer with a prefix of 7 bits (RFC 7541 5.1).
func prefixed(n int) string {
	if n < 127 {
		return string([]byte{byte(n)})
	}
	b := []byte{127}
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return string(append(b, byte(n)))
}

// Section encodes fields as HEADERS and CONTINUATION.
func Section(stream uint32, flags byte, fields []Field) string {
	const most = 16 << 10
	block, kind := HPACK(fields), byte(frameHeaders)
	var b strings.Builder
	for len(block) > most {
		b.WriteString(Frame(kind, flags, stream, block[:most]))
		block, kind, flags = block[most:], frameContinuation, 0
	}
	if kind == frameContinuation {
		flags = 0
	}
	b.WriteString(Frame(kind, flags|endHeaders, stream, block))
	return b.String()
}

// http2 encodes the case as a connection of HTTP/2 with one stream.
func (c *FieldCase) http2() []byte {
	b := Preface
	last := len(c.Data) == 0 && c.Trailers == nil && !c.Open
	b += Section(1, flagIf(last), c.Fields)
	for i, p := range c.Data {
		last = i == len(c.Data)-1 && c.Trailers == nil && !c.Open
		b += Frame(frameData, flagIf(last), 1, p)
	}
	if c.Trailers != nil {
		b += Section(1, endStream, c.Trailers)
	}
	return []byte(b)
}

func flagIf(last bool) byte {
	if last {
		return endStream
	}
	return 0
}

// HTTP3 encodes the case as a request stream of HTTP/3 (RFC 9114 4.1), which ends unless the case is Open.
func (c *FieldCase) HTTP3() string {
	const data, headers = 0, 1
	b := frame3(headers, qpack(c.Fields))
	for _, p := range c.Data {
		b += frame3(data, p)
	}
	if c.Trailers != nil {
		b += frame3(headers, qpack(c.Trailers))
	}
	return b
}

// frame3 encodes a frame of HTTP/3.
func frame3(kind byte, payload string) string {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(payload))|2<<30) // an integer of four bytes (RFC 9000 16)
	return string(kind) + string(length) + payload
}

// qpack encodes fields as literals, without tables or Huffman code (RFC 9204 4.5.6).
func qpack(fields []Field) string {
	var b strings.Builder
	b.WriteString("\x00\x00")
	for _, f := range fields {
		name := prefixed3(len(f[0]))
		b.WriteString(name + f[0] + prefixed(len(f[1])) + f[1])
	}
	return b.String()
}

// prefixed3 encodes an integer with a prefix of 3 bits behind those of a literal name.
func prefixed3(n int) string {
	if n < 7 {
		return string([]byte{0x20 | byte(n)})
	}
	b := []byte{0x27}
	for n -= 7; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return string(append(b, byte(n)))
}
