package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// shown is a backend that answers with fields of the request that it got.
func shown(t *testing.T, names ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, name := range names {
			fmt.Fprintf(w, "%s=%s\n", name, strings.Join(req.Header.Values(name), "|"))
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// sendFields sends a request with fields, and returns the response with its content.
func sendFields(t *testing.T, url string, fields map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	must(t, err)
	for name, value := range fields {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

func compiled(t *testing.T, h rewrite.Headers) *rewrite.Headers {
	t.Helper()
	must(t, h.Compile())
	return &h
}

// TestVariablesAreThoseOfTheRequest in fields for the backend, for the client, and of fixed responses.
func TestVariablesAreThoseOfTheRequest(t *testing.T) {
	backend := shown(t, "X-Real-Ip", "X-All", "X-Sni")
	r := newRig(t, backend, func(r *rig) {
		r.rule.Name = "u"
		r.rule.RequestHeaders = compiled(t, rewrite.Headers{Set: []semantics.Field{
			{Name: "x-real-ip", Value: "${client_address}"},
			{Name: "x-sni", Value: "${server_name}"},
			{Name: "x-all", Value: "${scheme} ${host} ${method} ${path} ${target} ${protocol} ${rule} ${listener_port}"},
		}})
		r.rule.ResponseHeaders = compiled(t, rewrite.Headers{Set: []semantics.Field{{Name: "x-served-by", Value: "${backend} ${backend_address} ${method}"}}})
		r.each(func(l *Listener) { l.Forwarding.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	})
	_, port, _ := strings.Cut(r.addr, ":")
	resp, body := sendFields(t, "http://"+r.addr+"/a%20b?q=1", map[string]string{"X-Real-IP": "192.0.2.66", "X-Sni": "forged", "X-Forwarded-For": "203.0.113.9"})
	want := fmt.Sprintf("X-Real-Ip=203.0.113.9\nX-All=http %s GET /a%%20b /a%%20b?q=1 HTTP/1.1 u %s\nX-Sni=\n", r.addr, port)
	if body != want {
		t.Errorf("the backend got\n%s, want\n%s", body, want)
	}
	if got := resp.Header.Get("X-Served-By"); got != "b "+backend+" GET" {
		t.Errorf("the client got %q", got)
	}
	r.do(func() {
		r.rule.Response = &Response{Status: 200, Fields: *compiled(t, rewrite.Headers{Add: []semantics.Field{{Name: "x-you", Value: "${client_address}"}, {Name: "x-none", Value: "${backend}"}}})}
	})
	resp, _ = sendFields(t, "http://"+r.addr+"/", nil)
	if got, none := resp.Header.Get("X-You"), resp.Header.Values("X-None"); got != "127.0.0.1" || len(none) > 0 {
		t.Errorf("a fixed response has %q and %q", got, none)
	}
}

// TestEachRequestHasAnID that its backend, its client and the log get. That of a client counts where its address is trusted.
func TestEachRequestHasAnID(t *testing.T) {
	made := regexp.MustCompile(`^[0-9a-f]{32}$`)
	var logged []string
	r := newRig(t, shown(t, "X-Request-Id", "X-Copy"), func(r *rig) {
		r.rule.RequestHeaders = compiled(t, rewrite.Headers{Set: []semantics.Field{{Name: "x-copy", Value: "${request_id}"}}})
		r.each(func(l *Listener) { l.RequestID = "x-request-id" })
	})
	r.do(func() { r.worker.OnRecord(func(rec *Record) { logged = append(logged, strings.Clone(rec.RequestID)) }) })
	seen := map[string]bool{}
	check := func(what string, fields map[string]string, want string) {
		t.Helper()
		resp, body := sendFields(t, "http://"+r.addr+"/", fields)
		id := resp.Header.Get("X-Request-Id")
		if want == "" && (!made.MatchString(id) || seen[id]) || want != "" && id != want || len(resp.Header.Values("X-Request-Id")) != 1 {
			t.Errorf("%s: the client got %q", what, resp.Header.Values("X-Request-Id"))
		}
		seen[id] = true
		if resp.StatusCode == 200 && body != "" && body != "X-Request-Id="+id+"\nX-Copy="+id+"\n" {
			t.Errorf("%s: the backend got %q of %s", what, body, id)
		}
		r.eventually("the record of "+id, func() bool { return slices.Contains(logged, id) })
	}
	check("the first", nil, "")
	check("the second", nil, "")
	check("a client that is not trusted", map[string]string{"X-Request-Id": "forged"}, "")
	r.do(func() {
		r.each(func(l *Listener) { l.Forwarding.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	})
	check("a trusted proxy", map[string]string{"X-Request-Id": "abc-1"}, "abc-1")
	check("a trusted proxy with white space", map[string]string{"X-Request-Id": "a b"}, "")
	check("a trusted proxy with a long one", map[string]string{"X-Request-Id": strings.Repeat("a", 129)}, "")
	r.do(func() { r.rule.Response, r.rule.RequestHeaders = &Response{Status: 204}, nil })
	check("a fixed response", nil, "")
}
