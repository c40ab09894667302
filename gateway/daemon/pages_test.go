package daemon

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pagesConfig = `
admin: {socket: SOCKET}
loops: 1
listeners:
- {name: web, address: "LISTEN", protocol: HTTP, error_pages: [{status: [404, 405, 403], file: FOLDER/all.html}]}
routes:
- {name: own, hostnames: [own], error_pages: [{status: 404, file: FOLDER/own.json}], rules: [{static: {root: FOLDER/www}}]}
- {name: r, hostnames: [files], rules: [{static: {root: FOLDER/www}}]}
`

// Where there is no file, the pages of errors answer, as where there is no route.
func TestPagesOfErrorsAreThoseOfFilesToo(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "www"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "all.html"), "<p>all")
	write(t, filepath.Join(dir, "own.json"), "{}")
	write(t, filepath.Join(dir, "www/a"), "a file")
	s := newSite(t, strings.ReplaceAll(pagesConfig, "FOLDER", dir))
	for _, c := range []struct{ method, host, path, status, kind, body, allow string }{
		{"GET", "files", "/a", "200", "", "a file", ""},
		{"GET", "files", "/none", "404", "text/html; charset=utf-8", "<p>all", ""},
		{"GET", "own", "/none", "404", "application/json", "{}", ""},
		{"POST", "files", "/a", "405", "text/html; charset=utf-8", "<p>all", "GET, HEAD"},
		{"POST", "own", "/a", "405", "text/html; charset=utf-8", "<p>all", "GET, HEAD"},
		{"GET", "none", "/", "404", "text/html; charset=utf-8", "<p>all", ""},
	} {
		req, err := http.NewRequest(c.method, "http://"+s.addr+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		body := string(content)
		kind := resp.Header.Get("Content-Type")
		if !strings.HasPrefix(resp.Status, c.status) || body != c.body || c.kind != "" && kind != c.kind || resp.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s%s: %s, %q, %q, Allow %q", c.method, c.host, c.path, resp.Status, kind, body, resp.Header.Get("Allow"))
		}
	}
}
