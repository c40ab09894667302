package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// text renders all series but millrace_build_info.
func text(t *testing.T, r *Registry) string {
	t.Helper()
	series, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range series {
		if s.Name != "millrace_build_info" {
			b.WriteString(s.String())
		}
	}
	return b.String()
}

func TestGatherReturnsWhatTheSourcesWrote(t *testing.T) {
	r := NewRegistry(Build{Version: "1.2.3", Commit: "abc"})
	r.Add(func(w *Writer) {
		w.Counter("millrace_dropped_total", "Packets dropped.", 42, Label{"reason", "ttl"}, Label{"loop", "0"})
		w.Gauge("millrace_free_frames", "Frames free.", 12.5)
	})
	r.Add(func(w *Writer) {
		w.Counter("millrace_dropped_total", "Packets dropped.", 7, Label{"loop", "0"}, Label{"reason", "rule"})
	})
	series, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if info := series[0].String(); !strings.HasPrefix(info, `millrace_build_info{commit="abc",go="go1.`) || !strings.HasSuffix(info, `",version="1.2.3"} 1`+"\n") {
		t.Errorf("build info is %s", info)
	}
	want := []Series{
		{Name: "millrace_dropped_total", Help: "Packets dropped.", Kind: CounterKind, Value: 42, Labels: []Label{{"loop", "0"}, {"reason", "ttl"}}},
		{Name: "millrace_free_frames", Help: "Frames free.", Kind: GaugeKind, Value: 12.5},
		{Name: "millrace_dropped_total", Help: "Packets dropped.", Kind: CounterKind, Value: 7, Labels: []Label{{"loop", "0"}, {"reason", "rule"}}},
	}
	if diff := cmp.Diff(want, series[1:]); diff != "" {
		t.Error(diff)
	}
}

func TestSeriesAreRenderedInTheTextFormat(t *testing.T) {
	r := NewRegistry(Build{})
	var h Histogram
	for _, v := range []uint64{0, 1, 2, 3, 4, 511, 512} {
		h.Record(v)
	}
	r.Add(func(w *Writer) {
		var d Distribution
		h.AddTo(&d)
		w.Gauge("millrace_x", "X.", 1.5e9, Label{"path", `C:\"new"` + "\n"})
		w.Histogram("millrace_batch_packets", "Packets of a batch.", &d, Scale{Unit: 1, From: 0, To: 2}, Label{"loop", "1"})
		w.Histogram("millrace_batch_bytes", "Bytes of a batch.", &d, Scale{Unit: 0.5, From: 9, To: 9})
	})
	want := `millrace_x{path="C:\\\"new\"\n"} 1.5e+09
millrace_batch_packets_bucket{loop="1",le="0"} 1
millrace_batch_packets_bucket{loop="1",le="1"} 2
millrace_batch_packets_bucket{loop="1",le="3"} 4
millrace_batch_packets_bucket{loop="1",le="+Inf"} 7
millrace_batch_packets_sum{loop="1"} 1033
millrace_batch_packets_count{loop="1"} 7
millrace_batch_bytes_bucket{le="255.5"} 6
millrace_batch_bytes_bucket{le="+Inf"} 7
millrace_batch_bytes_sum 516.5
millrace_batch_bytes_count 7
`
	if diff := cmp.Diff(want, text(t, r)); diff != "" {
		t.Error(diff)
	}
}

func TestTheSameSeriesTwiceIsAnError(t *testing.T) {
	r := NewRegistry(Build{})
	r.Add(func(w *Writer) { w.Gauge("millrace_x", "X.", 1, Label{"a", "1"}, Label{"b", "2"}) })
	if _, err := r.Gather(); err != nil {
		t.Fatal(err)
	}
	r.Add(func(w *Writer) { w.Gauge("millrace_x", "X.", 2, Label{"b", "2"}, Label{"a", "1"}) })
	series, err := r.Gather()
	if err == nil || !strings.Contains(err.Error(), `millrace_x{a="1",b="2"}`) || slices.ContainsFunc(series, func(s Series) bool { return s.Value == 2 }) {
		t.Errorf("%v, error %v", series, err)
	}
}
