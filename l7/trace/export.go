package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ExporterOptions describe where spans go.
type ExporterOptions struct {
	URL     string // of the collector's OTLP endpoint, such as http://127.0.0.1:4318/v1/traces
	Service string // service.name
	Version string // service.version; may be empty
	Log     *slog.Logger
	Counts  *Counts
}

// Counts are of all exporters that have had the place of one another.
type Counts struct {
	Sent    atomic.Uint64 // spans that a collector has taken
	Dropped atomic.Uint64 // and that none will get
}

// Limits of an Exporter.
const (
	queued      = 4096 // spans that wait
	batch       = 512
	gatherSpans = time.Second
	sendTime    = 10 * time.Second
	attempts    = 3
	closeTime   = 2 * time.Second
)

// retryAfter is the first pause after a failure; each further one takes twice as long.
var retryAfter = 500 * time.Millisecond

// Exporter sends spans to a collector.
type Exporter struct {
	opt    ExporterOptions
	queue  chan Span
	client http.Client
	stop   context.CancelFunc
	ctx    context.Context
	ending chan struct{} // closed by Close
	ended  chan struct{}
	once   sync.Once

	failing bool // of run
}

// NewExporter returns an exporter, which runs until Close.
func NewExporter(o ExporterOptions) *Exporter {
	e := &Exporter{opt: o, queue: make(chan Span, queued), ending: make(chan struct{}), ended: make(chan struct{}), client: http.Client{Timeout: sendTime}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	go e.run()
	return e
}

// Export queues a span, or drops and counts it. It never waits.
func (e *Exporter) Export(s Span) {
	select {
	case <-e.ending:
		e.opt.Counts.Dropped.Add(1)
		return
	default:
	}
	select {
	case e.queue <- s:
	default:
		e.opt.Counts.Dropped.Add(1)
	}
}

// Close sends what waits, within a time, and ends the exporter. Later spans are dropped.
func (e *Exporter) Close() {
	e.once.Do(func() {
		close(e.ending)
		timer := time.AfterFunc(closeTime, e.stop)
		<-e.ended
		timer.Stop()
		e.stop()
		e.client.CloseIdleConnections()
	})
}

func (e *Exporter) run() {
	defer close(e.ended)
	for {
		list := e.gather()
		if len(list) == 0 {
			return
		}
		e.send(list)
	}
}

// gather returns the spans of the next request, none at the end.
func (e *Exporter) gather() (list []Span) {
	select {
	case s := <-e.queue:
		list = append(list, s)
	case <-e.ending:
	}
	timer := time.NewTimer(gatherSpans)
	defer timer.Stop()
	for waits := true; len(list) < batch; {
		select {
		case s := <-e.queue:
			list = append(list, s)
			continue
		default:
		}
		if !waits || len(list) == 0 {
			return list
		}
		select {
		case s := <-e.queue:
			list = append(list, s)
		case <-timer.C:
			waits = false
		case <-e.ending:
			waits = false
		}
	}
	return list
}

// send sends spans, a few times if the collector may take them later.
func (e *Exporter) send(list []Span) {
	text, err := json.Marshal(request(&e.opt, list))
	if err != nil {
		e.result(len(list), 0, err)
		return
	}
	pause := retryAfter
	for i := 1; ; i++ {
		rejected, again, err := e.post(text)
		if err == nil || !again || i == attempts || e.ctx.Err() != nil {
			e.result(len(list), rejected, err)
			return
		}
		select {
		case <-time.After(pause):
		case <-e.ctx.Done():
		}
		pause *= 2
	}
}

// result counts the spans of a request, and logs where sending begins to fail, and where it succeeds again.
func (e *Exporter) result(n, rejected int, err error) {
	if err != nil {
		rejected = n
	}
	rejected = min(max(rejected, 0), n)
	e.opt.Counts.Sent.Add(uint64(n - rejected))
	e.opt.Counts.Dropped.Add(uint64(rejected))
	if failing := err != nil; failing != e.failing {
		e.failing = failing
		if failing {
			e.opt.Log.Error("tracing", "to", e.opt.URL, "error", err.Error(), "result", "spans are dropped and counted")
		} else {
			e.opt.Log.Info("tracing", "to", e.opt.URL, "result", "spans are taken again")
		}
	}
}

// post sends a request once. again reports whether it may succeed later.
func (e *Exporter) post(text []byte) (rejected int, again bool, err error) {
	q, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.opt.URL, bytes.NewReader(text))
	if err != nil {
		return 0, false, err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "millrace")
	resp, err := e.client.Do(q)
	if err != nil {
		return 0, true, err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch resp.StatusCode {
	case http.StatusOK:
		return partial(body), false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, true, fmt.Errorf("the collector answers %s", resp.Status)
	}
	return 0, false, errors.New("the collector answers " + resp.Status + ": is it OTLP over HTTP, and the path right?")
}

// partial returns how many spans a collector has not taken of a request that it has.
func partial(body []byte) int {
	var r struct {
		Partial struct {
			Rejected json.RawMessage `json:"rejectedSpans"` // a number, or one as text
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(body, &r) != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.Trim(r.Partial.Rejected, `"`)))
	return n
}

// The messages of OTLP in JSON: IDs are hexadecimal, and numbers of 64 bits are text.
type (
	anyValue struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
	attribute struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	event struct {
		Time string `json:"timeUnixNano"`
		Name string `json:"name"`
	}
	status struct {
		Code int `json:"code,omitempty"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		ID         string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Flags      uint32      `json:"flags"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Began      string      `json:"startTimeUnixNano"`
		Ended      string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes"`
		Events     []event     `json:"events,omitempty"`
		Status     status      `json:"status"`
	}
	scope struct {
		Name string `json:"name"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	resourceSpans struct {
		Resource resource     `json:"resource"`
		Scopes   []scopeSpans `json:"scopeSpans"`
	}
	exportRequest struct {
		Resources []resourceSpans `json:"resourceSpans"`
	}
)

func text(key, value string) attribute { return attribute{key, anyValue{Text: &value}} }

func number(key string, v int64) attribute {
	s := strconv.FormatInt(v, 10)
	return attribute{key, anyValue{Number: &s}}
}

// request returns the message with spans.
func request(o *ExporterOptions, list []Span) *exportRequest {
	spans := make([]span, len(list))
	for i := range list {
		spans[i] = message(&list[i])
	}
	of := resource{Attributes: []attribute{text("service.name", o.Service), text("telemetry.sdk.name", "millrace"), text("telemetry.sdk.language", "go")}}
	if o.Version != "" {
		of.Attributes = append(of.Attributes, text("service.version", o.Version))
	}
	return &exportRequest{[]resourceSpans{{of, []scopeSpans{{scope{"millrace"}, spans}}}}}
}

const statusError = 2

func message(s *Span) span {
	nanos := func(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
	m := span{
		Trace: hex.EncodeToString(s.Trace[:]), ID: hex.EncodeToString(s.Context.Span[:]), Flags: uint32(s.Flags), Name: s.Name, Kind: s.Kind,
		Began: nanos(s.Began), Ended: nanos(s.Ended), Attributes: []attribute{},
	}
	if s.Parent != [8]byte{} {
		m.Parent = hex.EncodeToString(s.Parent[:])
	}
	for _, a := range s.Texts {
		m.Attributes = append(m.Attributes, text(a.Key, a.Value))
	}
	for _, a := range s.Numbers {
		m.Attributes = append(m.Attributes, number(a.Key, a.Value))
	}
	if !s.Header.IsZero() {
		m.Events = append(m.Events, event{nanos(s.Header), "response header"})
	}
	if s.Failed {
		m.Status.Code = statusError
	}
	return m
}
