package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Label is a name and a value that tell one series of a metric from another.
type Label struct{ Name, Value string }

// Source writes the present values of some metrics. It is called at each scrape, from any
// goroutine, and reads counters that loops go on writing.
type Source func(w *Writer)

// Build says which program is running; it becomes the metric millrace_build_info.
type Build struct {
	Version string // "1.2.0"; "devel" outside of a release
	Commit  string // of the source, "" where it is not known
}

// Registry collects the metrics of one process. Two in one process do not know of each other.
type Registry struct{ reg *prometheus.Registry }

// NewRegistry returns a registry that has the figures of the process and of the Go runtime, and
// millrace_build_info.
func NewRegistry(b Build) *Registry {
	r := &Registry{prometheus.NewRegistry()}
	r.reg.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	r.Add(func(w *Writer) {
		w.Gauge("millrace_build_info", "The running program; the value is 1.", 1,
			Label{"commit", b.Commit}, Label{"go", runtime.Version()}, Label{"version", b.Version})
	})
	return r
}

// Add registers a source. Sources that write the same metric with the same labels make the scrape
// fail with an error that names them.
func (r *Registry) Add(s Source) { r.reg.MustRegister(source(s)) }

// Handler serves the metrics in the format that the scraper asks for: text or OpenMetrics. A source
// that fails takes the scrape down with status 500 rather than hide values.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// source makes a Source a collector without fixed series: services and backends come and go.
type source Source

func (s source) Describe(chan<- *prometheus.Desc)     {}
func (s source) Collect(out chan<- prometheus.Metric) { s(&Writer{out}) }

// Writer takes the values of one scrape from a Source.
type Writer struct{ out chan<- prometheus.Metric }

// Counter writes a count that only grows; its name ends in _total.
func (w *Writer) Counter(name, help string, v uint64, labels ...Label) {
	w.put(name, help, prometheus.CounterValue, float64(v), labels)
}

// Gauge writes a value that goes up and down.
func (w *Writer) Gauge(name, help string, v float64, labels ...Label) {
	w.put(name, help, prometheus.GaugeValue, v, labels)
}

func (w *Writer) put(name, help string, kind prometheus.ValueType, v float64, labels []Label) {
	names, values := split(labels)
	desc := prometheus.NewDesc(name, help, names, nil)
	m, err := prometheus.NewConstMetric(desc, kind, v, values...)
	w.send(desc, m, err)
}

// send passes a metric on; a wrong one becomes the error of the scrape.
func (w *Writer) send(desc *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	w.out <- m
}

// Scale says how recorded values are shown: their unit, and which buckets there are. Bucket k ends
// at 1<<k - 1, the end that the recorded buckets share, so that the counts are exact.
type Scale struct {
	Unit     float64 // one recorded unit in the unit of the metric's name
	From, To int     // the first and the last k
}

// Scales of the usual histograms.
var (
	Nanoseconds = Scale{Unit: 1e-9, From: 10, To: 34} // shown in seconds, 1 us to 17 s
	Packets     = Scale{Unit: 1, From: 0, To: 9}      // of a batch, 0 to 511
	Bytes       = Scale{Unit: 1, From: 6, To: 30}     // 63 B to 1 GiB
)

// Histogram writes a distribution as cumulative buckets.
func (w *Writer) Histogram(name, help string, d *Distribution, sc Scale, labels ...Label) {
	names, values := split(labels)
	desc := prometheus.NewDesc(name, help, names, nil)
	ends := make(map[float64]uint64, sc.To-sc.From+1)
	for exp := sc.From; exp <= sc.To; exp++ {
		ends[float64(uint64(1)<<exp-1)*sc.Unit] = d.below(exp)
	}
	m, err := prometheus.NewConstHistogram(desc, d.n, float64(d.sum)*sc.Unit, ends, values...)
	w.send(desc, m, err)
}

// split sorts labels by name, so that the order in which a source gives them does not matter, and
// returns names and values apart.
func split(labels []Label) (names, values []string) {
	sorted := slices.SortedFunc(slices.Values(labels), func(a, b Label) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, l := range sorted {
		names, values = append(names, l.Name), append(values, l.Value)
	}
	return names, values
}
