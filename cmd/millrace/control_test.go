package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	server "github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
)

// servedControl serves h on a control socket.
func servedControl(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "gw.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return socket
}

// fakeGateway answers requests for the status and for names on a socket, as a gateway with two services does.
func fakeGateway(t *testing.T) (socket string) {
	t.Helper()
	st := admin.Status{Version: "test", Started: time.Now()}
	st.Gateway.Services = []l4control.ServiceStatus{
		{Name: "web", Backends: []l4control.BackendStatus{{Name: "w1"}, {Name: "w2"}}},
		{Name: "dns", Backends: []l4control.BackendStatus{{Name: "d1"}}},
	}
	names := map[string][]string{"": {"web", "dns"}, "service=": {"d1", "w1", "w2"}, "service=web": {"w1", "w2"}, "service=dns": {"d1"}}
	return servedControl(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/names" {
			server.Reply(w, admin.Names{Names: names[r.URL.RawQuery]})
			return
		}
		server.Reply(w, st)
	})
}

// offered returns the words that a shell is offered.
func offered(args ...string) []string {
	_, out, _ := run(append([]string{"__complete"}, args...)...)
	words := strings.Fields(out)
	return words[:len(words)-1] // the last is the directive
}

func TestCompletionAsksTheRunningGateway(t *testing.T) {
	socket := fakeGateway(t)
	for _, tc := range []struct{ args, want string }{
		{"status --socket SOCKET ", "web dns"},
		{"status --socket SOCKET web ", "dns"},
		{"status --socket SOCKET w", "web"},
		{"drain --socket SOCKET ", "web dns"},
		{"drain --socket SOCKET web ", "w1 w2"},
		{"drain --socket SOCKET web w1 ", ""},
		{"undrain --socket SOCKET dns ", "d1"},
		{"weight --socket SOCKET web w2 ", "config"},
		{"connections --socket SOCKET --service ", "web dns"},
		{"connections --socket SOCKET --backend ", "d1 w1 w2"},
		{"connections --socket SOCKET --service dns --backend ", "d1"},
	} {
		args := strings.Split(strings.ReplaceAll("gateway "+tc.args, "SOCKET", socket), " ")
		if got := strings.Join(offered(args...), " "); got != tc.want {
			t.Errorf("%s: offered %q, want %q", tc.args, got, tc.want)
		}
	}
	t.Setenv(socketVariable, socket)
	if got := offered("gateway", "drain", ""); len(got) != 2 {
		t.Errorf("by the environment: %q", got)
	}
}

func TestCompletionIsSilentWithoutAGateway(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "silent.sock") // accepts and never answers
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, socket := range []string{"/nonexistent/gw.sock", silent} {
		if got := offered("gateway", "drain", "--socket", socket, ""); len(got) > 0 { // a hang would outlast the test
			t.Errorf("%s: offered %q", socket, got)
		}
	}
}

func TestEnvironmentNamesTheSocketAndTheFlagWins(t *testing.T) {
	socket := fakeGateway(t)
	t.Setenv(socketVariable, socket)
	if code, out, err := run("gateway", "status", "web"); code != exitOK || !strings.Contains(out, "w1") {
		t.Errorf("code %d: %s%s", code, out, err)
	}
	if code, _, err := run("gateway", "status", "--socket", "/nonexistent/gw.sock"); code != exitFailure || !strings.Contains(err, "/nonexistent/gw.sock") {
		t.Errorf("code %d: %s", code, err)
	}
	t.Setenv(socketVariable, "/nonexistent/other.sock")
	for _, args := range []string{"gateway stop", "net addr", "net stats", "stack down"} {
		if code, _, err := run(strings.Fields(args)...); code != exitFailure || !strings.Contains(err, "/nonexistent/other.sock") {
			t.Errorf("%s: code %d: %s", args, code, err)
		}
	}
}
