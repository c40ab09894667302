package metrics

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Label is a name and a value that distinguish the series of a metric.
type Label struct{ Name, Value string }

// Source writes the present values of some metrics. It is called at each scrape, from any
// goroutine, and reads counters that loops go on writing.
type Source func(w *Writer)

// Build identifies the running program; it becomes the metric millrace_build_info.
type Build struct {
	Version string // "1.2.0"; "devel" outside of a release
	Commit  string // of the source, "" where it is not known
}

// Registry collects the metrics of one process. Two registries are independent. Its methods may be
// called from any goroutine.
type Registry struct {
	mu      sync.Mutex
	sources []Source
}

// NewRegistry returns a registry that has millrace_build_info.
func NewRegistry(b Build) *Registry {
	r := &Registry{}
	r.Add(func(w *Writer) {
		w.Gauge("millrace_build_info", "The running program; the value is 1.", 1,
			Label{"commit", b.Commit}, Label{"go", runtime.Version()}, Label{"version", b.Version})
	})
	return r
}

// Add registers a source.
func (r *Registry) Add(s Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, s)
}

// Selection selects the series of a scrape from sources that have very many. The zero value leaves the
// choice to the source.
type Selection struct {
	All   bool     // every series, however many
	Names []string // every series of what has these names, such as services; nothing of others. Sorted
}

// Gather is GatherFor the zero Selection.
func (r *Registry) Gather() ([]Series, error) { return r.GatherFor(Selection{}) }

// GatherFor calls every source and returns all series, in the order of the sources, those of Rows last. It fails
// when a series was written twice: a scraper would keep one of the values and hide the other.
func (r *Registry) GatherFor(sel Selection) ([]Series, error) {
	w := r.gather(sel)
	for i := range w.rows {
		w.rows[i].all(func(s *Series) bool {
			one := *s
			one.Labels = slices.Clone(s.Labels)
			w.series = append(w.series, one)
			return true
		})
	}
	seen := make(map[string]bool, len(w.series))
	for i := range w.series {
		id := w.series[i].id()
		if seen[id] {
			return nil, fmt.Errorf("%w: %s was written twice", ErrSeries, id)
		}
		seen[id] = true
	}
	return w.series, nil
}

// gather calls every source.
func (r *Registry) gather(sel Selection) *Writer {
	r.mu.Lock()
	sources := slices.Clone(r.sources)
	r.mu.Unlock()
	w := &Writer{Selection: sel}
	for _, s := range sources {
		s(w)
	}
	return w
}

// Writer takes the values of one scrape from a Source.
type Writer struct {
	Selection Selection // what is wanted of sources with very many series
	series    []Series
	rows      []rows
}

// Counter writes a count that only grows; its name ends in _total.
func (w *Writer) Counter(name, help string, v uint64, labels ...Label) {
	w.put(Series{Name: name, Help: help, Kind: CounterKind, Value: float64(v)}, labels)
}

// Gauge writes a value that goes up and down.
func (w *Writer) Gauge(name, help string, v float64, labels ...Label) {
	w.put(Series{Name: name, Help: help, Kind: GaugeKind, Value: v}, labels)
}

// Histogram writes a distribution as cumulative buckets.
func (w *Writer) Histogram(name, help string, d *Distribution, sc Scale, labels ...Label) {
	s := Series{Name: name, Help: help, Kind: HistogramKind, Count: d.n, Sum: float64(d.sum) * sc.Unit, Buckets: d.Buckets(sc)}
	w.put(s, labels)
}

// Buckets returns the distribution as cumulative buckets.
func (d *Distribution) Buckets(sc Scale) (list []Bucket) {
	for exp := sc.From; exp <= sc.To; exp++ {
		list = append(list, Bucket{UpTo: float64(uint64(1)<<exp-1) * sc.Unit, Count: d.below(exp)})
	}
	return list
}

// put appends a series with its labels sorted by name: the order in which a source writes them does
// not matter.
func (w *Writer) put(s Series, labels []Label) {
	s.Labels = slices.SortedFunc(slices.Values(labels), func(a, b Label) int {
		return strings.Compare(a.Name, b.Name)
	})
	w.series = append(w.series, s)
}

// Scale describes how recorded values are rendered: their unit and the buckets. Bucket k ends
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
