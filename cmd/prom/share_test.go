package prom

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/metrics"
)

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, target, nil))
	return rec
}

func TestScrapesAtOnceShareOneRendering(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{})
	var calls atomic.Int32
	r.Add(func(w *metrics.Writer) {
		w.Counter("millrace_scrapes_total", "Renderings.", uint64(calls.Add(1)))
		time.Sleep(20 * time.Millisecond)
	})
	h := Handler(r)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if rec := get(h, "/metrics"); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "millrace_scrapes_total ") {
				t.Errorf("%d\n%s", rec.Code, rec.Body)
			}
		})
	}
	all.Wait()
	if n := calls.Load(); n > 10 { // 1, or more on a machine that stalls
		t.Errorf("%d renderings of 50 scrapes at once", n)
	}
	before := calls.Load()
	time.Sleep(sharedFor + 10*time.Millisecond)
	if get(h, "/metrics"); calls.Load() != before+1 {
		t.Error("an old answer is shared")
	}
	if get(h, "/metrics?all=1"); calls.Load() != before+2 {
		t.Error("the answer to another question is shared")
	}
}

func TestParametersSelectSeries(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(func(w *metrics.Writer) {
		all := "0"
		if w.Selection.All {
			all = "1"
		}
		w.Gauge("millrace_selection", "What is wanted.", 1, metrics.Label{Name: "all", Value: all},
			metrics.Label{Name: "names", Value: strings.Join(w.Selection.Names, " ")})
	})
	h := Handler(r)
	for target, want := range map[string]string{
		"/metrics":                            `{all="0",names=""}`,
		"/metrics?all=1":                      `{all="1",names=""}`,
		"/metrics?name=web&name=dns&name=web": `{all="0",names="dns web"}`,
	} {
		if rec := get(h, target); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "millrace_selection"+want) {
			t.Errorf("%s: %d, no %s", target, rec.Code, want)
		}
	}
	for _, target := range []string{"/metrics?all=yes", "/metrics?service=web"} {
		if rec := get(h, target); rec.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", target, rec.Code)
		}
	}
}
