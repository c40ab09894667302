package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/control"
)

// seen is a request as a backend has got it.
type seen struct {
	Name, Path, Host string
	Header           http.Header
}

// mirror is a backend that answers with the request, and the status that the request asks for.
func mirror(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Own", "backend")
		w.Header().Set("X-Gone", "1")
		if r.URL.Path == "/fails/"+name {
			w.WriteHeader(503)
			return
		}
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		json.NewEncoder(w).Encode(seen{name, r.URL.RequestURI(), r.Host, r.Header})
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

const rulesConfig = `
admin: {socket: SOCKET}
loops: 2
listeners:
- {name: web, address: "LISTEN", protocol: HTTP, forwarded: {trusted: 192.0.2.0/24, style: forwarded}, limits: {body_bytes: 10}}
routes:
- name: r
  rules:
  - matches: [{path: {value: /old}}, {path: {value: /older}}]
    filters:
    - {type: URLRewrite, hostname: inner.test, path: {type: ReplacePrefixMatch, value: /new}}
    - {type: RequestHeaderModifier, set: [{name: x-set, value: "1"}], add: [{name: x-add, value: "2"}], remove: [x-remove]}
    - {type: ResponseHeaderModifier, set: [{name: x-own, value: gateway}], remove: [x-gone]}
    backend_refs: [{name: a}]
  - matches: [{path: {value: /full}}]
    filters: [{type: URLRewrite, path: {type: ReplaceFullPath, value: /all}}]
    backend_refs: [{name: a}]
  - matches: [{path: {value: /moved}}]
    filters: [{type: RequestRedirect, scheme: https, hostname: other.test, port: 8443, path: {type: ReplacePrefixMatch, value: /to}, status_code: 308}]
  - matches: [{path: {value: /hash}}]
    backend_refs: [{name: hash}]
  - matches: [{path: {value: /sticky}}]
    backend_refs: [{name: sticky}]
  - matches: [{path: {value: /fails}}]
    backend_refs: [{name: both}]
    retry: {attempts: 1, codes: [503]}
  - matches: [{path: {value: /slow}}]
    backend_refs: [{name: a}]
    timeouts: {request: 200ms}
  - matches: [{path: {value: /split}}]
    backend_refs: [{name: a, weight: 3}, {name: b}]
  - backend_refs: [{name: a}]
pools:
- {name: a, backends: [{name: a, address: "A"}]}
- {name: b, backends: [{name: b, address: "B"}]}
- {name: both, backends: [{name: a, address: "A"}, {name: b, address: "B"}]}
- {name: hash, balance: consistent_hash, hash: {by: header, name: X-User}, backends: [{name: a, address: "A"}, {name: b, address: "B"}]}
- {name: sticky, sticky: {cookie: back}, backends: [{name: a, address: "A"}, {name: b, address: "B"}]}
`

func TestRulesDoWhatTheFileSays(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+mirror(t, "a")+`"`, `"B"`, `"`+mirror(t, "b")+`"`).Replace(rulesConfig)
	s := newSite(t, src)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(path string, fields ...string) (*http.Response, seen) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+s.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Set(fields[i], fields[i+1])
		}
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var got seen
		_ = json.Unmarshal(body, &got) // not of answers of the gateway
		return resp, got
	}
	for path, want := range map[string]string{"/old/x?y=1": "/new/x?y=1", "/older": "/new", "/full/x?z": "/all?z", "/%61/./b": "/a/b"} {
		if _, got := ask(path); got.Path != want {
			t.Errorf("%s became %q, not %q", path, got.Path, want)
		}
	}
	resp, got := ask("/old", "X-Remove", "1", "X-Set", "0", "X-Add", "1")
	if h := got.Header; got.Host != "inner.test" || h.Get("X-Set") != "1" || strings.Join(h["X-Add"], ",") != "1,2" || h["X-Remove"] != nil {
		t.Errorf("%+v", got)
	}
	if resp.Header.Get("X-Own") != "gateway" || resp.Header["X-Gone"] != nil {
		t.Errorf("%v", resp.Header)
	}
	if _, got := ask("/x", "Forwarded", "for=198.18.0.9"); !strings.Contains(got.Header.Get("Forwarded"), "for=127.0.0.1") || strings.Contains(got.Header.Get("Forwarded"), "198.18.0.9") {
		t.Errorf("%v", got.Header)
	}
	if resp, _ := ask("/moved/x?q=1"); resp.StatusCode != 308 || resp.Header.Get("Location") != "https://other.test:8443/to/x?q=1" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	backends := map[string]bool{}
	for i := range 20 {
		user := fmt.Sprint("user", i)
		_, first := ask("/hash", "X-User", user)
		if _, again := ask("/hash", "X-User", user); again.Name != first.Name {
			t.Errorf("%s went to %s and %s", user, first.Name, again.Name)
		}
		backends[first.Name] = true
	}
	if len(backends) != 2 {
		t.Errorf("20 users are at %v", backends)
	}
	for range 4 {
		if resp, got := ask("/fails/a"); resp.StatusCode != 200 || got.Name != "b" {
			t.Errorf("%d of %s", resp.StatusCode, got.Name)
		}
	}
	if resp, _ := ask("/slow"); resp.StatusCode != 504 {
		t.Errorf("%d", resp.StatusCode)
	}
	split := map[string]int{}
	for range 200 {
		_, got := ask("/split")
		split[got.Name]++
	}
	if split["b"] < 20 || split["b"] > 85 { // of 50, 6 standard deviations away
		t.Errorf("%v", split)
	}
	resp, err := s.client.Post("http://"+s.addr+"/x", "text/plain", strings.NewReader("more than ten"))
	if err != nil || resp.StatusCode != 413 {
		t.Errorf("%v, %v", resp, err)
	} else {
		resp.Body.Close()
	}

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.client.Jar = jar
	_, first := ask("/sticky")
	for range 8 {
		if _, got := ask("/sticky"); got.Name != first.Name {
			t.Errorf("the session went from %s to %s", first.Name, got.Name)
		}
	}
	st, err := s.admin.Status(t.Context(), control.Selection{})
	if err != nil || st.Listeners.Counts.Retries == 0 {
		t.Errorf("%+v, %v", st.Listeners, err)
	}
}

func TestPROXYHeadersComeInAndGoOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lines := make(chan string, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				in := bufio.NewReader(c)
				line, _ := in.ReadString('\n')
				lines <- line
				if _, err := http.ReadRequest(in); err == nil {
					io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				}
			}()
		}
	}()
	s := newSite(t, fmt.Sprintf(`
admin: {socket: SOCKET}
loops: 1
listeners: [{name: web, address: "LISTEN", protocol: HTTP, proxy_protocol: {from: 127.0.0.0/8}}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, proxy_protocol: v1, backends: [{address: "%s"}]}]
`, l.Addr()))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "PROXY TCP4 192.0.2.7 198.18.0.1 1234 80\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 204 {
		t.Fatalf("%+v, %v", resp, err)
	}
	if line := <-lines; line != "PROXY TCP4 192.0.2.7 198.18.0.1 1234 80\r\n" {
		t.Errorf("%q", line)
	}
}
