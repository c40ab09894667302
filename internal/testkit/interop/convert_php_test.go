package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

const phpParams = `
	fastcgi_param GATEWAY_INTERFACE CGI/1.1; fastcgi_param DOCUMENT_ROOT $document_root; fastcgi_param DOCUMENT_URI $document_uri;
	fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; fastcgi_param QUERY_STRING $query_string; fastcgi_param SERVER_PROTOCOL $server_protocol;
	fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param REMOTE_ADDR $remote_addr; fastcgi_param SERVER_NAME $server_name;
	fastcgi_param REQUEST_SCHEME $scheme; fastcgi_param HTTPS $https if_not_empty; fastcgi_param APP_ENV test; fastcgi_param APP_PATH $scheme-$host;
`

const phpNames = `fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param SCRIPT_NAME $fastcgi_script_name;`

const phpConverted = `
	index index.html index.php;
	server {
		listen LISTEN; server_name blog.example; root FOLDER;
		add_header X-Frame-Options DENY always;
		location / { try_files $uri $uri/ /index.php?$args; }
		location = /favicon.ico { return 204; }
		location ~* ^/upload/.*\.php(/|$) { deny all; }
		location ~ \.php(/|$) {
			fastcgi_split_path_info ^(.+?\.php)(/.*)$;
			set $path_info $fastcgi_path_info; fastcgi_param PATH_INFO $path_info;
			try_files $fastcgi_script_name =404;
			PARAMS NAMES
			fastcgi_pass unix:SOCKET; fastcgi_index index.php; fastcgi_read_timeout 10s;
		}
	}
	server {
		listen LISTEN; server_name plain.example; root FOLDER;
		location / { try_files $uri $uri/ =404; }
		location ~ \.php$ { if (!-f $document_root$fastcgi_script_name) { return 404; } PARAMS NAMES fastcgi_pass unix:SOCKET; }
	}
	server {
		listen LISTEN; server_name front.example; root FOLDER;
		location / { try_files $uri @front; }
		location @front { fastcgi_param SCRIPT_FILENAME $document_root/index.php; fastcgi_param SCRIPT_NAME /index.php; PARAMS fastcgi_pass unix:SOCKET; }
	}
	server {
		listen LISTEN; server_name one.example; root FOLDER;
		location = /status { fastcgi_param SCRIPT_FILENAME $document_root/b.php; fastcgi_param SCRIPT_NAME /b.php; PARAMS fastcgi_pass unix:SOCKET; }
		location ~ ^/(index|b)\.php$ { internal; PARAMS NAMES fastcgi_pass unix:SOCKET; }
		location / { try_files $uri /index.php$is_args$args; }
	}
	server { # as of WordPress: a front controller, and files that no client gets
		listen LISTEN; server_name words.example; root FOLDER; client_max_body_size 64m;
		if ($http_user_agent ~* (sqlmap|nikto)) { return 403; }
		location = /robots.txt { allow all; access_log off; }
		location = /xmlrpc.php { deny all; }
		location ~ /\. { deny all; }
		location ~* /wp-config\.php$ { deny all; }
		location ~* /(?:uploads|files)/.*\.php$ { deny all; }
		location / { try_files $uri $uri/ /index.php?$args; }
		location ~ \.php$ {
			if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }
			try_files $uri =404; PARAMS NAMES fastcgi_pass unix:SOCKET;
		}
	}`

// convertedPHP returns the outcome of a request: the status, and for scripts what PHP has seen.
func convertedPHP(t *testing.T, addr netip.AddrPort, r *convertedRequest) string {
	t.Helper()
	req, err := http.NewRequest(r.method, "http://"+addr.String()+r.target, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = r.host
	req.Header.Set("Accept-Encoding", "identity")
	for name, value := range r.fields {
		req.Header.Set(name, value)
	}
	resp, err := unshared.RoundTrip(req)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	out := fmt.Sprint(resp.StatusCode)
	if resp.StatusCode != 200 { // the gateway's own refusals have no fields of rules
		return out + resp.Header.Get("Location")
	}
	if out += fmt.Sprint(resp.Header["X-Frame-Options"]); r.method == http.MethodHead {
		return out
	}
	var seen struct {
		Server map[string]any `json:"server"`
		Input  string         `json:"input"`
		Get    any            `json:"get"`
	}
	if json.Unmarshal(body, &seen) != nil || seen.Server == nil {
		return out + string(body)
	}
	for _, name := range []string{"SCRIPT_NAME", "SCRIPT_FILENAME", "QUERY_STRING", "REQUEST_METHOD", "REQUEST_URI", "CONTENT_TYPE", "REMOTE_ADDR", "HTTPS", "APP_ENV", "APP_PATH", "HTTP_X_A", "HTTP_PROXY", "HTTP_HOST", "PATH_INFO"} {
		value := seen.Server[name]
		if value == nil {
			value = ""
		}
		out += fmt.Sprintf(" %s=%v", name, value)
	}
	return out + fmt.Sprint(seen.Input, seen.Get)
}

// TestConvertedPHP sends the same requests to nginx before php-fpm, and to the gateway with the conversion: scripts see the same.
func TestConvertedPHP(t *testing.T) {
	socket, root := fpm(t)
	source := strings.NewReplacer("SOCKET", socket, "FOLDER", root, "PARAMS", phpParams, "NAMES", phpNames).Replace(phpConverted)
	peer, gateway := pairOfProxies(t, "nginx", source)
	paths := []string{"/", "/b.php", "/plain.txt", "/a/", "/a/index.php", "/nothing", "/nothing/deep", "/none.php", "/favicon.ico", "/upload/x.php", "/upload/x.jpg", "/status", "/index.php", "/a%20b.php", "/b.php/info", "/xmlrpc.php", "/wp-config.php", "/x/WP-config.php", "/files/b.php", "/.env"}
	requests := convertedRequests(paths, []string{"blog.example", "plain.example", "front.example", "one.example", "words.example"}, []map[string]string{nil, {"X-A": "1", "Proxy": "x"}, {"User-Agent": "a SQLmap"}}, []string{"GET", "HEAD"})
	for _, target := range []string{"/b.php", "/nothing", "/", "/a/", "/status", "/none.php"} { // nginx answers POST 405 where there is a file
		requests = append(requests, convertedRequest{method: "POST", target: target, host: "blog.example", body: "a=b", fields: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}})
	}
	for i := range requests {
		r := &requests[i]
		if strings.HasPrefix(r.target, "/a/") && (r.host == "front.example" || r.host == "one.example") {
			continue // named too: folders run their index.php
		}
		others := r.host == "one.example" && !strings.HasPrefix(r.target, "/index.php") && !strings.HasPrefix(r.target, "/b.php")
		if strings.Contains(r.target, ".php") && (r.host == "front.example" || others) || r.host != "blog.example" && strings.Contains(r.target, ".php/") || r.target == "/.env" && r.host != "words.example" {
			continue // named by the report: nginx sends the source of a script that no location runs, and knows of no PATH_INFO here
		}
		if want, got := convertedPHP(t, peer, r), convertedPHP(t, gateway, r); want != got {
			t.Errorf("%+v:\nnginx   %s\ngateway %s", *r, want, got)
		}
	}
	t.Logf("%d requests", len(requests))
}
