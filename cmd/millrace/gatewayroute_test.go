package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

const routeConfig = `
admin: {socket: %s}
loops: 1
listeners: [{name: plain, address: "%s", protocol: HTTP}]
routes:
- name: shop
  hostnames: [shop.example]
  rules:
  - {name: api, matches: [{path: {value: /api}, method: POST}], backend_refs: [{name: p, weight: 3}, {name: q}]}
  - {matches: [{path: {value: /api}, clients: 192.0.2.0/24}], filters: [{type: FixedResponse, status_code: 403}]}
  - {name: all, backend_refs: [{name: p}]}
- {name: inside, hostnames: [inside.example], sources: {deny: [192.0.2.0/24]}, concurrency: {requests: 9}, rules: [{backend_refs: [{name: p}]}]}
pools:
- {name: p, backends: [{name: a, address: "%s"}]}
- {name: q, backends: [{address: "127.0.0.1:9"}]}
`

func TestRouteSaysWhichRuleMatches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gw.yaml")
	write := func(src string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(routeConfig, `""`, "198.18.0.1:80", "127.0.0.1:8"))
	for _, tc := range []struct {
		args string
		code int
		want string // in the output, or in the error
	}{
		{"http://shop.example/api --method POST", exitOK, "rule       shop/api, match 1\npool       p, 75 %\npool       q, 25 %\n"},
		{"http://shop.example/api", exitOK, "not        shop/api: method\n"},
		{"http://shop.example/api/x?y --client 192.0.2.7", exitOK, "answer     403\n"},
		{"http://shop.example/x", exitOK, "rule       shop/all\npool       p, 100 %\n"},
		{"http://other.example/", exitFailure, "none of its 4 rules is for the host"},
		{"http://inside.example/ --client 192.0.2.7", exitFailure, "refused    403, by sources of route inside\nlimit      concurrency of route inside\n"},
		{"http://inside.example/ --client 192.0.3.7", exitOK, "pool       p, 100 %\nlimit      concurrency of route inside\n"},
		{"http://shop.example/ --client x", exitUsage, "say an address"},
		{"http://shop.example/ --header x", exitUsage, "a colon"},
		{"https://shop.example/", exitUsage, "no listener has protocol HTTPS"},
		{"", exitUsage, "URL is missing"},
	} {
		args := append(strings.Fields("gateway route "+tc.args), "-c", file)
		code, out, err := run(args...)
		if code != tc.code || !strings.Contains(out+err, tc.want) {
			t.Errorf("%s: code %d, %s%s", tc.args, code, out, err)
		}
	}
	code, out, _ := run("gateway", "route", "http://shop.example/api", "--json", "-c", file)
	var e l7control.Explanation
	if decode(t, out, &e); code != exitOK || e.Route != "shop" || e.Rule != "all" || len(e.Tried) != 2 || e.Tried[1].Missing != "clients" {
		t.Errorf("code %d, %+v", code, e)
	}
	write("listeners: x\n")
	if code, _, err := run("gateway", "route", "http://shop.example/", "-c", file); code != exitConfig || !strings.Contains(err, "gw.yaml:1:12") {
		t.Errorf("code %d, %s", code, err)
	}
}

// A gateway of listeners alone needs no rights, devices or namespaces: this is the program, with its signals.
func TestAGatewayOfListenersAlone(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "here") }))
	defer backend.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
	src := fmt.Sprintf(routeConfig, socket, addr, strings.TrimPrefix(backend.URL, "http://"))
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, log := program("gateway", "-c", file), &buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	log.until(t, "msg=gateway version")
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host, req.Close = "shop.example", true
		resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, body := get("/"); code != 200 || body != "here" {
		t.Errorf("%d %q", code, body)
	}
	t.Setenv(socketVariable, socket)
	for _, c := range []struct{ args, want string }{ // in order: drain and undrain change what status says
		{"gateway status", "p HTTP round_robin"},
		{"gateway status --summary", "p     HTTP      1/1"},
		{"gateway status q", "127.0.0.1:9"},
		{"gateway status --backend a", "p HTTP round_robin"},
		{"gateway status --json", `"pools": [`},
		{"gateway route http://" + addr + "/", "none of its 4 rules is for the host"},
		{"__complete gateway status ", "p\nq\n"},
		{"__complete gateway drain p ", "a\n"},
		{"__complete gateway route --method P", "POST"},
		{"gateway drain p a --force --wait --timeout 5s", "a of p is drained"},
		{"gateway undrain p a", "takes connections"},
		{"gateway weight p a 5", "has weight 5"},
		{"gateway reload", "no key has changed"},
	} {
		if _, out, err := run(strings.Split(c.args, " ")...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s%s", c.args, out, err)
		}
	}
	if code, _, err := run("gateway", "status", "r"); code != exitFailure || !strings.Contains(err, `unknown pool "r"`) {
		t.Errorf("%d %s", code, err)
	}
	changed := strings.Replace(src, "status_code: 403", "status_code: 410", 1)
	if err := os.WriteFile(file, []byte(strings.Replace(changed, "clients: 192.0.2.0/24", "clients: 127.0.0.0/8", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.until(t, "the new configuration is in use")
	if code, _ := get("/api"); code != 410 {
		t.Errorf("%d after the reload", code)
	}
	if err := os.WriteFile(file, []byte("listeners: [{name: plain}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.until(t, "the old configuration stays in use")
	log.until(t, `lacks the key "protocol"`)
	if code, _ := get("/api"); code != 410 {
		t.Errorf("%d after a wrong file", code)
	}
	st, err := admin.NewClient(socket).Status(t.Context(), l4control.Selection{})
	if err != nil || st.Listeners.Counts.Requests < 3 {
		t.Errorf("%+v, %v", st.Listeners, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	log.until(t, "requests, responses 2xx")
}
