package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// webPrograms are web servers and proxies.
func webPrograms() []program {
	return []program{
		{"nginx", []string{"nginx", "-v"}, "2 workers, sendfile, proxy_pass to the peer, TLS: hashes; reload twice under load, wrk", runNginx},
		{"haproxy", []string{"haproxy", "-v"}, "HTTP and TCP front and back: hashes; reload of master and worker under load", runHAProxy},
	}
}

const nginxConfig = `
daemon off; worker_processes 2; pid DIR/nginx.pid; error_log DIR/nginx.log;
events { worker_connections 1024; }
http {
	access_log off; sendfile on; root DIR; client_max_body_size 0; proxy_request_buffering off;
	client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
	server {
		listen 198.18.20.2:8080 reuseport; listen [2001:db8:20::2]:8080; listen 198.18.20.2:8443 ssl http2;
		ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/cert.pem;
		location /up/ { proxy_pass http://198.18.20.1:PORT/; proxy_http_version 1.1; }
		location /small { return 200 'GENERATION'; }
	}
}`

func runNginx(t *testing.T, b *bed) string {
	needs(t, "wrk")
	file, sum := content(t, b.dir, 30_000_000)
	plain, _ := b.webServer(t, b.dir)
	certificate(t, b.dir)
	config := func(generation string) string {
		return writeFile(t, filepath.Join(b.dir, "nginx.conf"), strings.NewReplacer("DIR", b.dir, "PORT", plain, "GENERATION", generation).Replace(nginxConfig))
	}
	server := b.host.start(t, "nginx", "-c", config("first"), "-p", b.dir)
	t.Cleanup(func() { logOf(t, filepath.Join(b.dir, "nginx.log")) })
	b.opens(t, server, 8080)
	fetch := func() {
		t.Helper()
		got := filepath.Join(b.dir, "got")
		for _, front := range []string{"http://198.18.20.2:8080", "http://[2001:db8:20::2]:8080", "https://198.18.20.2:8443"} {
			for _, path := range []string{"/", "/up/"} {
				b.peer.run(t, "curl", "-sSk", "--fail", "--max-time", "50", "-o", got, front+path+filepath.Base(file))
				equal(t, front+path, got, sum)
			}
		}
		if answer := b.peer.run(t, "curl", "-sS", "--fail", "--max-time", "50", "-T", file, "http://198.18.20.2:8080/up/x"); answer != sum {
			t.Errorf("PUT through nginx: the server got %s, want %s", answer, sum)
		}
	}
	fetch()
	load := b.peer.start(t, "wrk", "-t1", "-c20", "-d4s", "http://198.18.20.2:8080/small")
	for _, generation := range []string{"second", "third"} {
		time.Sleep(time.Second)
		config(generation)
		must(t, server.Process.Signal(unix.SIGHUP))
		await(t, "the "+generation+" workers of nginx", func() bool {
			return strings.Contains(b.peer.run(t, "curl", "-sS", "--max-time", "10", "http://198.18.20.2:8080/small"), generation)
		})
	}
	out, code := load.finish(t, patience)
	// A worker that a reload ends closes idle connections: wrk counts those that it has just written to.
	if code != 0 || strings.Contains(out, "Non-2xx") {
		t.Errorf("wrk: %s", out)
	}
	fetch()
	server.stopWith(t, unix.SIGQUIT, 0)
	return "14 transfers of 30 MB, 2 reloads"
}

// certificate makes a key and a certificate in one file.
func certificate(t *testing.T, dir string) string {
	t.Helper()
	needs(t, "openssl")
	key, cert, both := filepath.Join(dir, "key.pem"), filepath.Join(dir, "only.pem"), filepath.Join(dir, "cert.pem")
	runHere(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=host", "-days", "2", "-keyout", key, "-out", cert)
	k, err := os.ReadFile(key)
	must(t, err)
	c, err := os.ReadFile(cert)
	must(t, err)
	return writeFile(t, both, string(k)+string(c))
}

// logOf shows the log file of a server if the test has failed.
func logOf(t *testing.T, path string) {
	if text, err := os.ReadFile(path); err == nil && t.Failed() {
		t.Logf("%s: %s", path, last(string(text), 4000))
	}
}

const haproxyConfig = `
global
	nbthread 2
	stats socket DIR/ha.sock mode 600 level admin expose-fd listeners
defaults
	timeout connect 20s
	timeout client 30s
	timeout server 30s
frontend web
	mode http
	bind 198.18.20.2:8090
	bind 2001:db8:20::2:8090
	http-response set-header x-generation GENERATION
	default_backend web
backend web
	mode http
	server a 198.18.20.1:PORT check inter 200ms
frontend raw
	mode tcp
	bind 198.18.20.2:8091
	default_backend raw
backend raw
	mode tcp
	server a 198.18.20.1:PORT
`

func runHAProxy(t *testing.T, b *bed) string {
	file, sum := content(t, b.dir, 30_000_000)
	small, _ := content(t, b.dir, 100)
	plain, _ := b.webServer(t, b.dir)
	config := func(generation string) string {
		return writeFile(t, filepath.Join(b.dir, "haproxy.cfg"), strings.NewReplacer("DIR", b.dir, "PORT", plain, "GENERATION", generation).Replace(haproxyConfig))
	}
	server := b.host.start(t, "haproxy", "-W", "-f", config("first"), "-S", filepath.Join(b.dir, "ham.sock"))
	b.opens(t, server, 8090)
	fetch := func() {
		t.Helper()
		got := filepath.Join(b.dir, "got")
		for _, front := range []string{"198.18.20.2:8090", "[2001:db8:20::2]:8090", "198.18.20.2:8091"} {
			b.peer.run(t, "curl", "-sS", "--fail", "--max-time", "50", "-o", got, "http://"+front+"/"+filepath.Base(file))
			equal(t, front, got, sum)
			if answer := b.peer.run(t, "curl", "-sS", "--fail", "--max-time", "50", "-T", file, "http://"+front+"/x"); answer != sum {
				t.Errorf("PUT through haproxy at %s: the server got %s, want %s", front, answer, sum)
			}
		}
	}
	fetch()
	var stop atomic.Bool
	requests := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			if out, code := b.peer.try(t, patience, "curl", "-sS", "--fail", "--max-time", "20", "-o", "/dev/null", "http://198.18.20.2:8090/"+filepath.Base(small)); code != 0 {
				t.Errorf("a request during a reload: code %d, %s", code, out)
			}
		}
		requests <- n
	}()
	for _, generation := range []string{"second", "third"} {
		time.Sleep(time.Second)
		config(generation)
		must(t, server.Process.Signal(unix.SIGUSR2))
		await(t, "the "+generation+" worker of haproxy", func() bool {
			return strings.Contains(b.peer.run(t, "curl", "-sSI", "--max-time", "10", "http://198.18.20.2:8090/"+filepath.Base(small)), generation)
		})
	}
	stop.Store(true)
	n := <-requests
	fetch()
	server.stopWith(t, unix.SIGTERM, 143)
	return fmt.Sprintf("12 transfers of 30 MB, 2 reloads, %d requests meanwhile", n)
}
