// Package prom serves the series of a metrics.Registry to Prometheus, beside the figures of the
// process and of the Go runtime.
package prom

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/millrace/millrace/metrics"
)

// Handler serves the metrics of r in the format that the scraper requests: text or OpenMetrics. A
// source that writes a wrong series takes the scrape down with status 500 rather than hide values.
//
// Parameters select series of sources that have very many: all=1 wants every one, name=N (repeatable)
// all of what has this name. Such a scrape gets the text format, and is written while it is read, so that it
// takes no memory; a wrong series then ends it in the middle. Scrapes without parameters at about the same time
// share one rendering.
func Handler(r *metrics.Registry) http.Handler {
	runtime := prometheus.NewRegistry()
	runtime.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	whole := prometheus.NewRegistry()
	whole.MustRegister(collector{r})
	return &exposition{
		short: promhttp.HandlerFor(prometheus.Gatherers{runtime, whole}, promhttp.HandlerOpts{EnableOpenMetrics: true}),
		long:  &streamer{runtime: runtime, reg: r, free: make(chan struct{}, maxStreams)},
	}
}

// sharedFor is the greatest age of an answer that a scrape gets. Those that wait while one is rendered get it
// too: a gateway with 10 000 services would otherwise spend its time and memory on impatient clients.
const sharedFor = 250 * time.Millisecond

// exposition answers scrapes without parameters with one rendering at a time, of which it keeps the last.
type exposition struct {
	short, long http.Handler // for scrapes without parameters, and with

	mu   sync.Mutex
	key  string // what it answers
	at   time.Time
	last *answer
}

func (x *exposition) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.RawQuery != "" {
		x.long.ServeHTTP(w, req)
		return
	}
	a := x.answer(req)
	for _, name := range []string{"Content-Type", "Content-Encoding", "Vary"} {
		if v := a.header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // an error is the client's absence
}

// answer returns the answer to a scrape, whose body is shared.
func (x *exposition) answer(req *http.Request) *answer {
	key := fmt.Sprintf("%q %q", req.Header.Values("Accept"), req.Header.Values("Accept-Encoding"))
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil || x.key != key || time.Since(x.at) > sharedFor {
		a := &answer{header: http.Header{}, code: http.StatusOK}
		x.short.ServeHTTP(a, req)
		x.key, x.at, x.last = key, time.Now(), a
	}
	return x.last
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// collector has no fixed series: services and backends come and go. So Describe sends nothing.
type collector struct{ reg *metrics.Registry }

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	series, err := c.reg.Gather()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for i := range series {
		out <- metric(&series[i])
	}
}

// metric converts one series; a wrong one becomes the error of the scrape.
func metric(s *metrics.Series) prometheus.Metric {
	var names, values []string
	for _, l := range s.Labels {
		names, values = append(names, l.Name), append(values, l.Value)
	}
	desc := prometheus.NewDesc(s.Name, s.Help, names, nil)
	m, err := value(desc, s, values)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

func value(desc *prometheus.Desc, s *metrics.Series, labels []string) (prometheus.Metric, error) {
	switch s.Kind {
	case metrics.HistogramKind:
		ends := make(map[float64]uint64, len(s.Buckets))
		for _, b := range s.Buckets {
			ends[b.UpTo] = b.Count
		}
		return prometheus.NewConstHistogram(desc, s.Count, s.Sum, ends, labels...)
	case metrics.CounterKind:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, labels...)
	default:
		return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, labels...)
	}
}
