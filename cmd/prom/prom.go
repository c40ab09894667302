// Package prom serves the series of a metrics.Registry to Prometheus, beside the figures of the
// process and of the Go runtime.
package prom

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/millrace/millrace/metrics"
)

// Handler serves the metrics of r in the format that the scraper asks for: text or OpenMetrics. A
// source that writes a wrong series takes the scrape down with status 500 rather than hide values.
func Handler(r *metrics.Registry) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		collector{r},
	)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

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
