package daemon

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Maintenance begins and ends by a reload, over the connections that clients have: 503 with Retry-After while the backend is there, which
// serves clients of `allow` meanwhile, and then all of them again.
func TestMaintenanceBeginsAndEndsByAReload(t *testing.T) {
	var served atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		io.WriteString(w, "backend")
	}))
	defer backend.Close()
	v := newVersions(t, `
  forwarded: {trusted: 127.0.0.0/8}
routes:
- {name: app, rules: [{backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "`+strings.TrimPrefix(backend.URL, "http://")+`"}]}]
`, nil)
	closed := strings.Replace(v.src, "name: app,", "name: app, maintenance: {retry_after: 5m, allow: [192.0.2.0/24]},", 1)
	want := func(client string, status int, after string) {
		t.Helper()
		v.each(func(version string) {
			before := served.Load()
			resp, body := v.ask(version, "GET", "/", "X-Forwarded-For", client)
			if got := resp.Header.Get("Retry-After"); resp.StatusCode != status || got != after || (body == "backend") != (status == 200) || (served.Load() > before) != (status == 200) {
				t.Errorf("HTTP/%s of %s: %d %q, Retry-After %q", version, client, resp.StatusCode, body, got)
			}
		})
	}
	want("198.18.0.1", 200, "")
	v.reload(closed)
	want("198.18.0.1", 503, "300")
	want("192.0.2.1", 200, "")
	v.reload(v.src)
	want("198.18.0.1", 200, "")
}

// Reloads of a long list lose no request: the table in use is that of before until the next one is complete.
func TestReloadsOfALongListLoseNoRequest(t *testing.T) {
	list := func(first byte) string {
		var text strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&text, "%d.%d.%d.0/25\n", first, i>>8, i&255)
		}
		return text.String()
	}
	v := newVersions(t, `
  forwarded: {trusted: 127.0.0.0/8}
  sources: {deny: FOLDER/deny}
routes: [{name: all, rules: [{filters: [{type: FixedResponse, body: ok}]}]}]
`, map[string]string{"deny": list(11)})
	var ended atomic.Bool
	var clients sync.WaitGroup
	var asked atomic.Int64
	for _, version := range []string{"1.1", "2", "3"} {
		clients.Go(func() {
			for !ended.Load() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+v.addr+"/", http.NoBody)
				req.Host = "gateway.test"
				req.Header.Set("X-Forwarded-For", "198.18.0.1")
				resp, err := v.clients[version].RoundTrip(req)
				if err != nil {
					t.Errorf("HTTP/%s, after %d requests: %v", version, asked.Load(), err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					t.Errorf("HTTP/%s: %d, %v", version, resp.StatusCode, err)
				}
				resp.Body.Close()
				asked.Add(1)
			}
		})
	}
	for _, first := range []byte{12, 13} {
		write(t, v.dir+"/deny", list(first))
		v.reloadSame()
		for client, status := range map[string]int{fmt.Sprint(first, ".0.9.1"): 403, fmt.Sprint(first-1, ".0.9.1"): 200} {
			if resp, _ := v.ask("2", "GET", "/", "X-Forwarded-For", client); resp.StatusCode != status {
				t.Errorf("%s gets %d", client, resp.StatusCode)
			}
		}
	}
	ended.Store(true)
	if clients.Wait(); asked.Load() == 0 {
		t.Error("no request was sent")
	}
}
