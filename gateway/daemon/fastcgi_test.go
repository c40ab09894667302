package daemon

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const blog = `
admin: {socket: SOCKET}
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes:
- name: blog
  rules:
  - static: {root: ROOT}
    backend_refs: [{name: php}]
pools:
- name: php
  protocol: FASTCGI
  fastcgi: {root: ROOT, fallback: /index.php, params: [{name: APP_ENV, value: "test-${rule}"}]}
  backends: [{address: "BACKEND"}]
  health: {type: http, http: {path: /ping}}
`

// TestABlogIsServed has the shape of WordPress: files of the folder by the gateway, scripts by their server, and all other paths by
// the front controller. No source of a script leaves.
func TestABlogIsServed(t *testing.T) {
	root, socket := t.TempDir(), filepath.Join(t.TempDir(), "php.sock")
	for name, text := range map[string]string{
		"index.php": "SECRET", "wp-login.php": "SECRET", "wp-admin/index.php": "SECRET", "style.css": "body{}", "wp-content/a.txt": "text", ".user.ini": "SECRET", "UPPER.PHP": "SECRET",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go fcgi.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:errcheck // it ends with the listener
		env := fcgi.ProcessEnv(r)
		json.NewEncoder(w).Encode(map[string]string{"script": strings.TrimPrefix(env["SCRIPT_FILENAME"], root), "uri": r.URL.RequestURI(), "env": env["APP_ENV"]}) //nolint:errcheck // the client sees it
	}))
	s := newSite(t, strings.NewReplacer("ROOT", root, "BACKEND", "unix:"+socket).Replace(blog))
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, want := range map[string]string{
		"/": "/index.php", "/wp-login.php": "/wp-login.php", "/wp-login.php/x?a=b": "/wp-login.php", "/wp-admin/": "/wp-admin/index.php", "/2026/11/hello/": "/index.php", "/missing.css": "/index.php",
		"/style.css/x.php": "/index.php", "/.user.ini": "/index.php", "/UPPER.PHP": "/UPPER.PHP",
	} {
		status, text := s.get(path)
		if want := fmt.Sprintf("{\"env\":\"test-blog/1\",\"script\":%q,\"uri\":%q}\n", want, path); status != 200 || text != want {
			t.Errorf("%s: status %d, %s, want %s", path, status, text, want)
		}
	}
	for path, want := range map[string]string{"/style.css": "body{}", "/wp-content/a.txt": "text"} {
		if status, text := s.get(path); status != 200 || text != want {
			t.Errorf("%s: status %d, %s", path, status, text)
		}
	}
	if status, text := s.get("/wp-admin"); status != 301 {
		t.Errorf("a folder: status %d, %s", status, text)
	}
	resp, err := s.client.Post("http://"+s.addr+"/wp-login.php", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("a login: status %d", resp.StatusCode)
	}
	s.reload(strings.NewReplacer("ROOT", root, "BACKEND", "unix:"+socket).Replace(strings.Replace(blog, "fallback: /index.php, ", "", 1)))
	if status, _ := s.get("/2026/11/hello/"); status != 404 {
		t.Errorf("without a fallback: status %d", status)
	}
}
