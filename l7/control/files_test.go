package control

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// answer is a response with its content as it came.
type answer struct {
	*http.Response
	content string
}

// do sends a request with HTTP/1.1 or HTTP/2, and returns the response as it came.
func (r *running) do(t *testing.T, version int, method, path string, header ...string) answer {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true, Protocols: &http.Protocols{}}
	tr.Protocols.SetHTTP1(version == 1)
	tr.Protocols.SetUnencryptedHTTP2(version == 2)
	defer tr.CloseIdleConnections()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	resp, err := tr.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: after %d bytes: %v", method, path, len(b), err)
	}
	return answer{resp, string(b)}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// large is more than any buffer on the way has.
var large = strings.Repeat("all work and no play makes a dull file\n", 1<<17)

// TestFilesOfARule has clients of both versions get files, and what is no file go to the backends.
func TestFilesOfARule(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "large.txt"), large)
	write(t, filepath.Join(root, "empty"), "")
	write(t, filepath.Join(root, "sub/index.html"), "index")
	backend := named(t, "127.0.0.1", 0)
	r := serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP, versions: ["1.1", "2"], request_id: x-request-id}]
routes:
  - name: r
    rules:
      - matches: [{path: {value: /both}}]
        filters: [{type: URLRewrite, path: {type: ReplacePrefixMatch, value: /}}]
        static: {root: "%s"}
        backend_refs: [{name: app}]
      - {static: {root: "%s"}, filters: [{type: ResponseHeaderModifier, set: [{name: x-a, value: b}]}]}
pools: [{name: app, backends: [{address: "%s"}]}]
`, root, root, backend))
	for _, version := range []int{1, 2} {
		a := r.do(t, version, "GET", "/large.txt")
		if a.content != large || a.ContentLength != int64(len(large)) || a.Header.Get("X-A") != "b" || a.Header.Get("X-Request-Id") == "" {
			t.Errorf("HTTP/%d: %d of %d bytes, %v", version, len(a.content), len(large), a.Header)
		}
		if a := r.do(t, version, "HEAD", "/large.txt"); a.content != "" || a.ContentLength != int64(len(large)) {
			t.Errorf("HTTP/%d: HEAD: %d bytes, length %d", version, len(a.content), a.ContentLength)
		}
		if a := r.do(t, version, "GET", "/large.txt", "Range", "bytes=100-199"); a.StatusCode != 206 || a.content != large[100:200] {
			t.Errorf("HTTP/%d: range: %d, %q", version, a.StatusCode, a.content)
		}
		tag := a.Header.Get("Etag")
		if a := r.do(t, version, "GET", "/large.txt", "If-None-Match", tag); a.StatusCode != 304 || a.content != "" || a.Header.Get("Etag") != tag {
			t.Errorf("HTTP/%d: condition: %d, %v", version, a.StatusCode, a.Header)
		}
		for path, want := range map[string]string{
			"/empty": "200 ", "/sub/": "200 index", "/sub": "301 ", "/none": "404 Not Found\n", "/both/none": "200 127.0.0.1", "/both/sub/": "200 index", "/both/sub?x": "301 ", "/%2e%2e/x": "400",
		} {
			a := r.do(t, version, "GET", path)
			if got := fmt.Sprintf("%d %s", a.StatusCode, a.content); !strings.HasPrefix(got, want) {
				t.Errorf("HTTP/%d: %s: %q, want %q", version, path, got, want)
			}
		}
		if a := r.do(t, version, "GET", "/both/sub?x"); a.Header.Get("Location") != "/both/sub/?x" {
			t.Errorf("HTTP/%d: leads to %q", version, a.Header.Get("Location"))
		}
		if a := r.do(t, version, "POST", "/empty"); a.StatusCode != 405 || a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("HTTP/%d: POST: %d, %v", version, a.StatusCode, a.Header)
		}
		if a := r.do(t, version, "POST", "/both/empty"); a.content != "127.0.0.1" {
			t.Errorf("HTTP/%d: POST with a backend: %q", version, a.content)
		}
	}
	if n := r.Totals().Active; n != 0 {
		t.Errorf("%d requests are in progress", n)
	}
}

// TestRequestsForFilesOnOneConnection has a client pipeline, and one that reads nothing for a while.
func TestRequestsForFilesOnOneConnection(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "large.txt"), large)
	write(t, filepath.Join(root, "a"), "a")
	r := serve(t, fmt.Sprintf("listeners: [{name: web, address: \"ADDR\", protocol: HTTP}]\nroutes: [{name: r, rules: [{static: {root: %q, listing: true}}]}]\n", root))
	c, err := net.Dial("tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	paths := []string{"/a", "/large.txt", "/", "/none", "/a", "/large.txt"}
	var q bytes.Buffer
	for _, p := range paths {
		fmt.Fprintf(&q, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", p)
	}
	if _, err := c.Write(q.Bytes()); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(c, 512)
	for _, p := range paths {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		want := map[string]string{"/a": "a", "/large.txt": large, "/none": "Not Found\n"}[p]
		if p == "/" && !strings.Contains(string(b), "large.txt") || p != "/" && string(b) != want {
			t.Errorf("%s: %d bytes", p, len(b))
		}
	}
}

// TestClientsThatLeaveWithinAFile has many of them, while others get all.
func TestClientsThatLeaveWithinAFile(t *testing.T) {
	root, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < 2<<20 { // which no coding makes shorter than half of it
		fmt.Fprintf(&b, "%x\n", random.Uint64())
	}
	large := b.String()
	write(t, filepath.Join(root, "large.txt"), large)
	r := serve(t, fmt.Sprintf("listeners: [{name: web, address: \"ADDR\", protocol: HTTP, compression: {}}]\nroutes: [{name: r, rules: [{static: {root: %q}}]}]\n", root))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c, err := net.Dial("tcp", r.addr.String())
			if err != nil {
				t.Error(err)
				return
			}
			accept := [...]string{"", "Accept-Encoding: gzip\r\n", "Accept-Encoding: br\r\n"}[i%3]
			_, _ = fmt.Fprintf(c, "GET /large.txt HTTP/1.1\r\nHost: a\r\n%s\r\n", accept)
			_, _ = io.ReadFull(c, make([]byte, 1+i*1000))
			_ = c.Close()
		})
		all.Go(func() {
			if a := r.do(t, 1, "GET", "/large.txt"); a.content != large {
				t.Errorf("%d bytes", len(a.content))
			}
		})
	}
	all.Wait()
	until(t, "requests in progress", "0", func() string { return fmt.Sprint(r.Totals().Active) })
}

// decoded returns content without its coding.
func decoded(t *testing.T, coding, content string) string {
	t.Helper()
	var in io.Reader = strings.NewReader(content)
	var err error
	switch coding {
	case "gzip":
		in, err = gzip.NewReader(in)
	case "br":
		in = brotli.NewReader(in)
	case "zstd":
		in, err = zstd.NewReader(in)
	}
	if err != nil {
		t.Fatalf("%s: %v", coding, err)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		t.Fatalf("%s: %v", coding, err)
	}
	return string(b)
}

// compressing is a gateway before a backend, with compression.
func compressing(t *testing.T, h http.HandlerFunc) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP, versions: ["1.1", "2"], compression: {}}]
routes: [{name: r, rules: [{backend_refs: [{name: app}]}]}]
pools: [{name: app, backends: [{address: "%s"}]}]
`, l.Addr()))
}

// TestResponsesAreCompressed has the backend describe its response by the query.
func TestResponsesAreCompressed(t *testing.T) {
	page := large[:200_000]
	r := compressing(t, func(w http.ResponseWriter, q *http.Request) {
		h, form := w.Header(), q.URL.Query()
		h.Set("Content-Type", "text/html; charset=utf-8")
		for name := range form {
			if http.CanonicalHeaderKey(name) == name {
				h.Set(name, form.Get(name))
			}
		}
		h.Set("Accept-Ranges", "bytes")
		content := page
		if form.Has("small") {
			content = "small"
		}
		if form.Has("sized") {
			h.Set("Content-Length", fmt.Sprint(len(content)))
		}
		if s := form.Get("status"); s != "" {
			status := 0
			_, _ = fmt.Sscan(s, &status)
			w.WriteHeader(status)
			if status == 204 || status == 304 {
				return
			}
		}
		_, _ = io.WriteString(w, content)
	})
	for _, version := range []int{1, 2} {
		for _, c := range []struct{ path, accept, coding, vary, tag string }{
			{"/", "gzip", "gzip", "accept-encoding", ""},
			{"/?sized", "br", "br", "accept-encoding", ""},
			{"/", "zstd", "zstd", "accept-encoding", ""},
			{"/", "gzip, deflate, br, zstd", "zstd", "accept-encoding", ""},
			{"/", "gzip;q=1, br;q=0.5", "gzip", "accept-encoding", ""},
			{"/", "deflate", "", "accept-encoding", ""},
			{"/", "gzip;q=0", "", "accept-encoding", ""},
			{"/", "*", "zstd", "accept-encoding", ""},
			{"/?Etag=%22x%22", "gzip", "gzip", "accept-encoding", `W/"x"`},
			{"/?Etag=W/%22x%22", "gzip", "gzip", "accept-encoding", `W/"x"`},
			{"/?Etag=%22x%22", "", "", "accept-encoding", `"x"`},
			{"/?Vary=Cookie,%20Accept-Encoding", "gzip", "gzip", "Cookie, Accept-Encoding", ""},
			{"/?Vary=*", "gzip", "gzip", "*", ""},
			{"/?Content-Type=image/png", "gzip", "", "", ""},
			{"/?Content-Type=application/problem%2Bjson", "gzip", "gzip", "accept-encoding", ""},
			{"/?Content-Type=textual/x", "gzip", "", "", ""},
			{"/?Content-Encoding=x", "gzip", "x", "", ""},
			{"/?Cache-Control=public,%20no-transform", "gzip", "", "", ""},
			{"/?small&sized", "gzip", "", "", ""},
			{"/?status=404", "gzip", "gzip", "accept-encoding", ""},
			{"/?status=206&Content-Range=bytes%200-199999/200000", "gzip", "", "", ""},
		} {
			var header []string
			if c.accept != "" {
				header = []string{"Accept-Encoding", c.accept}
			}
			a := r.do(t, version, "GET", c.path, header...)
			what := fmt.Sprintf("HTTP/%d: %s for %q", version, c.path, c.accept)
			if a.Header.Get("Content-Encoding") != c.coding || strings.Join(a.Header.Values("Vary"), ", ") != c.vary || a.Header.Get("Etag") != c.tag {
				t.Errorf("%s: %v", what, a.Header)
				continue
			}
			content := a.content
			if c.coding != "x" {
				content = decoded(t, c.coding, content)
			}
			if want := map[bool]string{true: "small", false: page}[strings.Contains(c.path, "small")]; content != want {
				t.Errorf("%s: %d bytes", what, len(content))
			}
			if c.coding != "" && c.coding != "x" && (a.Header.Get("Accept-Ranges") != "" || a.ContentLength >= 0 || len(a.content) > len(page)/10) {
				t.Errorf("%s: %v, %d bytes, length %d", what, a.Header, len(a.content), a.ContentLength)
			}
			if head := r.do(t, version, "HEAD", c.path, header...); head.Header.Get("Content-Encoding") != c.coding || head.Header.Get("Etag") != c.tag || head.content != "" {
				t.Errorf("%s: HEAD: %v", what, head.Header)
			}
		}
		for _, status := range []int{204, 304} {
			a := r.do(t, version, "GET", fmt.Sprintf("/?Etag=%%22x%%22&status=%d", status), "Accept-Encoding", "gzip", "If-None-Match", `"x"`)
			if a.StatusCode != status || a.Header.Get("Content-Encoding") != "" || a.Header.Get("Etag") != `"x"` || a.content != "" {
				t.Errorf("HTTP/%d: %d: %v", version, a.StatusCode, a.Header)
			}
		}
		a := r.do(t, version, "GET", "/?Etag=%22x%22&status=304", "Accept-Encoding", "gzip", "If-None-Match", `W/"x"`)
		if a.Header.Get("Etag") != `W/"x"` || a.Header.Get("Vary") != "accept-encoding" {
			t.Errorf("HTTP/%d: 304 for a weak tag: %v", version, a.Header)
		}
	}
	if got, in, out := r.metric1("millrace_http_compressed_responses_total"), r.Totals().Plain, r.Totals().Encoded; got == "0" || in < uint64(len(page)) || out == 0 || out > in {
		t.Errorf("%s compressed, %d bytes became %d", got, in, out)
	}
}

// metric1 returns a metric without labels.
func (r *running) metric1(name string) string {
	for line := range strings.Lines(r.text()) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return "none"
}

// TestEventsAreNotHeldBack has a backend wait until the client has read what came before.
func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	r := compressing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	for _, coding := range []string{"gzip", "br", "zstd"} {
		q, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr.String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept-Encoding", coding)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		var in io.Reader
		switch coding {
		case "gzip":
			in, err = gzip.NewReader(resp.Body)
		case "br":
			in = brotli.NewReader(resp.Body)
		default:
			in, err = zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			b := make([]byte, 9)
			if _, err := io.ReadFull(in, b); err != nil || string(b) != fmt.Sprintf("data: %d\n\n", i) {
				t.Fatalf("%s: %q, %v", coding, b, err)
			}
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("%s: %q, %v", coding, rest, err)
		}
		_ = resp.Body.Close()
	}
}

// TestABackendThatFailsWithinACompressedResponse has the client see that the response is not whole.
func TestABackendThatFailsWithinACompressedResponse(t *testing.T) {
	r := compressing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, large[:50_000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, accept := range []string{"gzip", ""} {
		q, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.addr.String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept-Encoding", accept)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(q)
		if err != nil {
			continue // the reset has come first
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q: %d bytes and a regular end", accept, len(b))
		}
		_ = resp.Body.Close()
	}
}

// TestTooManyCompressedResponses has more at once than there are encoders: the others come as they are.
func TestTooManyCompressedResponses(t *testing.T) {
	const n = 150
	var here sync.WaitGroup
	here.Add(n)
	r := compressing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "begin ")
		w.(http.Flusher).Flush()
		here.Done()
		here.Wait()
		_, _ = io.WriteString(w, "end")
	})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			a := r.do(t, 1, "GET", "/", "Accept-Encoding", "gzip")
			if got := decoded(t, a.Header.Get("Content-Encoding"), a.content); got != "begin end" || a.Header.Get("Vary") != "accept-encoding" {
				t.Errorf("%q, %v", got, a.Header)
			}
		})
	}
	all.Wait()
	s := r.Totals()
	if s.Compressed+s.Uncompressed != n || len(r.loops) == 1 && s.Uncompressed != n-64 {
		t.Errorf("%d compressed, %d not, by %d loops", s.Compressed, s.Uncompressed, len(r.loops))
	}
}
