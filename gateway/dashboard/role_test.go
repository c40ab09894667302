package dashboard

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/chromium"
)

// The role in a browser: its state, the other gateway and what is wrong. Without a role there is none to see, and the page stays small.
func TestTheRoleInABrowser(t *testing.T) {
	if len(page) > 60<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	now := time.Now()
	var role atomic.Pointer[Role]
	s := httptest.NewServer(Handler(Options{
		Settings: func() Settings { return Settings{} },
		Data: func() *Data {
			return &Data{Now: time.Now(), Started: now, Loops: []Loop{}, Backends: []Backend{}, Notices: []Notice{}, Role: role.Load()}
		},
		Top:      func(context.Context) (any, error) { return map[string]int{}, nil },
		Commands: http.NotFoundHandler(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
	}))
	defer s.Close()
	p := chromium.Open(t)
	p.View(1280, 900, false)
	p.Go(s.URL + "/")
	p.Await(`document.querySelector("#ready")?.textContent === "serving"`)
	logFirstPaint(t, p, s.URL+"/")
	p.Await(`document.querySelector("#ready")?.textContent === "serving"`)
	if got := p.Eval(`document.querySelector("#role").hidden`); got != "true" {
		t.Errorf("without a role: hidden is %s", got)
	}
	for _, c := range []struct {
		role Role
		want []string
	}{
		{
			Role{State: "active", Since: now, Why: "no host answers for the addresses", Peer: "standby", Heard: true, Silent: 0.044, Lease: 1, Priority: 101, Trouble: []string{}},
			[]string{"active", "standby, heard 44.0 ms ago", "no host answers", "priority 101", "split brains 0"},
		},
		{
			Role{State: "probing", Since: now, Why: "<img src=x onerror=alert(1)>", Peer: "active", Trouble: []string{"held off by 02:00:00:00:00:01", "a device has no link"}, Splits: 3, Lease: 1},
			[]string{"probing", "not heard", "<img src=x", "held off by 02:00:00:00:00:01 · a device has no link", "split brains 3"},
		},
	} {
		role.Store(&c.role)
		p.Await(`document.querySelector("#state").textContent === "` + c.role.State + `"`)
		text := p.Eval(`document.querySelector("#role").innerText`)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("the role lacks %q in %s", want, text)
			}
		}
	}
	if got := p.Eval(`document.querySelectorAll("#role img, #role button").length`); got != "0" {
		t.Errorf("%s elements that data or no one asked for", got)
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Errorf("the console has %s", faults)
	}
}

// logFirstPaint logs the least time to the first paint of a page and of an empty one, of six loads each. A browser on a busy machine takes
// many times that, so it is no limit.
func logFirstPaint(t *testing.T, p *chromium.Page, url string) {
	t.Helper()
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><p>x")
	}))
	defer empty.Close()
	least := map[string]float64{}
	for range 6 {
		for _, at := range []string{empty.URL, url} {
			p.Go(at)
			p.Await(`location.href.startsWith("` + at + `") && performance.getEntriesByName("first-contentful-paint").length > 0`)
			ms, err := strconv.ParseFloat(p.Eval(`performance.getEntriesByName("first-contentful-paint")[0].startTime`), 64)
			if err != nil {
				t.Fatal(err)
			}
			if was, ok := least[at]; !ok || ms < was {
				least[at] = ms
			}
		}
	}
	t.Logf("first paint after %.0f ms, of an empty page %.0f ms", least[url], least[empty.URL])
	p.Go(url)
}
