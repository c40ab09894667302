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
	for i := range int32(2) {
		if get(h, "/metrics?all=1"); calls.Load() != before+2+i {
			t.Error("the answer to another question is shared")
		}
	}
}
