package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/app/convert"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// echoed is what a backend has received, which it answers with.
type echoed struct {
	Backend, Method, Target, Host string
	Fields                        map[string][]string
}

// echoBackend is a backend that answers with what it has received, and with some fields.
func echoBackend(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Backend", name)
		w.Header().Set("X-Secret", "of "+name)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/missing") {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(echoed{name, r.Method, r.RequestURI, r.Host, r.Header})
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// peerProxy is a proxy whose configuration is converted.
type peerProxy struct {
	program  string
	language convert.Language
	args     func(dir, file string) []string
	head     string // of its own configuration alone
}

var peerProxies = map[string]peerProxy{
	"nginx":   {"nginx", convert.Nginx, func(dir, file string) []string { return []string{"-p", dir, "-c", file} }, nginxConverted},
	"haproxy": {"haproxy", convert.HAProxy, func(_, file string) []string { return []string{"-db", "-f", file} }, "global\n maxconn 1000\n"},
}

const nginxConverted = `
daemon off; master_process off; pid DIR/pid; error_log stderr crit;
events {}
http {
	access_log off; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi; uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
`

// pairOfProxies runs a proxy with a configuration, and the gateway with the conversion, at ports of their own.
func pairOfProxies(t *testing.T, name, source string) (peer, gateway netip.AddrPort) {
	t.Helper()
	p := peerProxies[name]
	testnet.Program(t, p.program)
	dir := t.TempDir()
	peer, gateway = testport.Hold(t), testport.Hold(t)
	tail := map[string]string{"nginx": "\n}\n"}[name]
	conf := filepath.Join(dir, "peer.conf")
	text := strings.NewReplacer("DIR", dir, "LISTEN", peer.String()).Replace(p.head + source + tail)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startConverted(t, peer, p.program, p.args(dir, conf)...)
	r, err := convert.Text(filepath.Join(dir, "source"), strings.NewReplacer("DIR", dir, "LISTEN", gateway.String()).Replace(source), p.language)
	if err != nil {
		t.Fatal(err)
	}
	if r.Left > 0 {
		t.Fatalf("something is left out:\n%s", r.Text(false))
	}
	file := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(file, []byte("admin: {socket: \"\"}\n"+r.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		t.Logf("%s\n%s", r.Config, r.Text(false))
	}
	d, err := daemon.Open(file, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Config)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return peer, gateway
}

// startConverted runs a program until the test ends, and waits for its listener.
func startConverted(t *testing.T, addr netip.AddrPort, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	client := &http.Client{Timeout: time.Second}
	for range 1000 {
		resp, err := client.Get("http://" + addr.String() + "/")
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", program, err, out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("%s does not listen", program)
}

// The fields that proxies write themselves: how a message is framed, who sent it and when. docs/moving-in.md names the others.
var ownOfProxies = []string{
	"Connection", "Content-Length", "Transfer-Encoding", "Date", "Server", "Keep-Alive", "Accept-Encoding", "User-Agent", "Proxy-Status", "Last-Modified", "Etag", "Accept-Ranges",
}

// convertedOutcome is what is compared of a request.
type convertedOutcome struct {
	Status   int
	Fields   map[string][]string
	Backend  echoed
	Body     string // of responses without a backend
	Received bool
}

// askConverted sends a request, and returns what came of it. The port of the proxy is PORT in all texts.
func askConverted(t *testing.T, addr netip.AddrPort, r *convertedRequest, ignored []string) convertedOutcome {
	t.Helper()
	req, err := http.NewRequest(r.method, "http://"+addr.String()+r.target, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = r.host
	for name, value := range r.fields {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := unshared.RoundTrip(req)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	port := fmt.Sprintf(":%d", addr.Port())
	o := convertedOutcome{Status: resp.StatusCode, Fields: map[string][]string{}}
	for name, values := range resp.Header {
		if slices.Contains(ownOfProxies, name) {
			continue
		}
		for _, v := range values {
			v = strings.TrimSuffix(v, "; charset=utf-8") // which nginx leaves out
			o.Fields[name] = append(o.Fields[name], strings.ReplaceAll(v, port, ":PORT"))
		}
	}
	if resp.Header.Get("X-Backend") == "" { // pages of errors are the proxy's own
		if o.Status == 200 && r.method != http.MethodHead {
			o.Body = string(body)
		} else {
			delete(o.Fields, "Content-Type")
			delete(o.Fields, "Cache-Control")
		}
		return o
	}
	if o.Received = r.method != http.MethodHead; o.Received {
		if err := json.Unmarshal(body, &o.Backend); err != nil {
			t.Fatalf("%+v: %v in %q", r, err, body)
		}
	}
	for name := range o.Backend.Fields {
		if slices.Contains(ownOfProxies, name) || slices.Contains(ignored, name) {
			delete(o.Backend.Fields, name)
		}
	}
	o.Backend.Host = strings.ReplaceAll(o.Backend.Host, port, ":PORT")
	return o
}

// unshared follows no redirect, and asks each proxy on connections of its own.
var unshared = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// convertedRequest is a request.
type convertedRequest struct {
	method, target, host, body string
	fields                     map[string]string
}

// convertedRequests makes requests of all paths, hosts and methods, and random ones below the paths.
func convertedRequests(paths, hosts []string, fields []map[string]string, methods []string) (list []convertedRequest) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same requests each time
	if methods == nil {
		methods = []string{"GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"}
	}
	add := func(method, target, host string, f map[string]string) {
		g := convertedRequest{method: method, target: target, host: host, fields: f}
		if method == "POST" || method == "PUT" {
			g.body = "content"
		}
		list = append(list, g)
	}
	for _, h := range hosts {
		for _, p := range paths {
			add("GET", p, h, nil)
			if !strings.Contains(p, "?") {
				add("GET", p+"?a=1&b=2", h, nil)
			}
			for _, f := range fields {
				add("GET", p, h, f)
			}
			add(methods[random.IntN(len(methods))], p, h, nil)
		}
	}
	for range 200 {
		p := paths[random.IntN(len(paths))]
		for range random.IntN(3) {
			if strings.Contains(p, "?") {
				break
			}
			p = strings.TrimSuffix(p, "/") + "/" + []string{"x", "yy", "a.b", "missing", "z.php", "z.css", ""}[random.IntN(7)]
		}
		add(methods[random.IntN(len(methods))], p, hosts[random.IntN(len(hosts))], fields[random.IntN(len(fields))])
	}
	return list
}

// convertedCase is a source, and the requests that both get.
type convertedCase struct {
	name, proxy, source string
	paths, hosts        []string
	methods             []string // nil is all
	fields              []map[string]string
	ignored             []string // fields that the report names as different
	files               bool
}

var forwardedFields = []string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-For"}

// TestConverted sends the same requests to a proxy with its configuration, and to the gateway with the conversion: the status, the
// fields of the response, and what the backend has received are equal.
func TestConverted(t *testing.T) {
	for _, c := range convertedCases {
		t.Run(c.name, func(t *testing.T) {
			source := c.source
			for _, b := range []string{"ONE", "TWO", "THREE"} {
				source = strings.ReplaceAll(source, b, echoBackend(t, strings.ToLower(b)))
			}
			if c.files {
				source = strings.ReplaceAll(source, "FILES", convertedFiles(t))
			}
			peer, gateway := pairOfProxies(t, c.proxy, source)
			fields := append([]map[string]string{nil}, c.fields...)
			different, requests := 0, convertedRequests(c.paths, c.hosts, fields, c.methods)
			for i := range requests {
				r := &requests[i]
				want, got := askConverted(t, peer, r, c.ignored), askConverted(t, gateway, r, c.ignored)
				if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
					if different++; different <= 10 {
						t.Errorf("%+v:\n%s %s\ngateway %s", *r, c.proxy, w, g)
					}
				}
			}
			if different > 0 {
				t.Errorf("%d of %d requests differ", different, len(requests))
			}
			t.Logf("%d requests", len(requests))
		})
	}
}

// convertedFiles makes a folder of files.
func convertedFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"index.html": "root", "a.css": "css", "site/index.html": "site", "site/page.html": "page", "site/img/x.png": "png", "app.html": "app",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var convertedCases = []convertedCase{
	{
		name: "gitea", proxy: "nginx", source: `
	map $http_upgrade $connection_upgrade { default upgrade; '' close; }
	server {
		listen LISTEN; server_name git.example;
		client_max_body_size 512M;
		location / {
			proxy_pass http://ONE; proxy_http_version 1.1;
			proxy_set_header Connection $connection_upgrade; proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Host $http_host; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
		}
		location /metrics { if ($http_authorization != "Bearer s3cret") { return 403; } proxy_pass http://TWO; proxy_set_header Host $http_host; }
		location /_/static/assets/ { proxy_pass http://THREE/assets/; proxy_set_header Host $http_host; add_header Cache-Control "public, max-age=3600" always; }
	}
	server { listen LISTEN; server_name old.example; location /git/ { return 301 https://git.example$request_uri; } location / { return 404; } }`,
		paths: []string{"/", "/a/b.git/info/refs?service=git-upload-pack", "/a/b/raw/x%20y", "/api/v1/version", "/metrics", "/metricsx", "/_/static/assets/js/index.js", "/git/a/b"}, hosts: []string{"git.example", "old.example"},
		fields: []map[string]string{{"Authorization": "Bearer s3cret"}, {"Authorization": "Bearer s3cre"}}, ignored: forwardedFields,
	},
	{
		name: "conditions", proxy: "nginx", source: `
	geo $inside { default 0; 127.0.0.0/8 1; 192.0.2.0/24 0; }
	geo $outside { default 1; 127.0.0.1 0; }
	map $http_user_agent $bot { default 0; "" 0; ~*crawl 1; "~^Bad" 1; exact 1; }
	map $http_x_key $known { default 0; abc 1; "d e" 1; }
	server {
		listen LISTEN; server_name a.example b.example;
		proxy_set_header Host $http_host;
		if ($bot) { return 403; }
		if ($host != a.example) { return 410; }
		location / { proxy_pass http://ONE; }
		location /cookie/ { if ($cookie_session = "") { return 401; } proxy_pass http://TWO; }
		location /value/ { if ($cookie_key != "s3cret") { return 404; } proxy_pass http://TWO; }
		location /key/ { if ($known = 0) { return 403; } proxy_pass http://TWO; }
		location /both/ { if ($http_x_key != abc) { return 401; } if ($arg_debug) { return 410; } if ($request_method !~ ^(GET|HEAD)$) { return 405; } proxy_pass http://TWO; }
		location /geo/ { if ($inside) { return 403; } proxy_pass http://TWO; }
		location /geo2/ { if ($outside) { return 403; } proxy_pass http://TWO; }
		location /referer/ { valid_referers none blocked server_names *.friend.example friend.example/page/; if ($invalid_referer) { return 403; } proxy_pass http://TWO; }
		location /set/ { set $no 0; if ($http_x_key) { set $no 1; } if ($http_x_other = 2) { set $no 0; } if ($no) { return 403; } proxy_pass http://TWO; }
		location /beta/ { if ($cookie_beta = 1) { proxy_pass http://THREE; } proxy_pass http://TWO; }
		location /admin { deny all; proxy_pass http://TWO; }
		location /adminer/ { proxy_pass http://THREE; }
		location ~ /\.ht { deny all; }
		location ~ \.php$ { if ($http_x_key != abc) { return 403; } proxy_pass http://THREE; }
	}`,
		paths: []string{
			"/", "/cookie/x", "/value/x", "/key/x", "/both/x", "/both/x?debug=0", "/both/x?debug=1", "/geo/x", "/geo2/x", "/referer/x", "/set/x", "/beta/x", "/admin", "/admin.x", "/adminx/y",
			"/adminer/x", "/x/.htaccess", "/.ht.php", "/a.php", "/cookie/a.php",
		},
		hosts: []string{"a.example", "b.example"},
		fields: []map[string]string{
			{"User-Agent": "a CRAWLer"},
			{"User-Agent": "Badly"},
			{"User-Agent": "a Bad"},
			{"User-Agent": "EXACT"},
			{"Cookie": "session=1"},
			{"Cookie": "a=b; SESSION=x; key=s3cret"},
			{"Cookie": "session=; key=s3cret2"},
			{"Cookie": "xkey=s3cret; beta=1"},
			{"X-Key": "abc"},
			{"X-Key": "ABC"},
			{"X-Key": "d e", "X-Other": "2"},
			{"X-Key": "0"},
			{"X-Other": "2"},
			{"Referer": "https://a.example/x"},
			{"Referer": "http://x.friend.example"},
			{"Referer": "https://friend.example/page/1"},
			{"Referer": "https://friend.example/"},
			{"Referer": "https://evil.example/a.example"},
			{"Referer": "none"},
			{"Referer": "https://a.example.evil/"},
			{"Referer": "https://a.example:8443/"},
		},
		ignored: forwardedFields,
	},
	{
		name: "reverse proxy", proxy: "nginx", source: `
	upstream app { server ONE; keepalive 4; }
	server {
		listen LISTEN;
		location / {
			proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
			proxy_set_header Host $http_host; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Path $uri; proxy_set_header X-Gone "";
		}
		location /api/ { proxy_pass http://TWO/v1/; proxy_set_header Host api.example; proxy_hide_header X-Secret; add_header X-Frame-Options DENY always; }
		location = /exact { proxy_pass http://THREE/other; proxy_set_header Host $http_host; }
		location /kept/ { proxy_pass http://TWO; proxy_set_header Host $http_host; }
	}`,
		paths: []string{"/", "/x", "/api/", "/api", "/api/a/b", "/apix", "/exact", "/exact/x", "/kept/a", "/kept"}, hosts: []string{"a.example", "b.example"},
		fields: []map[string]string{{"X-Gone": "1", "X-Other": "2"}}, ignored: forwardedFields,
	},
	{
		name: "hosts and answers", proxy: "nginx", source: `
	server { listen LISTEN default_server; server_name _; return 404; }
	server { listen LISTEN; server_name a.example *.wild.example; location / { proxy_pass http://ONE; proxy_set_header Host $http_host; } }
	server { listen LISTEN; server_name www.a.example; return 301 https://a.example$request_uri; }
	server {
		listen LISTEN; server_name b.example;
		if ($http_x_deny = yes) { return 403; }
		location / { return 200 "hello"; default_type text/plain; }
		location /moved/ { rewrite ^/moved/(.*)$ /to/$1 permanent; }
		location = /old { return 302 /new; }
		location /to/ { proxy_pass http://TWO; proxy_set_header Host $http_host; }
		location /no { return 403; }
		location /gone/ { return 410; }
		location = /empty { return 204; }
		rewrite ^/first$ https://c.example/second permanent;
	}
	server {
		if ($host = c.example) { return 301 https://$host$request_uri; }
		listen LISTEN; server_name c.example d.example; return 404;
	}`,
		paths:  []string{"/", "/x", "/moved/", "/moved/a/b", "/old", "/old/x", "/no", "/no/x", "/gone/x", "/empty", "/first", "/first/x", "/to/x"},
		hosts:  []string{"a.example", "x.wild.example", "www.a.example", "b.example", "c.example", "d.example", "e.example"},
		fields: []map[string]string{{"X-Deny": "yes"}, {"X-Deny": "no"}}, ignored: forwardedFields,
	},
	{
		name: "regular expressions", proxy: "nginx", source: `
	server {
		listen LISTEN;
		proxy_set_header Host $http_host;
		location / { proxy_pass http://ONE; }
		location ^~ /static/ { proxy_pass http://TWO; }
		location ~ \.php$ { proxy_pass http://THREE; }
		location ~* ^/IMG/.*\.(png|gif)$ { return 403; }
		location /img/ { proxy_pass http://TWO; }
		location = /a.php { return 410; }
		location /docs/ { location ~ \.css$ { return 405; } proxy_pass http://TWO; }
	}`,
		paths: []string{"/", "/a.php", "/b.php", "/static/x.php", "/static/x", "/img/a.png", "/IMG/a.gif", "/img/a.jpg", "/docs/a.css", "/docs/a", "/static", "/x/static/y.php"}, hosts: []string{"a.example"},
		ignored: forwardedFields,
	},
	{
		name: "guards", proxy: "nginx", source: `
	server {
		listen LISTEN;
		proxy_set_header Host $http_host;
		location / { proxy_pass http://ONE; }
		location /small/ { client_max_body_size 2; proxy_pass http://ONE; }
		location /open/ { client_max_body_size 1k; proxy_pass http://ONE; }
		location /closed/ { deny 127.0.0.0/8; proxy_pass http://ONE; }
		location /inner/ { allow 127.0.0.1; deny all; proxy_pass http://ONE; }
		location /outer/ { allow 192.0.2.0/24; deny all; return 200 "x"; }
		location /read/ { limit_except GET { deny all; } proxy_pass http://TWO; }
	}`,
		paths: []string{"/", "/open/x", "/small/x", "/closed/x", "/inner/x", "/outer/x", "/read/x"}, hosts: []string{"a.example"}, ignored: forwardedFields,
	},
	{
		name: "files", proxy: "nginx", files: true, source: `
	types { text/html html; text/css css; image/png png; }
	server {
		listen LISTEN; root FILES;
		location / { try_files $uri $uri/ @app; }
		location /alias/ { alias FILES/site/; }
		location /spa/ { try_files $uri /app.html; }
		location /plain/ { root FILES/none; }
		location @app { proxy_pass http://ONE; proxy_set_header Host $http_host; }
	}`,
		paths: []string{"/", "/a.css", "/site/", "/site/page.html", "/site/img/x.png", "/nothing", "/alias/", "/alias/page.html", "/alias/none", "/spa/x", "/plain/x"}, hosts: []string{"a.example"}, ignored: forwardedFields,
		methods: []string{"GET", "HEAD"}, // others go to the pool, also where there is a file
	},
	{
		name: "frontends", proxy: "haproxy", source: `
defaults
 mode http
 timeout connect 5s
 timeout client 20s
 timeout server 20s
frontend f
 bind LISTEN
 acl api path_beg /api/
 acl admin hdr(host) -i admin.example
 acl ws hdr(x-kind) -i socket
 acl bad path_sub evil
 acl static path_end .css .png
 http-request deny deny_status 410 if bad
 http-request redirect location /new code 301 if { path /old }
 http-request redirect prefix https://www.example code 302 if { hdr(host) -i bare.example }
 http-request return status 200 content-type text/plain string hello if { path /hello }
 http-request set-header X-Client %[src]
 http-request set-header X-Method %[method]
 http-request del-header X-Gone
 http-response set-header X-Frame-Options DENY
 http-response del-header X-Secret
 use_backend two if ws
 use_backend three if api
 use_backend three if static
 use_backend two if admin
 default_backend one
backend one
 server s ONE
backend two
 http-request set-header X-Two yes
 server s TWO
backend three
 http-response add-header X-Three yes
 server s THREE
`,
		paths: []string{"/", "/api/", "/api/x", "/old", "/old/x", "/hello", "/x.css", "/api/x.css", "/evil/x", "/api/evil"}, hosts: []string{"a.example", "admin.example", "bare.example", "ADMIN.example"},
		fields: []map[string]string{{"X-Kind": "Socket"}, {"X-Gone": "1"}}, ignored: forwardedFields,
	},
	{
		name: "paths of backends", proxy: "haproxy", source: `
defaults
 mode http
 timeout connect 5s
 timeout client 20s
 timeout server 20s
frontend f
 bind LISTEN
 http-request deny if { src 192.0.2.0/24 }
 http-request deny if { path /private } !{ src 127.0.0.0/8 }
 use_backend app if { path /app } || { path_beg /app/ }
 use_backend get if { method GET } { path_reg ^/items/[0-9]+$ }
 use_backend q if { url_param(v) 2 }
 default_backend one
backend app
 http-request replace-path /app/?(.*) /\1
 server s TWO
backend get
 server s THREE
backend q
 server s TWO
backend one
 server s ONE
`,
		paths: []string{"/", "/app", "/app/", "/app/x/y", "/items/1", "/items/x", "/items/1/2", "/x?v=2", "/x?v=3", "/private"}, hosts: []string{"a.example"}, ignored: forwardedFields,
	},
	{
		name: "refusals", proxy: "haproxy", source: `
defaults
 mode http
 timeout connect 5s
 timeout client 20s
 timeout server 20s
frontend f
 bind LISTEN
 acl key hdr(x-key) s
 acl in src 192.0.2.0/24
 http-request deny if { path_beg /key/ } !key !in
 http-request deny deny_status 404 if { path_beg -i /Hid } !{ hdr(x-all) 1 }
 http-request deny deny_status 410 if !{ hdr(x-all) 1 } { path_beg /other/ }
 http-request redirect location /login code 303 if { path_beg /app/my/ } !{ req.cook(session) s3 }
 use_backend two if { path_beg /app/ } !{ hdr(x-old) -m found }
 default_backend one
backend one
 server s ONE
backend two
 http-request deny deny_status 401 if { path_beg /app/admin } !{ hdr(x-key) s }
 http-request deny deny_status 429 if { method POST } { hdr(x-key) t }
 server s TWO
`,
		paths: []string{"/", "/key/x", "/hid", "/HIDden/x", "/app/x", "/app/my/x", "/app/admin", "/app/administrator/x", "/login", "/other/x"}, hosts: []string{"a.example"},
		fields: []map[string]string{
			{"X-Key": "s"}, {"X-Key": "t"}, {"X-All": "1"}, {"X-All": "1", "X-Key": "s"}, {"Cookie": "a=b; session=s3"}, {"Cookie": "session=s"}, {"X-Old": "1"}, {"X-Old": "1", "Cookie": "session=s3"},
		}, ignored: forwardedFields,
	},
	{
		name: "nested and named", proxy: "nginx", source: `
	map $http_upgrade $connection_upgrade { default upgrade; '' close; }
	server {
		listen LISTEN; server_name a.example;
		proxy_set_header Host $http_host;
		proxy_set_header X-Level server;
		add_header X-Server yes always;
		location / { proxy_pass http://ONE; location = /sw.js { return 204; } location ~ ^/(css|js)/ { add_header X-Assets yes always; proxy_pass http://TWO; } location /sub/ { proxy_pass http://THREE; } }
		location /own/ { proxy_set_header X-Level location; proxy_set_header Host $http_host; proxy_pass http://ONE; }
		location /hack/ { error_page 418 = @other; return 418; }
		location @other { proxy_pass http://TWO; }
		location /strip/ { rewrite ^/strip/(.*)$ /$1 break; proxy_pass http://THREE; }
		location /const { set $up ONE; proxy_pass http://$up; }
		location = /health { access_log off; default_type text/plain; return 200 "ok"; }
		location /query { if ($arg_debug = 1) { return 418; } proxy_pass http://ONE; }
		location /methods { if ($request_method = DELETE) { return 405; } proxy_pass http://TWO; }
	}
	server { listen LISTEN; server_name b.example; rewrite ^/(.*)$ https://c.example/$1 permanent; }
	server { listen LISTEN; server_name .d.example; location / { return 307 $scheme://e.example:8443$request_uri; } }`,
		paths: []string{"/", "/sw.js", "/css/a", "/js/b", "/sub/x", "/sub", "/own/x", "/hack/x", "/strip/a/b", "/strip/", "/const", "/const/x", "/health", "/query", "/query?debug=1", "/methods", "/cssx/a"},
		hosts: []string{"a.example", "b.example", "d.example", "x.y.d.example", "other.example"}, ignored: forwardedFields,
	},
	{
		name: "order of rules", proxy: "haproxy", source: `
defaults
 mode http
 timeout connect 5s
 timeout client 20s
 timeout server 20s
frontend f
 bind LISTEN
 acl a path_beg /a/
 acl ab path_beg /a/b/
 acl png path_end .png
 acl h hdr(x-kind) k
 acl m method POST
 acl wild hdr_end(host) .wild.example
 use_backend two if ab h
 use_backend three if a m
 use_backend one if png
 use_backend two if a
 use_backend three if ab
 use_backend two if wild { path /only }
 use_backend three if wild
 use_backend two if h m
 use_backend three if h or m
 default_backend one
backend one
 server s ONE
backend two
 server s TWO
backend three
 server s THREE
`,
		paths: []string{"/", "/a/x", "/a/b/x", "/a/b/x.png", "/x.png", "/only", "/a/x.png", "/only/x"}, hosts: []string{"a.example", "x.wild.example", "wild.example"},
		fields: []map[string]string{{"X-Kind": "k"}, {"X-Kind": "l"}}, ignored: forwardedFields,
	},
}
