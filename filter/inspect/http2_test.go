package inspect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/millrace/millrace/filter/signature"
)

// h2 writes the frames of one direction, by another implementation.
type h2 struct {
	out, block bytes.Buffer
	f          *http2.Framer
	enc        *hpack.Encoder
}

func newH2() *h2 {
	h := &h2{}
	h.f, h.enc = http2.NewFramer(&h.out, nil), hpack.NewEncoder(&h.block)
	h.f.WriteSettings()
	return h
}

// fields encodes "name value" lines into a field block.
func (h *h2) fields(lines ...string) []byte {
	h.block.Reset()
	for _, l := range lines {
		name, value, _ := strings.Cut(l, " ")
		h.enc.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return bytes.Clone(h.block.Bytes())
}

func (h *h2) headers(stream uint32, end bool, lines ...string) *h2 {
	h.f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h.fields(lines...), EndHeaders: true, EndStream: end})
	return h
}

func (h *h2) data(stream uint32, end bool, text string, pad int) *h2 {
	h.f.WriteDataPadded(stream, end, []byte(text), make([]byte, pad))
	return h
}

func (h *h2) String() string { return h.out.String() }

// requestLines are the fields of a request.
func requestLines(method, path string, more ...string) []string {
	return append([]string{":method " + method, ":scheme http", ":path " + path, ":authority WWW.Example.com"}, more...)
}

// The buffers of HTTP have what messages of HTTP/2 say, in any segmentation.
func TestHTTP2Buffers(t *testing.T) {
	client := newH2().headers(1, false, requestLines("POST", "/a%41/../b", "user-agent agent/1", "cookie k=v", "content-encoding gzip")...)
	body := gzipped("hello, packed")
	client.data(1, false, body[:10], 7).data(1, true, body[10:], 0)
	server := newH2().headers(1, false, ":status 103", "link x").headers(1, false, ":status 404", "server s/1").data(1, true, "not found", 3)
	for _, c := range []struct{ rule, content string }{
		{"http.method", "POST"},
		{"http.uri", "/b"},
		{"http.uri.raw", "/a%41/../b"},
		{"http.host", "www.example.com"},
		{"http.host.raw", "WWW.Example.com"},
		{"http.user_agent", "agent/1"},
		{"http.cookie", "k=v"},
		{"flow:to_server; http.protocol", "HTTP/2"},
		{"http.request_line", "POST /a%41/../b HTTP/2"},
		{"http.request_body", "hello, packed"},
		{"http.stat_code", "404"},
		{"http.server", "s/1"},
		{"http.response_body", "not found"},
		{"http.response_line", "HTTP/2 404"},
	} {
		for _, mss := range []int{1, 7, 10000} {
			l := newLab(t, fmt.Sprintf("alert http any any -> any any (%s; content:%q; startswith; endswith;)", c.rule, c.content))
			l.tcp(80).open().send(true, http2.ClientPreface+client.String(), mss).send(false, server.String(), mss)
			if got := l.sids(); got != "1" {
				t.Errorf("%s in segments of %d: %q", c.rule, mss, got)
			}
		}
	}
}

// Rules say which versions they are about.
func TestVersionsOfHTTPInRules(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/x"; sid:1;)
alert http1 any any -> any any (http.uri; content:"/x"; sid:2;)
alert http2 any any -> any any (http.uri; content:"/x"; sid:3;)`)
	l.tcp(80).open().send(true, http2.ClientPreface+newH2().headers(1, true, requestLines("GET", "/x")...).String(), 1400)
	l.want("HTTP/2", "1 3")
	l.alerts = nil
	c := l.tcp(80)
	c.port++
	c.open().send(true, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 1400)
	l.want("HTTP/1.1", "1 2")
}

// A flow becomes one of HTTP/2 by the preface: at its begin, behind a request, and behind an upgrade, whichever end's bytes come
// first.
func TestHTTP2BehindHTTP1(t *testing.T) {
	const upgrade = "GET /fine HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
	const answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
	request := http2.ClientPreface + newH2().headers(3, true, requestLines("GET", "/evil")...).String()
	response := newH2().headers(1, true, ":status 200").headers(3, true, ":status 403", "server evil").String()
	rules := `alert http any any -> any any (http.uri; content:"/evil"; sid:1;)
alert http any any -> any any (http.server; content:"evil"; sid:2;)
alert http any any -> any any (http.uri; content:"/fine"; sid:3;)`
	for _, mss := range []int{1, 5, 1400} {
		for name, play := range map[string]func(c *conn){
			"answer first": func(c *conn) {
				c.send(true, upgrade, mss).send(false, answer, mss).send(true, request, mss).send(false, response, mss)
			},
			"preface first": func(c *conn) { c.send(true, upgrade+request, mss).send(false, answer+response, mss) },
			"half a preface": func(c *conn) {
				c.send(true, upgrade+request[:9], mss).send(false, answer, mss).send(true, request[9:], mss).send(false, response, mss)
			},
			"without waiting": func(c *conn) { c.send(true, upgrade, mss).send(true, request, mss).send(false, answer+response, mss) },
		} {
			l := newLab(t, rules)
			play(l.tcp(80).open())
			l.want(fmt.Sprintf("%s in segments of %d", name, mss), "1 2 3")
		}
	}
}

// Inline, a request is evaluated with its head, and its body as it grows.
func TestHTTP2IsEvaluatedEarly(t *testing.T) {
	g := newGate(t, Config{Refuse: true}, evilRequests)
	g.open()
	head := http2.ClientPreface + newH2().headers(1, false, requestLines("POST", "/evil")...).String()
	if r := g.segment(true, 1, 0x18, head); r.Outcome != Drop {
		t.Errorf("a head: %+v", r)
	}
	g = newGate(t, Config{Refuse: true}, evilRequests)
	g.open()
	text := http2.ClientPreface + newH2().headers(1, false, requestLines("POST", "/")...).data(1, false, "an evil", 9).data(1, false, "body, ", 0).String()
	if r := g.segment(true, 1, 0x18, text[:len(text)-8]); r.Outcome != Pass {
		t.Errorf("a part of a body: %+v", r)
	}
	if r := g.segment(true, 1+uint32(len(text)-8), 0x18, text[len(text)-8:]); r.Outcome != Drop {
		t.Errorf("the end of a match: %+v", r)
	}
}

// What cannot be parsed any more is a bound, and holds nothing.
func TestHTTP2GivesUp(t *testing.T) {
	many := newH2()
	for i := range uint32(maxHTTP2Streams + 1) {
		many.headers(2*i+1, false, requestLines("GET", "/")...)
	}
	for name, text := range map[string]string{
		"a table that is not known": newH2().String() + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\xff",
		"a field block of 1 MiB":    "\x10\x00\x00\x01\x05\x00\x00\x00\x01",
		"padding without an end":    "\x00\x00\x01\x01\x0d\x00\x00\x00\x01\x09",
		"too many streams":          many.String(),
	} {
		g := newGate(t, Config{Refuse: true, MemoryBytes: 64 << 20}, evilRequests)
		g.open()
		bound := keptBack(g, http2.ClientPreface+text)
		if !bound {
			t.Errorf("%s passes", name)
		}
	}
}

// Streams that are over, or reset, hold nothing.
func TestHTTP2ForgetsStreams(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/late"; content:!"x"; sid:1;)
alert http any any -> any any (http.request_body; content:"part"; sid:2;)`)
	c := l.tcp(80).open()
	client, server := newH2(), newH2()
	for i := range uint32(2000) {
		client.headers(2*i+1, true, requestLines("GET", "/")...)
		server.headers(2*i+1, true, ":status 204")
	}
	client.headers(9001, false, requestLines("POST", "/late")...).data(9001, false, "part", 0)
	client.f.WriteRSTStream(9001, http2.ErrCodeCancel)
	c.send(true, http2.ClientPreface, 1400)
	for a, b := client.String(), server.String(); len(a)+len(b) > 0; {
		n, m := min(len(a), 1400), min(len(b), 1000)
		c.send(true, a[:n], 1400).send(false, b[:m], 1400)
		a, b = a[n:], b[m:]
	}
	if n := len(l.e.oldest.proto.http2.streams); n > 0 {
		t.Errorf("%d streams are held", n)
	}
	l.want("a stream that is reset", "1 2")
}

// Frames of any bytes change nothing but what they are about.
func FuzzHTTP2(f *testing.F) {
	f.Add([]byte(newH2().headers(1, false, requestLines("POST", "/evil")...).data(1, true, "evilbody", 4).String()), uint8(3))
	r, err := Compile(signature.Parse("f", evilRequests, nil).Rules)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, frames []byte, size uint8) {
		alerts := func(mss int) int {
			l := &lab{t: t, now: 1e9}
			l.e = New(r, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
			l.tcp(80).open().send(true, http2.ClientPreface+string(frames), mss)
			l.e.Flush()
			return len(l.alerts)
		}
		if whole, parts := alerts(60000), alerts(max(int(size), 1)); whole != parts {
			t.Fatalf("%d alerts at once, %d in segments of %d", whole, parts, size)
		}
	})
}
