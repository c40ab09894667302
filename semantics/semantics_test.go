package semantics

import (
	"slices"
	"strings"
	"testing"
)

// fields parses lines "name: value".
func fields(lines ...string) (f []Field) {
	for _, l := range lines {
		i := strings.Index(l[1:], ": ") + 1
		f = append(f, Field{Name: l[:i], Value: l[i+2:]})
	}
	return f
}

var get = []string{":method: GET", ":scheme: https", ":authority: a", ":path: /"}

func with(base []string, more ...string) []Field {
	return fields(append(append([]string(nil), base...), more...)...)
}

func TestReadRequest(t *testing.T) {
	var m Message
	if err := m.ReadRequest(with(get, "a: b", "content-length: 7"), false); err != nil {
		t.Fatal(err)
	}
	if m.Method != "GET" || m.Scheme != "https" || m.Authority != "a" || m.Path != "/" || m.ContentLength != 7 || len(m.Fields) != 2 {
		t.Errorf("read %+v", m)
	}
	for _, ok := range [][]Field{
		fields(":method: GET", ":scheme: https", ":path: /", "host: a"),
		with(get, "host: A"), with(get, "te: trailers"),
		fields(":method: OPTIONS", ":scheme: http", ":authority: [2001:db8::1]:80", ":path: *"),
		fields(":method: CONNECT", ":authority: a:443"),
		fields(":method: GET", ":scheme: coap", ":path: x"),
	} {
		if err := m.ReadRequest(ok, false); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
	if m.ReadRequest(fields(":method: GET", ":scheme: https", ":path: /", "host: a"), false); m.Authority != "a" {
		t.Errorf("authority %q from Host", m.Authority)
	}
	if err := m.ReadRequest(with(get[1:], ":method: CONNECT", ":protocol: websocket"), true); err != nil || m.Protocol != "websocket" {
		t.Errorf("extended CONNECT: %v", err)
	}
}

func TestViolationsOfRequests(t *testing.T) {
	for _, test := range []struct {
		fields []Field
		want   Violation
	}{
		{with(get, "A: b"), BadName},
		{with(get, "a b: c"), BadName},
		{with(get, "a: b "), BadValue},
		{with(get, "a:  b"), BadValue},
		{with(get, "a: b\rc"), BadValue},
		{with(get, "a: 12345678\x00"), BadValue},
		{with(get, "a: b", ":path: /"), PseudoAfterField},
		{with(get, ":status: 200"), PseudoUnknown},
		{with(get, ":path: /"), PseudoRepeated},
		{with(get[1:]), PseudoMissing},
		{with(get[:2]), PseudoMissing},
		{with(get, "connection: close"), ConnectionField},
		{with(get, "transfer-encoding: chunked"), ConnectionField},
		{with(get, "upgrade: h2c"), ConnectionField},
		{with(get, "te: gzip"), BadTE},
		{with(get, "content-length: 1,1"), BadLength},
		{with(get, "content-length: 1", "content-length: 2"), BadLength},
		{with(get, "content-length: 7", "content-length: 7", "content-length: 8"), BadLength},
		{with(get, "content-length: 7", "content-length: 7, 7"), BadLength},
		{with(get[1:], ":method: G T"), BadTarget},
		{with(get[1:], ":method: G(T"), BadMethod},
		{with(get[:3], ":path: x"), BadPath},
		{with(get[:3], ":path: *"), BadPath},
		{with(get[:3], ":path: /a#b"), BadPath},
		{with(get[:3], ":path: /\xc3\xa9"), BadPath},
		{with(get[:3], ":path: /\r"), BadTarget},
		{with(get, "host: b"), BadAuthority},
		{with(get, "host: a", "host: b"), BadAuthority},
		{fields(":method: GET", ":scheme: https", ":authority: u@a", ":path: /"), BadAuthority},
		{fields(":method: GET", ":scheme: https", ":path: /"), BadAuthority},
		{fields(":method: GET", ":scheme: https", ":authority: a/b", ":path: /"), BadAuthority},
		{fields(":method: CONNECT", ":authority: a"), BadConnect},
		{fields(":method: CONNECT", ":authority: a:1", ":path: /"), BadConnect},
		{with(get, ":protocol: websocket"), BadProtocol},
		{fields(":method: GET", ":scheme: 1x", ":authority: a", ":path: /"), BadScheme},
	} {
		var m Message
		if err := m.ReadRequest(test.fields, true); err != test.want { //nolint:errorlint // as it comes
			t.Errorf("%v: %v, want %v", test.fields, err, test.want)
		}
	}
	var m Message
	if err := m.ReadRequest(with(get[1:], ":method: CONNECT", ":protocol: websocket"), false); err != BadProtocol { //nolint:errorlint // as it comes
		t.Errorf("extended CONNECT that was not permitted: %v", err)
	}
}

func TestReadResponse(t *testing.T) {
	var m Message
	if err := m.ReadResponse(fields(":status: 404", "content-length: 3")); err != nil || m.Status != 404 || m.ContentLength != 3 {
		t.Errorf("read %+v, %v", m, err)
	}
	for _, test := range []struct {
		fields []Field
		want   Violation
	}{
		{nil, PseudoMissing},
		{fields("a: b"), PseudoMissing},
		{fields(":path: /"), PseudoUnknown},
		{fields(":status: 200", ":status: 200"), PseudoRepeated},
		{fields(":status: 200", ":path: /"), PseudoUnknown},
		{fields(":status: 101"), BadStatus},
		{fields(":status: 099"), BadStatus},
		{fields(":status: 20"), BadStatus},
		{fields(":status: 200", "keep-alive: x"), ConnectionField},
	} {
		if err := m.ReadResponse(test.fields); err != test.want { //nolint:errorlint // as it comes
			t.Errorf("%v: %v, want %v", test.fields, err, test.want)
		}
	}
}

// The same Content-Length again is one (RFC 9110 8.6), in requests and in responses.
func TestTheSameLengthTwiceIsOne(t *testing.T) {
	lines := []string{"a: b", "content-length: 7", "content-length: 7", "c: d", "content-length: 7"}
	want := fields("a: b", "content-length: 7", "c: d")
	var m Message
	if err := m.ReadRequest(with(get, lines...), false); err != nil || m.ContentLength != 7 || !slices.Equal(m.Fields, want) {
		t.Errorf("request: %v, length %d, %v", err, m.ContentLength, m.Fields)
	}
	if err := m.ReadResponse(with([]string{":status: 200"}, lines...)); err != nil || m.ContentLength != 7 || !slices.Equal(m.Fields, want) {
		t.Errorf("response: %v, length %d, %v", err, m.ContentLength, m.Fields)
	}
	if err := m.ReadResponse(fields(":status: 200", "content-length: 7", "content-length: 8")); err != BadLength { //nolint:errorlint // as it comes
		t.Errorf("two lengths of a response: %v", err)
	}
}

func TestContentRanges(t *testing.T) {
	for _, c := range []struct {
		fields []Field
		lines  int
		agree  bool
	}{
		{fields("a: b"), 0, true},
		{fields("content-range: bytes 0-1/2", "content-length: 2"), 1, true},
		{fields("content-range: bytes 0-1/2", "a: b", "content-range: bytes 0-1/2"), 2, true},
		{fields("content-range: bytes 0-1/2", "content-range: bytes 1-2/2"), 2, false},
		{fields("content-range: bytes 0-1/2", "content-range: "), 2, false},
	} {
		lines, agree := ContentRanges(c.fields)
		if lines != c.lines || agree != c.agree {
			t.Errorf("%v: %d lines, agree %v", c.fields, lines, agree)
		}
		if n, _ := ContentRanges(OneContentRange(c.fields)); n != min(c.lines, 1) {
			t.Errorf("%v: %d lines are left", c.fields, n)
		}
	}
}

func TestReadTrailers(t *testing.T) {
	kept, err := ReadTrailers(fields("a: b", "authorization: c", "x-forwarded-for: d", "e: f"))
	if err != nil || !slices.Equal(kept, fields("a: b", "e: f")) {
		t.Errorf("kept %v, %v", kept, err)
	}
	for line, want := range map[string]Violation{
		":path: /": PseudoUnknown, "A: b": BadName, "a: b\r": BadValue, "connection: close": ConnectionField, "content-length: 1": BadTrailer,
		"host: a": BadTrailer, "te: trailers": BadTrailer, "trailer: a": BadTrailer,
	} {
		if _, err := ReadTrailers(fields("a: b", line)); err != want { //nolint:errorlint // as it comes
			t.Errorf("%q: %v, want %v", line, err, want)
		}
	}
}

// Every byte at every place of a value that is longer than the words in which it is checked.
func TestIsValue(t *testing.T) {
	for c := range 256 {
		for i := range 19 {
			b := []byte("0123456789abcdef012")
			b[i] = byte(c)
			blank := c == ' ' || c == '\t'
			want := c >= ' ' && c != 0x7f || c == '\t'
			if IsText(string(b)) != want {
				t.Fatalf("IsText(%q) is %v", b, !want)
			}
			if blank && (i == 0 || i == 18) {
				want = false
			}
			if IsValue(string(b)) != want {
				t.Fatalf("IsValue(%q) is %v", b, !want)
			}
		}
	}
}

func TestIsAuthority(t *testing.T) {
	for _, ok := range []string{"a", "a.example", "a:80", "a:", "192.0.2.1:80", "[2001:db8::1]", "[2001:db8::1]:80", "[::ffff:192.0.2.1]", "a%20b", "a,b", "a_b"} {
		if !IsAuthority(ok) {
			t.Errorf("%q is refused", ok)
		}
	}
	for _, bad := range []string{
		"", ":80", ":", "a:x", "a:80:80", "a:-1", "a:+1", "a:8 0", "[::1", "::1]", "::1", "[::1]x", "[::1]:x", "[::1]]", "[a]", "[]", "[192.0.2.1]", "[fe80::1%1]",
		"[fe80::1%251]", "a]", "[a", "a[b]", "u@a", "a/b", "a b", "a#", "a?", "a\\b", "[::1]80", "[::1]:80]", "[::1][::1]",
	} {
		if IsAuthority(bad) {
			t.Errorf("%q is accepted", bad)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = IsAuthority("[2001:db8::1]:80") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestViolationsAllocateNothing(t *testing.T) {
	bad := with(get, "A: b")
	var m Message
	if n := testing.AllocsPerRun(100, func() { _ = m.ReadRequest(bad, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for v := Violation(1); v < Violations; v++ {
		if v.Error() == "" {
			t.Errorf("violation %d has no text", v)
		}
	}
}
