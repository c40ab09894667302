package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/evasions"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/inspection"
)

// inspectedSite is a gateway whose listeners inspect requests, before servers that record what they receive.
type inspectedSite struct {
	*versions
	mu  sync.Mutex
	got []string
	log string // of nginx
}

const inspectedConfig = `
- {name: plain, address: "OTHER", protocol: HTTP, versions: ["1.1", "2"]}
- {name: second, address: "NGINX", protocol: HTTP}
routes:
- {name: r, listeners: [web, plain], rules: [{backend_refs: [{name: p}]}]}
- {name: n, listeners: [second], rules: [{backend_refs: [{name: n}]}]}
pools:
- {name: p, backends: [{address: "WEB"}]}
- {name: n, backends: [{address: "SERVER"}]}
inspection:
  alerts: {file: FOLDER/alerts.json}
  policies: [{name: edge, mode: prevent, listeners: [web, plain, second], rules: FOLDER/r.rules, HOLD}]
`

// newInspected starts the servers and the gateway. nginx is the address of one that was started; "" is none.
func newInspected(t *testing.T, rules, hold, nginx string) *inspectedSite {
	t.Helper()
	v := &inspectedSite{}
	server := httptest.NewServer(http.HandlerFunc(v.serve))
	t.Cleanup(server.Close)
	web := strings.TrimPrefix(server.URL, "http://")
	if nginx == "" {
		nginx = web
	}
	src := strings.NewReplacer("WEB", web, "SERVER", nginx, "NGINX", free(t), ", HOLD", hold).Replace(inspectedConfig)
	v.versions = newVersions(t, src, map[string]string{"r.rules": rules})
	return v
}

// serve records path and body of a request, decoded as programs do.
func (v *inspectedSite) serve(w http.ResponseWriter, r *http.Request) {
	v.record("web " + r.URL.Path)
	for name := range r.Header {
		v.record("field " + name)
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && len(body) > 0 {
		v.record("body " + evasions.DecodedBody(r.Header.Get("Content-Encoding"), body))
	}
	if text := r.URL.Query().Get("answer"); text != "" {
		io.WriteString(w, text)
		return
	}
	io.WriteString(w, "got it")
}

func (v *inspectedSite) record(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.got = append(v.got, text)
}

// received reports whether a server has received a text.
func (v *inspectedSite) received(text string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	nginx, _ := os.ReadFile(v.log)
	for _, s := range append(v.got, string(nginx)) {
		if strings.Contains(s, text) {
			return true
		}
	}
	return false
}

// alerts returns the alerts that were written so far.
func (v *inspectedSite) alerts() (list []inspection.Alert) {
	v.t.Helper()
	text, err := os.ReadFile(filepath.Join(v.dir, "alerts.json"))
	if err != nil {
		v.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var a inspection.Alert
		if err := json.Unmarshal(line, &a); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// post sends content, in pieces, and returns the status; 0 where the exchange was ended without one.
func (v *inspectedSite) post(version, path, coding string, pieces ...string) int {
	v.t.Helper()
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			if _, err := io.WriteString(w, p); err != nil {
				break
			}
		}
		w.Close()
	}()
	req, err := http.NewRequestWithContext(context.Background(), "POST", "https://"+v.addr+path, r)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Host = "gateway.test"
	req.Header.Set("Content-Encoding", coding)
	resp, err := v.clients[version].RoundTrip(req)
	r.Close()
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

const edgeRules = `drop http any any -> any any (msg:"URI"; flow:to_server; http.uri; content:"/evil"; sid:3;)
drop http any any -> any any (msg:"body"; flow:to_server; http.request_body; content:"evilbody"; sid:4;)
drop http any any -> any any (msg:"answer"; flow:to_client; http.response_body; content:"secret"; sid:5;)
alert tls any any -> any any (msg:"hello"; tls.sni; content:"gateway.test"; sid:6;)
alert tcp any any -> any any (msg:"packets"; content:"packets"; sid:7;)
`

// TestRequestsOfListenersAreInspected by one policy, over all versions of HTTP, and alerts have what the gateway knows.
func TestRequestsOfListenersAreInspected(t *testing.T) {
	v := newInspected(t, edgeRules, "", "")
	v.each(func(version string) {
		path := "/evil-" + version
		if resp, _ := v.ask(version, "GET", path); resp.StatusCode != 403 || v.received(path) {
			t.Errorf("HTTP/%s: status %d, received %v", version, resp.StatusCode, v.received(path))
		}
		if resp, body := v.ask(version, "GET", "/fine-"+version); resp.StatusCode != 200 || body != "got it" {
			t.Errorf("HTTP/%s: status %d, %q", version, resp.StatusCode, body)
		}
		if status := v.post(version, "/post", "identity", "an evil", "body of HTTP/"+version); status != 403 || v.received("body of HTTP/"+version) {
			t.Errorf("HTTP/%s: content: status %d", version, status)
		}
		if resp, body := v.ask(version, "GET", "/answered?answer=a+secret"); resp.StatusCode != 502 || strings.Contains(body, "secret") {
			t.Errorf("HTTP/%s: response: status %d, %q", version, resp.StatusCode, body)
		}
	})
	seen := map[string]int{}
	eventually(t, "12 alerts", func() bool { return len(v.alerts()) >= 12 })
	for _, a := range v.alerts() {
		seen[fmt.Sprint(a.Rule.SID, " ", a.Action, " ", a.Proto)]++
		if q := a.Request; q == nil || q.Listener != "web" || q.ServerName != "gateway.test" || a.Rule.SID != 6 && (q.Host != "gateway.test" || q.URI == "" || q.Method == "") {
			t.Errorf("%+v %+v", a, a.Request)
		}
		if a.Policy != "edge" || a.Service != "" || !(a.Src.IsLoopback() && a.Dst.IsLoopback()) {
			t.Errorf("%+v", a)
		}
	}
	for what, n := range map[string]int{"3 drop tcp": 2, "3 drop udp": 1, "4 drop tcp": 2, "4 drop udp": 1, "5 drop tcp": 2, "5 drop udp": 1, "6 alert tcp": 2, "6 alert udp": 1} {
		if seen[what] < n {
			t.Errorf("%d alerts of %q, want %d: %v", seen[what], what, n, seen)
		}
	}
	s := v.d.inspection.Status(10)
	if p := s.Policies[0]; p.Rules != 5 || p.Requests != 4 || p.NotOfRequests["content of packets"] != 1 || p.Inspected != 12 {
		t.Errorf("%+v", p)
	}
	if f := v.d.inspection.Fits(); len(f) != 1 || f[0].String() != "4 of 5 rules apply to requests; others are about 1 content of packets (1:7)" {
		t.Errorf("%v", f)
	}
}

// A reload puts other rules into force with the next request, while connections go on; a policy that leaves a listener ends there.
func TestAReloadChangesTheRulesOfRequests(t *testing.T) {
	v := newInspected(t, edgeRules, "", "")
	v.each(func(version string) {
		write(t, filepath.Join(v.dir, "r.rules"), edgeRules)
		v.reloadSame()
		if resp, _ := v.ask(version, "GET", "/evil"); resp.StatusCode != 403 {
			t.Errorf("HTTP/%s: status %d", version, resp.StatusCode)
		}
		write(t, filepath.Join(v.dir, "r.rules"), strings.ReplaceAll(edgeRules, "/evil", "/other"))
		v.reloadSame()
		for path, want := range map[string]int{"/evil": 200, "/other": 403} {
			if resp, _ := v.ask(version, "GET", path); resp.StatusCode != want {
				t.Errorf("HTTP/%s, other rules: %s: status %d", version, path, resp.StatusCode)
			}
		}
	})
	v.reload(strings.Replace(v.src, "listeners: [web, plain, second], rules", "listeners: [plain], rules", 1))
	if resp, _ := v.ask("1.1", "GET", "/other"); resp.StatusCode != 200 {
		t.Errorf("without a policy: status %d", resp.StatusCode)
	}
}

// TestEvasionsOfRequestsEndAtTheServer sends the rows of HTTP to listeners: what a real server has received decides.
func TestEvasionsOfRequestsEndAtTheServer(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "nginx")
	for name, hold := range map[string]string{"held": "", "not held": ", hold: 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := free(t)
			log := runNginx(t, at)
			v := newInspected(t, edgeRules, hold, at)
			v.log = log
			second := strings.SplitN(strings.SplitN(v.src, "name: second, address: \"", 2)[1], `"`, 2)[0]
			eventually(t, "nginx", func() bool { return answers(second) })
			for n, row := range evasions.HTTP() {
				addr := v.other
				if row.Server == evasions.Nginx {
					addr = second
				}
				v.send(t, addr, n, row)
			}
			v.sendVersions(t)
		})
	}
}

// send sends a row, and then an honest request by another connection: all that the row may have led to comes before.
func (v *inspectedSite) send(t *testing.T, addr string, n int, row evasions.Row) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	row.Send(&evasions.Conn{TCPConn: c.(*net.TCPConn), T: t})
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c) // the gateway answers, or ends the connection
	honest := fmt.Sprintf("honest-%d", n)
	if resp, err := http.Get("http://" + addr + "/" + honest); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: an honest request: %v %v", row.Name, resp, err)
	} else {
		resp.Body.Close()
	}
	eventually(t, honest, func() bool { return v.received(honest) })
	if v.received(row.Text) {
		t.Errorf("%s: a server has %q", row.Name, row.Text)
	}
}

// sendVersions sends evasions over each version with TLS: bodies in codings, whole and in pieces, and paths.
func (v *inspectedSite) sendVersions(t *testing.T) {
	v.each(func(version string) {
		for _, path := range []string{"/evil", "/e%76il", "/a/../evil", "/a/%2e%2e/evil", "//evil", "/./evil", "/evil?x", "/a%2f..%2fevil", "/x;/../evil"} {
			name := strings.Replace(path, "il", "il-"+version, 1)
			req, err := http.NewRequest("GET", "https://"+v.addr+name, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "gateway.test"
			if resp, err := v.clients[version].RoundTrip(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode == 200 {
					t.Errorf("HTTP/%s %s is answered 200", version, name)
				}
			}
		}
		if v.received("/evil-" + version) {
			t.Errorf("HTTP/%s: a path has reached the server", version)
		}
		for i, size := range []int{1, 7, 100000} {
			text := fmt.Sprintf("%s-%d%s evilbody", version, i, strings.Repeat("x", 100))
			for _, c := range []struct{ coding, body string }{
				{"identity", text},
				{"gzip", evasions.Packed("gzip", text)},
				{"deflate", evasions.Packed("deflate", text)},
				{"gzip, gzip", evasions.Packed("gzip", evasions.Packed("gzip", text))},
				{"gzip", text},
				{"deflate, gzip", evasions.Packed("gzip", evasions.Packed("deflate", text))},
				{"foo, gzip", evasions.Packed("gzip", text)},
				{"br", text},
			} {
				if status := v.post(version, "/a", c.coding, evasions.Letters(c.body, size)...); status == 200 || v.received("body "+text) {
					t.Errorf("HTTP/%s, %s in %d bytes: status %d, received %v", version, c.coding, size, status, v.received("body "+text))
				}
			}
		}
		if status := v.post(version, "/a", "identity", "fine"); status != 200 {
			t.Errorf("HTTP/%s: a fine request has status %d", version, status)
		}
	})
}

// answers reports whether a request gets 200.
func answers(addr string) bool {
	resp, err := http.Get("http://" + addr + "/ready")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == 200
}

// runNginx starts nginx at an address and returns its log of requests.
func runNginx(t *testing.T, at string) string {
	t.Helper()
	dir := t.TempDir()
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	log_format line 'nginx $request|';
	access_log %[1]s/access line;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server { listen %[2]s; location / { return 200 "got it"; } }
}
`, dir, at)
	write(t, filepath.Join(dir, "nginx.conf"), conf)
	cmd := exec.Command("nginx", "-c", filepath.Join(dir, "nginx.conf"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return filepath.Join(dir, "access")
}
