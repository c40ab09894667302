package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/rewrite"
)

const fpmConfig = `
[global]
daemonize = no
error_log = %[1]s/fpm.log
[www]
listen = %[1]s/fpm.sock
pm = static
pm.max_children = 4
ping.path = /ping
catch_workers_output = yes
`

// The bodies of scripts are what PHP has seen, so that what two servers pass to it can be compared.
const phpEcho = `<?php header('Content-Type: application/json');
echo json_encode(['server' => $_SERVER, 'input' => file_get_contents('php://input'), 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'files' => array_map(fn($f) => [$f['name'], $f['size']], $_FILES)]);`

var phpSite = map[string]string{
	"index.php": phpEcho, "a/index.php": phpEcho, "b.php": phpEcho, "a b.php": phpEcho, "plain.txt": "plain", "upload/x.jpg": "<?php echo 'EXECUTED';",
	"missing_type.php": "<?php header_remove('Content-Type'); ini_set('default_mimetype', ''); echo 'x';", "status.php": "<?php http_response_code(418); echo 'teapot';",
	"location.php": "<?php header('Location: /elsewhere'); ", "fatal.php": "<?php ini_set('display_errors', '0'); none();", "stderr.php": "<?php error_log('a line for the log'); echo 'x';",
	"large.php": "<?php for ($i = 0; $i < 2000; $i++) echo str_repeat(chr(65 + $i % 26), 5000);", "length.php": "<?php header('Content-Length: 3'); echo 'abc';",
	"stream.php": "<?php for ($i = 0; $i < 3; $i++) { echo \"part $i\\n\"; ob_flush(); flush(); usleep(50000); }", "cookies.php": "<?php setcookie('a', 'b'); setcookie('c', 'd'); echo 'x';",
	"kill.php": "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);", "finish.php": "<?php echo 'done'; fastcgi_finish_request(); error_log('afterwards');",
}

// fpm starts php-fpm, and returns its socket and the folder of its scripts.
func fpm(t *testing.T) (socket, root string) {
	t.Helper()
	program := ""
	for _, name := range []string{"php-fpm", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no php-fpm (make interop-gateway installs it)")
	}
	dir := t.TempDir()
	root = filepath.Join(dir, "www")
	for name, text := range phpSite {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	conf, config := filepath.Join(dir, "fpm.conf"), fmt.Sprintf(fpmConfig, dir)
	if os.Getuid() == 0 {
		config += "user = root\ngroup = root\n"
	}
	if err := os.WriteFile(conf, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "-n", "-F", "-R", "-y", conf, "-d", "log_errors=1", "-d", "fastcgi.logging=1")
	var complaints bytes.Buffer
	c.Stderr, c.Stdout = &complaints, &complaints
	c.WaitDelay = 5 * time.Second // its processes have the files that are read, too
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() })
	socket = filepath.Join(dir, "fpm.sock")
	waitForSocket(t, "unix", socket, &complaints)
	return socket, root
}

// waitForSocket waits until something listens at an address.
func waitForSocket(t *testing.T, network, address string, complaints fmt.Stringer) {
	t.Helper()
	for range 500 {
		if c, err := net.Dial(network, address); err == nil {
			c.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("nothing listens at %s: %s", address, complaints)
}

const nginxPHP = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s; listen %[3]s http2; server_name shop.example; root %[4]s; index index.php;
		location / { try_files $uri $uri/ /index.php?$args; }
		location ~ \.php(/|$) {
			fastcgi_split_path_info ^(.+?\.php)(/.*)$;
			if (!-f $document_root$fastcgi_script_name) { return 404; }
			fastcgi_param GATEWAY_INTERFACE CGI/1.1; fastcgi_param SERVER_SOFTWARE nginx; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param DOCUMENT_ROOT $document_root; fastcgi_param DOCUMENT_URI $document_uri; fastcgi_param PATH_INFO $fastcgi_path_info;
			fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; fastcgi_param QUERY_STRING $query_string; fastcgi_param SERVER_PROTOCOL $server_protocol;
			fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param REMOTE_ADDR $remote_addr; fastcgi_param REMOTE_PORT $remote_port;
			fastcgi_param SERVER_ADDR $server_addr; fastcgi_param SERVER_PORT $server_port; fastcgi_param SERVER_NAME $server_name; fastcgi_param REQUEST_SCHEME $scheme; fastcgi_param HTTPS $https if_not_empty;
			fastcgi_param REDIRECT_STATUS 200; fastcgi_param HTTP_PROXY ""; fastcgi_pass unix:%[5]s;
		}
	}
}`

// nginxToPHP starts nginx in front of php-fpm, and returns its addresses for HTTP/1.1 and HTTP/2.
func nginxToPHP(t *testing.T, socket, root string) (one, two string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("there is no nginx")
	}
	dir := t.TempDir()
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().String())
		l.Close()
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxPHP, dir, ports[0], ports[1], root, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	return ports[0], runNginx(t, program, dir, conf, ports)
}

func runNginx(t *testing.T, program, dir, conf string, ports []string) string {
	c := exec.Command(program, "-p", dir, "-c", conf)
	var complaints bytes.Buffer
	c.Stderr = &complaints
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	waitForSocket(t, "tcp", ports[1], &complaints)
	return ports[1]
}

// phpGateway starts a gateway in front of php-fpm.
func phpGateway(t *testing.T, socket, root string, keep bool) (g *testGateway, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	return newTestGateway(t, "127.0.0.1:1", func(g *testGateway) {
		p, err := pool.New(pool.Options{Name: "php"}, []pool.BackendOptions{{Name: "fpm", Path: socket}}, 1)
		g.must(err)
		site, err := files.Open(files.Options{Root: root})
		g.must(err)
		static, err := files.Open(files.Options{Root: root, Except: []string{".php"}})
		g.must(err)
		g.pool.Pool, g.pool.Protocol = p, proxy.Scripts
		g.pool.FastCGI = &proxy.FastCGI{
			Scripts: fastcgi.Scripts{Extensions: []string{".php"}, Index: "index.php", Fallback: "/index.php"}, Root: root, Site: site, Keep: keep, Most: 1 << 20,
			Log: func(_ string, text []byte) { log.Write(text) },
		}
		g.rule.Files = static
		for _, ln := range []*proxy.Listener{g.plain, g.secure} {
			ln.Forwarding.Style = rewrite.StyleNone
			ln.HTTP2 = &http2.Options{}
		}
	}), log
}

// seenByPHP is what a script has seen, without what differs by the server.
func seenByPHP(t *testing.T, resp *http.Response) map[string]any {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatalf("%v: status %d: %.200s", err, resp.StatusCode, body)
	}
	server := all["server"].(map[string]any)
	for _, name := range []string{"REQUEST_TIME", "REQUEST_TIME_FLOAT", "SERVER_SOFTWARE", "SERVER_PORT", "REMOTE_PORT", "HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "PATH_TRANSLATED"} {
		delete(server, name)
	}
	for name, value := range server {
		if value == "" {
			delete(server, name) // nginx sends variables that are empty
		}
	}
	return all
}

// PHP sees the same of requests that come by nginx and by the gateway: each variable, the content, what it parses of both.
func TestPHPSeesThroughGatewayWhatItSeesThroughNginx(t *testing.T) {
	socket, root := fpm(t)
	one, two := nginxToPHP(t, socket, root)
	g, _ := phpGateway(t, socket, root, false)
	h2 := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	h1 := &http.Transport{DisableCompression: true}
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	multipart := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ncontent\r\n--b--\r\n"
	for _, c := range []struct{ method, target, kind, body string }{
		{"GET", "/", "", ""},
		{"GET", "/index.php", "", ""},
		{"GET", "/index.php?a=b&c[]=d&c[]=e", "", ""},
		{"GET", "/a/", "", ""},
		{"GET", "/a/?x", "", ""},
		{"GET", "/b.php/path/info", "", ""},
		{"GET", "/b.php/with%20blank?q=%20", "", ""},
		{"GET", "/a%20b.php", "", ""},
		{"GET", "/2026/11/hello", "", ""},
		{"GET", "/2026/%C3%A9?x=1", "", ""},
		{"GET", "/b.php/x/../y", "", ""},
		{"GET", "//b.php", "", ""},
		{"GET", "/a/../b.php", "", ""},
		{"GET", "/b.php/x.php", "", ""},
		{"GET", "/b.php/", "", ""},
		{"POST", "/b.php", "application/x-www-form-urlencoded", "a=b&c=d%20e"},
		{"POST", "/b.php", "multipart/form-data; boundary=b", multipart},
		{"POST", "/b.php", "application/json", `{"a":1}`},
		{"POST", "/b.php", "text/plain", strings.Repeat("content ", 50000)},
		{"POST", "/b.php", "text/plain", ""},
		{"PUT", "/b.php/x", "text/plain", "put"},
		{"DELETE", "/b.php", "", ""},
		{"PATCH", "/b.php", "a/b", "x"},
		{"OPTIONS", "/b.php", "", ""},
	} {
		for _, unsized := range []bool{false, true} {
			for version, hosts := range map[*http.Transport][2]string{h1: {one, g.plain.Address.String()}, h2: {two, g.plain.Address.String()}} {
				if unsized && c.body == "" {
					continue
				}
				var got [2]map[string]any
				for i, host := range hosts {
					var body io.Reader = strings.NewReader(c.body)
					if unsized {
						body = struct{ io.Reader }{body}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, c.method, "http://"+host+c.target, body)
					g.must(err)
					req.Host = "shop.example"
					for name, value := range map[string]string{"Content-Type": c.kind, "Cookie": "a=b; c=d", "Authorization": "Basic YTpi", "X-Custom": "a, b", "Proxy": "evil", "X_Under": "dropped"} {
						if value != "" {
							req.Header.Set(name, value)
						}
					}
					resp, err := version.RoundTrip(req)
					if err != nil {
						t.Fatalf("%s %s by %s (of unknown length: %v): %v", c.method, c.target, host, unsized, err)
					}
					got[i] = seenByPHP(t, resp)
					resp.Body.Close()
				}
				if unsized { // nginx gives PHP no length where it has none, and reads the content to a file
					for i := range got {
						delete(got[i]["server"].(map[string]any), "CONTENT_LENGTH")
					}
				}
				if diff := differ(got[0], got[1]); diff != "" {
					t.Errorf("%s %s (HTTP/2: %v, of unknown length: %v): nginx -, gateway +\n%s", c.method, c.target, version == h2, unsized, diff)
				}
			}
		}
	}
	g.settled()
}

// Clients get the same responses of scripts by nginx and by the gateway.
func TestPHPAnswersThroughGatewayAsThroughNginx(t *testing.T) {
	socket, root := fpm(t)
	one, _ := nginxToPHP(t, socket, root)
	for _, keep := range []bool{false, true} {
		g, log := phpGateway(t, socket, root, keep)
		tr := &http.Transport{DisableCompression: true}
		for _, path := range []string{
			"/missing_type.php", "/status.php", "/location.php", "/fatal.php", "/stderr.php", "/large.php", "/length.php", "/stream.php", "/cookies.php", "/finish.php", "/plain.txt", "/upload/x.jpg",
			"/a", "/kill.php",
		} {
			for _, method := range []string{"GET", "HEAD"} {
				type answer struct {
					Status               int
					Type, Location, Body string
					Cookies              []string
					Cut                  bool
				}
				var got [2]answer
				for i, host := range []string{one, g.plain.Address.String()} {
					req, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
					g.must(err)
					req.Host = "shop.example"
					resp, err := tr.RoundTrip(req)
					g.must(err)
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					got[i] = answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Location"), string(body), resp.Header["Set-Cookie"], err != nil}
					if got[i].Status >= 300 && got[i].Status < 400 {
						got[i].Location, got[i].Body = strings.TrimPrefix(got[i].Location, "http://shop.example"), "" // nginx makes it absolute
						if at := strings.Index(got[i].Location, ":"); at >= 0 {
							_, rest, _ := strings.Cut(got[i].Location[at+1:], "/")
							got[i].Location = "/" + rest
						}
						got[i].Type = ""
					}
					if strings.HasSuffix(path, ".txt") || strings.HasSuffix(path, ".jpg") {
						got[i].Type = ""
					}
					if path == "/kill.php" {
						got[i].Body = ""
					}
				}
				if diff := differ(got[0], got[1]); diff != "" {
					t.Errorf("%s %s (connections kept: %v): nginx -, gateway +\n%s", method, path, keep, diff)
				}
			}
		}
		tr.CloseIdleConnections()
		g.settled()
		done := make(chan struct{})
		g.loop.Do(func() {
			if !strings.Contains(log.String(), "a line for the log") {
				t.Errorf("the log has %q", log)
			}
			close(done)
		})
		<-done
	}
}

// The check of a pool asks php-fpm's ping page.
func TestPHPIsProbed(t *testing.T) {
	socket, root := fpm(t)
	c := health.New()
	c.Type, c.HTTP.Path, c.HTTP.Body, c.Timeout, c.Interval = health.TypeHTTP, "/ping", "pong", 2*time.Second, 2*time.Second
	c.Conn.FastCGI = root
	found := make(chan struct{}, 1)
	checker := health.NewChecker(health.Options{Notify: func() { found <- struct{}{} }})
	defer checker.Close()
	c.Rise = 1
	checker.Set([]health.Watch{{ID: 1, Target: health.Target{Path: socket, At: netip.AddrPort{}, Backend: "fpm", Service: "php"}, Check: c, Down: true}})
	<-found
	if changes := checker.Take(); len(changes) != 1 || !changes[0].Healthy {
		t.Errorf("%+v", changes)
	}
}

// differ returns the lines of two values, as JSON, that are in one alone; "" where they are equal.
func differ(a, b any) (diff string) {
	lines := [2][]string{}
	for i, v := range []any{a, b} {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err.Error()
		}
		lines[i] = strings.Split(string(text), "\n")
	}
	for i, sign := range []string{"-", "+"} {
		for _, l := range lines[i] {
			if !slices.Contains(lines[1-i], l) {
				diff += sign + fmt.Sprintf("%.200s\n", l)
			}
		}
	}
	return diff
}
