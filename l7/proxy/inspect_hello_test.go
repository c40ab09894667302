package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
)

// inspectedRig is a rig over sockets whose listener with TLS, of all versions, inspects by rules.
func inspectedRig(t *testing.T, backend string, mode inspect.Mode, rules string) (r *rig, alerts *atomic.Int64) {
	t.Helper()
	alerts = &atomic.Int64{}
	e := inspect.New(compiledRules(t, rules, nil), inspect.Config{Inline: true}, func(*inspect.Alert) { alerts.Add(1) })
	r = http3Rig(t, backend, func(r *rig) {
		for _, ln := range r.tree.Listeners {
			ln.Inspection = &Inspection{Policy: 1, Hold: 1 << 16}
		}
	})
	r.do(func() { r.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return e, mode }) })
	return r, alerts
}

// A ClientHello that a rule drops ends its connection before any request, of all versions; others are served.
func TestClientHellosAreInspected(t *testing.T) {
	const rule = `drop tls any any -> any any (tls.sni; content:"gateway.test"; sid:1;)`
	for mode, served := range map[inspect.Mode]bool{inspect.Prevent: false, inspect.Detect: true} {
		r, alerts := inspectedRig(t, echoBackend(t, false), mode, rule)
		for i, c := range []*http.Client{r.client(false), r.client(true), r.client3()} {
			resp, err := c.Get("https://" + r.secure)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if (err == nil) != served || alerts.Load() < int64(i+1) {
				t.Errorf("mode %d, client %d: %v, %d alerts", mode, i, err, alerts.Load())
			}
		}
		if n := r.worker.Stats().InspectionEnded; (n > 0) == served {
			t.Errorf("mode %d: %d were ended", mode, n)
		}
		r.settled()
	}
}

// With HTTP/3 a request that matches is answered 403, and one whose content matches beyond the bound has its stream reset.
func TestRequestsOfHTTP3AreInspected(t *testing.T) {
	got := make(chan string, 16)
	backend := served(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(b)
	})
	r, _ := inspectedRig(t, strings.TrimPrefix(backend.URL, "http://"), inspect.Prevent, evilURI+evilBody)
	c := r.client3()
	for _, q := range []struct {
		path, body string
		status     int
	}{{"/fine", "fine", 200}, {"/evil", "", 403}, {"/", "an evilbody", 403}, {"/long", strings.Repeat("x", 90000) + "evilbody", 403}} {
		req, err := http.NewRequestWithContext(context.Background(), "POST", "https://"+r.secure+q.path, strings.NewReader(q.body))
		must(t, err)
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", q.path, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != q.status {
			t.Errorf("%s: status %d", q.path, resp.StatusCode)
		}
	}
	r.settled()
	for range len(got) {
		if s := <-got; strings.Contains(s, "evil") {
			t.Errorf("the backend has %.60q of %d bytes", s, len(s))
		}
	}
}
