package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/proxy"
)

// webServer is a program of somebody else, as a backend. It serves the folder, and, where it takes uploads, answers them with
// their digest.
type webServer struct {
	name    string
	program string
	args    func(dir, port string) []string
	h2      bool // it speaks HTTP/2 by prior knowledge
	ranges  bool
	uploads bool
}

const nodeFiles = `
const crypto = require('crypto'), fs = require('fs'), http = require(process.argv[3]), path = process.argv[2];
http.createServer((req, res) => {
	if (req.method === 'GET' || req.method === 'HEAD') {
		res.setHeader('content-type', 'application/octet-stream');
		if (req.method === 'HEAD') { res.setHeader('content-length', fs.statSync(path + '/file').size); return res.end(); }
		return fs.createReadStream(path + '/file').pipe(res);
	}
	const hash = crypto.createHash('sha256');
	req.on('data', d => hash.update(d)).on('end', () => res.end(hash.digest('hex')));
}).listen(process.argv[1], '127.0.0.1');`

const nginxFiles = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen 127.0.0.1:%[2]s %[3]s; root %[1]s; }
}`

var webServers = []webServer{
	{name: "Go", ranges: true, uploads: true},
	{name: "Go, HTTP/2", h2: true, ranges: true, uploads: true},
	{name: "nginx", program: "nginx", args: nginxArgs(""), ranges: true},
	{name: "nginx, HTTP/2", program: "nginx", args: nginxArgs("http2"), h2: true, ranges: true},
	{name: "node", program: "node", args: nodeFilesArgs("http"), uploads: true},
	{name: "node, HTTP/2", program: "node", args: nodeFilesArgs("http2"), h2: true, uploads: true},
	{name: "Python, HTTP/1.0", program: "python3", args: func(dir, port string) []string {
		return []string{"-m", "http.server", port, "--bind", "127.0.0.1", "--directory", dir}
	}},
	{name: "PHP", program: "php", args: func(dir, port string) []string { return []string{"-S", "127.0.0.1:" + port, "-t", dir} }},
}

func nginxArgs(version string) func(dir, port string) []string {
	return func(dir, port string) []string {
		conf := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(conf, fmt.Appendf(nil, nginxFiles, dir, port, version), 0o600); err != nil {
			panic(err)
		}
		return []string{"-p", dir, "-c", conf}
	}
}

func nodeFilesArgs(module string) func(dir, port string) []string {
	return func(dir, port string) []string { return []string{"-e", nodeFiles, port, dir, module} }
}

// start starts the server, until the test ends.
func (s *webServer) start(t *testing.T, dir string) (addr string) {
	t.Helper()
	if s.program == "" {
		files := http.FileServer(http.Dir(dir))
		return serveH2C(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" || r.Method == "HEAD" {
				files.ServeHTTP(w, r)
				return
			}
			h := sha256.New()
			if _, err := io.Copy(h, r.Body); err != nil {
				t.Errorf("%s %s: %v", r.Method, r.Proto, err)
			}
			fmt.Fprintf(w, "%x", h.Sum(nil)) //nolint:errcheck // the client may have gone
		}))
	}
	at := testport.Hold(t)
	addr, port := at.String(), strconv.Itoa(int(at.Port()))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, s.program, s.args(dir, port)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait() //nolint:errcheck // it was killed
	})
	for range 1000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close() //nolint:errcheck // it was to see whether it opens
			return addr
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not listen: %s", s.name, out.String())
	return ""
}

// curl runs curl, and returns what it writes.
func curl(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("curl", append([]string{"--silent", "--show-error", "--fail", "--max-time", "300"}, args...)...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("curl %q: %v: %s", args, err, errs.String())
	}
	return out
}

// TestProgramsThroughGateway has curl fetch and send, by all that it speaks, through the gateway from servers of others. A file has
// 3 MB; with MILLRACE_INTEROP it is so large.
func TestProgramsThroughGateway(t *testing.T) {
	needs(t, "curl", "make deps")
	size := 3_000_000
	if long, err := byteCount(os.Getenv("MILLRACE_INTEROP")); err == nil {
		size = long
	}
	dir := t.TempDir()
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content) //nolint:errcheck // it never fails
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, server := range webServers {
		t.Run(server.name, func(t *testing.T) {
			if server.program != "" {
				how := "make deps"
				if server.program == "php" || server.program == "python3" {
					how = "apt install " + map[string]string{"php": "php-cli", "python3": "python3"}[server.program]
				}
				needs(t, server.program, how)
			}
			g := newTestGateway(t, server.start(t, dir), func(g *testGateway) {
				if server.h2 {
					g.pool.Protocol = proxy.HTTP2
				}
			})
			for _, front := range [][]string{
				{"--http1.1", "http://" + g.plain.Address.String()},
				{"--http2-prior-knowledge", "http://" + g.plain.Address.String()},
				{"--http1.1", "--insecure", "https://" + g.secure.Address.String()},
				{"--http2", "--insecure", "https://" + g.secure.Address.String()},
				{"--http1.0", "http://" + g.plain.Address.String()},
			} {
				curlAll(t, &server, front, file, content)
			}
			g.settled()
		})
	}
}

// curlAll has curl do all that a server is good for, by one version.
func curlAll(t *testing.T, server *webServer, front []string, file string, content []byte) {
	t.Helper()
	what := strings.Join(front[:len(front)-1], " ")
	url := front[len(front)-1] + "/file"
	with := func(args ...string) []string { return append(append(args, front[:len(front)-1]...), url) }
	same := func(name string, got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%s, %s: %d bytes, want %d", what, name, len(got), len(want))
		}
	}
	same("get", curl(t, nil, with()...), string(content))
	same("compressed", curl(t, nil, with("--compressed")...), string(content))
	head := strings.ToLower(string(curl(t, nil, with("--head")...)))
	if !strings.Contains(head, fmt.Sprintf("content-length: %d\r\n", len(content))) {
		t.Errorf("%s, head: %s", what, head)
	}
	if server.ranges {
		same("range", curl(t, nil, with("--range", "1000000-2000000")...), string(content[1_000_000:2_000_001]))
		same("slow", curl(t, nil, with("--limit-rate", "8M", "--range", "0-1000000")...), string(content[:1_000_001]))
	}
	if server.uploads {
		sum := sha256.Sum256(content)
		want := hex.EncodeToString(sum[:])
		same("put", curl(t, nil, with("--upload-file", file)...), want)
		if what != "--http1.0" {
			same("post that expects", curl(t, nil, with("--data-binary", "@"+file, "--header", "Expect: 100-continue")...), want)
			same("chunked", curl(t, content, with("--upload-file", "-")...), want)
		}
		same("post", curl(t, nil, with("--data-binary", "a=b", "--header", "Expect:")...), fmt.Sprintf("%x", sha256.Sum256([]byte("a=b"))))
	}
}

// byteCount reads a number with K, M or G behind it.
func byteCount(s string) (int, error) {
	shift := 0
	if i := strings.IndexAny(s, "KMG"); i >= 0 && i == len(s)-1 {
		shift = 10 * (1 + strings.IndexByte("KMG", s[i]))
		s = s[:i]
	}
	n, err := strconv.Atoi(s)
	return n << shift, err
}

// TestLoadThroughGateway has programs that measure servers make requests of all versions. None may fail.
func TestLoadThroughGateway(t *testing.T) {
	if os.Getenv("MILLRACE_INTEROP") == "" {
		t.Skip("without MILLRACE_INTEROP: make interop-gateway runs it")
	}
	backend := serveH2C(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), 1000)) //nolint:errcheck // the client may have gone
	}))
	for _, to := range []proxy.PoolProtocol{proxy.HTTP1, proxy.HTTP2} {
		g := newTestGateway(t, backend, func(g *testGateway) { g.pool.Protocol = to })
		plain, secure := "http://"+g.plain.Address.String()+"/", "https://"+g.secure.Address.String()+"/"
		for _, c := range []struct {
			how  string
			args []string
			want []string
			not  []string
		}{
			{"apt install wrk", []string{"wrk", "-t1", "-c20", "-d1s", plain}, []string{"requests in"}, []string{"Socket errors", "Non-2xx"}},
			{"apt install wrk", []string{"wrk", "-t1", "-c20", "-d1s", secure}, []string{"requests in"}, []string{"Socket errors", "Non-2xx"}},
			{"apt install apache2-utils", []string{"ab", "-q", "-n", "1000", "-c", "10", plain}, []string{"Complete requests:      1000", "Failed requests:        0"}, []string{"Non-2xx"}},
			{
				"apt install apache2-utils",
				[]string{"ab", "-q", "-k", "-n", "3000", "-c", "10", plain},
				[]string{"Complete requests:      3000", "Failed requests:        0", "Keep-Alive requests:    3000"},
				[]string{"Non-2xx"},
			},
			{"apt install nghttp2-client", []string{"h2load", "-n3000", "-c5", "-m20", plain}, []string{"3000 succeeded, 0 failed, 0 errored, 0 timeout", "3000 2xx"}, nil},
			{"apt install nghttp2-client", []string{"h2load", "-n3000", "-c5", "-m20", secure}, []string{"3000 succeeded, 0 failed, 0 errored, 0 timeout", "3000 2xx"}, nil},
			{"apt install nghttp2-client", []string{"h2load", "--h1", "-n1000", "-c5", "-m1", plain}, []string{"1000 succeeded, 0 failed, 0 errored, 0 timeout"}, nil},
			{"apt install nghttp2-client", []string{"nghttp", "-ns", "-m20", secure}, []string{"200"}, []string{"ERROR"}},
		} {
			t.Run(fmt.Sprintf("%s %s to %v", c.args[0], c.args[len(c.args)-1][:5], map[proxy.PoolProtocol]string{proxy.HTTP1: "h1", proxy.HTTP2: "h2"}[to]), func(t *testing.T) {
				needs(t, c.args[0], c.how)
				out, err := exec.Command(c.args[0], c.args[1:]...).CombinedOutput()
				for _, s := range c.want {
					if !bytes.Contains(out, []byte(s)) {
						t.Errorf("no %q", s)
					}
				}
				for _, s := range c.not {
					if bytes.Contains(out, []byte(s)) {
						t.Error(s)
					}
				}
				if err != nil || t.Failed() {
					t.Errorf("%q: %v\n%s", c.args, err, out)
				}
			})
		}
		g.settled()
		// wrk leaves in the middle of what it does.
		if s := g.stats(); s.Status[2]+s.Status[4] != s.Requests || s.Status[4] > 40 || s.Refused > 0 {
			t.Errorf("%+v", s)
		}
	}
}
