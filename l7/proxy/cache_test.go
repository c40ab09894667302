package proxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// cachedRig is a memRig whose rule has a cache, with a clock of the test.
type cachedRig struct {
	*memRig
	use  *cache.Rule
	tree *Tree
	now  time.Time
	// seen are the headers of the requests that the backend got; peers are the connections of each.
	seen  []string
	peers []*memtransport.Peer
	// reply returns the response to a request; "" leaves it to the test. A "|" at its end closes the connection.
	reply func(request string) string
}

func newCachedRig(t *testing.T, change func(r *cachedRig)) *cachedRig {
	t.Helper()
	r := &cachedRig{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), reply: func(string) string { return "" }}
	store := cache.NewNamed("c", cache.Options{Memory: 1 << 24}, 1, func() time.Time { return r.now })
	r.use = &cache.Rule{Store: store, Name: "r", Policy: cache.Policy{MaxObject: 1 << 20}, Wait: 5 * time.Second}
	r.memRig = newMemRig(t, func(m *memRig, tree *Tree) {
		m.rule.Cache = r.use
		r.memRig, r.tree = m, tree
		if change != nil {
			change(r)
		}
	})
	r.backend = func(p *memtransport.Peer) {
		text := ""
		p.Handler = func(p *memtransport.Peer) {
			for text += string(p.Take()); ; {
				head, rest, ok := strings.Cut(text, "\r\n\r\n")
				n, _ := strconv.Atoi(headerOf(head, "content-length"))
				if !ok || len(rest) < n {
					break
				}
				text = rest[n:]
				r.seen, r.peers = append(r.seen, head), append(r.peers, p)
				answer, end, closes := strings.Cut(r.reply(head), "|")
				if p.Write([]byte(answer)); closes && end == "" {
					p.Close()
				}
			}
			if p.Ended {
				p.Close()
			}
		}
	}
	return r
}

// headerOf returns the value of a field of a header as text.
func headerOf(head, name string) string {
	for line := range strings.SplitSeq(head, "\r\n") {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// response is one with content and more lines of a header.
func response(content string, lines ...string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n\r\n%s", len(content), strings.Join(lines, "\r\n"), content)
}

// get sends a GET of a path, with more lines of a header.
func (r *cachedRig) get(path string, lines ...string) string {
	r.t.Helper()
	return r.send("GET", path, lines...)
}

func (r *cachedRig) send(method, path string, lines ...string) string {
	r.t.Helper()
	return r.ask(requestOf(method, path, lines...))
}

func requestOf(method, path string, lines ...string) string {
	host := "Host: a.example\r\n"
	for _, l := range lines {
		if strings.HasPrefix(strings.ToLower(l), "host:") {
			host = ""
		}
	}
	return method + " " + path + " HTTP/1.1\r\n" + host + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

// brief returns status, content and Cache-Status of a response.
func brief(text string) string {
	head, content, _ := strings.Cut(text, "\r\n\r\n")
	status := ""
	if f := strings.Fields(head); len(f) > 1 {
		status = f[1]
	}
	return strings.TrimSpace(status + " " + content + " " + strings.TrimPrefix(headerOf(head, "cache-status"), "millrace; "))
}

// expect compares what came back in brief, and how many requests the backend has got so far.
func (r *cachedRig) expect(what, got, want string, seen int) {
	r.t.Helper()
	if got := brief(got); got != want || len(r.seen) != seen {
		r.t.Errorf("%s: %q, want %q; the backend has got %d requests, want %d", what, got, want, len(r.seen), seen)
	}
}

// numbered answers with the number of the request, and lines of a header.
func (r *cachedRig) numbered(lines ...string) {
	r.reply = func(head string) string {
		text := response(strconv.Itoa(len(r.seen)), lines...)
		if strings.HasPrefix(head, "HEAD ") {
			text, _, _ = strings.Cut(text, "\r\n\r\n")
			text += "\r\n\r\n"
		}
		return text
	}
}

const cacheable = "Cache-Control: max-age=60"

func TestStoredResponsesAnswer(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable, `ETag: "v"`, "X-A: b", "Cache-Status: inner; hit")
	first := r.get("/a?b=c")
	if headerOf(first, "age") != "" || !strings.Contains(first, "inner; hit") || !strings.Contains(first, "millrace; fwd=uri-miss; stored") {
		t.Errorf("%q", first)
	}
	r.now = r.now.Add(7500 * time.Millisecond)
	second := r.get("/a?b=c")
	if brief(strings.Replace(second, "cache-status: inner; hit\r\n", "", 1)) != "200 1 hit" || headerOf(second, "age") != "7" || headerOf(second, "x-a") != "b" || len(r.seen) != 1 || headerOf(second, "date") == "" {
		t.Errorf("%q", second)
	}
	head := r.send("HEAD", "/a?b=c")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") || !strings.HasSuffix(head, "\r\n\r\n") || headerOf(head, "content-length") != "1" || len(r.seen) != 1 {
		t.Errorf("HEAD: %q", head)
	}
	if got := r.get("/a?b=c", `If-None-Match: "v"`); !strings.HasPrefix(got, "HTTP/1.1 304 ") || !strings.HasSuffix(got, "\r\n\r\n") || headerOf(got, "etag") != `"v"` || len(r.seen) != 1 {
		t.Errorf("a condition: %q", got)
	}
	if n := r.use.Store.Counts(); n[cache.CountHit] != 3 || n[cache.CountMiss] != 1 {
		t.Errorf("%v", n)
	}
	r.nothingLeft()
}

// What one request stores, no other than one for the same gets: each of these is asked of the backend.
func TestWhatIsInTheKey(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		path  string
	}{
		{"query", nil, "/a?b=d"},
		{"no query", nil, "/a"},
		{"an empty query", nil, "/a?"},
		{"the order of the query", nil, "/a?c&b"},
		{"the path", nil, "/b?b=c"},
		{"case of the path", nil, "/A?b=c"},
		{"a slash at the end", nil, "/a/?b=c"},
		{"an encoded slash", nil, "/%2Fa?b=c"},
		{"host", []string{"Host: b.example"}, "/a?b=c"},
		{"port", []string{"Host: a.example:8080"}, "/a?b=c"},
	} {
		r := newCachedRig(t, nil)
		r.numbered(cacheable)
		r.get("/a?b=c")
		if got := r.get(c.path, c.lines...); len(r.seen) != 2 {
			t.Errorf("%s: %q", c.name, got)
		}
		r.nothingLeft()
	}
	r := newCachedRig(t, nil)
	r.numbered(cacheable)
	r.get("/a?b=c")
	for _, c := range []struct {
		name string
		path string
		line string
	}{
		{"case of the host", "/a?b=c", "Host: A.EXAMPLE"},
		{"the port of the scheme", "/a?b=c", "Host: a.example:80"},
		{"the dot of an absolute name", "/a?b=c", "Host: a.example."},
		{"needless encoding", "/%61?b=c", "X: y"},
		{"dots", "/b/../a?b=c", "X: y"},
		{"the whole URL", "http://a.example/a?b=c", "X: y"},
		{"a client that names a host for backends", "/a?b=c", "X-Forwarded-Host: evil.example"},
		{"a client that names a protocol", "/a?b=c", "X-Forwarded-Proto: https"},
		{"Forwarded", "/a?b=c", "Forwarded: host=evil.example"},
		{"Cookie", "/a?b=c", "Cookie: a=b"},
		{"Pragma", "/a?b=c", "Pragma: no-cache"},
	} {
		if got := r.get(c.path, c.line); len(r.seen) != 1 || !strings.Contains(got, "; hit") {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if strings.Contains(r.seen[0], "evil.example") {
		t.Errorf("the backend has got %q", r.seen[0])
	}
	r.nothingLeft()
}

// Rules differ, also for one URL; so do the targets that they send, what the file adds, and what a trusted proxy says.
func TestWhatTheConfigurationAddsToTheKey(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *cachedRig)
		a, b   []string // lines of two requests
	}{
		"a field":  {func(r *cachedRig) { r.use.Headers = []string{"x-v"} }, []string{"X-V: 1"}, []string{"X-V: 2"}},
		"a cookie": {func(r *cachedRig) { r.use.Cookies = []string{"v"} }, []string{"Cookie: v=1"}, []string{"Cookie: v=2"}},
		"the protocol of a trusted proxy": {
			func(r *cachedRig) { r.tree.Listeners[0].Forwarding.Trusted = prefixes("0.0.0.0/0") },
			[]string{"X-Forwarded-Proto: http"},
			[]string{"X-Forwarded-Proto: https"},
		},
		"the host of a trusted proxy": {
			func(r *cachedRig) { r.tree.Listeners[0].Forwarding.Trusted = prefixes("0.0.0.0/0") },
			[]string{"Forwarded: for=1.1.1.1;host=a"},
			[]string{"Forwarded: for=1.1.1.1;host=b"},
		},
	} {
		r := newCachedRig(t, c.change)
		r.numbered(cacheable)
		r.get("/", c.a...)
		r.get("/", c.b...)
		if len(r.seen) != 2 {
			t.Errorf("%s: one response for both", name)
		}
		r.get("/", c.a...)
		if len(r.seen) != 2 {
			t.Errorf("%s: no response is stored", name)
		}
		r.nothingLeft()
	}
	r := newCachedRig(t, func(r *cachedRig) { r.rule.PathForm = RawPath })
	r.numbered(cacheable)
	r.get("/%61/b")
	if r.get("/a/b"); len(r.seen) != 2 {
		t.Error("two forms of a path, which the backend gets as they are, have one response")
	}
	r.nothingLeft()
	r = newCachedRig(t, func(r *cachedRig) {
		r.rule.Rewrite = &rewrite.Rewrite{Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Prefix: "/a", Value: "/"}}
	})
	r.numbered(cacheable)
	r.get("/a/x")
	r.rule.Rewrite = &rewrite.Rewrite{Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Prefix: "/a", Value: "/z"}}
	if r.get("/a/x"); len(r.seen) != 2 || !strings.HasPrefix(r.seen[1], "GET /z/x ") {
		t.Errorf("two targets have one response: %q", r.seen)
	}
	r.nothingLeft()
}

// Requests that no cache serves, and responses that no cache stores: the next request goes to the backend again.
func TestWhatIsNotStored(t *testing.T) {
	for name, c := range map[string]struct {
		request string // in place of a GET of /
		reply   string
	}{
		"HEAD":                    {requestOf("HEAD", "/"), "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + cacheable + "\r\n\r\n"},
		"GET with content":        {requestOf("GET", "/", "Content-Length: 1") + "x", ""},
		"If-Match":                {requestOf("GET", "/", `If-Match: "a"`), ""},
		"If-Unmodified-Since":     {requestOf("GET", "/", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"), ""},
		"no-store of the client":  {requestOf("GET", "/", "Cache-Control: no-store"), ""},
		"POST":                    {requestOf("POST", "/", "Content-Length: 0"), ""},
		"an upgrade":              {requestOf("GET", "/", "Connection: upgrade", "Upgrade: tcp"), ""},
		"credentials":             {requestOf("GET", "/", "Authorization: Basic eDp5"), ""},
		"206":                     {requestOf("GET", "/", "Range: bytes=0-0"), "HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/2\r\nContent-Length: 1\r\n" + cacheable + "\r\n\r\nx"},
		"304 for the client":      {requestOf("GET", "/", `If-None-Match: "c"`), "HTTP/1.1 304 N\r\nETag: \"c\"\r\n" + cacheable + "\r\n\r\n"},
		"a cookie":                {"", response("x", cacheable, "Set-Cookie: a=b")},
		"nothing that says so":    {"", response("x")},
		"cut short":               {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + cacheable + "\r\n\r\nx|"},
		"cut chunks":              {"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + cacheable + "\r\n\r\n1\r\nx\r\n|"},
		"ended by the connection": {"", "HTTP/1.1 200 OK\r\n" + cacheable + "\r\n\r\nx|"},
	} {
		r := newCachedRig(t, nil)
		r.reply = func(string) string {
			if len(r.seen) == 1 && c.reply != "" {
				return c.reply
			}
			return response("second", cacheable)
		}
		if c.request == "" {
			c.request = requestOf("GET", "/")
		}
		r.ask(c.request)
		if got := r.get("/"); !strings.HasSuffix(got, "second") || len(r.seen) != 2 {
			t.Errorf("%s: %q, the backend has got %d requests", name, got, len(r.seen))
		}
		if n := r.use.Store.Stats().Objects; n != 1 {
			t.Errorf("%s: %d objects", name, n)
		}
		r.nothingLeft()
	}
}

// Whole responses of every framing are stored, and of statuses without content.
func TestFramings(t *testing.T) {
	for name, reply := range map[string]string{
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + cacheable + "\r\n\r\n1\r\nx\r\n2\r\nyz\r\n0\r\nTrailer-A: b\r\n\r\n",
		"empty":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + cacheable + "\r\n\r\n",
		"204":    "HTTP/1.1 204 N\r\n" + cacheable + "\r\n\r\n",
		"404":    "HTTP/1.1 404 N\r\nContent-Length: 2\r\n" + cacheable + "\r\n\r\nno",
		"301":    "HTTP/1.1 301 M\r\nLocation: /b\r\nContent-Length: 0\r\n" + cacheable + "\r\n\r\n",
	} {
		r := newCachedRig(t, nil)
		r.reply = func(string) string { return reply }
		first := r.get("/")
		second := r.get("/")
		if len(r.seen) != 1 || first[:12] != second[:12] || headerOf(second, "location") != headerOf(first, "location") {
			t.Errorf("%s: %q, then %q", name, first, second)
		}
		if name == "chunks" && !strings.HasSuffix(second, "\r\n\r\nxyz") {
			t.Errorf("%q", second)
		}
		r.nothingLeft()
	}
}

func TestRangesOfStoredResponses(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(string) string { return response("0123456789", cacheable, `ETag: "v"`) }
	r.get("/")
	for lines, want := range map[string]string{
		"Range: bytes=2-4": "206 234 hit", "Range: bytes=-2": "206 89 hit", "Range: bytes=9-": "206 9 hit", "Range: bytes=10-": "416  hit",
		"Range: bytes=2-4\r\nIf-Range: \"v\"": "206 234 hit", "Range: bytes=2-4\r\nIf-Range: \"w\"": "200 0123456789 hit", "Range: bytes=1-2,4-5": "200 0123456789 hit",
	} {
		r.expect(lines, r.get("/", strings.Split(lines, "\r\n")...), want, 1)
	}
	r.nothingLeft()
}

// RFC 9111 4.3: a stale response is validated by its own validators, and the client's are compared with the outcome.
func TestValidation(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(string) string {
		return response("one", "Cache-Control: max-age=5", `ETag: "v"`, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "X-A: 1")
	}
	r.get("/")
	r.now = r.now.Add(6 * time.Second)
	r.reply = func(head string) string {
		if headerOf(head, "if-none-match") != `"v"` || headerOf(head, "if-modified-since") != "Sun, 06 Nov 1994 08:49:37 GMT" || headerOf(head, "range") != "" {
			t.Errorf("%q", head)
		}
		return "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=5\r\nETag: \"v\"\r\nX-A: 2\r\n\r\n"
	}
	got := r.get("/", `If-None-Match: "mine"`, "Range: bytes=1-")
	r.expect("304", got, "206 ne fwd=stale; fwd-status=304", 2)
	if headerOf(got, "x-a") != "2" || headerOf(got, "age") != "0" {
		t.Errorf("%q", got)
	}
	r.expect("fresh again", r.get("/"), "200 one hit", 2)
	r.now = r.now.Add(6 * time.Second)
	if got := r.get("/", `If-None-Match: "v"`); !strings.HasPrefix(got, "HTTP/1.1 304 ") || len(r.seen) != 3 {
		t.Errorf("%q", got)
	}
	r.now = r.now.Add(6 * time.Second)
	r.reply = func(string) string { return response("two", "Cache-Control: max-age=5", `ETag: "w"`) }
	r.expect("200", r.get("/"), "200 two fwd=stale; stored", 4)
	r.expect("stored in its place", r.get("/"), "200 two hit", 4)
	if n := r.use.Store.Stats().Objects; n != 1 {
		t.Errorf("%d objects", n)
	}
	r.now = r.now.Add(6 * time.Second)
	r.reply = func(head string) string { // a backend that answers for another version
		if headerOf(head, "if-none-match") != "" {
			return "HTTP/1.1 304 Not Modified\r\nETag: \"z\"\r\n\r\n"
		}
		return response("three", cacheable)
	}
	r.expect("304 of another version", r.get("/"), "200 three fwd=uri-miss; stored", 6)
	r.now = r.now.Add(61 * time.Second)
	r.reply = func(string) string { return "HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n" }
	r.get("/")
	if n := r.use.Store.Stats().Objects; n != 0 {
		t.Errorf("a resource that is gone is still stored")
	}
	r.nothingLeft()
}

// A 304 that must not be stored answers the request that it was for, and no other.
func TestA304ThatIsNotStored(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(string) string { return response("one", "Cache-Control: max-age=5", `ETag: "v"`) }
	r.get("/")
	r.now = r.now.Add(6 * time.Second)
	r.reply = func(string) string {
		return "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=5, private\r\nETag: \"v\"\r\n\r\n"
	}
	r.expect("first", r.get("/"), "200 one fwd=stale; fwd-status=304", 2)
	r.expect("second", r.get("/"), "200 one fwd=stale; fwd-status=304", 3)
	r.nothingLeft()
}

// RFC 9111 5.2.1.
func TestRequestDirectives(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable)
	r.expect("only-if-cached", r.get("/", "Cache-Control: only-if-cached"), "504 504 Gateway Timeout", 0)
	r.get("/")
	r.expect("only-if-cached", r.get("/", "Cache-Control: only-if-cached"), "200 1 hit", 1)
	r.expect("no-cache", r.get("/", "Cache-Control: no-cache"), "200 2 fwd=stale; stored", 2)
	r.expect("no-store", r.get("/", "Cache-Control: no-store"), "200 3 fwd=request", 3)
	r.now = r.now.Add(9 * time.Second)
	r.expect("max-age", r.get("/", "Cache-Control: max-age=8"), "200 4 fwd=stale; stored", 4)
	r.now = r.now.Add(61 * time.Second)
	r.expect("max-stale", r.get("/", "Cache-Control: max-stale=5"), "200 4 hit", 4)
	r.expect("only-if-cached and stale", r.get("/", "Cache-Control: only-if-cached"), "504 504 Gateway Timeout", 4)
	r.use.Policy.IgnoreClient = true
	r.get("/")
	for _, ignored := range []string{"no-cache", "no-store", "max-age=0", "min-fresh=1000", "only-if-cached"} {
		r.expect("ignored: "+ignored, r.get("/", "Cache-Control: "+ignored), "200 5 hit", 5)
	}
	r.nothingLeft()
}

// RFC 9111 4.4.
func TestUnsafeMethodsInvalidate(t *testing.T) {
	for _, c := range []struct {
		method, reply string
		gone          []string // of /, /l, /c
	}{
		{"POST", response(""), []string{"/"}},
		{"PUT", response(""), []string{"/"}},
		{"DELETE", response(""), []string{"/"}},
		{"M-SEARCH", response(""), []string{"/"}},
		{"OPTIONS", response(""), nil},
		{"POST", "HTTP/1.1 500 E\r\nContent-Length: 0\r\nLocation: /l\r\n\r\n", nil},
		{"POST", "HTTP/1.1 303 S\r\nContent-Length: 0\r\nLocation: l\r\nContent-Location: http://A.example:80/c\r\n\r\n", []string{"/", "/l", "/c"}},
		{"POST", "HTTP/1.1 201 C\r\nContent-Length: 0\r\nLocation: http://b.example/l\r\nContent-Location: //b.example/c\r\n\r\n", []string{"/"}},
		{"POST", "HTTP/1.1 201 C\r\nContent-Length: 0\r\nLocation: https://a.example/l\r\nContent-Location: :%zz\r\n\r\n", []string{"/"}},
	} {
		r := newCachedRig(t, nil)
		r.numbered(cacheable)
		paths := []string{"/", "/l", "/c"}
		for _, p := range paths {
			r.get(p)
		}
		r.reply = func(string) string { return c.reply }
		r.send(c.method, "/", "Content-Length: 0")
		r.numbered(cacheable)
		var gone []string
		for _, p := range paths {
			if !strings.Contains(r.get(p), "; hit") {
				gone = append(gone, p)
			}
		}
		if diff := cmp.Diff(c.gone, gone); diff != "" {
			t.Errorf("%s, %q: %s", c.method, c.reply, diff)
		}
		r.nothingLeft()
	}
}

// A GET that the backend got before a POST does not bring back what that has changed.
func TestWhatWasAskedForBeforeAChange(t *testing.T) {
	r := newCachedRig(t, nil)
	slow := r.connect(memHTTP1)
	slow.Write([]byte(requestOf("GET", "/")))
	r.run()
	r.reply = func(string) string { return response("") }
	r.send("POST", "/", "Content-Length: 0")
	r.peers[0].Write([]byte(response("old", cacheable)))
	r.run()
	r.reply = func(string) string { return response("new", cacheable) }
	r.expect("after", r.get("/"), "200 new fwd=uri-miss; stored", 3)
	r.nothingLeft(slow)
}

// RFC 9111 4.3.5: HEAD fills nothing, and a different one removes.
func TestHead(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(head string) string {
		if strings.HasPrefix(head, "HEAD ") {
			return "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nETag: \"w\"\r\n" + cacheable + "\r\n\r\n"
		}
		return response("one", cacheable, `ETag: "v"`)
	}
	r.get("/")
	r.now = r.now.Add(61 * time.Second)
	r.send("HEAD", "/")
	if n := r.use.Store.Stats().Objects; n != 0 || len(r.seen) != 2 || headerOf(r.seen[1], "if-none-match") != "" {
		t.Errorf("%d objects, %q", n, r.seen)
	}
	r.nothingLeft()
}

// RFC 5861 3: one validation in the background, whatever comes of it.
func TestStaleWhileRevalidate(t *testing.T) {
	r := newCachedRig(t, nil)
	r.reply = func(string) string {
		return response("one", "Cache-Control: max-age=5, stale-while-revalidate=60", `ETag: "v"`)
	}
	r.get("/")
	r.now = r.now.Add(10 * time.Second)
	r.reply = func(string) string { return "" }
	for range 3 {
		r.expect("stale", r.get("/"), "200 one hit", 2)
	}
	if headerOf(r.seen[1], "if-none-match") != `"v"` {
		t.Errorf("%q", r.seen[1])
	}
	r.peers[1].Write([]byte("HTTP/1.1 304 N\r\nCache-Control: max-age=5, stale-while-revalidate=60\r\nETag: \"v\"\r\n\r\n"))
	r.run()
	r.expect("fresh", r.get("/"), "200 one hit", 2)
	r.now = r.now.Add(10 * time.Second)
	r.reply = func(string) string { return "|" } // the backend fails
	r.expect("stale", r.get("/"), "200 one hit", 3)
	r.run()
	r.reply = func(string) string { return response("two", cacheable) }
	r.expect("stale", r.get("/"), "200 one hit", 4)
	r.run()
	r.expect("replaced", r.get("/"), "200 two hit", 4)
	if n := r.use.Store.Counts(); n[cache.CountRefresh] != 3 || n[cache.CountStale] != 5 || r.worker.Stats().Requests != 8 {
		t.Errorf("%v, %d requests", n, r.worker.Stats().Requests)
	}
	r.now = r.now.Add(1000 * time.Second)
	r.expect("after the time", r.get("/"), "200 two fwd=stale; stored", 5)
	r.nothingLeft()
}

// A worker that drains begins no requests of its own.
func TestNoValidationWhileDraining(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered("Cache-Control: max-age=9, stale-while-revalidate=99")
	r.get("/")
	r.now = r.now.Add(10 * time.Second)
	c := r.connect(memHTTP1)
	c.Write([]byte("GET / HTTP/1.1\r\n"))
	r.run()
	r.worker.draining = true
	c.Write([]byte("Host: a.example\r\n\r\n"))
	r.run()
	r.expect("while it drains", string(c.Take()), "200 1 hit", 1)
}

// Connections to backends that are those of a client carry no validation in the background.
func TestValidationInTheForeground(t *testing.T) {
	r := newCachedRig(t, func(r *cachedRig) { r.use.Foreground = true })
	r.numbered("Cache-Control: max-age=5, stale-while-revalidate=60")
	r.get("/")
	r.now = r.now.Add(10 * time.Second)
	r.expect("stale", r.get("/"), "200 2 fwd=stale; stored", 2)
	r.nothingLeft()
}

// RFC 5861 4: errors of backends, and of the gateway.
func TestStaleIfError(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		fails bool // no backend can be reached
		want  string
	}{
		"500": {"HTTP/1.1 500 E\r\nContent-Length: 3\r\n\r\nerr", false, "200 one hit"}, "503": {"HTTP/1.1 503 E\r\nContent-Length: 3\r\n\r\nerr", false, "200 one hit"},
		"404": {"HTTP/1.1 404 E\r\nContent-Length: 3\r\n\r\nerr", false, "404 err fwd=stale"}, "501": {"HTTP/1.1 501 E\r\nContent-Length: 3\r\n\r\nerr", false, "501 err fwd=stale"},
		"a closed connection": {"|", false, "200 one hit"}, "no HTTP": {"220 hello\r\n\r\n|", false, "200 one hit"},
	} {
		r := newCachedRig(t, nil)
		r.reply = func(string) string { return response("one", "Cache-Control: max-age=5, stale-if-error=60") }
		r.get("/")
		r.now = r.now.Add(10 * time.Second)
		r.reply = func(string) string { return c.reply }
		if got := brief(r.get("/")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.want == "200 one hit" {
			r.now = r.now.Add(60 * time.Second)
			if got := r.get("/"); strings.Contains(got, "one") {
				t.Errorf("%s, after the time: %q", name, got)
			}
		}
		r.nothingLeft()
	}
	r := newCachedRig(t, nil) // the backend says nothing
	r.rule.Request = 3 * time.Second
	r.reply = func(string) string { return response("one", "Cache-Control: max-age=5, stale-if-error=60") }
	r.get("/")
	r.now = r.now.Add(10 * time.Second)
	r.reply = func(string) string { return "" }
	c := r.connect(memHTTP1)
	c.Write([]byte(requestOf("GET", "/")))
	r.run()
	r.pass(4 * time.Second)
	r.expect("a time-out", string(c.Take()), "200 one hit", 2)
	r.nothingLeft(c)
}

// Fields of the gateway are in no stored response, and compression is that of the client.
func TestStoredResponsesAreEdited(t *testing.T) {
	r := newCachedRig(t, func(r *cachedRig) {
		r.rule.ResponseHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-set", Value: "y"}}, Remove: []string{"cache-status"}}
		for _, l := range r.tree.Listeners {
			l.RequestID, l.Compression = "x-request-id", &Compression{Codings: []string{"gzip"}, Types: []string{"text/*"}}
		}
	})
	content := strings.Repeat("text ", 1000)
	r.reply = func(string) string { return response(content, cacheable, "Content-Type: text/plain", `ETag: "v"`) }
	first, second := r.get("/"), r.get("/")
	if a, b := headerOf(first, "x-request-id"), headerOf(second, "x-request-id"); a == "" || b == "" || a == b || len(r.seen) != 1 {
		t.Errorf("IDs %q and %q", a, b)
	}
	if headerOf(second, "x-set") != "y" || headerOf(second, "cache-status") != "" || !strings.HasSuffix(second, content) {
		t.Errorf("%q", second)
	}
	zipped := r.get("/", "Accept-Encoding: gzip")
	if headerOf(zipped, "content-encoding") != "gzip" || len(zipped) > 1000 || headerOf(zipped, "etag") != `W/"v"` || len(r.seen) != 1 {
		t.Errorf("%q", zipped)
	}
	if got := r.get("/", "Accept-Encoding: gzip", `If-None-Match: W/"v"`); !strings.HasPrefix(got, "HTTP/1.1 304 ") || headerOf(got, "etag") != `W/"v"` {
		t.Errorf("%q", got)
	}
	r.nothingLeft()
}

// Vary by a field that clients send.
func TestVariants(t *testing.T) {
	r := newCachedRig(t, nil)
	r.numbered(cacheable, "Vary: X-V")
	r.expect("first", r.get("/", "X-V: 1"), "200 1 fwd=uri-miss; stored", 1)
	r.expect("second", r.get("/", "X-V: 2"), "200 2 fwd=vary-miss; stored", 2)
	r.expect("first", r.get("/", "X-V: 1"), "200 1 hit", 2)
	r.expect("second", r.get("/", "X-V: 2"), "200 2 hit", 2)
	r.expect("none", r.get("/"), "200 3 fwd=vary-miss; stored", 3)
	r.nothingLeft()
}

// prefixes returns prefixes of addresses.
func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
