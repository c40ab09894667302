package interop

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/http1"
)

// Servers that decide by the header of a request whether they want its content: not at /refuse. They answer how many bytes came.
const (
	nodeExpects = `
const http = require('http');
const take = (req, res) => { let n = 0; req.on('data', d => n += d.length).on('end', () => res.end(n + ' bytes')) };
const s = http.createServer(take);
s.on('checkContinue', (req, res) => {
	if (req.url === '/refuse') { res.writeHead(413, { Connection: 'close' }); return res.end('too large') }
	res.writeContinue(); take(req, res);
});
s.listen(process.argv[1], '127.0.0.1');`

	pythonExpects = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def handle_expect_100(self):
        if self.path != "/refuse": return super().handle_expect_100()
        self.send_response(413); self.send_header("Content-Length", "9"); self.send_header("Connection", "close"); self.end_headers()
        self.wfile.write(b"too large")
        return False
    def do_POST(self):
        body = b"%d bytes" % len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

	// nginx refuses by client_max_body_size, and passes what it takes to a server behind it, whose address is %[3]s.
	nginxExpects = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen 127.0.0.1:%[2]s;
		location / { proxy_pass http://%[3]s; client_max_body_size 1m; }
		location = /refuse { proxy_pass http://%[3]s; client_max_body_size 10; }
	}
}`

	// nodeAsks is a client that sends its content when it may, and prints what it got.
	nodeAsks = `
const http = require('http'), body = 'x'.repeat(5000);
const req = http.request({ port: process.argv[1], host: '127.0.0.1', method: 'POST', path: process.argv[2], headers: { Expect: '100-continue', 'Content-Length': body.length } });
let went = 'refused';
req.on('continue', () => { went = 'continued'; req.end(body) });
req.on('response', res => { let got = ''; res.on('data', d => got += d).on('end', () => { console.log(went, res.statusCode, got); process.exit(0) }) });
req.on('error', e => { console.log(String(e)); process.exit(1) });
req.flushHeaders();`
)

// expecting are servers of others by how they are started.
func expectingServers() []webServer {
	return []webServer{
		{name: "node", program: "node", args: func(_, port string) []string { return []string{"-e", nodeExpects, port} }},
		{name: "Python", program: "python3", args: func(_, port string) []string { return []string{"-c", pythonExpects, port} }},
		{name: "nginx", program: "nginx"},
	}
}

// startExpecting starts one.
func startExpecting(t *testing.T, s webServer) string {
	t.Helper()
	needsProgram(t, s.program)
	if s.name == "nginx" {
		behind := serveH2C(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%d bytes", n)
		}))
		s.args = func(dir, port string) []string {
			conf := filepath.Join(dir, "nginx.conf")
			writeFile(t, conf, fmt.Sprintf(nginxExpects, dir, port, behind))
			return []string{"-p", dir, "-c", conf}
		}
	}
	return s.start(t, t.TempDir())
}

// A server that refuses an upload by its header gets none of it where the route passes Expect on, and the client sends none. Without
// that the gateway asks for the content, and the server gets no Expect. What counts is the bytes on both sides.
func TestExpectThroughGateway(t *testing.T) {
	content := strings.Repeat("x", 5000)
	const asks = "HTTP/1.1 100 Continue\r\n\r\n"
	for _, server := range expectingServers() {
		for _, forward := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forward %v", server.name, forward), func(t *testing.T) {
				back := tapped(t, startExpecting(t, server))
				g := newTestGateway(t, back.addr, func(g *testGateway) { g.rule.ForwardExpect = forward })
				front := tapped(t, g.plain.Address.String())
				for _, client := range []string{"curl", "node"} {
					needsProgram(t, client)
					for _, path := range []string{"/take", "/refuse"} {
						refused := forward && path == "/refuse"
						out := upload(t, client, front.addr, path, content)
						want := "5000 bytes"
						if refused {
							want = "413"
						}
						if (forward || path == "/take") && !strings.Contains(out, want) {
							t.Errorf("%s %s: %s, want %q", client, path, out, want)
						}
						g.settled()
						sent, got := front.sent(), front.received()
						// A refusal that is there before the content has left ends the upload, asked for or not.
						mayStop := path == "/refuse" && !forward
						if !mayStop && strings.HasSuffix(sent, content) == refused || refused && strings.Contains(sent, "xx") {
							t.Errorf("%s %s: the client sent %d bytes: %.300q", client, path, len(sent), sent)
						}
						if strings.HasPrefix(got, asks) == refused || strings.Count(got, asks) > 1 {
							t.Errorf("%s %s: the client got %q", client, path, got)
						}
						sent = back.sent()
						if expects := strings.Contains(sent, "\r\nexpect: 100-continue\r\n"); expects != forward || forward && strings.Contains(sent, "xx") == refused {
							t.Errorf("%s %s: the server got %d bytes: %.300q", client, path, len(sent), sent)
						}
					}
				}
			})
		}
	}
}

// upload has a client send content that it expects to be asked for, and returns what it prints.
func upload(t *testing.T, client, addr, path, content string) string {
	t.Helper()
	if client == "node" {
		_, port, _ := strings.Cut(addr, ":")
		out, err := exec.Command("node", "-e", nodeAsks, port, path).CombinedOutput()
		if err != nil {
			t.Errorf("node: %v %s", err, out)
		}
		return string(out)
	}
	// The timeout keeps curl from sending what nobody has asked for.
	cmd := exec.Command("curl", "--silent", "--show-error", "--max-time", "60", "--expect100-timeout", "60", "--write-out", "%{http_code}",
		"--header", "Expect: 100-continue", "--data-binary", "@-", "http://"+addr+path)
	cmd.Stdin = strings.NewReader(content)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("curl: %v %s", err, out)
	}
	return string(out)
}

// Clients whose field names servers that compare bytes may want, and servers that print the names that they got.
const (
	nodeNames = `
const http = require('http');
http.createServer((req, res) => res.end(req.rawHeaders.filter((_, i) => i % 2 == 0).join(' '))).listen(process.argv[1], '127.0.0.1');`

	pythonNames = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = " ".join(self.headers.keys()).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

	nodeSends = `
const http = require('http');
http.get({ port: process.argv[1], host: '127.0.0.1', headers: { SOAPAction: '"a"', 'x-lower': 'b', 'X-MixedCase': 'c', UPPER: 'd' } },
	res => res.on('data', d => process.stdout.write(d)));`

	pythonSends = `
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("GET", "/", headers={"SOAPAction": '"a"', "x-lower": "b", "X-MixedCase": "c", "UPPER": "d"})
sys.stdout.write(c.getresponse().read().decode())
`
)

// Field names reach servers as clients wrote them where the pool preserves them, those of the gateway begin each word with a capital
// letter, and without that all are in lower case. What counts is what the server prints and the bytes that it got.
func TestFieldNamesThroughGateway(t *testing.T) {
	clients := map[string]func(port string) []string{
		"curl": func(port string) []string {
			return []string{"curl", "--silent", "-H", `SOAPAction: "a"`, "-H", "x-lower: b", "-H", "X-MixedCase: c", "-H", "UPPER: d", "http://127.0.0.1:" + port}
		},
		"node":    func(port string) []string { return []string{"node", "-e", nodeSends, port} },
		"python3": func(port string) []string { return []string{"python3", "-c", pythonSends, port} },
	}
	for _, server := range []webServer{
		{name: "node", program: "node", args: func(_, port string) []string { return []string{"-e", nodeNames, port} }},
		{name: "Python", program: "python3", args: func(_, port string) []string { return []string{"-c", pythonNames, port} }},
	} {
		for _, preserve := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, preserve %v", server.name, preserve), func(t *testing.T) {
				needsProgram(t, server.program)
				back := tapped(t, server.start(t, ""))
				g := newTestGateway(t, back.addr, func(g *testGateway) {
					g.pool.KeepCase, g.plain.HTTP1 = preserve, &http1.Options{KeepCase: preserve}
				})
				for name, args := range clients {
					needsProgram(t, name)
					_, port, _ := strings.Cut(g.plain.Address.String(), ":")
					argv := args(port)
					out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
					got := back.sent()
					for _, f := range []string{"Host", "SOAPAction", "x-lower", "X-MixedCase", "UPPER", "X-Forwarded-For", "X-Forwarded-Proto"} {
						if !preserve {
							f = strings.ToLower(f)
						}
						if err != nil || strings.Count(" "+string(out)+" ", " "+f+" ") != 1 || strings.Count(got, "\r\n"+f+": ") != 1 {
							t.Errorf("%s: no %s once: %v, the server prints %q, and got %q", name, f, err, out, got)
						}
					}
				}
				// Names of HTTP/2 have no case; curl writes them so.
				out := string(curl(t, nil, "--http2-prior-knowledge", "-H", "SOAPAction: a", "http://"+g.plain.Address.String()))
				if want := map[bool]string{false: "soapaction", true: "Soapaction"}[preserve]; strings.Count(" "+out+" ", " "+want+" ") != 1 {
					t.Errorf("of HTTP/2: the server prints %q", out)
				}
				g.settled()
			})
		}
	}
}
