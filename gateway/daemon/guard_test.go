package daemon

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
)

// versions are clients of HTTP/1.1, 2 and 3 of one gateway with TLS.
type versions struct {
	*site
	dir     string
	src     string
	other   string // an address that is free, OTHER in the configuration
	clients map[string]http.RoundTripper
}

// newVersions starts a gateway, whose listener "web" has all versions. In the configuration FOLDER is that of the file, in which
// files have the given contents.
func newVersions(t *testing.T, src string, files map[string]string) *versions {
	t.Helper()
	dir := t.TempDir()
	other := free(t)
	roots := writePair(t, dir, "gateway.test")
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	src = "admin: {socket: SOCKET}\nloops: 2\nlisteners:\n- name: web\n  address: LISTEN\n  protocol: HTTPS\n  versions: ['1.1', '2', '3']\n" +
		"  tls: {certificates: [{cert: " + dir + "/gateway.test}]}\n" + strings.NewReplacer("FOLDER", dir, "OTHER", other).Replace(src)
	v := &versions{site: newLoggedSite(t, src, slog.New(slog.DiscardHandler)), dir: dir, src: src, other: other}
	conf := &tls.Config{RootCAs: roots, ServerName: "gateway.test"}
	one := &http.Transport{TLSClientConfig: conf.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	two := &http.Transport{TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: true}
	three := &http3.Transport{TLS: conf.Clone()}
	v.clients = map[string]http.RoundTripper{"1.1": one, "2": two, "3": three}
	t.Cleanup(func() { one.CloseIdleConnections(); two.CloseIdleConnections(); three.Close() })
	return v
}

// ask sends a request with fields, in pairs of name and value, and returns the response with its content.
func (v *versions) ask(version, method, path string, fields ...string) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "https://"+v.addr+path, http.NoBody)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Host = "gateway.test"
	for pair := range slices.Chunk(fields, 2) {
		req.Header.Add(pair[0], pair[1])
	}
	resp, err := v.clients[version].RoundTrip(req)
	if err != nil {
		v.t.Fatalf("HTTP/%s %s %s: %v", version, method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if want := map[string]int{"1.1": 1, "2": 2, "3": 3}[version]; resp.ProtoMajor != want {
		v.t.Fatalf("the response has %s", resp.Proto)
	}
	return resp, string(body)
}

// reloadSame reloads a configuration whose files may have changed.
func (v *versions) reloadSame() {
	v.t.Helper()
	v.reload(v.src)
}

// each runs a part of a test for each version.
func (v *versions) each(f func(version string)) {
	for _, version := range []string{"1.1", "2", "3"} {
		f(version)
	}
}

// TestRequestsBeyondARateGet429 with Retry-After and the fields of the draft, by the key of the limit, over all loops and versions.
func TestRequestsBeyondARateGet429(t *testing.T) {
	v := newVersions(t, strings.Replace(`
  rate_limits: [all]
rate_limits:
- {name: all, key: {by: all}, requests: 1000000, dry_run: true}
- {name: key, key: {by: header, name: X-Api-Key}, requests: 2, interval: 1h, announce: always}
- {name: tried, key: {by: value, value: "${host} ${path}"}, requests: 1, interval: 1h, dry_run: true}
- {name: session, key: {by: cookie, name: sid}, requests: 1, interval: 1h}
- {name: clients, requests: 3, interval: 1h, announce: never}
routes:
- {name: api, rate_limits: [key], rules: [{matches: [{path: {value: /api}}], backend_refs: [{name: p}]}]}
- {name: tried, rate_limits: [tried], rules: [{matches: [{path: {value: /tried}}], backend_refs: [{name: p}]}]}
- {name: login, rate_limits: [session], rules: [{matches: [{path: {value: /login}}], filters: [{type: FixedResponse, body: ok}]}]}
- {name: rest, rate_limits: [clients], rules: [{filters: [{type: RequestRedirect, path: {type: ReplaceFullPath, value: /x}}]}]}
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", named(t, "a"), 1), nil)
	v.each(func(version string) { // each with a key of its own
		for i, want := range []string{`"key";r=1;t=1800`, `"key";r=0;t=3600`, `"key";r=0;t=3600`, `"key";r=0;t=3600`} {
			resp, body := v.ask(version, "GET", "/api", "X-Api-Key", "key of "+version)
			h := resp.Header
			if h.Get("RateLimit") != want || h.Get("RateLimit-Policy") != `"key";q=2;w=3600` || resp.StatusCode != map[bool]int{true: 200, false: 429}[i < 2] {
				t.Errorf("HTTP/%s, request %d: %d %v", version, i, resp.StatusCode, h)
			}
			if after := h.Get("Retry-After"); i < 2 && (after != "" || body != "a /api") || i >= 2 && (after != "1800" && after != "1799" || body != "429 Too Many Requests\n") {
				t.Errorf("HTTP/%s, request %d: Retry-After %q, %q", version, i, after, body)
			}
		}
	})
	v.each(func(version string) { // all versions count together; without the key by the client
		for range 2 {
			v.ask(version, "GET", "/tried")
		}
	})
	for i, version := range []string{"1.1", "2", "3"} {
		resp, _ := v.ask(version, "GET", "/login", "Cookie", "sid=1")
		if want := map[bool]int{true: 200, false: 429}[i == 0]; resp.StatusCode != want || (resp.Header.Get("RateLimit") != "") != (i > 0) {
			t.Errorf("HTTP/%s: %d %v", version, resp.StatusCode, resp.Header)
		}
	}
	for i := range 5 {
		resp, _ := v.ask("2", "GET", "/other")
		if want := map[bool]int{true: 302, false: 429}[i < 3]; resp.StatusCode != want || resp.Header.Get("RateLimit") != "" || (resp.Header.Get("Retry-After") != "") != (i >= 3) {
			t.Errorf("request %d of a client: %d %v", i, resp.StatusCode, resp.Header)
		}
	}
	for series, want := range map[string]string{
		`millrace_http_rate_limit_requests_total{limit="key",result="allowed"}`:           "6",
		`millrace_http_rate_limit_requests_total{limit="key",result="refused"}`:           "6",
		`millrace_http_rate_limit_requests_total{limit="tried",result="dry_run"}`:         "5",
		`millrace_http_rate_limit_requests_total{limit="all",result="allowed"}`:           "26",
		`millrace_http_rate_limit_evicted_keys_total{limit="all"}`:                        "0",
		`millrace_http_route_guard_refusals_total{reason="rate_limit",route="api"}`:       "6",
		`millrace_http_listener_guard_refusals_total{listener="web",reason="rate_limit"}`: "0",
	} {
		if got := v.counted(series); got != want {
			t.Errorf("%s %s, want %s", series, got, want)
		}
	}
}

// TestAReloadKeepsWhatClientsHaveSpent unless it changes the limit.
func TestAReloadKeepsWhatClientsHaveSpent(t *testing.T) {
	src := `
admin: {socket: SOCKET}
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
rate_limits: [{name: c, requests: 2, interval: 1h}]
routes: [{name: r, rate_limits: [c], rules: [{filters: [{type: FixedResponse, body: ok}]}]}]
`
	s := newSite(t, src)
	statuses := func() (list []int) {
		for range 3 {
			code, _ := s.get("/")
			list = append(list, code)
		}
		return list
	}
	if got := statuses(); !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("%v", got)
	}
	s.reload(strings.Replace(src, "body: ok", "body: fine", 1))
	if got := statuses(); !slices.Equal(got, []int{429, 429, 429}) {
		t.Errorf("after a reload: %v", got)
	}
	s.reload(strings.Replace(src, "requests: 2", "requests: 1", 1))
	if got := statuses(); !slices.Equal(got, []int{200, 429, 429}) {
		t.Errorf("after a change of the limit: %v", got)
	}
	if got := s.counted(`millrace_http_rate_limit_requests_total{limit="c",result="refused"}`); got != "6" {
		t.Errorf("%s were refused", got)
	}
}

// TestListsOfClientsAreAppliedToRequests of listeners and routes, by the address that a trusted proxy names, and change by a reload.
func TestListsOfClientsAreAppliedToRequests(t *testing.T) {
	v := newVersions(t, `
  forwarded: {trusted: 127.0.0.0/8}
  sources: {deny: FOLDER/deny}
- {name: through, address: "OTHER", protocol: TCP, sources: {deny: 127.0.0.0/8}}
routes:
- {name: admin, sources: {allow: [192.0.2.0/24, "2001:db8::/32"], deny: 192.0.2.9, default: deny}, rules: [{matches: [{path: {value: /admin}}], filters: [{type: FixedResponse, body: admin}]}]}
- {name: rest, rules: [{filters: [{type: FixedResponse, body: ok}]}]}
tcp_routes: [{name: t, backend_refs: [{name: p}]}]
pools: [{name: p, protocol: TCP, backends: [{address: "127.0.0.1:9"}]}]
`, map[string]string{"deny": "198.51.100.0/24\n"})
	v.each(func(version string) {
		for _, c := range []struct {
			client, path string
			status       int
		}{
			{"203.0.113.1", "/", 200},
			{"198.51.100.7", "/", 403},
			{"198.51.100.7", "/admin", 403},
			{"203.0.113.1", "/admin", 403},
			{"192.0.2.1", "/admin", 200},
			{"::ffff:192.0.2.1", "/admin", 200},
			{"192.0.2.9", "/admin", 403},
			{"2001:db8::5", "/admin/x", 200},
		} {
			if resp, _ := v.ask(version, "GET", c.path, "X-Forwarded-For", c.client); resp.StatusCode != c.status {
				t.Errorf("HTTP/%s %s of %s: %d, want %d", version, c.path, c.client, resp.StatusCode, c.status)
			}
		}
	})
	for series, want := range map[string]string{
		`millrace_http_listener_guard_refusals_total{listener="web",reason="sources"}`: "6",
		`millrace_http_route_guard_refusals_total{reason="sources",route="admin"}`:     "6",
	} {
		if got := v.counted(series); got != want {
			t.Errorf("%s %s, want %s", series, got, want)
		}
	}
	write(t, v.dir+"/deny", "203.0.113.0/24\n")
	v.reloadSame()
	for client, want := range map[string]int{"203.0.113.1": 403, "198.51.100.7": 200} {
		if resp, _ := v.ask("2", "GET", "/", "X-Forwarded-For", client); resp.StatusCode != want {
			t.Errorf("after a reload %s gets %d", client, resp.StatusCode)
		}
	}
	if c, err := net.Dial("tcp", v.other); err == nil { // otherwise the reset came before
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("a connection that is passed through was not refused")
		}
		c.Close()
	}
	if got := v.counted(`millrace_http_listener_guard_refusals_total{listener="through",reason="sources"}`); got != "1" {
		t.Errorf("%s connections were refused", got)
	}
}

// TestRequestsOfARouteWaitForOthers with all versions: at most one at a time reaches the backend, and one too many gets 503.
func TestRequestsOfARouteWaitForOthers(t *testing.T) {
	var inside, most, served atomic.Int64
	entered, leave := make(chan bool, 16), make(chan bool)
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		most.Store(max(most.Load(), inside.Add(1)))
		entered <- true
		<-leave
		inside.Add(-1)
		served.Add(1)
	}))
	defer backend.Close()
	v := newVersions(t, strings.Replace(`
routes: [{name: r, concurrency: {requests: 1, pending: 2, wait: 1m}, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", strings.TrimPrefix(backend.URL, "http://"), 1), nil)
	statuses := make(chan int, 3)
	for i, version := range []string{"1.1", "2", "3"} {
		go func() {
			resp, _ := v.ask(version, "GET", "/")
			statuses <- resp.StatusCode
		}()
		if i == 0 {
			<-entered
		}
		eventually(t, "requests that wait", func() bool {
			return v.counted(`millrace_http_route_pending_requests{route="r"}`) == strconv.Itoa(i) && v.counted(`millrace_http_route_concurrent_requests{route="r"}`) == "1"
		})
	}
	if resp, _ := v.ask("2", "GET", "/"); resp.StatusCode != 503 || !strings.Contains(resp.Header.Get("Proxy-Status"), "connection_limit_reached") {
		t.Errorf("one too many: %d %v", resp.StatusCode, resp.Header)
	}
	for i := range 3 {
		leave <- true
		if code := <-statuses; code != 200 {
			t.Errorf("request %d: %d", i, code)
		}
		if i < 2 {
			<-entered
		}
	}
	if most.Load() != 1 || served.Load() != 3 {
		t.Errorf("%d at a time, %d served", most.Load(), served.Load())
	}
	if got := v.counted(`millrace_http_route_wait_failures_total{reason="full",route="r"}`); got != "1" {
		t.Errorf("%s were refused", got)
	}
}

// TestResponsesOfTheGatewayHaveThePagesOfTheFile with all versions: those of the route, then those of the listener. Maintenance leaves
// some clients their route, HSTS is in every response, and redirects have what their variables stand for.
func TestResponsesOfTheGatewayHaveThePagesOfTheFile(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		w.WriteHeader(404)
		io.WriteString(w, "backend")
	}))
	defer backend.Close()
	v := newVersions(t, strings.Replace(`
  forwarded: {trusted: 127.0.0.0/8}
  hsts: {max_age: 8760h, include_subdomains: true, preload: true}
  error_pages: [{status: [404, 503], file: FOLDER/listener.html}]
routes:
- {name: closed, maintenance: {retry_after: 10m, allow: 192.0.2.0/24}, error_pages: [{status: 503, file: FOLDER/route.json}], rules: [{matches: [{path: {value: /closed}}], backend_refs: [{name: p}]}]}
- {name: off, maintenance: {}, rules: [{matches: [{path: {value: /off}}], filters: [{type: FixedResponse}]}]}
- {name: to, rules: [{matches: [{path: {value: /to}}], filters: [{type: RequestRedirect, location: "${scheme}://www.${hostname}${target}", status_code: 308}]}]}
- {name: fixed, rules: [{matches: [{path: {value: /fixed}}], filters: [{type: RequestRedirect, location: /new}]}]}
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", strings.TrimPrefix(backend.URL, "http://"), 1), map[string]string{"listener.html": "<p>listener", "route.json": "{}"})
	v.each(func(version string) {
		for _, c := range []struct {
			path, client              string
			status                    int
			body, kind, after, target string
		}{
			{path: "/none", status: 404, body: "<p>listener", kind: "text/html; charset=utf-8"},
			{path: "/closed", status: 503, body: "{}", kind: "application/json", after: "600"},
			{path: "/closed", client: "192.0.2.7", status: 404, body: "backend", kind: "text/plain; charset=utf-8"},
			{path: "/off", status: 503, body: "<p>listener", kind: "text/html; charset=utf-8"},
			{path: "/to/a%20b?c=d", status: 308, target: "https://www.gateway.test/to/a%20b?c=d"},
			{path: "/fixed", status: 302, target: "/new"},
		} {
			resp, body := v.ask(version, "GET", c.path, "X-Forwarded-For", c.client)
			h := resp.Header
			if resp.StatusCode != c.status || body != c.body || h.Get("Content-Type") != c.kind || h.Get("Retry-After") != c.after || h.Get("Location") != c.target ||
				strings.Join(h.Values("Strict-Transport-Security"), "|") != "max-age=31536000; includeSubDomains; preload" {
				t.Errorf("HTTP/%s %s: %d %q %v", version, c.path, resp.StatusCode, body, h)
			}
		}
	})
}

// TestContentIsBoundedByRoute with all versions, with an announced length and without; the listener's limit is for the other routes.
func TestContentIsBoundedByRoute(t *testing.T) {
	v := newVersions(t, strings.Replace(`
  limits: {body_bytes: 100}
routes:
- {name: upload, limits: {body_bytes: 1000}, rules: [{matches: [{path: {value: /upload}}], backend_refs: [{name: p}]}]}
- {name: small, limits: {body_bytes: 10}, rules: [{matches: [{path: {value: /small}}], backend_refs: [{name: p}]}]}
- {name: rest, rules: [{backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", shownFields(t), 1), nil)
	v.each(func(version string) {
		for _, c := range []struct {
			path   string
			bytes  int
			status int
		}{{"/upload", 1000, 200}, {"/upload", 1001, 413}, {"/small", 10, 200}, {"/small", 11, 413}, {"/x", 100, 200}, {"/x", 101, 413}} {
			for _, announced := range []bool{true, false} {
				var body io.Reader = strings.NewReader(strings.Repeat("x", c.bytes))
				if !announced {
					body = io.MultiReader(body)
				}
				req, err := http.NewRequest("POST", "https://"+v.addr+c.path, body)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "gateway.test"
				resp, err := v.clients[version].RoundTrip(req)
				if err != nil {
					t.Fatalf("HTTP/%s %+v: %v", version, c, err)
				}
				resp.Body.Close()
				if resp.StatusCode != c.status {
					t.Errorf("HTTP/%s %+v, announced %v: %d", version, c, announced, resp.StatusCode)
				}
			}
		}
	})
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s: it did not come to that", what)
}
