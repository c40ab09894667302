package metrics

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row writes a metric of one series.
func row(kind Kind, name, help string, labels ...Label) Source {
	return func(w *Writer) {
		w.Rows(kind, name, help, func(yield func([]Label, float64) bool) { yield(labels, 1) })
	}
}

func TestTextIsGroupedByName(t *testing.T) {
	r := &Registry{}
	r.Add(func(w *Writer) { w.Gauge("millrace_b", "B\\\n.", 2, Label{"x", "1"}) })
	r.Add(row(CounterKind, "millrace_a_total", "A."))
	r.Add(row(GaugeKind, "millrace_b", "B\\\n.", Label{"y", "3"}, Label{"x", "2"}))
	r.Add(func(w *Writer) {
		w.Histogram("millrace_c", "C.", &Distribution{}, Scale{Unit: 1, From: 1, To: 1})
		w.Gauge("millrace_b", "B\\\n.", 3)
	})
	want := `# HELP millrace_a_total A.
# TYPE millrace_a_total counter
millrace_a_total 1
# HELP millrace_b B\\\n.
# TYPE millrace_b gauge
millrace_b{x="1"} 2
millrace_b 3
millrace_b{x="2",y="3"} 1
# HELP millrace_c C.
# TYPE millrace_c histogram
millrace_c_bucket{le="1"} 0
millrace_c_bucket{le="+Inf"} 0
millrace_c_sum 0
millrace_c_count 0
`
	var text strings.Builder
	if err := r.WriteText(&text, Selection{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	series, err := r.Gather()
	if err != nil || len(series) != 5 || series[4].String() != "millrace_b{x=\"2\",y=\"3\"} 1\n" {
		t.Errorf("%v, %v", series, err)
	}
}

func TestTextHasNoWrongSeries(t *testing.T) {
	for name, sources := range map[string][]Source{
		"twice":             {row(GaugeKind, "x", "X.", Label{"a", "1"}), func(w *Writer) { w.Gauge("x", "X.", 1, Label{"a", "1"}) }},
		"twice in rows":     {row(GaugeKind, "x", "X."), row(GaugeKind, "x", "X.")},
		"two kinds":         {row(GaugeKind, "x", "X."), row(CounterKind, "x", "X.", Label{"a", "1"})},
		"two help texts":    {func(w *Writer) { w.Gauge("x", "X.", 1); w.Gauge("x", "Y.", 1, Label{"a", "1"}) }},
		"no name":           {row(GaugeKind, "", "X.")},
		"a name":            {row(GaugeKind, "9x", "X.")},
		"a letter":          {row(GaugeKind, "x\xe9", "X.")},
		"a label":           {row(GaugeKind, "x", "X.", Label{"a:b", "1"})},
		"a label's name":    {row(GaugeKind, "x", "X.", Label{"a-b", "1"})},
		"a value not UTF-8": {row(GaugeKind, "x", "X.", Label{"a", "\xff"})},
	} {
		r := &Registry{}
		for _, s := range sources {
			r.Add(s)
		}
		if err := r.WriteText(io.Discard, Selection{}); !errors.Is(err, ErrSeries) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// full is a writer that takes so many bytes.
type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// A reader that goes away ends the rows.
func TestTextEndsWithItsReader(t *testing.T) {
	for _, left := range []int{0, 60, 400} {
		n := 0
		r := &Registry{}
		r.Add(func(w *Writer) {
			w.Rows(GaugeKind, "x", "X.", func(yield func([]Label, float64) bool) {
				for n = range 1000 {
					if !yield([]Label{{"a", strings.Repeat("b", n)}}, 1) {
						return
					}
				}
			})
		})
		if err := r.WriteText(&full{left}, Selection{}); !errors.Is(err, errFull) || n > 40 {
			t.Errorf("%d bytes: %v after %d rows", left, err, n)
		}
	}
}
