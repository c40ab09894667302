package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// singletons are the fields of requests that may come once.
var singletons = []string{"Authorization", "Proxy-Authorization", "Content-Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since"}

// Fields of requests that have one value are not passed on twice, in any version.
func TestFieldsWithOneValueComeOnce(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	for _, name := range append([]string{"Accept", "If-Match", "X-Authorization"}, singletons...) {
		want := 200
		for _, s := range singletons {
			if s == name {
				want = 400
			}
		}
		for _, h2 := range []bool{false, true} {
			for _, values := range [][]string{{"a"}, {"a", "a"}, {"a", "b"}} {
				req, err := http.NewRequest("GET", "https://"+r.secure, nil)
				must(t, err)
				req.Header[name] = values
				resp, err := r.client(h2).Do(req)
				must(t, err)
				resp.Body.Close()
				if once := len(values) == 1; resp.StatusCode != want && !once || once && resp.StatusCode != 200 {
					t.Errorf("%s %s %q: status %d", resp.Proto, name, values, resp.StatusCode)
				}
			}
		}
	}
	r.settled()
}

// A request of HTTP/1.0 whose method has no content by its definition may have none: old recipients take it for another request.
func TestHTTP10WithoutMeaninglessContent(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	for _, c := range []struct {
		method, version string
		length, want    int
	}{
		{"GET", "1.0", 3, 400},
		{"HEAD", "1.0", 3, 400},
		{"DELETE", "1.0", 3, 400},
		{"GET", "1.0", 0, 200},
		{"POST", "1.0", 3, 200},
		{"PUT", "1.0", 3, 200},
		{"GET", "1.1", 3, 200},
		{"DELETE", "1.1", 3, 200},
	} {
		got := r.talk(fmt.Sprintf("%s / HTTP/%s\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			c.method, c.version, c.length, "abc"[:c.length]))
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.want)) {
			t.Errorf("%s of HTTP/%s with %d bytes: %q", c.method, c.version, c.length, got)
		}
	}
	r.settled()
}

// A backend that sends the same Content-Length twice means one: the response passes with one (RFC 9110 8.6). Different ones do not.
func TestTheSameLengthTwiceInResponses(t *testing.T) {
	for _, c := range []struct {
		second string
		want   int
	}{{"2", 200}, {"3", 502}, {"02", 200}, {"x", 502}} {
		r := newRig(t, script(t, func(conn net.Conn) {
			read(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: "+c.second+"\r\nConnection: close\r\n\r\nok")
		}), nil)
		got := r.talk("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != c.want || c.want == 200 && string(body) != "ok" || err != nil || strings.Count(strings.ToLower(got), "content-length:") != 1 {
			t.Errorf("2 and %s: %q", c.second, got)
		}
	}
}

// The same Content-Range again passes once, and different ones are no response (RFC 9110 14.4). In other responses they mean nothing.
func TestContentRangeTwiceInResponses(t *testing.T) {
	for _, c := range []struct {
		status       int
		second, want string
	}{
		{206, "bytes 0-1/9", "206 1"},
		{206, "bytes 1-2/9", "502 0"},
		{416, "bytes */9", "502 0"},
		{200, "bytes 1-2/9", "200 2"},
	} {
		r := newMemRig(t, nil)
		r.backend = func(p *memtransport.Peer) {
			p.Handler = func(p *memtransport.Peer) {
				if len(p.Take()) == 0 {
					p.Close()
					return
				}
				fmt.Fprintf(peerWriter{p}, "HTTP/1.1 %d x\r\nContent-Length: 2\r\nContent-Range: bytes 0-1/9\r\nX: y\r\nContent-Range: %s\r\n\r\nok", c.status, c.second)
			}
		}
		got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if s := fmt.Sprintf("%.3s %d", got[min(9, len(got)):], strings.Count(got, "content-range: ")); s != c.want {
			t.Errorf("%d with %q: %s, want %s: %q", c.status, c.second, s, c.want, got)
		}
		r.nothingLeft()
	}
}

// Two lines of Content-Length that agree pass as one from a backend with HTTP/2 to a client with HTTP/1.1, and from a client with
// HTTP/2 to a backend with HTTP/1.1.
func TestTheSameLengthTwiceOverHTTP2(t *testing.T) {
	lengths := func(first, second string) string {
		return hpackLiterals(":status", "200", "content-length", first, "content-length", second)
	}
	for second, want := range map[string]string{"2": "200 1", "3": "502 1"} {
		r := newMemRig(t, func(r *memRig, _ *Tree) { r.to.Protocol = HTTP2 })
		r.backend = func(p *memtransport.Peer) {
			serveHTTP2(p, http2.Options{}, func(m *http2.Machine, ev http2.Event) {
				if ev.Kind == http2.End {
					p.Write([]byte(wrongcases.Frame(1, 4, ev.Stream.ID(), lengths("2", second)) + wrongcases.Frame(0, 1, ev.Stream.ID(), "ok")))
				}
			})
		}
		got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if s := fmt.Sprintf("%.3s %d", got[min(9, len(got)):], strings.Count(got, "content-length: ")); s != want {
			t.Errorf("2 and %s: %s, want %s: %q", second, s, want, got)
		}
		r.nothingLeft()
	}
}

// hpackLiterals encodes fields, given as names and values in turn.
func hpackLiterals(pairs ...string) string {
	var list []wrongcases.Field
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, wrongcases.Field{pairs[i], pairs[i+1]})
	}
	return wrongcases.HPACK(list)
}
