package interop

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/http1"
)

// upgrading lets the clients of a gateway change to the protocol tcp.
func upgrading(g *testGateway) {
	g.rule.Upgrades = []string{"tcp"}
	for _, h := range []**http1.Options{&g.plain.HTTP1, &g.secure.HTTP1} {
		*h = &http1.Options{UpgradeContent: true}
	}
}

// dockerAPI is as much of a daemon as `docker exec` and `docker attach` ask of one: its streams answer what they receive in capital
// letters, in the frames of the raw stream.
type dockerAPI struct {
	t testing.TB
}

func (d *dockerAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const version = "1.49"
	w.Header().Set("Api-Version", version)
	w.Header().Set("Content-Type", "application/json")
	path := strings.TrimPrefix(r.URL.Path, "/v"+version)
	switch {
	case path == "/_ping":
		fmt.Fprint(w, "OK")
	case path == "/containers/c/json":
		fmt.Fprint(w, `{"Id":"c","Name":"/c","State":{"Running":true,"Status":"running"},"Config":{"Tty":false,"OpenStdin":true,"AttachStdin":true,"AttachStdout":true},"HostConfig":{}}`)
	case path == "/containers/c/exec":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"Id":"e"}`)
	case path == "/exec/e/json":
		fmt.Fprint(w, `{"ID":"e","Running":false,"ExitCode":7}`)
	case path == "/containers/c/wait":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		fmt.Fprint(w, `{"StatusCode":9}`)
	case path == "/exec/e/start", path == "/containers/c/attach":
		content, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Upgrade") != "tcp" || (path == "/exec/e/start") != bytes.Contains(content, []byte(`"Detach":false`)) {
			d.t.Errorf("%s: %v, %v, %q", path, err, r.Header, content)
		}
		d.stream(w)
	default:
		http.NotFound(w, r)
	}
}

// stream changes to the protocol and answers until the client has no more to send.
func (d *dockerAPI) stream(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		d.t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	for {
		line, err := rw.ReadString('\n')
		if line = strings.ToUpper(line); line != "" {
			frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(line))) // stdout
			conn.Write(append(frame, line...))                                            //nolint:errcheck // the client may have gone
		}
		if err != nil {
			return
		}
	}
}

// `docker exec` and `docker attach` run through the gateway: their streams are tunnels whose directions end by themselves, the first
// behind a request with content.
func TestDockerThroughGateway(t *testing.T) {
	needs(t, "docker", "apt install docker-cli")
	srv := httptest.NewServer(&dockerAPI{t})
	defer srv.Close()
	back := tapped(t, srv.Listener.Addr().String())
	g := newTestGateway(t, back.addr, upgrading)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"exec", "-i", "c", "cat"}, 7},
		{[]string{"attach", "--no-stdin=false", "c"}, 9},
	} {
		cmd := exec.Command("docker", append([]string{"-H", "tcp://" + g.plain.Address.String(), "--config", t.TempDir()}, c.args...)...)
		cmd.Env = append(cmd.Environ(), "DOCKER_API_VERSION=1.49")
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = strings.NewReader("hello\nworld\n"), &errs
		out, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); string(out) != "HELLO\nWORLD\n" || code != c.code {
			t.Errorf("docker %v: exit code %d, %v: %q %s\nthe daemon got %q", c.args, code, err, out, errs.String(), back.sent())
		}
		if got := back.sent(); strings.Count(got, "\r\nconnection: upgrade\r\nupgrade: tcp\r\n") != 1 || !strings.HasSuffix(got, "\r\n\r\n") && !strings.Contains(got, "hello\nworld\n") {
			t.Errorf("docker %v: the daemon got %q", c.args, got)
		}
	}
	g.settled()
}

// nodeUpgrades is a server that answers each change of protocol by an echo, whose first bytes come with the response, and a client
// that prints what it receives: whole, its own direction ended first, or up to the echo.
const nodeUpgrades = `
const http = require('http');
if (process.argv[2] === 'serve') {
	const s = http.createServer((req, res) => { res.writeHead(426); res.end('no upgrade') });
	s.on('upgrade', (req, socket, head) => {
		socket.write('HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: ' + req.headers.upgrade + '\r\n\r\nfirst:');
		socket.write(head);
		socket.on('data', d => socket.write(d)).on('end', () => socket.end(':last')).on('error', () => {});
	});
	s.listen(process.argv[1], '127.0.0.1');
} else {
	const req = http.request({ port: process.argv[1], host: '127.0.0.1', method: 'POST', path: '/attach', headers: { Connection: 'Upgrade', Upgrade: process.argv[3] } });
	req.on('response', res => { console.log(res.statusCode); res.resume(); res.on('end', () => process.exit(0)) });
	req.on('upgrade', (res, socket, head) => {
		let got = head.toString();
		const whole = process.argv[4] === 'whole';
		socket.on('data', d => { got += d; if (!whole && got.endsWith('from node')) socket.end() });
		socket.on('end', () => { console.log(res.statusCode, res.headers.upgrade, got); process.exit(0) });
		if (whole) socket.end('from node'); else socket.write('from node');
	});
	req.end();
}`

// nginxUpgrades is nginx between a client and a server that change protocols.
const nginxUpgrades = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen 127.0.0.1:%[2]s;
		location / {
			proxy_pass http://%[3]s; proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
		}
	}
}`

// pythonAttach is a client as docker-py is one: http.client sends the request, and the connection below it is the stream.
const pythonAttach = `
import http.client, socket, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
whole = sys.argv[3] == "whole"
c.request("POST", "/attach", body=b'{"Detach": false}' if sys.argv[4] == "content" else None, headers={"Connection": "Upgrade", "Upgrade": sys.argv[2], "Content-Type": "application/json"})
r = c.getresponse()
if r.status != 101:
    print(r.status); sys.exit()
c.sock.sendall(b"from python")
if whole: c.sock.shutdown(socket.SHUT_WR)
got = b""
while whole or not got.endswith(b"from python"):
    part = r.fp.read1(1000)
    if not part: break
    got += part
print(r.status, r.getheader("Upgrade"), got.decode())
`

// pythonUpgrades is a server of http.server that changes protocols and echoes.
const pythonUpgrades = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "Upgrade" not in self.headers:
            self.send_response(426); self.send_header("Content-Length", "0"); self.end_headers(); return
        self.send_response_only(101, "UPGRADED")
        self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", self.headers["Upgrade"]); self.end_headers()
        self.wfile.write(b"first:"); self.wfile.flush()
        while True:
            part = self.rfile.read1(1000)
            if not part: break
            self.wfile.write(part); self.wfile.flush()
        self.wfile.write(b":last"); self.close_connection = True
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

// Programs change to a protocol that the route names, to servers of others, and through nginx on either side of the gateway; what the
// route does not name passes as a request without Upgrade. What counts is the bytes that the last server got.
func TestUpgradesThroughGateway(t *testing.T) {
	node := webServer{name: "node", program: "node", args: func(_, port string) []string { return []string{"-e", nodeUpgrades, port, "serve"} }}
	python := webServer{name: "Python", program: "python3", args: func(_, port string) []string { return []string{"-c", pythonUpgrades, port} }}
	for _, server := range []webServer{node, python} {
		t.Run(server.name, func(t *testing.T) {
			needsProgram(t, server.program)
			back := tapped(t, server.start(t, ""))
			g := newTestGateway(t, back.addr, upgrading)
			attachAll(t, g.plain.Address.String(), back, attaching{whole: true, content: server.program == "python3"})
			g.settled()
		})
	}
	t.Run("nginx before the server", func(t *testing.T) {
		needs(t, "nginx", "make deps")
		needs(t, "node", "make deps")
		back := tapped(t, node.start(t, ""))
		g := newTestGateway(t, startNginx(t, back.addr), upgrading)
		attachAll(t, g.plain.Address.String(), back, attaching{proxied: true})
		g.settled()
	})
	t.Run("nginx before the gateway", func(t *testing.T) {
		needs(t, "nginx", "make deps")
		needs(t, "node", "make deps")
		back := tapped(t, node.start(t, ""))
		g := newTestGateway(t, back.addr, upgrading)
		attachAll(t, startNginx(t, g.plain.Address.String()), back, attaching{})
		g.settled()
	})
}

// startNginx starts nginx before a server, and returns its address.
func startNginx(t *testing.T, to string) string {
	s := webServer{name: "nginx", program: "nginx", args: func(dir, port string) []string {
		conf := filepath.Join(dir, "nginx.conf")
		writeFile(t, conf, fmt.Sprintf(nginxUpgrades, dir, port, to))
		return []string{"-p", dir, "-c", conf}
	}}
	return s.start(t, t.TempDir())
}

// attaching says what the clients of attachAll do.
type attaching struct {
	whole   bool // they end their direction first, which nginx takes for the end of both
	content bool // their requests may have content, which node takes for the first bytes of the protocol
	proxied bool // the server sees nginx, which asks for any protocol
}

// attachAll has clients change protocols at an address.
func attachAll(t *testing.T, at string, back *wiretap, how attaching) {
	t.Helper()
	_, port, _ := net.SplitHostPort(at)
	until, content := map[bool]string{true: "whole", false: "echo"}[how.whole], map[bool]string{true: "content"}[how.content]
	for _, c := range []struct{ program, flag, script, sends string }{{"node", "-e", nodeUpgrades, "from node"}, {"python3", "-c", pythonAttach, "from python"}} {
		for _, protocol := range []string{"tcp", "irc"} {
			needsProgram(t, c.program)
			args := []string{c.flag, c.script, port, protocol, until, content}
			if c.program == "node" {
				args = []string{c.flag, c.script, port, "ask", protocol, until}
			}
			out, err := exec.Command(c.program, args...).CombinedOutput()
			want := "426\n"
			if protocol == "tcp" {
				want = "101 tcp first:" + c.sends + map[bool]string{true: ":last"}[how.whole] + "\n"
			}
			got := back.sent()
			if err != nil || string(out) != want {
				t.Errorf("%s, %s: %v %q, want %q; the server got %q", c.program, protocol, err, out, want, got)
			}
			head, rest := headOf(strings.ToLower(got))
			asked := strings.Contains(head, "\r\nupgrade: tcp\r\n")
			if asked != (protocol == "tcp") || asked != strings.HasSuffix(rest, c.sends) || strings.Contains(head, "irc") {
				t.Errorf("%s, %s: the server got %q", c.program, protocol, got)
			}
			if how.content && c.program == "python3" && !strings.HasPrefix(rest, `{"detach": false}`) {
				t.Errorf("%s, %s: the server got no content: %q", c.program, protocol, got)
			}
			if protocol == "irc" && !how.proxied && strings.Contains(head, "upgrade") {
				t.Errorf("%s: the server is asked for a protocol that the route does not name: %q", c.program, got)
			}
		}
	}
}

// curl shows the response 101 and what follows it.
func TestCurlUpgradesThroughGateway(t *testing.T) {
	needs(t, "curl", "make deps")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nraw bytes") //nolint:errcheck // as above
				}
			}()
		}
	}()
	g := newTestGateway(t, l.Addr().String(), upgrading)
	out := curl(t, nil, "--include", "--no-buffer", "--header", "Connection: Upgrade", "--header", "Upgrade: tcp", "http://"+g.plain.Address.String()+"/attach")
	if string(out) != "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\nraw bytes" {
		t.Errorf("%q", out)
	}
	g.settled()
}
