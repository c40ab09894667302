package proxy

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/cache"
)

// bodyOf returns the content of a response.
func bodyOf(t *testing.T, text string) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		t.Errorf("%v in %.100q", err, text)
		return ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("after %d bytes: %v", len(b), err)
	}
	return string(b)
}

// askAll sends the same GET over so many connections.
func (r *cachedRig) askAll(n int, lines ...string) (clients []*memtransport.Peer) {
	r.t.Helper()
	for range n {
		c := r.connect(memHTTP1)
		c.Write([]byte(requestOf("GET", "/", lines...)))
		r.run()
		clients = append(clients, c)
	}
	return clients
}

// One request goes to the backend for all that come while it is under way.
func TestRequestsCollapse(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.askAll(10)
	if len(r.seen) != 1 {
		t.Fatalf("%d requests", len(r.seen))
	}
	r.peers[0].Write([]byte(response("x", cacheable)))
	r.run()
	r.expect("the first", string(c[0].Take()), "200 x fwd=uri-miss; stored", 1)
	for _, c := range c[1:] {
		r.expect("another", string(c.Take()), "200 x fwd=uri-miss; collapsed", 1)
	}
	if n := r.use.Store.Counts(); n[cache.CountMiss] != 1 || n[cache.CountCollapsed] != 9 {
		t.Errorf("%v", n)
	}
	r.nothingLeft(c...)
}

// A stale response is validated once for all.
func TestValidationsCollapse(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(string) string { return response("x", "Cache-Control: max-age=5", `ETag: "v"`) }
	r.get("/")
	r.now = r.now.Add(6 * time.Second)
	r.reply = func(string) string { return "" }
	c := r.askAll(5)
	r.peers[1].Write([]byte("HTTP/1.1 304 N\r\nCache-Control: max-age=5\r\n\r\n"))
	r.run()
	for i, c := range c {
		if got := brief(string(c.Take())); !strings.HasPrefix(got, "200 x fwd=") || len(r.seen) != 2 {
			t.Errorf("%d: %q", i, got)
		}
	}
	r.nothingLeft(c...)
}

// A response that is none for others lets each go its own way, as soon as its header is there, and so do the next ones for a while.
func TestResponsesThatAreNotSharedDoNotCollapse(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.askAll(4)
	r.peers[0].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nCache-Control: private\r\n\r\n1"))
	r.run()
	if len(r.seen) != 4 {
		t.Fatalf("%d requests", len(r.seen))
	}
	c = append(c, r.askAll(2)...)
	if len(r.seen) != 6 {
		t.Errorf("%d requests", len(r.seen))
	}
	r.now = r.now.Add(11 * time.Second)
	c = append(c, r.askAll(2)...)
	if len(r.seen) != 7 {
		t.Errorf("%d requests after a while", len(r.seen))
	}
	r.peers[0].Write([]byte("23456789"))
	r.nothingLeft(c...)
}

// Where the first request fails, or its client leaves, the next one takes its place.
func TestTheNextRequestTakesThePlaceOfOneThatFails(t *testing.T) {
	for name, fail := range map[string]func(r *cachedRig, first *memtransport.Peer){
		"the client leaves":  func(_ *cachedRig, first *memtransport.Peer) { first.Abort() },
		"the backend closes": func(r *cachedRig, _ *memtransport.Peer) { r.peers[0].Close() },
		"an error": func(r *cachedRig, _ *memtransport.Peer) {
			r.peers[0].Write([]byte("HTTP/1.1 503 E\r\nContent-Length: 0\r\n\r\n"))
		},
		"the response is cut": func(r *cachedRig, _ *memtransport.Peer) {
			r.peers[0].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + cacheable + "\r\n\r\n1"))
			r.run()
			r.peers[0].Abort()
		},
		"the client leaves in the response": func(r *cachedRig, first *memtransport.Peer) {
			r.peers[0].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + cacheable + "\r\n\r\n1"))
			r.run()
			first.Abort()
		},
	} {
		r := newCachedRig(t, nil)
		c := r.askAll(4)
		fail(r, c[0])
		r.run()
		if len(r.seen) != 2 {
			t.Fatalf("%s: %d requests", name, len(r.seen))
		}
		r.peers[1].Write([]byte(response("x", cacheable)))
		r.run()
		for _, c := range c[1:] {
			if got := string(c.Take()); !strings.HasSuffix(got, "\r\n\r\nx") {
				t.Errorf("%s: %q", name, got)
			}
		}
		if len(r.seen) != 2 {
			t.Errorf("%s: %d requests", name, len(r.seen))
		}
		r.nothingLeft(c...)
	}
}

// A wait is bounded, and clients may leave within it.
func TestWaitsAreBounded(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.askAll(4)
	c[2].Abort()
	r.run()
	r.pass(4 * time.Second)
	if len(r.seen) != 1 {
		t.Fatalf("%d requests", len(r.seen))
	}
	r.pass(1100 * time.Millisecond)
	if len(r.seen) != 3 {
		t.Fatalf("%d requests", len(r.seen))
	}
	for _, p := range r.peers {
		p.Write([]byte(response("x", cacheable)))
	}
	r.run()
	for _, i := range []int{0, 1, 3} {
		if got := string(c[i].Take()); !strings.HasSuffix(got, "x") {
			t.Errorf("%d: %q", i, got)
		}
	}
	r.nothingLeft(c...)
	r = newCachedRig(t, func(r *cachedRig) { r.use.Wait = 0 })
	if c = r.askAll(3); len(r.seen) != 3 {
		t.Errorf("%d requests", len(r.seen))
	}
	r.nothingLeft(c...)
}

// What brings no whole response for others is not waited for.
func TestRequestsForPartsDoNotCollapse(t *testing.T) {
	r := newCachedRig(t, nil)
	c := append(r.askAll(2, "Range: bytes=0-1"), r.askAll(2, `If-None-Match: "a"`)...)
	if c = append(c, r.askAll(2)...); len(r.seen) != 5 {
		t.Errorf("%d requests", len(r.seen))
	}
	r.nothingLeft(c...)
}

// A client that does not read keeps no other from the response, and gets all of it in the end.
func TestASlowClientHoldsUpNoOther(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 1<<14)
	for _, chunked := range []bool{false, true} {
		r := newCachedRig(t, nil)
		slow := r.connect(memHTTP1)
		slow.Window = 1000
		slow.Write([]byte(requestOf("GET", "/")))
		r.run()
		c := r.askAll(1)
		text := response(content, cacheable)
		if chunked {
			text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + cacheable + "\r\n\r\n40000\r\n" + content + "\r\n0\r\n\r\n"
		}
		r.peers[0].Write([]byte(text))
		r.run()
		if got := string(c[0].Take()); !strings.HasSuffix(got, content) || len(r.seen) != 1 {
			t.Errorf("chunked %v: another client has got %d bytes", chunked, len(got))
		}
		var got strings.Builder
		for range 10_000 {
			b := slow.Take()
			got.Write(b)
			if r.run(); len(b) == 0 {
				break
			}
		}
		if got := bodyOf(t, got.String()); got != content {
			t.Errorf("chunked %v: the slow client has got %d of %d bytes", chunked, len(got), len(content))
		}
		r.nothingLeft(append(c, slow)...)
	}
}

// A response that grows beyond what is stored is sent as without a cache, from where its client is, and the backend waits for the client.
func TestResponsesThatGrowTooLong(t *testing.T) {
	for _, window := range []int{0, 1000} {
		r := newCachedRig(t, func(r *cachedRig) { r.use.Policy.MaxObject = 100_000 })
		slow := r.connect(memHTTP1)
		if window > 0 {
			slow.Window = window
		}
		slow.Write([]byte(requestOf("GET", "/")))
		r.run()
		c := r.askAll(1)
		part := strings.Repeat("0123456789abcdef", 1<<12)
		r.peers[0].Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + cacheable + "\r\n\r\n"))
		var got strings.Builder
		for range 4 {
			r.peers[0].Write([]byte("10000\r\n" + part + "\r\n"))
			r.run()
			got.Write(slow.Take())
			r.run()
		}
		endless := strings.Repeat("10000\r\n"+part+"\r\n", 64)
		if r.peers[0].Write([]byte(endless)); window > 0 {
			if r.run(); r.peers[0].Unread() < len(endless)/2 {
				t.Errorf("%d bytes of the backend are unread, while the client reads nothing", r.peers[0].Unread())
			}
		}
		r.peers[0].Write([]byte("0\r\n\r\n"))
		for range 10_000 {
			r.run()
			b := slow.Take()
			if got.Write(b); len(b) == 0 {
				break
			}
		}
		if got := bodyOf(t, got.String()); got != strings.Repeat(part, 68) {
			t.Errorf("window %d: the client has got %d of %d bytes", window, len(got), 68*len(part))
		}
		if r.use.Store.Stats().Objects != 0 || len(r.seen) != 2 {
			t.Errorf("window %d: %+v, %d requests", window, r.use.Store.Stats(), len(r.seen))
		}
		r.nothingLeft(append(c, slow)...)
		if !r.use.Store.Reserve(1 << 22) {
			t.Error("memory was not given back")
		}
	}
}

// Where too much is gathered at once, responses pass without being stored.
func TestGatheringIsBounded(t *testing.T) {
	r := newCachedRig(t, nil)
	r.use.Store.Reserve(1<<22 - 10)
	r.reply = func(string) string { return response("0123456789abcdef", cacheable) }
	r.expect("no room", r.get("/"), "200 0123456789abcdef fwd=uri-miss", 1)
	r.reply = func(string) string {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + cacheable + "\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
	}
	if got := r.get("/"); !strings.Contains(got, "0123456789abcdef") {
		t.Errorf("%q", got)
	}
	if n := r.use.Store.Counts(); n[cache.CountFull] != 2 || r.use.Store.Stats().Objects != 0 {
		t.Errorf("%v", n)
	}
	r.use.Store.Reserve(-1<<22 + 10)
	r.expect("room", r.get("/"), "200 10\r\n0123456789abcdef\r\n0\r\n\r\n fwd=uri-miss; stored", 3)
	r.nothingLeft()
}

// Where each has to validate the response, or its client wants it so, none waits for another.
func TestValidationsThatAreNotShared(t *testing.T) {
	r := newCachedRig(t, nil)
	c := r.askAll(3)
	r.peers[0].Write([]byte(response("x", "Cache-Control: no-cache", `ETag: "v"`)))
	if r.run(); len(r.seen) != 3 || headerOf(r.seen[2], "if-none-match") != `"v"` {
		t.Errorf("%q", r.seen)
	}
	r.nothingLeft(c...)
	r = newCachedRig(t, nil)
	if c = r.askAll(3, "Cache-Control: no-cache"); len(r.seen) != 3 {
		t.Errorf("%d requests", len(r.seen))
	}
	r.nothingLeft(c...)
}

// Stored content of any length gets to clients of any speed, and some leave within it.
func TestLargeStoredResponses(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 60_000)
	r := newCachedRig(t, nil)
	r.reply = func(string) string { return response(content, cacheable) }
	for range 2 {
		if got := r.get("/"); !strings.HasSuffix(got, content) {
			t.Errorf("%d bytes", len(got))
		}
	}
	slow, leaves := r.connect(memHTTP1), r.connect(memHTTP1)
	slow.Window, leaves.Window = 5000, 5000
	for _, c := range []*memtransport.Peer{slow, leaves} {
		c.Write([]byte(requestOf("GET", "/")))
		r.run()
	}
	leaves.Abort()
	var got strings.Builder
	for range 10_000 {
		b := slow.Take()
		got.Write(b)
		if r.run(); len(b) == 0 {
			break
		}
	}
	if n := strings.Count(got.String(), "0123456789abcdef"); n != 60_000 || len(r.seen) != 1 {
		t.Errorf("the slow client has got %d parts, the backend %d requests", n, len(r.seen))
	}
	r.nothingLeft(slow, leaves)
}
