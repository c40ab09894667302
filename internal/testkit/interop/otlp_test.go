package interop

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/l7/trace"
)

// OpenTelemetry's own messages read what the gateway's exporter sends, without an unknown field.
func TestSpansAreMessagesOfOTLP(t *testing.T) {
	got := make(chan *otlp.TracesData, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		m := new(otlp.TracesData)
		if err := protojson.Unmarshal(body, m); err != nil {
			t.Errorf("%v: %s", err, body)
		}
		got <- m
		_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}`)
	}))
	defer s.Close()
	counts := new(trace.Counts)
	e := trace.NewExporter(trace.ExporterOptions{URL: s.URL, Service: "edge", Version: "1.2", Log: slog.New(slog.DiscardHandler), Counts: counts})
	tr := &trace.Tracer{OneIn: 1, Export: e.Export}
	r := tr.Begin(netip.Addr{}, nil)
	now := time.Unix(1_790_000_000, 123)
	tr.End(r, &accesslog.Record{
		Method: "GET", Route: "shop", Path: "/x", Host: "a.example", Status: 502, Error: "connection_refused", Attempts: 2, Pool: "p", Backend: "b", Client: netip.MustParseAddrPort("192.0.2.1:7"),
		Began: 3 * time.Second, Waited: time.Second, Answered: time.Second,
	}, now)
	e.Close()
	m := <-got
	resource := m.ResourceSpans[0]
	names := map[string]string{}
	for _, a := range resource.Resource.Attributes {
		names[a.Key] = a.Value.GetStringValue()
	}
	spans := resource.ScopeSpans[0].Spans
	if names["service.name"] != "edge" || names["service.version"] != "1.2" || len(spans) != 2 {
		t.Fatalf("%v, %d spans", names, len(spans))
	}
	server, back := spans[0], spans[1]
	// protojson takes bytes for base64, and OTLP has its IDs in hexadecimal: what came is read back the same way.
	if len(server.TraceId) != 24 || len(server.SpanId) != 12 || string(back.ParentSpanId) != string(server.SpanId) || server.Kind != otlp.Span_SPAN_KIND_SERVER || back.Kind != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("%v %v", server, back)
	}
	if server.StartTimeUnixNano != uint64(now.Add(-3*time.Second).UnixNano()) || server.EndTimeUnixNano != uint64(now.UnixNano()) || server.Name != "GET shop" ||
		server.Status.Code != otlp.Status_STATUS_CODE_ERROR || back.Events[0].TimeUnixNano != uint64(now.Add(-time.Second).UnixNano()) {
		t.Errorf("%v %v", server, back)
	}
	if _, err := hex.DecodeString(r.ID()); err != nil {
		t.Error(err)
	}
	if sent, dropped := counts.Sent.Load(), counts.Dropped.Load(); sent != 1 || dropped != 1 {
		t.Errorf("%d sent, %d dropped", sent, dropped)
	}
}
