package inspect

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect/inflate"
	"github.com/millrace/millrace/wire"
)

// A rule on http.uri is evaluated on each way in which servers read a URI.
func TestReadingsOfURIs(t *testing.T) {
	for line, want := range map[string]string{
		"GET /evil HTTP/1.1":                     "1",
		"GET /%65vil HTTP/1.1":                   "1",
		"GET /%u0065vil HTTP/1.1":                "1",
		"GET /%U0065vil HTTP/1.1":                "1",
		"GET /%uff45vil HTTP/1.1":                "1", // fullwidth
		"GET /%2565vil HTTP/1.1":                 "1", // decoded twice
		"GET /a/%c0%ae%c0%ae/evil HTTP/1.1":      "1",
		"GET /a/..%c0%afevil HTTP/1.1":           "1",
		"GET /a/..%e0%80%afevil HTTP/1.1":        "1",
		"GET /a/..%f0%80%80%afevil HTTP/1.1":     "1",
		"GET /%c1%a5vil HTTP/1.1":                "1",
		"GET /a b/../../evil HTTP/1.1":           "1",
		"GET /a /evil HTTP/1.1":                  "",
		"GET /x /../evil HTTP/1.1":               "1",
		"GET /\xc3\xa9vil%u00 HTTP/1.1":          "",
		"GET /%u0065 HTTP/1.1":                   "",
		"GET /\xc0evil\xe0\x80 HTTP/1.1":         "",
		"GET /a?b=%2565vil HTTP/1.1":             "",
		"GET http://h/%u0065vil HTTP/1.1":        "1",
		"GET /ev%u0069%u006c/%u20ac?%u HTTP/1.1": "1",
	} {
		l := newLab(t, `alert http any any -> any any (http.uri; content:"/evil"; startswith; sid:1;)`)
		l.tcp(80).open().send(true, line+"\r\nHost: a\r\n\r\n", 1400)
		l.want(line, want)
	}
}

// Requests whose end recipients see at different places are an anomaly, and end their flow with Block.
func TestAmbiguousRequests(t *testing.T) {
	const plain = "POST / HTTP/1.1\r\nHost: a\r\n"
	for fields, want := range map[string]bool{
		"Content-Length: 2\r\n":                                                       false,
		"Content-Length: 2\r\nContent-Length: 2\r\n":                                  false,
		"Transfer-Encoding: chunked\r\n":                                              false,
		"Transfer-Encoding: Chunked\r\n":                                              false,
		"Content-Length: 2\r\nContent-Length: 3\r\n":                                  true,
		"Content-Length: 2, 2\r\n":                                                    true,
		"Content-Length: +2\r\n":                                                      true,
		"Content-Length: 2x\r\n":                                                      true,
		"Content-Length:\r\n":                                                         true,
		"Content-Length : 2\r\n":                                                      true,
		"Content-Length: 2\r\n 3\r\n":                                                 true,
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n":                         true,
		"Transfer-Encoding: xchunked\r\n":                                             true,
		"Transfer-Encoding: chunked, identity\r\n":                                    true,
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n":               true,
		"Transfer-Encoding : chunked\r\n":                                             true,
		"X: 1\r\n" + strings.Repeat("Y: 2\r\n", 40) + "Z: 3\r\n":                      false,
		strings.Repeat("Y: 2\r\n", 40) + "Content-Length: 2\r\nContent-Length: 1\r\n": true,
	} {
		g := newGate(t, Config{}, evilRequests)
		g.open()
		if r := g.segment(true, 1, wire.FlagACK, plain+fields+"\r\n"); r.Anomaly != want || (r.Outcome == Drop) != want {
			t.Errorf("%q: %+v", fields, r)
		}
		if r := g.segment(true, 900, wire.FlagACK, "more"); r.Blocked != want {
			t.Errorf("%q: what follows: %+v", fields, r)
		}
	}
	g := newGate(t, Config{}, evilRequests)
	g.open()
	if r := g.segment(true, 1, wire.FlagACK, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"); r.Outcome != Drop {
		t.Errorf("chunks in HTTP/1.0: %+v", r)
	}
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/"; sid:1;)`)
	l.tcp(80).open().send(true, plain+"Content-Length: 2\r\nContent-Length: 3\r\n\r\nab", 1400)
	l.want("a capture", "1")
}

// A chunk that is longer than its size ends inspection of its direction.
func TestChunksLongerThanTheirSize(t *testing.T) {
	g := newGate(t, Config{Refuse: true}, evilRequests)
	g.open()
	if !keptBack(g, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n") {
		t.Error("it passes")
	}
}

// A request without a version is evaluated with its line, once, and its answer has no head.
func TestRequestsWithoutAVersion(t *testing.T) {
	for text, want := range map[string]Outcome{
		"GET /evil\r\n": Drop, "GET /evil\n": Drop, " GET\t/evil \r\n": Drop, "GET /evil HTTP/0.9\r\n": Drop, "GET /a /evil\r\n": Pass,
		"GET /evil HTTP/1.0\r\n": Pass, "GET /evil": Pass, "GET /fine\r\n": Pass,
	} {
		g := newGate(t, Config{}, `drop http any any -> any any (http.uri; content:"/evil"; startswith; sid:1;)`)
		g.open()
		if r := g.segment(true, 1, wire.FlagACK, text); r.Outcome != want {
			t.Errorf("%q: %+v", text, r)
		}
		if r := g.segment(true, 1+uint32(len(text)), wire.FlagACK, "\r\n\r\n"); want == Drop && (len(g.alerts) != 1 || !r.Blocked) {
			t.Errorf("%q: %d alerts", text, len(g.alerts))
		}
	}
	g := newGate(t, Config{}, `alert http any any -> any any (http.uri; content:"/x"; sid:1;)
alert http any any -> any any (flow:to_client; file.data; content:"no head"; sid:2;)
alert http any any -> any any (http.user_agent; content:"agent"; sid:3;)`)
	g.open()
	g.segment(true, 1, wire.FlagACK, "GET /x\r\n")
	g.segment(false, 5000, wire.FlagACK, "<p>no head\n")
	g.segment(true, 9, wire.FlagACK, "User-Agent: agent\r\n\r\n") // a server may read a head all the same
	if got := g.sids(); got != "1 2 3" {
		t.Errorf("alerts %q", got)
	}
}

// compressed returns what a compressor makes of a text.
func compressed(t *testing.T, text string, compressor func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := compressor(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Bodies are evaluated as programs decode them: by lists of codings, in requests too, and as they came where they are in none.
func TestCodingsOfBodies(t *testing.T) {
	const text = "some text with evilbody, and a little more of it"
	deflated := compressed(t, text, func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z })
	for _, c := range []struct {
		codings, body string
		request       bool // requests are evaluated as they came, too
	}{
		{"gzip", gzipped(text), false},
		{"x-gzip", gzipped(text), false},
		{"deflate", deflated, false},
		{"deflate", compressed(t, text, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }), false},
		{"gzip, gzip", gzipped(gzipped(text)), false},
		{"identity, deflate ,gzip", gzipped(deflated), false},
		{"gzip", text, false},
		{"br", text, false},
		{"foo, gzip", gzipped(text), false},
		{"gzip, foo", gzipped(text), false},
		{"foo, gzip", text, false},
		{"gzip", gzipped("harmless")[:12] + text, false},
	} {
		for _, toServer := range []bool{true, false} {
			for _, mss := range []int{1, 5, 1400} {
				head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", c.codings, len(c.body))
				if toServer {
					head = "POST / HTTP/1.1\r\nHost: a\r\n" + strings.TrimPrefix(head, "HTTP/1.1 200 OK\r\n")
				}
				l := newLab(t, `alert http any any -> any any (file.data; content:"evilbody"; sid:1;)`)
				conn := l.tcp(80).open()
				if !toServer {
					conn.send(true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
				}
				conn.send(toServer, head+c.body, mss)
				l.want(fmt.Sprintf("%s, to the server: %v, segments of %d", c.codings, toServer, mss), "1")
			}
		}
	}
}

// Inline, the receiver never has all of a packed match: each segment is evaluated with what it decodes to.
func TestCodedBodiesAreEvaluatedAsTheyGrow(t *testing.T) {
	body := gzipped(strings.Repeat("x", 300)+"evilbody") + strings.Repeat("y", 500)
	for _, coding := range []string{"gzip", "gzip, identity"} {
		g := newGate(t, Config{Refuse: true}, `drop http any any -> any any (http.request_body; content:"evilbody"; sid:2;)`)
		g.open()
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", coding, len(body))
		seq := uint32(1)
		dropped := -1
		for i, part := range append([]string{head}, parts(body, 1)...) {
			if r := g.segment(true, seq, wire.FlagACK, part); r.Outcome == Drop {
				dropped = i - 1
				break
			}
			seq += uint32(len(part))
		}
		z, _ := inflate.NewCoding([]byte(coding), 1<<10)
		if dropped < 0 {
			t.Fatal("nothing was dropped")
		}
		if z.Write([]byte(body[:dropped])); bytes.Contains(z.Text(), []byte("evilbody")) {
			t.Errorf("the receiver has %q", z.Text())
		}
		if z.Write([]byte(body[dropped : dropped+1])); !bytes.Contains(z.Text(), []byte("evilbody")) {
			t.Error("a byte was dropped that completes nothing")
		}
	}
}

// A body that is in its coding at first, and then is not, is evaluated as it came, from its begin on.
func TestBodiesThatAreInNoCodingAfterAll(t *testing.T) {
	block := "\x00\x2c\x01\xd3\xfe" + strings.Repeat("x", 300) // of DEFLATE, stored
	named := "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03evilbody\x00"
	for coding, evil := range map[string]string{"deflate": block + "\x07 evilbody", "gzip": named + block + "\x07" + strings.Repeat("y", 99)} {
		g := newGate(t, Config{Refuse: true}, evilRequests)
		g.open()
		head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: " + coding + "\r\nContent-Length: 1000\r\n\r\n"
		outcome, seq := Pass, uint32(1)
		for _, part := range append([]string{head}, parts(evil, 50)...) {
			outcome = max(outcome, g.segment(true, seq, wire.FlagACK, part).Outcome)
			seq += uint32(len(part))
		}
		if outcome != Drop {
			t.Errorf("%s: %.20q passes", coding, evil)
		}
	}
}

func parts(text string, size int) (list []string) {
	for len(text) > size {
		list, text = append(list, text[:size]), text[size:]
	}
	return append(list, text)
}

// A hello is read behind records that servers skip, in records of any version and size, and again behind a change of the cipher.
func TestHellosInOddRecords(t *testing.T) {
	hello := func(name string) string { return helloFor(name) }
	record := func(kind, major, minor byte, text string) string {
		return string([]byte{kind, major, minor, byte(len(text) >> 8), byte(len(text))}) + text
	}
	message := hello("www.evil.test")[5:]
	var small strings.Builder
	for _, part := range parts(message, 3) {
		small.WriteString(record(22, 3, 1, part))
	}
	other := hello("www.fine.test")
	for name, text := range map[string]string{
		"plain":            record(22, 3, 1, message),
		"version 3.153":    record(22, 3, 0x99, message),
		"version 9.9":      record(22, 9, 9, message),
		"version 0.0":      record(22, 0, 0, message),
		"empty records":    record(22, 3, 1, "") + record(22, 3, 1, "") + record(22, 3, 1, message),
		"an alert":         record(21, 3, 1, "\x01\x5a") + record(22, 3, 1, message),
		"a change":         record(20, 3, 3, "\x01") + record(22, 3, 1, message),
		"small records":    small.String(),
		"a second hello":   other + record(20, 3, 3, "\x01") + record(22, 3, 3, message),
		"empty in a hello": record(22, 3, 1, message[:9]) + record(22, 3, 1, "") + record(22, 3, 1, message[9:]),
	} {
		for _, mss := range []int{1, 1400} {
			l := newLab(t, `alert tls any any -> any any (tls.sni; content:"evil.test"; endswith; sid:1;)`)
			l.tcp(443).open().send(true, text, mss)
			l.want(fmt.Sprintf("%s in segments of %d", name, mss), "1")
		}
	}
	for name, text := range map[string]string{
		"encrypted":         other + record(20, 3, 3, "\x01") + record(22, 3, 3, "\x01\x00\x01\x00"+message[4:]),
		"more than a hello": other + record(20, 3, 3, "\x01") + record(22, 3, 3, message+"x"),
		"no record":         record(22, 16, 1, message),
	} {
		l := newLab(t, `alert tls any any -> any any (tls.sni; content:"evil.test"; endswith; sid:1;)`)
		l.tcp(443).open().send(true, text, 1400)
		l.want(name, "")
	}
}

// A field that comes in several lines is compared with each of them, and with all of them as one value: recipients take the first, the last,
// or the list.
func TestReadingsOfRepeatedFields(t *testing.T) {
	rules := `alert http any any -> any any (http.header; content:"X-Role|3a| evil|0d 0a|"; sid:1;)
alert http any any -> any any (http.user_agent; content:"evil"; startswith; endswith; sid:2;)
alert http any any -> any any (http.cookie; content:"evil"; startswith; endswith; sid:3;)
alert http any any -> any any (http.header; content:"X-Role|3a| a, evil"; sid:4;)
alert http any any -> any any (http.user_agent; content:"a, evil"; startswith; endswith; sid:5;)
alert http any any -> any any (http.server; content:"evil"; startswith; endswith; sid:6;)
alert http any any -> any any (http.header; content:"X-Role"; content:!"evil"; sid:7;)`
	for fields, want := range map[string]string{
		"X-Role: evil\r\n":                                                                             "1",
		"X-Role: evil\r\nX-Role: a\r\n":                                                                "1",
		"X-Role: a\r\nX-Role: evil\r\n":                                                                "1 4",
		"X-Role: a\r\nOther: b\r\nx-role: evil\r\n":                                                    "4",
		"X-Role: a\r\nX-Role: ev\r\n il\r\n":                                                           "7",
		"X-Role: b\r\nX-Role: c\r\nX-Role: evil\r\n":                                                   "1",
		"X-Role: a, evil\r\n":                                                                          "4",
		"User-Agent: evil\r\nUser-Agent: a\r\n":                                                        "2",
		"User-Agent: a\r\nUser-Agent: evil\r\n":                                                        "2 5",
		"User-Agent: a\r\nUser-Agent:\r\n evil\r\n":                                                    "2",
		"User-Agent:\r\n evil\r\n":                                                                     "2",
		"Cookie: a\r\nCookie: evil\r\n":                                                                "3",
		strings.Repeat("User-Agent: a\r\n", 20) + "User-Agent: evil\r\n":                               "2",
		"User-Agent: evil\r\n" + strings.Repeat("User-Agent: a\r\n", 20):                               "2",
		strings.Repeat("Y: 2\r\n", 2) + manyNames(40) + "X-Role: a\r\nX-Role: evil\r\n":                "1 4",
		manyNames(40) + "User-Agent: a\r\nUser-Agent: b\r\nUser-Agent: evil\r\n":                       "2",
		strings.Repeat("X-Role: a\r\n", 20) + "X-Role: evil\r\n" + strings.Repeat("X-Role: a\r\n", 20): "1",
	} {
		l := newLab(t, rules)
		l.tcp(80).open().send(true, "GET / HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n", 1400)
		l.want(fields, want)
	}
	l := newLab(t, rules)
	c := l.tcp(80).open().send(true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
	c.send(false, "HTTP/1.1 200 OK\r\nServer: a\r\nServer: evil\r\nContent-Length: 0\r\n\r\n", 1400)
	l.want("a response", "6")
}

// manyNames returns so many fields of different names.
func manyNames(n int) (out string) {
	for i := range n {
		out += fmt.Sprintf("N%d: v\r\n", i)
	}
	return out
}
