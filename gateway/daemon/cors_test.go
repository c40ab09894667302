package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPreflightsAreAnsweredForTheRequestThatTheyAskFor by the rule of its method; other requests with OPTIONS go to backends, and
// responses have the origin, those of the gateway too.
func TestPreflightsAreAnsweredForTheRequestThatTheyAskFor(t *testing.T) {
	var options atomic.Int32
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			options.Add(1)
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	defer backend.Close()
	s := newSite(t, strings.Replace(`
admin: {socket: SOCKET}
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes:
- name: r
  rules:
  - matches: [{path: {value: /api}, method: PUT}]
    filters: [{type: CORS, allow_origins: ["https://a.example"], allow_methods: [PUT], allow_headers: [x-a], max_age: 9s}]
    backend_refs: [{name: p}]
  - matches: [{path: {value: /closed}}]
    filters: [{type: CORS, allow_origins: ["https://a.example"]}, {type: FixedResponse, status_code: 403}]
  - backend_refs: [{name: p}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", strings.TrimPrefix(backend.URL, "http://"), 1))
	for _, c := range []struct {
		method, path, origin, asks string
		status                     int
		allowed                    string // the origin in the response
		methods                    string
		forwarded                  int32 // requests with OPTIONS so far
	}{
		{"OPTIONS", "/api", "https://a.example", "PUT", 204, "https://a.example", "PUT", 0},
		{"OPTIONS", "/api", "https://b.example", "PUT", 204, "", "", 0},
		{"OPTIONS", "/api", "https://a.example", "DELETE", 200, "*", "", 1}, // its rule has no CORS: the backend decides
		{"OPTIONS", "/api", "", "PUT", 200, "*", "", 2},                     // no preflight
		{"OPTIONS", "/api", "https://a.example", "", 200, "*", "", 3},
		{"PUT", "/api", "https://a.example", "", 200, "https://a.example", "", 3},
		{"PUT", "/api", "https://b.example", "", 200, "", "", 3},
		{"GET", "/api", "https://b.example", "", 200, "*", "", 3},
		{"GET", "/closed", "https://a.example", "", 403, "https://a.example", "", 3},
	} {
		req, err := http.NewRequest(c.method, "http://"+s.addr+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Origin": c.origin, "Access-Control-Request-Method": c.asks} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != c.status || strings.Join(h.Values("Access-Control-Allow-Origin"), "|") != c.allowed || h.Get("Access-Control-Allow-Methods") != c.methods ||
			options.Load() != c.forwarded {
			t.Errorf("%+v: %d %v, %d were forwarded", c, resp.StatusCode, h, options.Load())
		}
	}
}
