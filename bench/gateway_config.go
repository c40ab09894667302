package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/bench/webpeer"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// The ports of a proxy at serviceAddr.
const (
	webPort = 80  // HTTP/1.1
	h2cPort = 81  // HTTP/2 without TLS, by prior knowledge
	tlsPort = 443 // HTTP/1.1, 2 and 3
)

// webConfig is what the configurations of all proxies say, each in its language.
type webConfig struct {
	dir    string // of the files, and of what a proxy writes
	loops  int    // workers or threads; 0 is 1
	routes int    // routes by a prefix of the path beside the one for all others
	afxdp  bool   // ours alone: the userspace stack over AF_XDP
	http3  bool   // ours alone: it serves HTTP/3, too
	rsa    bool   // the key of the certificate: RSA-2048 in place of P-256
	with   feature
	level  int // of nginx's gzip
	rules  int // ours alone: it inspects requests by so many rules
}

func (c webConfig) workers() int { return max(c.loops, 1) }

// cert has the files of the certificate that all proxies show.
func (c webConfig) cert() string { return c.keyFile("cert.pem") }
func (c webConfig) key() string  { return c.keyFile("key.pem") }
func (c webConfig) both() string { return c.keyFile("both.pem") } // HAProxy has one file

func (c webConfig) keyFile(name string) string {
	if c.rsa {
		name = "rsa-" + name
	}
	return filepath.Join(c.dir, name)
}

// writeCert makes the certificate and its key.
func (c webConfig) writeCert() error {
	pair, _ := testcert.SelfSigned("bench.example")
	if c.rsa {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return err
		}
		pair, _ = testcert.SelfSignedBy(key, "bench.example")
	}
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for name, text := range map[string][]byte{c.cert(): cert, c.key(): key, c.both(): append(cert, key...)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// write stores a configuration and returns its file.
func (c webConfig) write(name, text string) (string, error) {
	f, err := os.CreateTemp(c.dir, name+"-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

// each repeats a line for every route, whose number stands in the place of "$".
func (c webConfig) each(line string) string {
	var w strings.Builder
	for i := range c.routes {
		w.WriteString(strings.ReplaceAll(line, "$", strconv.Itoa(i)))
	}
	return w.String()
}

// nginx has no log and keeps connections to the backend. Large responses are not written to files.
func (c webConfig) nginx() string {
	processes := "master_process off;"
	if c.loops > 1 {
		processes = "master_process on;"
	}
	return fmt.Sprintf(`daemon off;
%[1]s
worker_processes %[2]d;
worker_rlimit_nofile 16384;
pid %[3]s/nginx-web.pid;
error_log %[3]s/nginx-web.log crit;
events { worker_connections 8192; multi_accept on; use epoll; }
http {
	access_log %[12]s;
	client_body_temp_path %[3]s/body; proxy_temp_path %[3]s/proxy; fastcgi_temp_path %[3]s/fastcgi;
	uwsgi_temp_path %[3]s/uwsgi; scgi_temp_path %[3]s/scgi;
	tcp_nodelay on;
	keepalive_requests 1000000000;
	keepalive_timeout 3600s;
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_set_header Host $host;
	proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
	proxy_buffer_size 16k;
	proxy_buffers 16 32k;
	proxy_busy_buffers_size 256k;
	proxy_max_temp_file_size 0;
	ssl_protocols TLSv1.3;
	ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
	ssl_certificate %[4]s;
	ssl_certificate_key %[5]s;
	upstream backend { server %[6]s; keepalive 512; keepalive_requests 1000000000; keepalive_timeout 3600s; }
%[10]s	upstream backend2 { server %[6]s; keepalive 64; keepalive_requests 1000000000; keepalive_timeout 3600s; }
	server {
		listen %[7]s:80 backlog=4096%[9]s;
		listen %[7]s:81 http2 backlog=4096%[9]s;
		listen %[7]s:443 ssl http2 backlog=4096%[9]s;
%[8]s		location / { %[11]s }
		location /ws { proxy_pass http://backend; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }
		location /bench.Echo/ { grpc_pass grpc://backend2; }
	}
}
`, processes, c.workers(), c.dir, c.cert(), c.key(), webBackend, serviceAddr,
		c.each("\t\tlocation /r$/ { proxy_pass http://backend; }\n"), map[bool]string{true: " reuseport"}[c.loops > 1],
		c.nginxHTTP(), c.nginxRule(), c.nginxLog())
}

// nginxBackend serves the response of 128 bytes as a file.
func (c webConfig) nginxBackend() (string, error) {
	root := filepath.Join(c.dir, "root")
	err := os.MkdirAll(filepath.Join(root, "bytes"), 0o755)
	if err == nil {
		err = os.WriteFile(root+webpeer.BytesPath(128), webpeer.Content(128), 0o644)
	}
	if err != nil {
		return "", err
	}
	return c.write("nginx-backend", fmt.Sprintf(`user root;
daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx-backend.pid;
error_log %[1]s/nginx-backend.log crit;
events { worker_connections 8192; multi_accept on; use epoll; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 3600s;
	open_file_cache max=16;
	server { listen %[2]s backlog=4096; root %[3]s; }
}
`, c.dir, webBackend, root))
}

// haproxy reuses connections to the backend for all clients. It finds routes in a tree, by a map.
func (c webConfig) haproxy() string {
	routes := ""
	if c.routes > 0 {
		file, err := c.write("haproxy-map", c.each("/r$/ one\n"))
		if err != nil {
			return "# " + err.Error() // haproxy says that there is nothing in it
		}
		routes = "\tuse_backend %[path,map_beg(" + file + ",one)]\n"
	}
	return fmt.Sprintf(`global
	nbthread %[1]d
	maxconn 8000
	ssl-default-bind-options ssl-min-ver TLSv1.3
	ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
defaults
	mode http
	option http-keep-alive
	option forwardfor
	http-reuse always
	timeout connect 5s
	timeout client 3600s
	timeout server 3600s
frontend web
	bind %[2]s:80
	bind %[2]s:81 proto h2
	bind %[2]s:443 ssl crt %[3]s alpn h2,http/1.1
	use_backend two if { path_beg /bench.Echo/ }
%[5]s	default_backend one
backend one
	server b %[4]s pool-purge-delay 3600s
backend two
	server b %[4]s proto h2 pool-purge-delay 3600s
`, c.workers(), serviceAddr, c.both(), webBackend, routes)
}

// caddy is a Caddyfile.
func (c webConfig) caddy() string {
	proxies := fmt.Sprintf(`%[3]s%[2]s	handle /bench.Echo/* {
		reverse_proxy h2c://%[1]s
	}
	handle {
%[4]s	}
`, webBackend, c.each("\thandle /r$/* {\n\t\treverse_proxy "+webBackend+"\n\t}\n"), c.caddySite(), c.caddyRule())
	return fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	default_sni bench.example
	storage file_system %[1]s/caddy
	servers {
		protocols h1 h2 h2c h3
	}
}
http://:80, http://:81 {
%[2]s}
https://:443 {
	tls %[3]s %[4]s
%[2]s}
`, c.dir, proxies, c.cert(), c.key())
}

// routeRules is the number of rules that one of our routes has.
const routeRules = 500

// millrace is our gateway, which answers clients without a server name, such as h2load, by its default certificate. It is over the kernel's sockets or its own stack.
func (c webConfig) millrace() string {
	routes := ""
	for i, rule := range slices.Collect(strings.Lines(c.each("      - {matches: [{path: {type: PathPrefix, value: /r$}}], backend_refs: [{name: one}]}\n"))) {
		if i%routeRules == 0 {
			routes += fmt.Sprintf("  - name: more%d\n    listeners: [web]\n    rules:\n", i)
		}
		routes += rule
	}
	stack := fmt.Sprintf("stack: kernel\nloops: %d\n", c.workers())
	if c.afxdp {
		stack = fmt.Sprintf(`stack: devices
devices:
  - {name: %[1]s, driver: afxdp, addresses: [%[2]s/24, %[3]s/24]}
  - {name: %[4]s, driver: afxdp, addresses: [%[5]s/24]}
cpus: none
`, role.FrontDev, frontAddr, serviceAddr, role.BackDev, backAddr)
	}
	versions := `"1.1", "2"`
	if c.http3 {
		versions += `, "3"`
	}
	return fmt.Sprintf(`%[6]sadmin: {socket: ""}
%[8]slisteners:
  - {name: web, address: "%[1]s:80", protocol: HTTP, versions: ["1.1"]%[9]s}
  - {name: h2c, address: "%[1]s:81", protocol: HTTP, versions: ["2"]}
  - name: tls
    address: "%[1]s:443"
    protocol: HTTPS
    versions: [%[7]s]
    tls: {certificates: [{cert: %[2]s, key: %[3]s, default: true}]}
routes:
  - name: all
    listeners: [web, h2c, tls]
    rules:
      - {matches: [{path: {type: PathPrefix, value: /bench.Echo}}], backend_refs: [{name: two}]}
      - {matches: [{path: {type: PathPrefix, value: /}}], %[10]s}
%[5]s%[11]spools:
  - {name: one, protocol: HTTP, backends: [{address: "%[4]s"}]}
  - {name: two, protocol: H2C, backends: [{address: "%[4]s"}]}
`, serviceAddr, c.cert(), c.key(), webBackend, routes, stack, versions,
		c.top()+c.inspection(), c.listener(), c.rule(), c.moreRoutes())
}

// inspection is the section of our configuration, "" without rules.
func (c webConfig) inspection() string {
	if c.rules == 0 {
		return ""
	}
	file, err := c.write("rules", requestRules(c.rules))
	if err != nil {
		return "inspection: " + strconv.Quote(err.Error()) + "\n" // which is refused, with this
	}
	return "inspection: {policies: [{name: bench, mode: prevent, listeners: [web, h2c, tls], rules: " + file + "}]}\n"
}
