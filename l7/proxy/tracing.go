package proxy

import (
	"time"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/semantics"
)

// tracing is the view of an exchange that has spans.
type tracing struct{ *exchange }

// begin decides whether the request has spans.
func (x tracing) begin() {
	x.traced = x.w.tree.Tracer.Begin(x.client.addr.Addr(), x.request.Fields)
}

// propagate names the span to the backend in place of the client's.
func (x tracing) propagate() {
	x.fields = rewrite.Set(x.fields, semantics.Field{Name: trace.Field, Value: x.traced.Value})
}

// end exports the spans. A reload may have taken the tracer away.
func (x tracing) end(took time.Duration) {
	if t := x.w.tree.Tracer; t != nil {
		t.End(x.traced, x.describe(took), time.Now())
	}
}
