package interop

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/proxy"
)

// TestPythonThroughGateway has clients of Python (requests, httpx, websockets) reach a server of Python (Hypercorn) through the
// gateway: HTTP/1.1 and HTTP/2 on both sides, WebSockets too. `make interop-gateway` installs them.
func TestPythonThroughGateway(t *testing.T) {
	python := os.Getenv("MILLRACE_PYTHON_WEB")
	if python == "" {
		t.Skip("MILLRACE_PYTHON_WEB names no Python with requests, httpx, websockets and hypercorn: make interop-gateway installs them")
	}
	server := webServer{name: "Hypercorn", program: python, args: func(dir, port string) []string {
		return []string{"-m", "hypercorn", "--bind", "127.0.0.1:" + port, "--access-logfile", "/dev/null", "web_asgi:app"}
	}}
	t.Setenv("PYTHONPATH", "testdata")
	backend := server.start(t, "")
	for _, to := range []proxy.PoolProtocol{proxy.HTTP1, proxy.HTTP2} {
		t.Run(map[proxy.PoolProtocol]string{proxy.HTTP1: "HTTP/1.1", proxy.HTTP2: "HTTP/2"}[to], func(t *testing.T) {
			g := newTestGateway(t, backend, func(g *testGateway) { g.pool.Protocol = to })
			out, err := exec.Command(python, "testdata/web_clients.py", g.plain.Address.String(), g.secure.Address.String()).CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Errorf("%v\n%s", err, out)
			}
			g.settled()
			t.Logf("%+v", g.stats())
		})
	}
}
