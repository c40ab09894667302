package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// named is a backend that answers with its name and what it got.
func named(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Old", "1")
		fmt.Fprintf(w, "%s %s %s %s %s", name, req.Host, req.URL.RequestURI(), req.Header.Get("X-New"), req.Header.Get("X-Forwarded-For"))
		fmt.Fprint(w, req.Header.Get("Via"))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// get returns status, header and content of a response; redirections are not followed.
func get(t *testing.T, url string, cookies ...*http.Cookie) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	must(t, err)
	for _, c := range cookies {
		req.AddCookie(c)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

// Rules change requests and responses, redirect, and answer by themselves.
func TestRulesChangeMessages(t *testing.T) {
	r := newRig(t, named(t, "a"), func(r *rig) {
		r.rule.RequestHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-new", Value: "n"}}}
		r.rule.ResponseHeaders = &rewrite.Headers{Remove: []string{"x-old"}, Add: []semantics.Field{{Name: "x-added", Value: "y"}}}
		r.rule.Rewrite = &rewrite.Rewrite{Hostname: "inner", Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Prefix: "/", Value: "/v1"}}
		r.each(func(l *Listener) { l.Via, l.AltSvc = "gate", `h3=":443"` })
	})
	resp, body := get(t, "http://"+r.addr+"/x/%7Euser?q=1")
	if want := "a inner /v1/x/~user?q=1 n 127.0.0.11.1 gate"; body != want || resp.Header.Get("X-Old") != "" || resp.Header.Get("X-Added") != "y" ||
		resp.Header.Get("Alt-Svc") != `h3=":443"` {
		t.Errorf("%q, want %q; %v", body, want, resp.Header)
	}
	r.do(func() {
		r.rule.Redirect = &rewrite.Redirect{Scheme: "https", Status: 301}
	})
	if resp, _ := get(t, "http://"+r.addr+"/x?q"); resp.StatusCode != 301 || !strings.HasPrefix(resp.Header.Get("Location"), "https://127.0.0.1") ||
		!strings.HasSuffix(resp.Header.Get("Location"), "/x?q") {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	r.do(func() {
		r.rule.Redirect, r.rule.Response = nil, &Response{Status: 418, Body: []byte("tea"), Fields: rewrite.Headers{Add: []semantics.Field{{Name: "x-fixed", Value: "f"}}}}
	})
	if resp, body := get(t, "http://"+r.addr+"/"); resp.StatusCode != 418 || body != "tea" || resp.Header.Get("X-Fixed") != "f" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
}

// The cookie of a session leads to the backend that set it.
func TestStickySessions(t *testing.T) {
	backends := []pool.BackendOptions{}
	for _, name := range []string{"a", "b", "c"} {
		backends = append(backends, pool.BackendOptions{Name: name, Address: netip.MustParseAddrPort(named(t, name))})
	}
	r := newRig(t, backends[0].Address.String(), func(r *rig) {
		p, err := pool.New(pool.Options{Name: "p"}, backends, 1)
		must(t, err)
		r.pool.Pool = p
		r.rule.Sticky = &rewrite.Sticky{Name: "session"}
	})
	seen := map[string]bool{}
	for range 9 {
		resp, first := get(t, "http://"+r.addr+"/")
		cookies := resp.Cookies()
		if len(cookies) != 1 || cookies[0].Name != "session" {
			t.Fatal(resp.Header)
		}
		seen[first[:1]] = true
		for range 6 {
			resp, body := get(t, "http://"+r.addr+"/", cookies[0])
			if body[0] != first[0] || len(resp.Cookies()) != 0 {
				t.Errorf("%q after %q, cookies %v", body, first, resp.Cookies())
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("sessions began at %v", seen)
	}
}

// A rule's statuses are tried again at another backend, and so are connections that fail, but not what is not safe.
func TestRetries(t *testing.T) {
	var bad atomic.Int64
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		bad.Add(1)
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	defer failing.Close()
	closed := free(t)
	resets := script(t, func(c net.Conn) { read(c) })
	good := named(t, "good")
	r := newRig(t, good, func(r *rig) {
		var backends []pool.BackendOptions
		for i, a := range []string{strings.TrimPrefix(failing.URL, "http://"), closed.String(), resets, good} {
			backends = append(backends, pool.BackendOptions{Name: fmt.Sprint(i), Address: netip.MustParseAddrPort(a)})
		}
		p, err := pool.New(pool.Options{Name: "p", RetryBudget: pool.RetryBudget{Percent: 100, MinPerSecond: 1000}}, backends, 1)
		must(t, err)
		r.pool.Pool = p
		r.rule.Attempts, r.rule.RetryStatus = 4, []int{503}
	})
	for range 20 {
		if resp, body := get(t, "http://"+r.addr+"/"); resp.StatusCode != 200 || !strings.HasPrefix(body, "good") {
			t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
		}
	}
	if bad.Load() == 0 {
		t.Error("the backend that fails was never asked")
	}
	statuses := map[int]int{}
	for range 20 {
		resp, err := http.Post("http://"+r.addr+"/", "text/plain", strings.NewReader("x"))
		must(t, err)
		resp.Body.Close()
		statuses[resp.StatusCode]++
	}
	if statuses[502] == 0 || statuses[503] == 0 || statuses[200] == 0 {
		t.Errorf("statuses of POST: %v", statuses)
	}
	r.settled()
}

// Requests are spread over pools by weight.
func TestWeightsOfPools(t *testing.T) {
	b := named(t, "b")
	r := newRig(t, named(t, "a"), func(r *rig) {
		p, err := pool.New(pool.Options{Name: "q"}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(b)}}, 1)
		must(t, err)
		r.rule.Backends[0].Weight = 3
		r.rule.Backends = append(r.rule.Backends, Weighted{&Pool{Pool: p}, 1}, Weighted{&Pool{Pool: p}, 0})
	})
	n := 0
	for range 400 {
		if _, body := get(t, "http://"+r.addr+"/"); body[0] == 'b' {
			n++
		}
	}
	if n < 60 || n > 140 { // 100 +- 4.6 deviations
		t.Errorf("%d of 400 requests went to the pool with a quarter of the weight", n)
	}
}
