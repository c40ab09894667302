package proxy

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/h1side"
	"github.com/millrace/millrace/semantics"
)

// Content that could move from one connection to the other by itself passes the rules while there is something to inspect.
func TestContentThatCouldBypassIsInspected(t *testing.T) {
	const size = 190_000
	text := strings.Repeat("x", 60_000) + "evilbody secret" + strings.Repeat("x", size-60_015)
	for _, up := range []bool{true, false} {
		r := newInspectRig(t, inspect.Prevent, 1000, evilBody+evilResponses)
		r.loop.Relays = true
		if !up {
			r.backend = func(p *memtransport.Peer) {
				p.Handler = func(p *memtransport.Peer) {
					if len(p.Take()) > 0 {
						p.Write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, text))
					}
				}
			}
		}
		c := r.connect(memHTTP1)
		if up {
			c.Write(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, text))
		} else {
			c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		}
		r.run()
		got := string(c.Take())
		if up && (!strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Contains(r.received(), "evil")) {
			t.Errorf("%.100q, and the backend has %d bytes", got, len(r.received()))
		}
		if !up && (!c.Reset || strings.Contains(got, "secret")) {
			t.Errorf("%d bytes, reset %v", len(got), c.Reset)
		}
		r.released(c)
	}
}

// Where the length is announced, what only the whole content decides is known before the last piece leaves, whenever the end comes.
func TestTheLastPieceWaitsForTheWhole(t *testing.T) {
	text := strings.Repeat("x", 3000) + "tail"
	r := newInspectRig(t, inspect.Prevent, 100, evilBody)
	c, m := r.connect(memHTTP2), http2.NewMachine(http2.RoleClient, http2.Options{})
	s, err := m.Open()
	must(t, err)
	q := semantics.Message{Method: "POST", Scheme: "http", Authority: "a", Path: "/whole", ContentLength: int64(len(text))}
	out, err := m.AppendRequest(m.AppendControl(nil), s, &q, false)
	must(t, err)
	for part := range slices.Chunk([]byte(text), 501) { // the end does not follow
		out, _, err = m.AppendData(out, s, part, false)
		must(t, err)
		c.Write(out)
		out = out[:0]
		r.run()
	}
	if got := r.received(); strings.Contains(got, "tail") || !strings.Contains(got, "xxx") || r.records == nil || r.records[0].Status != 403 {
		t.Errorf("the backend has %d bytes: %+v", len(got), r.records)
	}
	r.released(c)
}

// The same of responses, by a backend with HTTP/2.
func TestTheLastPieceOfAResponseWaitsForTheWhole(t *testing.T) {
	text := strings.Repeat("x", 3000) + "tail"
	r := newInspectRig(t, inspect.Prevent, 100, `drop http any any -> any any (flow:to_client; http.response_body; content:"tail"; endswith; sid:1;)`)
	r.to.Protocol = HTTP2
	r.backend = func(p *memtransport.Peer) {
		serveHTTP2(p, http2.Options{}, func(m *http2.Machine, ev http2.Event) {
			if ev.Kind != http2.End {
				return
			}
			out, err := m.AppendResponse(nil, ev.Stream, &semantics.Message{Status: 200, ContentLength: int64(len(text))}, false)
			must(t, err)
			for part := range slices.Chunk([]byte(text), 501) {
				out, _, err = m.AppendData(out, ev.Stream, part, false)
				must(t, err)
			}
			p.Write(out)
		})
	}
	c := r.connect(memHTTP1)
	c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	if got := string(c.Take()); strings.Contains(got, "tail") || !c.Reset {
		t.Errorf("%d bytes, reset %v", len(got), c.Reset)
	}
	r.released(c)
}

// A connection to a backend keeps headers only of responses that are inspected.
func TestOtherHeadersAreNotKept(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilURI)
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if len(p.Take()) > 0 {
				p.Write([]byte("HTTP/1.1 200 OK\r\nx-odd: y\r\nContent-Length: 0\r\n\r\n"))
			}
		}
	}
	engine := r.engine
	for _, s := range []struct {
		engine *inspect.Engine
		name   string
	}{{engine, "x-odd"}, {nil, "X-Odd"}, {engine, "x-odd"}} {
		r.use(s.engine)
		r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		for _, bs := range r.worker.backs {
			_, m := bs.idle[0].conn.(*h1side.Back).Plain()
			if got := string(m.Head()); !strings.Contains(got, "\n"+s.name+":") {
				t.Errorf("want %s: %q", s.name, got)
			}
		}
	}
	r.use(engine)
	if len(r.backs) != 1 {
		t.Errorf("%d connections to backends", len(r.backs))
	}
	r.released()
}

// A client that waits for 100 (Continue) gets it from the gateway before there is a backend.
func TestHeldContentIsAskedFor(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilBody)
	c := r.connect(memHTTP1)
	c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 100 ") || len(r.backs) != 0 {
		t.Errorf("%q, %d connections to backends", got, len(r.backs))
	}
	c.Write([]byte("fine"))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
	r.released(c)
}

// The handshake of a WebSocket is a request without content, also in HTTP/2, where what follows is of its stream.
func TestWebSocketsAreNotHeld(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilBody)
	asked := ""
	r.backend = func(p *memtransport.Peer) { p.Handler = func(p *memtransport.Peer) { asked += string(p.Take()) } }
	c, m := r.connect(memHTTP2), http2.NewMachine(http2.RoleClient, http2.Options{})
	c.Write(m.AppendControl(nil))
	r.run()
	if _, _, err := m.Input(c.Take()); err != nil { // its settings permit extended CONNECT
		t.Fatal(err)
	}
	s, err := m.Open()
	must(t, err)
	q := semantics.Message{
		Method: "CONNECT", Protocol: "websocket", Scheme: "http", Authority: "a", Path: "/chat", ContentLength: -1,
		Fields: []semantics.Field{{Name: "sec-websocket-version", Value: "13"}},
	}
	out, err := m.AppendRequest(m.AppendControl(nil), s, &q, false)
	must(t, err)
	c.Write(out)
	r.run()
	if !strings.HasPrefix(asked, "GET /chat ") {
		t.Errorf("the backend has %q", asked)
	}
	r.released(c)
}

// The header of a response is inspected as the backend wrote it, on each use of its connection.
func TestHeadersOfResponsesAsTheyCame(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, `drop http any any -> any any (flow:to_client; http.header.raw; content:"x-ODD:  y"; sid:1;)`)
	header := ""
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if len(p.Take()) > 0 {
				p.Write([]byte("HTTP/1.1 200 OK\r\n" + header + "Content-Length: 0\r\n\r\n"))
			}
		}
	}
	c := r.connect(memHTTP1)
	for _, h := range []string{"", "x-odd: y\r\n", "x-ODD:  y\r\n"} {
		header = h
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got := string(c.Take()); strings.HasPrefix(got, "HTTP/1.1 502 ") != strings.Contains(h, "ODD") {
			t.Errorf("%q: %q", h, got)
		}
	}
	r.released(c)
}

// An idle connection does not keep an engine that was replaced: its next request has the other, and the one of before nothing.
func TestAConnectionFollowsTheEngine(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilURI)
	c := r.connect(memHTTP1)
	ask := func(path, want string) {
		t.Helper()
		c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got := string(c.Take()); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	ask("/evil", "HTTP/1.1 403 ")
	before := r.engine
	r.use(inspect.New(compiledRules(t, strings.Replace(evilURI, "/evil", "/other", 1), nil), inspect.Config{Inline: true}, r.alert))
	ask("/evil", "HTTP/1.1 200 ")
	ask("/other", "HTTP/1.1 403 ")
	if _, used := before.Flows(); used != 0 {
		t.Errorf("the engine of before holds %d bytes", used)
	}
	r.released(c)
}

// A backend that sends a response slowly has the time of content for each part, also while the response is held.
func TestAHeldResponseGoesOn(t *testing.T) {
	r := newInspectRig(t, inspect.Prevent, 1000, evilResponses)
	r.to.Response = 15 * time.Second
	var back *memtransport.Peer
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if back == nil && len(p.Take()) > 0 {
				back = p
				p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"))
			}
		}
	}
	r.rule.Attempt = 0
	c := r.connect(memHTTP1)
	c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	for range 4 {
		r.pass(10 * time.Second)
		back.Write([]byte("0123456789"))
		r.run()
	}
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "0123456789") {
		t.Errorf("%q", got)
	}
	r.released(c)
}

// Rules on JA4 see that of QUIC.
func TestHelloOfHTTP3HasJA4(t *testing.T) {
	var mu sync.Mutex
	var found []uint32
	r := http3Rig(t, echoBackend(t, false), func(r *rig) {
		for _, ln := range r.tree.Listeners {
			ln.Inspection = &Inspection{Policy: 1}
		}
	})
	e := inspect.New(compiledRules(t, `alert tls any any -> any any (ja4.hash; content:"q13d"; startswith; sid:1;)
alert tls any any -> any any (tls.sni; content:"gateway.test"; bsize:12; sid:2;)
`, nil), inspect.Config{Inline: true}, func(a *inspect.Alert) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, a.Rule.SID); a.Src.IsUnspecified() || a.SrcPort == 0 {
			t.Errorf("an alert has the source %v:%d", a.Src, a.SrcPort)
		}
	})
	r.do(func() {
		r.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return e, inspect.Prevent })
	})
	resp, err := r.client3().Get("https://" + r.secure)
	must(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	mu.Lock()
	defer mu.Unlock()
	if slices.Sort(found); !slices.Equal(found, []uint32{1, 2}) {
		t.Errorf("rules %v", found)
	}
}

// No copy of a request that a rule ends is sent to a mirror, whenever it matches; others are.
func TestRequestsThatMatchAreNotMirrored(t *testing.T) {
	for _, c := range []struct {
		path   string
		pieces []string
		copied bool
	}{
		{"/", []string{"fine ", "content"}, true},
		{"/", []string{"an evil", "body of ", "text"}, false},
		{"/whole", []string{"a long ", "tail"}, false},
	} {
		for _, hold := range []int{0, 1000} {
			r := newInspectRig(t, inspect.Prevent, hold, evilBody)
			r.rule.Mirror = &Mirror{Rule: &Rule{Name: "all", Backends: r.rule.Backends, Attempts: 1}, Percent: 100, Most: 1 << 16}
			p := r.connect(memHTTP1)
			p.Write([]byte("POST " + c.path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"))
			for _, piece := range c.pieces {
				p.Write(fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece))
				r.run()
			}
			p.Write([]byte("0\r\n\r\n"))
			r.run()
			whole := map[bool]int{true: 2}[c.copied] // the request and its copy
			if n := r.at.whole(); n != whole || strings.Contains(r.received(), "evilbody") {
				t.Errorf("%s %v, hold %d: backends have %d whole requests: %q", c.path, c.pieces, hold, n, r.received())
			}
			r.released(p)
		}
	}
}
