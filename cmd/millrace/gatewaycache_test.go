package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/admin"
	server "github.com/millrace/millrace/internal/controlsocket"
	l7control "github.com/millrace/millrace/l7/control"
)

// TestCommandsOfCaches: what they ask, and what they print.
func TestCommandsOfCaches(t *testing.T) {
	var asked string
	socket := servedControl(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		switch r.URL.Path {
		case "/v1/cache":
			server.Reply(w, l7control.CacheStatuses{Caches: []l7control.CacheStatus{{Name: "pages", Bytes: 12345, Memory: 1 << 20, Objects: 7, Requests: map[string]uint64{"hit": 99, "miss": 3}, Disk: &l7control.DiskStatus{Dir: "/c", Bytes: 54321, Limit: 1 << 30, Loading: true}}}})
		case "/v1/cache/objects":
			server.Reply(w, l7control.CacheList{Objects: []l7control.CacheObject{{Cache: "pages", URL: "https://a.example/x", Rule: "shop/1", Status: 200, Bytes: 1234, Age: 61.2, Left: -3}}, More: 4})
		default:
			var p admin.CachePurge
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
				t.Error(err)
			}
			if asked += " " + p.Cache + " " + p.URL; p.Prefix {
				asked += " prefix"
			}
			if p.Cache == "other" {
				server.ReplyError(w, http.StatusNotFound, `unknown cache "other"`)
				return
			}
			server.Reply(w, admin.CachePurged{Purged: 12})
		}
	})
	for _, tc := range []struct {
		args  string
		code  int
		says  []string
		asked string
	}{
		{"stats", exitOK, []string{"pages  12,345", "99", "HITS", "pages  54,321   1,073,741,824", "/c (being read)"}, "GET /v1/cache"},
		{"stats --json", exitOK, []string{`"name":"pages"`, `"hit":99`}, "GET /v1/cache"},
		{"list", exitOK, []string{"https://a.example/x  pages  shop/1  200     1,234  1m1s  -3s", "4 more"}, "GET /v1/cache/objects?cache=&limit=50&prefix="},
		{"list --cache pages --prefix https://a --limit 3 --json", exitOK, []string{`"more":4`}, "GET /v1/cache/objects?cache=pages&limit=3&prefix=https%3A%2F%2Fa"},
		{"list --limit 0", exitUsage, []string{"--limit is 0"}, ""},
		{"purge https://a.example/x", exitOK, []string{"12 responses are removed"}, "POST /v1/cache/purge  https://a.example/x"},
		{"purge --prefix https://a --cache pages --json", exitOK, []string{`"purged":12`}, "POST /v1/cache/purge pages https://a prefix"},
		{"purge x --cache other", exitFailure, []string{`unknown cache "other"`}, "POST /v1/cache/purge other x"},
		{"purge", exitUsage, []string{"URL is missing"}, ""},
	} {
		asked = ""
		code, out, err := run(strings.Fields("gateway cache " + tc.args + " --socket " + socket)...)
		if code != tc.code || asked != tc.asked {
			t.Errorf("%s: code %d, asked %q: %s%s", tc.args, code, asked, out, err)
		}
		for _, s := range tc.says {
			if !strings.Contains(out+err, s) {
				t.Errorf("%s: no %q in %s%s", tc.args, s, out, err)
			}
		}
	}
}
