package daemon

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// shownFields is a backend that answers with fields of the request.
func shownFields(t *testing.T, names ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for _, name := range names {
			fmt.Fprintf(w, "%s=%s;", name, strings.Join(r.Header.Values(name), "|"))
		}
		w.Write(body)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// TestBasicAuthAsksForPasswords with all versions: what is not valid gets 401 and a challenge, and backends learn the name.
func TestBasicAuthAsksForPasswords(t *testing.T) {
	src := strings.Replace(`
routes:
- name: r
  auth: {basic: {file: FOLDER/users, realm: "the shop"}}
  rules:
  - filters: [{type: RequestHeaderModifier, set: [{name: x-user, value: "${user}"}]}]
    backend_refs: [{name: p}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", shownFields(t, "X-User"), 1)
	v := newVersions(t, src, map[string]string{"users": "ann:" + hashOf(t, "secret") + "\n"})
	v.each(func(version string) {
		for _, c := range []struct {
			fields []string
			status int
			body   string
		}{
			{nil, 401, ""},
			{[]string{"Authorization", basic("ann", "wrong")}, 401, ""},
			{[]string{"Authorization", basic("eve", "secret")}, 401, ""},
			{[]string{"Authorization", "Bearer x"}, 401, ""},
			{[]string{"Authorization", basic("ann", "secret"), "Authorization", basic("ann", "secret")}, 400, ""}, // two lines
			{[]string{"Authorization", basic("ann", "secret"), "X-User", "root"}, 200, "X-User=ann;"},
			{[]string{"Authorization", basic("ann", "secret")}, 200, "X-User=ann;"}, // known by now
		} {
			resp, body := v.ask(version, "GET", "/", c.fields...)
			if resp.StatusCode != c.status || c.body != "" && body != c.body {
				t.Errorf("HTTP/%s %v: %d %q", version, c.fields, resp.StatusCode, body)
			}
			if got := resp.Header.Get("WWW-Authenticate"); (got == `Basic realm="the shop", charset="UTF-8"`) != (c.status == 401) {
				t.Errorf("HTTP/%s %v: challenge %q", version, c.fields, got)
			}
		}
	})
	write(t, v.dir+"/users", "bob:"+hashOf(t, "other"))
	v.reloadSame()
	if resp, _ := v.ask("2", "GET", "/", "Authorization", basic("ann", "secret")); resp.StatusCode != 401 {
		t.Errorf("a user who is gone gets %d", resp.StatusCode)
	}
	if resp, body := v.ask("2", "GET", "/", "Authorization", basic("bob", "other")); resp.StatusCode != 200 || body != "X-User=bob;" {
		t.Errorf("a new user gets %d %q", resp.StatusCode, body)
	}
	if got := v.counted(`millrace_http_route_guard_refusals_total{reason="auth",route="r"}`); got != "13" {
		t.Errorf("%s were refused", got)
	}
}

// issuer signs tokens.
type testIssuer struct{ key ed25519.PrivateKey }

func newIssuer(t *testing.T) *testIssuer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &testIssuer{key}
}

func (i *testIssuer) jwks(kid string) string {
	return fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, kid, base64.RawURLEncoding.EncodeToString(i.key.Public().(ed25519.PublicKey)))
}

func (i *testIssuer) token(kid, sub, more string) string {
	b := base64.RawURLEncoding
	signed := b.EncodeToString(fmt.Appendf(nil, `{"alg":"EdDSA","kid":%q}`, kid)) + "." +
		b.EncodeToString(fmt.Appendf(nil, `{"iss":"me","aud":"api","sub":%q,"exp":%d%s}`, sub, time.Now().Add(time.Hour).Unix(), more))
	return signed + "." + b.EncodeToString(ed25519.Sign(i.key, []byte(signed)))
}

// TestTokensAreVerified with all versions, by keys of a file; claims become fields, and those of clients do not.
func TestTokensAreVerified(t *testing.T) {
	i := newIssuer(t)
	src := strings.Replace(`
routes:
- name: r
  auth: {jwt: {issuer: me, audiences: [api], jwks_file: FOLDER/keys, cookie: token, claims: [{name: X-Roles, claim: roles}, {name: x-sub, claim: sub}]}}
  rules: [{backend_refs: [{name: p}]}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`, "BACKEND", shownFields(t, "X-Roles", "X-Sub"), 1)
	v := newVersions(t, src, map[string]string{"keys": i.jwks("a")})
	good := i.token("a", "ann", `,"roles":["x","y"]`)
	v.each(func(version string) {
		for _, c := range []struct {
			fields    []string
			status    int
			body      string
			challenge string
		}{
			{nil, 401, "", `Bearer realm="restricted"`},
			{[]string{"Authorization", "Bearer " + good, "X-Roles", "admin", "X_Roles", "admin"}, 200, "X-Roles=x,y;X-Sub=ann;", ""},
			{[]string{"Cookie", "token=" + good, "X-Roles", "admin"}, 200, "X-Roles=x,y;X-Sub=ann;", ""},
			{[]string{"Authorization", "Bearer " + i.token("a", "bob", ""), "X-Roles", "admin"}, 200, "X-Roles=;X-Sub=bob;", ""},
			{[]string{"Authorization", "Bearer " + newIssuer(t).token("a", "ann", "")}, 401, "", `Bearer realm="restricted", error="invalid_token", error_description="the signature is wrong"`},
			{[]string{"Authorization", basic("ann", "x"), "Cookie", "token=" + good}, 401, "", `Bearer realm="restricted"`},
		} {
			resp, body := v.ask(version, "GET", "/", c.fields...)
			if resp.StatusCode != c.status || c.body != "" && body != c.body || resp.Header.Get("WWW-Authenticate") != c.challenge {
				t.Errorf("HTTP/%s %v: %d %q %q", version, c.fields, resp.StatusCode, body, resp.Header.Get("WWW-Authenticate"))
			}
		}
	})
}

// TestKeysAreReadFromAURL in the background: without any requests get 503, and a token with a key that is not there has them read again.
func TestKeysAreReadFromAURL(t *testing.T) {
	one, two := newIssuer(t), newIssuer(t)
	var text atomic.Value
	text.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text.Load().(string)) }))
	defer server.Close()
	s := newSite(t, strings.NewReplacer("URL", server.URL, "BACKEND", shownFields(t, "X-Sub")).Replace(`
admin: {socket: SOCKET}
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes: [{name: r, auth: {jwt: {issuer: me, audiences: [api], jwks_url: "URL/keys"}}, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "BACKEND"}]}]
`))
	status := func(i *testIssuer, kid string) int {
		req, err := http.NewRequest("GET", "http://"+s.addr+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+i.token(kid, "ann", ""))
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(one, "1"); got != 503 {
		t.Errorf("without keys: %d", got)
	}
	eventually(t, "a read that fails", func() bool {
		n := s.counted(`millrace_http_jwks_reads_total{result="failed",route="r"}`)
		return n != "" && n != "0"
	})
	text.Store(one.jwks("1"))
	eventually(t, "keys", func() bool { return status(one, "1") == 200 })
	text.Store(two.jwks("2"))
	eventually(t, "other keys", func() bool { return status(two, "2") == 200 })
	if got := status(one, "1"); got != 401 {
		t.Errorf("a token of a key that is gone: %d", got)
	}
}

// TestAServerIsAskedWhetherARequestIsServed with all versions: its fields replace those of clients, and what it refuses with is the
// client's response.
func TestAServerIsAskedWhetherARequestIsServed(t *testing.T) {
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(fmt.Sprint(r.Method, " ", r.URL.RequestURI(), " ", r.Host, " ", r.Header.Get("X-Forwarded-Method"), " ", r.Header.Get("X-Forwarded-Uri"), " ",
			r.Header.Get("Cookie"), " ", r.Header.Get("X-Secret"), len(body), r.Header.Get("Content-Type")))
		switch r.Header.Get("Cookie") {
		case "id=ann":
			w.Header().Set("X-User", "ann")
			w.Header().Set("X-Other", "no")
			w.WriteHeader(204)
		case "id=none":
			w.WriteHeader(200)
		case "id=long":
			w.WriteHeader(403)
			w.Write(make([]byte, 100<<10))
		case "id=cut":
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(403)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Location", "https://login.example/")
			w.Header().Set("Set-Cookie", "try=1")
			w.WriteHeader(302)
			io.WriteString(w, "log in")
		}
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	v := newVersions(t, strings.NewReplacer("BACKEND", shownFields(t, "X-User", "X-Other", "X-Groups"), "SERVER", strings.TrimPrefix(server.URL, "http://")).Replace(`
  request_id: x-request-id
routes:
- name: r
  auth: {forward: {pool: a, path: "/verify?x=1", request_headers: [cookie], response_headers: [X-User, x-groups]}}
  rules: [{backend_refs: [{name: p}]}]
pools:
- {name: p, backends: [{address: "BACKEND"}]}
- {name: a, backends: [{address: "SERVER"}]}
`), nil)
	v.each(func(version string) {
		for _, c := range []struct {
			cookie string
			status int
			body   string
		}{
			{"id=ann", 200, "X-User=ann;X-Other=mine;X-Groups=;"},
			{"id=none", 200, "X-User=;X-Other=mine;X-Groups=;"},
			{"id=eve", 302, "log in"},
			{"id=long", 502, "502 Bad Gateway\n"},
			{"id=cut", 502, "502 Bad Gateway\n"},
		} {
			resp, body := v.ask(version, "POST", "/a%20b?q=1", "Cookie", c.cookie, "X-User", "root", "X_User", "root", "X-Groups", "wheel", "X-Other", "mine", "X-Secret", "s",
				"X-Forwarded-Method", "HEAD", "X-Forwarded-Uri", "/public")
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("HTTP/%s %s: %d %q", version, c.cookie, resp.StatusCode, body)
			}
			if c.status == 302 && (resp.Header.Get("Location") != "https://login.example/" || resp.Header.Get("Set-Cookie") != "try=1" || len(resp.Header.Values("X-Request-Id")) != 1) {
				t.Errorf("HTTP/%s: %v", version, resp.Header)
			}
			if got, want := asked.Load(), "GET /verify?x=1 gateway.test POST /a%20b?q=1 "+c.cookie+" 0"; got != want {
				t.Errorf("HTTP/%s: the server was asked %q, want %q", version, got, want)
			}
		}
	})
	if got := v.counted(`millrace_http_requests_total`); got != "15" {
		t.Errorf("%s requests were counted: the server's are none of clients", got)
	}
	if got := v.counted(`millrace_http_active_requests`); got != "0" {
		t.Errorf("%s requests are active", got)
	}
	server.Close()
	if resp, _ := v.ask("2", "GET", "/", "Cookie", "id=ann"); resp.StatusCode != 502 {
		t.Errorf("without the server: %d", resp.StatusCode)
	}
}

// TestContentWaitsForCredentials with all versions: it arrives whole, though the client sends it while its password is compared and the
// server is asked.
func TestContentWaitsForCredentials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		w.WriteHeader(204)
	}))
	defer server.Close()
	v := newVersions(t, strings.NewReplacer("BACKEND", shownFields(t), "SERVER", strings.TrimPrefix(server.URL, "http://")).Replace(`
routes:
- {name: a, auth: {forward: {pool: a}}, rules: [{matches: [{path: {value: /a}}], backend_refs: [{name: p}]}]}
- {name: b, auth: {basic: {file: FOLDER/users}}, rules: [{matches: [{path: {value: /b}}], backend_refs: [{name: p}]}]}
pools:
- {name: p, backends: [{address: "BACKEND"}]}
- {name: a, backends: [{address: "SERVER"}]}
`), map[string]string{"users": "1.1:" + hashOf(t, "a") + "\n2:" + hashOf(t, "a") + "\n3:" + hashOf(t, "a") + "\n"})
	content := strings.Repeat("0123456789abcdef", 20_000)
	v.each(func(version string) {
		for _, path := range []string{"/a", "/b"} {
			req, err := http.NewRequest("POST", "https://"+v.addr+path, strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "gateway.test"
			req.Header.Set("Authorization", basic(version, "a")) // not known yet
			resp, err := v.clients[version].RoundTrip(req)
			if err != nil {
				t.Fatalf("HTTP/%s %s: %v", version, path, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || string(body) != content {
				t.Errorf("HTTP/%s %s: %d, %d bytes of %d, %v", version, path, resp.StatusCode, len(body), len(content), err)
			}
		}
	})
}
