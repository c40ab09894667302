package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/gateway/admin"
)

// counting is a backend that counts its requests and describes its responses by the query.
type counting struct {
	*httptest.Server
	requests atomic.Int32
	hold     chan struct{} // nil: it does not wait
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := c.requests.Add(1)
		if c.hold != nil {
			<-c.hold
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Etag", `"v"`)
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Query().Has("user") {
			w.Header().Set("Vary", "X-User")
			fmt.Fprintf(w, "%s for %s", r.URL.Path, r.Header.Get("X-User"))
			return
		}
		fmt.Fprintf(w, "%s %d %s", r.URL.RequestURI(), n, strings.Repeat("x", len(r.URL.Path)*1000))
	}))
	t.Cleanup(c.Close)
	return c
}

// cachedSite is a gateway with a cache before a backend.
func cachedSite(t *testing.T, backend string) *versions {
	t.Helper()
	return newVersions(t, strings.Replace(`
  request_id: x-request-id
access_log: {file: FOLDER/access.log}
caches: [{name: pages, memory: 8388608}]
routes:
- name: r
  rules:
  - name: users
    matches: [{path: {value: /users}}]
    filters: [{type: RequestHeaderModifier, set: [{name: x-user, value: "${client_address}"}]}]
    backend_refs: [{name: p}]
    cache: {name: pages}
  - {name: other, backend_refs: [{name: p}], cache: {name: pages}}
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", strings.TrimPrefix(backend, "http://"), 1), nil)
}

// askWhole asks again where the end of a request came behind its header, as it may over HTTP/3: content could have followed, and a
// request with content is none for a cache.
func askWhole(v *versions, backend *counting, version, method, path string, fields ...string) (*http.Response, string) {
	for range 100 {
		resp, body := v.ask(version, method, path, fields...)
		if version != "3" || resp.Header.Get("Cache-Status") != "millrace; fwd=bypass" {
			return resp, body
		}
		backend.requests.Add(-1)
	}
	v.t.Fatalf("HTTP/%s %s %s: never whole", version, method, path)
	return nil, ""
}

// TestACacheForAllVersions of HTTP and all loops: what a client of one has brought, those of the others get.
func TestACacheForAllVersions(t *testing.T) {
	backend := newCounting(t)
	v := cachedSite(t, backend.URL)
	for i, first := range []string{"1.1", "2", "3"} {
		path := fmt.Sprintf("/%d?a", i)
		resp, want := askWhole(v, backend, first, "GET", path)
		if got := resp.Header.Get("Cache-Status"); got != "millrace; fwd=uri-miss; stored" || !strings.HasPrefix(want, path+" ") {
			t.Errorf("HTTP/%s: %q, %.30q", first, got, want)
		}
		v.each(func(version string) {
			for range 4 {
				resp, body := askWhole(v, backend, version, "GET", path)
				if resp.Header.Get("Cache-Status") != "millrace; hit" || resp.Header.Get("Age") == "" || body != want || resp.ContentLength != int64(len(want)) {
					t.Errorf("HTTP/%s after HTTP/%s: %v, %d bytes", version, first, resp.Header, len(body))
				}
			}
			resp, body := askWhole(v, backend, version, "GET", path, "Range", "bytes=1-3")
			if resp.Header.Get("Cache-Status") != "millrace; hit" || resp.StatusCode != 206 || body != want[1:4] || resp.Header.Get("Content-Range") != fmt.Sprintf("bytes 1-3/%d", len(want)) {
				t.Errorf("HTTP/%s: range: %v, %d, %.30q", version, resp.Header, resp.StatusCode, body)
			}
			if resp, body := askWhole(v, backend, version, "GET", path, "If-None-Match", `"v"`); resp.Header.Get("Cache-Status") != "millrace; hit" || resp.StatusCode != 304 || body != "" || resp.Header.Get("Etag") != `"v"` {
				t.Errorf("HTTP/%s: condition: %v, %d, %.30q", version, resp.Header, resp.StatusCode, body)
			}
			if resp, body := askWhole(v, backend, version, "HEAD", path); resp.Header.Get("Cache-Status") != "millrace; hit" || resp.StatusCode != 200 || body != "" || resp.ContentLength != int64(len(want)) {
				t.Errorf("HTTP/%s: HEAD: %v, %d, %d, %.30q", version, resp.Header, resp.StatusCode, resp.ContentLength, body)
			}
		})
		if got := backend.requests.Load(); got != int32(i+1) {
			t.Errorf("the backend has got %d requests, want %d", got, i+1)
		}
		v.ask(first, "POST", path)
		if resp, _ := v.ask("2", "GET", path); strings.Contains(resp.Header.Get("Cache-Status"), "hit") {
			t.Errorf("a POST of HTTP/%s leaves what is stored", first)
		}
		backend.requests.Store(int32(i + 1))
	}
	if got := v.counted(`millrace_http_cache_requests_total{cache="pages",result="hit"}`); got != "63" {
		t.Errorf("%s hits", got)
	}
}

// TestNoUserGetsTheResponseOfAnother where the gateway says to the backend who asks, and the response varies by that.
func TestNoUserGetsTheResponseOfAnother(t *testing.T) {
	backend := newCounting(t)
	v := cachedSite(t, backend.URL)
	for i := range 3 {
		resp, body := v.ask("1.1", "GET", "/users?user", "X-User", "mallory")
		if body != "/users for 127.0.0.1" || resp.Header.Get("Cache-Status") != "millrace; fwd=uri-miss" || backend.requests.Load() != int32(i+1) {
			t.Errorf("%q, %v", body, resp.Header)
		}
	}
}

// TestManyRequestsOfAllLoopsAreOne for the backend.
func TestManyRequestsOfAllLoopsAreOne(t *testing.T) {
	backend := newCounting(t)
	backend.hold = make(chan struct{})
	v := cachedSite(t, backend.URL)
	bodies, all := map[string]int{}, sync.WaitGroup{}
	var mu sync.Mutex
	const n = 30
	for i := range n {
		all.Go(func() {
			_, body := v.ask([]string{"1.1", "2", "3"}[i%3], "GET", "/one")
			mu.Lock()
			defer mu.Unlock()
			bodies[body]++
		})
	}
	for v.counted("millrace_http_active_requests") != fmt.Sprint(n) { // ends with the time of the test binary
	}
	close(backend.hold)
	all.Wait()
	if len(bodies) != 1 || backend.requests.Load() != 1 {
		t.Errorf("%d responses of %d requests", len(bodies), backend.requests.Load())
	}
	if got := v.counted(`millrace_http_cache_requests_total{cache="pages",result="collapsed"}`); got != fmt.Sprint(n-1) {
		t.Errorf("%s have waited", got)
	}
}

// TestCacheOfARunningGateway is listed and purged by the control socket, kept by a reload, and in the access log.
func TestCacheOfARunningGateway(t *testing.T) {
	backend := newCounting(t)
	v := cachedSite(t, backend.URL)
	for _, path := range []string{"/a/1", "/a/2", "/b/1?q"} {
		v.ask("2", "GET", path)
	}
	ctx := t.Context()
	st, err := v.admin.Caches(ctx)
	if err != nil || len(st.Caches) != 1 || st.Caches[0].Name != "pages" || st.Caches[0].Objects != 3 || st.Caches[0].Requests["miss"] != 3 || st.Caches[0].Bytes < 12_000 {
		t.Errorf("%+v, %v", st, err)
	}
	list, err := v.admin.CacheObjects(ctx, "", "https://gateway.test/a/", 1)
	if err != nil || len(list.Objects) != 1 || list.More != 1 || list.Objects[0].Rule != "r/other" || list.Objects[0].Status != 200 || list.Objects[0].Left < 500 {
		t.Errorf("%+v, %v", list, err)
	}
	v.reloadSame()
	if resp, _ := v.ask("1.1", "GET", "/a/1"); resp.Header.Get("Cache-Status") != "millrace; hit" {
		t.Errorf("after a reload: %v", resp.Header)
	}
	for _, c := range []struct {
		purge admin.CachePurge
		n     int
		code  int
	}{
		{admin.CachePurge{URL: "https://GATEWAY.test:443/x/../b/1?q"}, 1, 0},
		{admin.CachePurge{URL: "https://gateway.test/b/1?q"}, 0, 0},
		{admin.CachePurge{Cache: "pages", URL: "https://gateway.test/a/", Prefix: true}, 2, 0},
		{admin.CachePurge{Cache: "page", URL: "https://gateway.test/"}, 0, 404},
		{admin.CachePurge{URL: "/a"}, 0, 400},
		{admin.CachePurge{URL: "ftp://gateway.test/"}, 0, 400},
	} {
		done, err := v.admin.PurgeCache(ctx, c.purge)
		var e *admin.Error
		if code := 0; done.Purged != c.n || errors.As(err, &e) != (c.code != 0) || e != nil && e.Code != c.code {
			t.Errorf("%+v: %d, %v, code %d", c.purge, done.Purged, err, code)
		}
	}
	if resp, _ := v.ask("3", "GET", "/a/1"); resp.Header.Get("Cache-Status") != "millrace; fwd=uri-miss; stored" {
		t.Errorf("after a purge: %v", resp.Header)
	}
	if _, err := v.admin.CacheObjects(ctx, "page", "", 9); err == nil || !strings.Contains(err.Error(), `did you mean "pages"?`) {
		t.Errorf("%v", err)
	}
	v.stop()
	if err := <-v.ended; err != nil {
		t.Error(err)
	}
	v.ended <- nil
	log, err := os.ReadFile(filepath.Join(v.dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	if miss, hit := strings.Count(string(log), `"cache":"miss"`), strings.Count(string(log), `"cache":"hit"`); miss != 4 || hit != 1 {
		t.Errorf("%d misses and %d hits in %s", miss, hit, log)
	}
}
