package prom

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/millrace/millrace/metrics"
)

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

// families parses an exposition with Prometheus's parser, and leaves out what changes from one scrape to the next.
func families(t *testing.T, text io.Reader) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(text)
	if err != nil {
		t.Fatalf("the scrape does not parse: %v", err)
	}
	kept := map[string]string{}
	for name, f := range all {
		if strings.HasPrefix(name, "millrace_") {
			kept[name] = prototext(f)
		}
	}
	if all["go_goroutines"] == nil || all["process_cpu_seconds_total"] == nil {
		t.Error("the figures of the process are missing")
	}
	return kept
}

func prototext(f *dto.MetricFamily) string {
	text := fmt.Sprintln(f.GetName(), f.GetHelp(), f.GetType())
	for _, m := range f.GetMetric() {
		text += m.String() + "\n"
	}
	return strings.Join(strings.Fields(text), " ") // the spaces of String are random
}

// A scrape of everything has what client_golang writes of the same series, of each kind.
func TestAStreamHasWhatARenderingHas(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{Version: "1", Commit: `a"b\c` + "\n"})
	var h metrics.Histogram
	for _, v := range []uint64{0, 1, 2, 3, 4, 511, 512} {
		h.Record(v)
	}
	r.Add(func(w *metrics.Writer) {
		var d metrics.Distribution
		h.AddTo(&d)
		w.Histogram("millrace_loop_batch_seconds", "Time of a\nbatch, \\.", &d, metrics.Nanoseconds, metrics.Label{Name: "loop", Value: "0"})
		w.Gauge("millrace_a_g", "A.", 1.5e-9, metrics.Label{Name: "x", Value: "1"})
		w.Counter("millrace_z_total", "Z.", 7)
		w.Rows(metrics.GaugeKind, "millrace_a_g", "A.", func(yield func([]metrics.Label, float64) bool) {
			labels := make([]metrics.Label, 2)
			for i := range 3 {
				labels[0], labels[1] = metrics.Label{Name: "z", Value: "1"}, metrics.Label{Name: "x", Value: fmt.Sprint("ü", i)}
				if !yield(labels, float64(i)) {
					return
				}
			}
		})
	})
	h2 := Handler(r)
	short, long := get(h2, "/metrics"), get(h2, "/metrics?all=1")
	if ct := long.Header().Get("Content-Type"); !strings.HasPrefix(ct, "text/plain; version=0.0.4") {
		t.Errorf("%q", ct)
	}
	want := families(t, short.Body)
	if diff := cmp.Diff(want, families(t, long.Body)); diff != "" || len(want) != 4 {
		t.Errorf("%d families: %s", len(want), diff)
	}
	req := httptest.NewRequest(http.MethodGet, "/metrics?all=1", nil)
	req.Header.Set("Accept-Encoding", "br, gzip;q=0.5")
	rec := httptest.NewRecorder()
	h2.ServeHTTP(rec, req)
	z, err := gzip.NewReader(rec.Body)
	if err != nil || rec.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal(err, rec.Header())
	}
	if diff := cmp.Diff(want, families(t, z)); diff != "" {
		t.Error(diff)
	}
	req.Header.Set("Accept-Encoding", "gzip;q=0, br")
	if acceptsGzip(req) {
		t.Error("gzip is sent to a client that refuses it")
	}
}

// many adds the series of many backends.
func many(r *metrics.Registry, backends int, during func(series int)) {
	r.Add(func(w *metrics.Writer) {
		for m := range 11 {
			w.Rows(metrics.CounterKind, fmt.Sprintf("millrace_m%02d_total", m), "M.", func(yield func([]metrics.Label, float64) bool) {
				for i := range backends {
					during(m*backends + i)
					if !yield([]metrics.Label{{Name: "service", Value: fmt.Sprint("service", i)}, {Name: "backend", Value: "b"}, {Name: "address", Value: "198.18.0.1:80"}}, 1) {
						return
					}
				}
			})
		}
	})
}

// counted is a client that counts what it reads.
type counted struct {
	header http.Header
	bytes  int
}

func (c *counted) Header() http.Header         { return c.header }
func (c *counted) WriteHeader(int)             {}
func (c *counted) Write(b []byte) (int, error) { c.bytes += len(b); return len(b), nil }

// A scrape of 440 000 series, 37 MB of text, takes no more memory than a hash of each of those with one name.
func TestAStreamTakesLittleMemory(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var most uint64
	many(r, 40_000, func(i int) {
		if i%110_000 == 39_999 {
			most = max(most, heap())
		}
	})
	h, c := Handler(r), &counted{header: http.Header{}}
	before := heap()
	h.ServeHTTP(c, httptest.NewRequest(http.MethodGet, "/metrics?all=1", nil))
	if used := int64(most) - int64(before); c.bytes < 35e6 || used > 8<<20 {
		t.Errorf("%d bytes of text took %d KiB", c.bytes, used>>10)
	}
}

// stalled is a client that reads nothing until it is opened.
type stalled struct {
	*httptest.ResponseRecorder
	open chan struct{}
}

func (s stalled) Write(b []byte) (int, error) { <-s.open; return s.ResponseRecorder.Write(b) }

// Of clients that ask for everything and read nothing a few are served; a scrape without parameters is answered beside
// them, and everything is again once they have gone.
func TestStreamsAtOnceAreBounded(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{})
	many(r, 500, func(int) {})
	x := Handler(r).(*exposition)
	open := make(chan struct{})
	var all sync.WaitGroup
	for range maxStreams {
		all.Go(func() {
			s := stalled{httptest.NewRecorder(), open}
			x.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/metrics?name=x", nil))
			if s.Code != http.StatusOK || s.Body.Len() < 400_000 {
				t.Errorf("%d with %d bytes", s.Code, s.Body.Len())
			}
		})
	}
	for busy := x.long.(*streamer).free; len(busy) < maxStreams; {
		time.Sleep(time.Millisecond)
	}
	for _, target := range []string{"/metrics?all=1", "/metrics?name=web"} {
		if rec := get(x, target); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d", target, rec.Code)
		}
	}
	close(open)
	all.Wait()
	if rec := get(x, "/metrics?all=1"); rec.Code != http.StatusOK {
		t.Errorf("after the others: %d", rec.Code)
	}
}

// A wrong series takes a stream down: with status 500 at its begin, and else by the end of the connection.
func TestAWrongSeriesEndsAStream(t *testing.T) {
	for _, good := range []int{0, 5000} {
		r := metrics.NewRegistry(metrics.Build{})
		r.Add(func(w *metrics.Writer) {
			w.Rows(metrics.GaugeKind, "millrace_x_y", "X.", func(yield func([]metrics.Label, float64) bool) {
				for i := range good {
					if !yield([]metrics.Label{{Name: "a", Value: fmt.Sprint(i)}}, 1) {
						return
					}
				}
				if yield(nil, 1) {
					yield(nil, 1)
				}
			})
		})
		s := httptest.NewServer(Handler(r))
		resp, err := http.Get(s.URL + "/metrics?all=1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		s.Close()
		if good == 0 && resp.StatusCode != http.StatusInternalServerError || good > 0 && (resp.StatusCode != http.StatusOK || err == nil) {
			t.Errorf("behind %d good series: %d, %v", good, resp.StatusCode, err)
		}
	}
}
