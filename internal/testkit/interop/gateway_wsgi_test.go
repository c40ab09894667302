package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
)

// wsgi starts a WSGI server that answers with the variables of requests, and returns its address.
func wsgi(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	c := exec.Command(python, "testdata/wsgi_environ.py")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	c.Stderr = &complaints
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	return "127.0.0.1:" + strings.TrimSpace(port)
}

// A real WSGI application finds no claim of a client in the variables that the gateway speaks by, and no path that a rule denies.
func TestWSGIBehindTheGateway(t *testing.T) {
	backend := wsgi(t)
	g := newTestGateway(t, backend, func(g *testGateway) {
		table, err := route.New([]route.Rule{{Name: "admin", Match: route.Match{Path: route.Path{Value: "/admin"}}}, {Name: "all"}})
		g.must(err)
		for _, ln := range []*proxy.Listener{g.plain, g.secure} {
			ln.Table, ln.Rules = table, []*proxy.Rule{{Name: "admin", Response: &proxy.Response{Status: 403}}, g.rule}
		}
	})
	ask := func(target string, header http.Header) (status int, variables map[string]string) {
		t.Helper()
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: g.plain.Address.String(), Opaque: target}, Host: "gateway.test", Header: header}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == 200 {
			if err := json.NewDecoder(resp.Body).Decode(&variables); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode, variables
	}
	for _, name := range []string{"X_Forwarded_Client_Cert", "X_Forwarded_For", "X-Forwarded_Proto", "X_Forwarded_Host", "Client_Cert", "X_Real_IP"} {
		_, variables := ask("/", http.Header{name: {"claimed"}, "X_Custom": {"kept"}})
		for v, value := range variables {
			if strings.Contains(value, "claimed") {
				t.Errorf("%s: the application has the claim as %s", name, v)
			}
		}
		if variables["HTTP_X_CUSTOM"] != "kept" || variables["HTTP_X_FORWARDED_FOR"] != "127.0.0.1" {
			t.Errorf("%s: the application has %v", name, variables)
		}
	}
	for _, target := range []string{
		"/admin/delete/7/../../..", "/admin/..", "/admin/%2e%2e", "/admin/..?q", "/admin%2fx", "/admin%2Fy%2F..%2F..%2Fz", "/x/..%2fadmin/1", "/b%2F..%2Fadmin/..;/", "//admin", "/x/../admin",
	} {
		if status, variables := ask(target, http.Header{}); strings.HasPrefix(variables["PATH_INFO"], "/admin") {
			t.Errorf("%s: status %d, the application serves %s", target, status, fmt.Sprint(variables["PATH_INFO"]))
		}
	}
	g.settled()
}
