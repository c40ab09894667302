package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gateway/admin"
)

// controlled is a gateway without devices and loops behind a control socket.
func controlled(t *testing.T) (*Daemon, *admin.Client, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "gw.yaml")
	write(t, file, adminConfig)
	cfg, err := gateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.Open(cfg, gateway.Options{Ports: []gateway.Port{{Name: "gw0"}}, Resolver: gateway.StaticResolver{}})
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		file: file, gate: g, quit: make(chan struct{}, 1), ended: make(chan struct{}),
		opt: Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
	}
	socket := filepath.Join(dir, "run", "gw.sock")
	if err := d.openAdmin(socket); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.serveAdmin(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket stays behind: %v", err)
		}
	})
	return d, admin.NewClient(socket), socket
}

const adminConfig = `
devices: [{name: gw0}]
snat: 198.18.2.1
services:
  - name: web
    address: 198.18.1.1:80
    backends: [{name: b1, address: 198.18.2.11:8080}]
`

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheControlSocketIsForItsOwnerOnly(t *testing.T) {
	_, _, socket := controlled(t)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestASocketThatIsInUseIsRefusedAndOneLeftBehindReplaced(t *testing.T) {
	_, _, socket := controlled(t)
	if err := new(Daemon).openAdmin(socket); err == nil || !strings.Contains(err.Error(), "a gateway is running at "+socket) {
		t.Errorf("a second gateway on the socket: %v", err)
	}
	left := filepath.Join(t.TempDir(), "left.sock")
	l, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as by SIGKILL
	l.Close()
	var d Daemon
	if err := d.openAdmin(left); err != nil {
		t.Fatal(err)
	}
	d.admin.Close()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "precious")
	if err := new(Daemon).openAdmin(file); err == nil {
		t.Error("a file that is no socket was replaced")
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file is now %q", b)
	}
	if err := new(Daemon).openAdmin("/nonexistent/a/b.sock"); err == nil {
		t.Error("a folder of a folder was made")
	}
	if err := d.openAdmin(""); err != nil {
		t.Error(err)
	}
}

func TestRequestsThatMakeNoSenseAreRefusedWithTheRightStatus(t *testing.T) {
	_, _, socket := controlled(t)
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/v1/status", "", 200, `"name":"web"`},
		{"POST", "/v1/status", "", 404, "no POST /v1/status here"},
		{"GET", "/", "", 404, "no GET / here"},
		{"POST", "/v1/drain", "{", 400, "EOF"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadlin": "1s"}`, 400, "deadlin"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "soon"}`, 400, "soon"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b2"}`, 404, "b1"},
		{"POST", "/v1/undrain", `{"service": "wob", "backend": "b1"}`, 404, "web"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 1001}`, 400, "between 0 and 1000"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": -1}`, 400, "between 0 and 1000"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 3}`, 200, "{}"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": null}`, 200, "{}"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "1h"}`, 200, "{}"},
		{"POST", "/v1/undrain", `{"service": "web", "backend": "b1"}`, 200, "{}"},
		{"GET", "/v1/connections?client=x", "", 400, "x"},
		{"GET", "/v1/connections?limit=x", "", 400, "x"},
		{"GET", "/v1/connections?service=x", "", 404, "web"},
		{"POST", "/v1/weight", `{"weight": ` + strings.Repeat(" ", 1<<17) + `3}`, 400, "too large"},
	} {
		req, err := http.NewRequest(tc.method, "http://gateway"+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.code || !strings.Contains(string(text), tc.want) {
			t.Errorf("%s %s %.60s: %d %s, want %d %q", tc.method, tc.path, tc.body, resp.StatusCode, text, tc.code, tc.want)
		}
	}
}

func TestAReloadOverTheSocketTellsWhatIsWrong(t *testing.T) {
	d, c, _ := controlled(t)
	for _, tc := range []struct {
		text string
		code int
		want string
	}{
		{adminConfig + "nonsense: 1\n", http.StatusUnprocessableEntity, `unknown key "nonsense"`},
		{strings.Replace(adminConfig, "gw0", "gw1", 1), http.StatusConflict, "restart"},
		{"", http.StatusUnprocessableEntity, "empty"},
	} {
		write(t, d.file, tc.text)
		err := c.Reload(t.Context())
		e := new(admin.Error)
		if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%q: %v, want %d %q", tc.text, err, tc.code, tc.want)
		}
		if st, err := c.Status(t.Context()); err != nil || !st.Reload.Failed {
			t.Errorf("after a refused reload: %+v, %v", st.Reload, err)
		}
	}
	write(t, d.file, adminConfig)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(t.Context())
	if err != nil || st.Reload.Failed || time.Since(st.Reload.Succeeded) > time.Minute {
		t.Errorf("after a reload: %+v, %v", st.Reload, err)
	}
}

func TestStopOverTheSocketEndsRun(t *testing.T) {
	d, c, _ := controlled(t)
	for range 3 { // more often than it is heard
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-d.quit:
	default:
		t.Error("nobody was told")
	}
}

func TestWithoutAGatewayTheClientSaysSo(t *testing.T) {
	_, err := admin.NewClient("/nonexistent/gw.sock").Status(t.Context())
	if !errors.Is(err, admin.ErrNotRunning) {
		t.Error(err)
	}
}
