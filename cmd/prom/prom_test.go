package prom

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/millrace/millrace/metrics"
)

// scrape returns the status and the parsed families of one scrape of r.
func scrape(t *testing.T, r *metrics.Registry) (int, map[string]*dto.MetricFamily) {
	t.Helper()
	rec := httptest.NewRecorder()
	Handler(r).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		return rec.Code, nil
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatalf("the scrape does not parse: %v", err)
	}
	return rec.Code, families
}

// labels renders the labels of a parsed metric as name=value, in the order of the exposition.
func labels(m *dto.Metric) string {
	var s []string
	for _, l := range m.GetLabel() {
		s = append(s, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(s, ",")
}

func TestScrapeHasEverySource(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{Version: "1.2.3", Commit: "abc"})
	var dropped metrics.Counter
	dropped.Add(40)
	dropped.Add(2)
	r.Add(func(w *metrics.Writer) {
		w.Counter("millrace_loop_dropped_packets_total", "Packets dropped.", dropped.Load(), metrics.Label{Name: "reason", Value: "ttl"}, metrics.Label{Name: "loop", Value: "0"})
		w.Counter("millrace_loop_dropped_packets_total", "Packets dropped.", 7, metrics.Label{Name: "loop", Value: "0"}, metrics.Label{Name: "reason", Value: "rule"})
		w.Gauge("millrace_pool_free_frames", "Frames free.", 12.5)
	})
	_, got := scrape(t, r)

	c := got["millrace_loop_dropped_packets_total"].GetMetric()
	if len(c) != 2 || labels(c[0]) != "loop=0,reason=rule" || c[0].GetCounter().GetValue() != 7 ||
		labels(c[1]) != "loop=0,reason=ttl" || c[1].GetCounter().GetValue() != 42 {
		t.Errorf("dropped packets: %v", c)
	}
	if v := got["millrace_pool_free_frames"].GetMetric()[0].GetGauge().GetValue(); v != 12.5 {
		t.Errorf("free frames %v, want 12.5", v)
	}
	info := got["millrace_build_info"].GetMetric()[0]
	if l := labels(info); !strings.HasPrefix(l, "commit=abc,go=go1.") || !strings.HasSuffix(l, ",version=1.2.3") {
		t.Errorf("build info has labels %s", l)
	}
	for _, name := range []string{"process_cpu_seconds_total", "go_goroutines"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestHistogramIsExactAndInBaseUnits(t *testing.T) {
	r := metrics.NewRegistry(metrics.Build{})
	var h metrics.Histogram
	for _, v := range []uint64{0, 1, 2, 3, 4, 511, 512} {
		h.Record(v)
	}
	r.Add(func(w *metrics.Writer) {
		var d metrics.Distribution
		h.AddTo(&d)
		w.Histogram("millrace_loop_batch_packets", "Packets of a batch.", &d, metrics.Packets)
		w.Histogram("millrace_loop_batch_seconds", "Time of a batch.", &d, metrics.Nanoseconds)
	})
	_, got := scrape(t, r)
	p := got["millrace_loop_batch_packets"].GetMetric()[0].GetHistogram()
	want := map[float64]uint64{0: 1, 1: 2, 3: 4, 7: 5, 255: 5, 511: 6}
	for _, b := range p.GetBucket() {
		if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
			t.Errorf("%d values up to %v, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
		}
		delete(want, b.GetUpperBound())
	}
	if len(want) != 0 {
		t.Errorf("no buckets for %v", want)
	}
	if p.GetSampleCount() != 7 || p.GetSampleSum() != 1033 {
		t.Errorf("count %d sum %v, want 7 and 1033", p.GetSampleCount(), p.GetSampleSum())
	}
	s := got["millrace_loop_batch_seconds"].GetMetric()[0].GetHistogram()
	if sum := s.GetSampleSum(); sum < 1.0329e-6 || sum > 1.0331e-6 {
		t.Errorf("sum %v s, want 1033 ns", sum)
	}
}

func TestInvalidMetricFailsTheScrape(t *testing.T) {
	for name, s := range map[string]metrics.Source{
		"twice the same series": func(w *metrics.Writer) {
			w.Gauge("millrace_x_y", "X.", 1)
			w.Gauge("millrace_x_y", "X.", 2)
		},
		"a name that is not allowed": func(w *metrics.Writer) { w.Gauge("", "X.", 1) },
		"a label that is not allowed": func(w *metrics.Writer) {
			w.Gauge("millrace_x_y", "X.", 1, metrics.Label{Name: "\xff", Value: "v"})
		},
		"a value that is not UTF-8": func(w *metrics.Writer) {
			w.Counter("millrace_x_total", "X.", 1, metrics.Label{Name: "a", Value: "\xff"})
		},
	} {
		r := metrics.NewRegistry(metrics.Build{})
		r.Add(s)
		if code, _ := scrape(t, r); code != http.StatusInternalServerError {
			t.Errorf("%s: status %d, want 500", name, code)
		}
	}
}
