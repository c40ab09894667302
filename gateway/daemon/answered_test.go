package daemon

import (
	"net/http"
	"path/filepath"
	"testing"
)

// TestResponsesOfRulesAreEdited whoever makes them: a redirect, a fixed response, a file, or the want of one.
func TestResponsesOfRulesAreEdited(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "text")
	const edit = `{type: ResponseHeaderModifier, set: [{name: x-edited, value: "${method} ${rule}"}]}`
	s := newSite(t, `
admin: {socket: SOCKET}
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes:
- name: r
  rules:
  - {name: away, matches: [{path: {value: /away}}], filters: [`+edit+`, {type: RequestRedirect, path: {type: ReplaceFullPath, value: /x}}]}
  - {name: url, matches: [{path: {value: /url}}], filters: [`+edit+`, {type: RequestRedirect, location: "https://${hostname}/"}]}
  - {name: fixed, matches: [{path: {value: /fixed}}], filters: [`+edit+`, {type: FixedResponse, status_code: 410}]}
  - {name: files, filters: [`+edit+`], static: {root: "`+dir+`"}}
`)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, c := range []struct {
		path, edited string
		status       int
	}{{"/away", "GET r/away", 302}, {"/url", "GET r/url", 302}, {"/fixed", "GET r/fixed", 410}, {"/file", "GET r/files", 200}, {"/none", "GET r/files", 404}} {
		resp, err := s.client.Get("http://" + s.addr + c.path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("X-Edited"); resp.StatusCode != c.status || got != c.edited {
			t.Errorf("%s: %d, %q, want %d, %q", c.path, resp.StatusCode, got, c.status, c.edited)
		}
	}
}
