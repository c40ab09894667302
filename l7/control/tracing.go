package control

import (
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/metrics"
)

// traces sends the spans of requests. The zero value sends none.
type traces struct {
	exporter *trace.Exporter
	opt      trace.ExporterOptions
	tracer   *trace.Tracer
	counts   *trace.Counts // of all exporters so far; nil: there was none
}

// plan returns what a configuration needs: the exporter of before where it has the same target.
func (t traces) plan(s *Set, cfg *config.Config) traces {
	next := traces{counts: t.counts}
	c := cfg.Tracing
	if c == nil {
		return next
	}
	if next.counts == nil {
		next.counts = new(trace.Counts)
	}
	next.opt = trace.ExporterOptions{URL: c.Endpoint, Service: c.Service, Version: s.opt.Version, Log: s.opt.Log, Counts: next.counts}
	if next.exporter = t.exporter; t.exporter == nil || next.opt != t.opt {
		next.exporter = trace.NewExporter(next.opt)
	}
	next.tracer = &trace.Tracer{OneIn: c.OneIn, From: c.From, Export: next.exporter.Export}
	return next
}

// leave ends the exporter where another one, or none, has its place; next is nil at the end.
func (t traces) leave(next *traces) {
	switch {
	case t.exporter == nil || next != nil && next.exporter == t.exporter:
	case next == nil:
		t.exporter.Close()
	default:
		go t.exporter.Close() // it may wait for the collector
	}
}

func (t *traces) write(w *metrics.Writer) {
	if t.counts == nil {
		return
	}
	w.Counter("millrace_http_spans_total", "Spans of requests, by result.", t.counts.Sent.Load(), metrics.Label{Name: "result", Value: "sent"})
	w.Counter("millrace_http_spans_total", "Spans of requests, by result.", t.counts.Dropped.Load(), metrics.Label{Name: "result", Value: "dropped"})
}
