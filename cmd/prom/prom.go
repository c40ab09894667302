// Package prom serves the series of a metrics.Registry to Prometheus, beside the figures of the
// process and of the Go runtime.
package prom

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/millrace/millrace/metrics"
)

// Handler serves the metrics of r in the format that the scraper asks for: text or OpenMetrics. A
// source that writes a wrong series takes the scrape down with status 500 rather than hide values.
//
// Parameters select series of sources that have very many: all=1 wants every one, name=N (repeatable)
// all of what has this name. Scrapes of the same at about the same time share one rendering.
func Handler(r *metrics.Registry) http.Handler {
	runtime := prometheus.NewRegistry()
	runtime.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return &exposition{render: func(w http.ResponseWriter, req *http.Request, sel metrics.Selection) {
		reg := prometheus.NewRegistry()
		reg.MustRegister(collector{r, sel})
		promhttp.HandlerFor(prometheus.Gatherers{runtime, reg}, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, req)
	}}
}

// selection parses the parameters of a scrape.
func selection(req *http.Request) (sel metrics.Selection, err error) {
	for key, values := range req.URL.Query() {
		switch key {
		case "all":
			if sel.All, err = strconv.ParseBool(values[0]); err != nil {
				return sel, fmt.Errorf("all is %q: say 1 or 0", values[0])
			}
		case "name":
			sel.Names = slices.Compact(slices.Sorted(slices.Values(values)))
		default:
			return sel, fmt.Errorf("there is no parameter %q, only all and name", key)
		}
	}
	return sel, nil
}

// sharedFor is how old an answer may be that a scrape gets. Those that wait while one is rendered get it
// too: a gateway with 10 000 services would otherwise spend its time and memory on impatient clients.
const sharedFor = 250 * time.Millisecond

// maxUnread is how many bytes of answers may wait for clients that have asked for a selection, which may be everything:
// 37 MB with 40 000 backends. Beyond it such a request gets status 503; a scrape without parameters is always answered.
const maxUnread = 64 << 20

// exposition renders one answer at a time and keeps the last.
type exposition struct {
	render func(http.ResponseWriter, *http.Request, metrics.Selection)

	mu     sync.Mutex
	key    string // what it answers
	at     time.Time
	last   *answer
	unread int // bytes of all answers that are being sent, a shared one once
}

func (x *exposition) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	sel, err := selection(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a := x.answer(req, sel)
	if a == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many clients are reading long answers", http.StatusServiceUnavailable)
		return
	}
	defer x.sent(a)
	for _, name := range []string{"Content-Type", "Content-Encoding", "Vary"} {
		if v := a.header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // an error is the client's absence
}

// answer returns the answer to a scrape, whose body is shared, until sent; nil if too much waits for clients.
func (x *exposition) answer(req *http.Request, sel metrics.Selection) *answer {
	key := fmt.Sprintf("%v %q %q", sel, req.Header.Values("Accept"), req.Header.Values("Accept-Encoding"))
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil || x.key != key || time.Since(x.at) > sharedFor {
		if (sel.All || sel.Names != nil) && x.unread >= maxUnread {
			return nil
		}
		a := &answer{header: http.Header{}, code: http.StatusOK}
		x.render(a, req, sel)
		x.key, x.at, x.last = key, time.Now(), a
	}
	if x.last.readers++; x.last.readers == 1 {
		x.unread += x.last.body.Len()
	}
	return x.last
}

// sent gives an answer back that its client has read, or never will.
func (x *exposition) sent(a *answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.readers--; a.readers == 0 {
		x.unread -= a.body.Len()
	}
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	readers int // clients that it is being sent to; guarded by exposition.mu
	header  http.Header
	code    int
	body    bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// collector has no fixed series: services and backends come and go. So Describe sends nothing.
type collector struct {
	reg *metrics.Registry
	sel metrics.Selection
}

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	series, err := c.reg.GatherFor(c.sel)
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
