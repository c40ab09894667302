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

// stalled is a client that reads nothing until it is opened.
type stalled struct {
	*httptest.ResponseRecorder
	open chan struct{}
}

func (s stalled) Write(b []byte) (int, error) { <-s.open; return s.ResponseRecorder.Write(b) }

// Clients that ask for everything and read nothing hold a bounded number of bytes; a scrape without parameters is answered
// beside them, and everything is again once they have gone.
func TestUnreadAnswersAreBounded(t *testing.T) {
	size := maxUnread/2 + 1
	x := &exposition{render: func(w http.ResponseWriter, _ *http.Request, sel metrics.Selection) {
		if sel.All {
			_, _ = w.Write(make([]byte, size))
		}
	}}
	open := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 { // two share one answer, as if they had come at about the same time
		x.mu.Lock()
		if x.at = time.Now().Add(time.Minute); i%2 == 0 {
			x.at = time.Time{}
		}
		x.mu.Unlock()
		before := x.readers()
		all.Go(func() {
			s := stalled{httptest.NewRecorder(), open}
			x.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/metrics?all=1", nil))
			if s.Code != http.StatusOK || s.Body.Len() != size {
				t.Errorf("%d with %d bytes", s.Code, s.Body.Len())
			}
		})
		for x.readers() == before {
			time.Sleep(time.Millisecond)
		}
	}
	if x.unread != 2*size {
		t.Errorf("%d bytes wait, want two answers of %d", x.unread, size)
	}
	x.at = time.Time{}
	for target, want := range map[string]int{"/metrics?all=1": 503, "/metrics?name=web": 503, "/metrics": 200} {
		if rec := get(x, target); rec.Code != want || want == 503 && rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d, want %d", target, rec.Code, want)
		}
	}
	close(open)
	all.Wait()
	if rec := get(x, "/metrics?all=1"); rec.Code != http.StatusOK || x.unread != 0 {
		t.Errorf("after the others: %d, %d bytes wait", rec.Code, x.unread)
	}
}

// readers returns how many clients have the last answer, and how many bytes wait for all.
func (x *exposition) readers() [2]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil {
		return [2]int{}
	}
	return [2]int{x.last.readers, x.unread}
}
