package proxy

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/sign"
	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/metrics"
)

// Stats are the counters of a worker. Open, Active and Kept are of now, the others only grow.
type Stats struct {
	Connections uint64 // of clients
	Requests    uint64
	Refused     uint64                // requests that were malformed
	RefusedBy   [side.Refusals]uint64 // the same, by reason
	Retries     uint64
	BackOpened  uint64 // connections to backends
	BackFailed  uint64 // of those, not established
	Drained     uint64 // WebSockets and connections passed through that ended with the drain time of their backend
	EarlySent   uint64 // requests to backends in early data,
	EarlyAgain  uint64 // and of those, sent again: mostly because the backend has rejected the early data, or answered 425
	// Compressed are responses that were compressed, Uncompressed those that were not as too many were at once; Plain and Encoded are
	// their bytes before and after.
	Compressed, Uncompressed, Plain, Encoded uint64
	// InspectionEnded are requests, and connections, that a rule of inspection has ended, and InspectionFull requests that ended at a
	// bound of inspection.
	InspectionEnded, InspectionFull uint64
	Reused                          uint64 // requests on a connection that had carried one before
	Status                          [6]uint64
	Open                            int64      // connections of clients
	Active                          int64      // requests
	Kept                            int64      // bytes of their content that are kept for another attempt
	Headers                         uint64     // connections without the PROXY header that was to come
	Handshakes                      uint64     // of TLS that clients began and did not complete
	Signatures                      sign.Stats // of handshakes, by keys that are signed with in batches
	Exchanges                       uint64     // key exchanges of clients' handshakes, in batches
	Stream                          StreamStats
	// WriteTimeouts are connections and, with HTTP/2 and HTTP/3, responses that ended because their client took nothing
	// of what was sent.
	WriteTimeouts uint64
	NoScript      uint64                // requests of FastCGI whose path names no script
	ScriptLog     uint64                // bytes that scripts have written for the log
	Hints         uint64                // 103 (Early Hints) of rules
	Mirrored      [MirrorResults]uint64 // copies of requests
}

// counters are those of a worker: its loop writes them, and any goroutine reads. Those that only grow need no locked
// instruction, as they have one writer. The rest also falls.
type counters struct {
	connections, requests, retries, backOpened, backFailed, reused, drained, headers, handshakes, writeTimeouts metrics.Counter
	compressed, uncompressed, plain, encoded                                                                    metrics.Counter
	inspectionEnded, inspectionFull                                                                             metrics.Counter
	earlySent, earlyAgain                                                                                       metrics.Counter
	noScript, scriptLog, hints                                                                                  metrics.Counter
	mirrored                                                                                                    [MirrorResults]metrics.Counter
	refused                                                                                                     [side.Refusals]metrics.Counter
	status                                                                                                      [6]metrics.Counter
	open, active, kept                                                                                          atomic.Int64
	stream                                                                                                      streamCounters
}

// Stats returns the counters. Any goroutine may call it. The loop goes on meanwhile, so that sums of several may disagree by what
// happens between two reads.
func (w *Worker) Stats() Stats {
	c := &w.counters
	s := Stats{
		Connections: c.connections.Load(), Requests: c.requests.Load(), Retries: c.retries.Load(),
		BackOpened: c.backOpened.Load(), BackFailed: c.backFailed.Load(), Reused: c.reused.Load(), Drained: c.drained.Load(),
		Open: c.open.Load(), Active: c.active.Load(), Kept: c.kept.Load(), Headers: c.headers.Load(), Handshakes: c.handshakes.Load(), Stream: c.stream.load(),
		Compressed: c.compressed.Load(), Uncompressed: c.uncompressed.Load(), Plain: c.plain.Load(), Encoded: c.encoded.Load(),
		InspectionEnded: c.inspectionEnded.Load(), InspectionFull: c.inspectionFull.Load(),
		EarlySent: c.earlySent.Load(), EarlyAgain: c.earlyAgain.Load(),
		NoScript: c.noScript.Load(), ScriptLog: c.scriptLog.Load(), Hints: c.hints.Load(),
		WriteTimeouts: c.writeTimeouts.Load() + w.hub.WriteTimeouts(), Signatures: w.Signatures.Stats(), Exchanges: w.Signatures.Exchanges(),
	}
	for i := range s.RefusedBy {
		s.RefusedBy[i] = c.refused[i].Load()
		s.Refused += s.RefusedBy[i]
	}
	for i := range s.Mirrored {
		s.Mirrored[i] = c.mirrored[i].Load()
	}
	for i := range s.Status {
		s.Status[i] = c.status[i].Load()
	}
	return s
}

// Latency adds the times of requests, from the header to the end of the response in nanoseconds, to d. Any goroutine may call it.
func (w *Worker) Latency(d *metrics.Distribution) { w.latency.AddTo(d) }

// RouteCount is a counter of a Route.
type RouteCount int

// Values of RouteCount.
const (
	RouteRequests RouteCount = iota
	RouteInternal            // responses that the gateway made, for want of one of a backend: not those that a rule asks for
	RouteRetries             // attempts of requests beyond the first of each
	RouteBytesIn             // content of requests
	RouteBytesOut            // content of responses
	RouteStatus              // responses by the hundreds of their status, from here on
	RouteCounts   = RouteStatus + 6
)

// Route names a route of the configuration, for its counters. A reload keeps it, so that they only grow: a counter that
// falls looks like a restart of the process to Prometheus. Each worker has a block of its own, so that counting costs
// no locked instruction.
type Route struct {
	Name   string
	counts []*metrics.Block // of each worker
}

// NewRoute returns the counters of a route for a number of workers. Their numbers are those of NewWorker.
func NewRoute(name string, workers int) *Route {
	r := &Route{Name: name}
	for range workers {
		r.counts = append(r.counts, metrics.NewBlock(int(RouteCounts)))
	}
	return r
}

// Counts returns the counters, summed over the workers. Any goroutine may call it.
func (r *Route) Counts() (sum [RouteCounts]uint64) {
	for _, b := range r.counts {
		b.AddTo(sum[:])
	}
	return sum
}

// Record is a request that has ended, a connection that was passed through, or input that was refused.
type Record = accesslog.Record

// OnRecord has f called on the loop for each request that ends, until SetRecording switches that off. It is set before Apply.
func (w *Worker) OnRecord(f func(*Record)) {
	w.onRecord = f
	w.recording.Store(true)
}

// SetRecording switches the calls of OnRecord's function on and off: a record that nothing reads is not made. Any goroutine may call
// it.
func (w *Worker) SetRecording(on bool) { w.recording.Store(on) }

func records(w *Worker) bool { return w.onRecord != nil && w.recording.Load() }

// record counts an exchange that has ended, and reports it. Status 0 is none: the client left before a response, and
// nothing answered. An exchange without a rule counts for the worker alone: no route is to blame for it.
func (x *exchange) record() {
	w := x.w
	c := &w.counters
	c.active.Add(-1)
	if s := x.status / 100; s > 0 && s < len(c.status) {
		c.status[s].Add(1)
	}
	took := w.Now.Sub(x.began)
	w.latency.Record(uint64(took))
	if x.rule != nil && x.rule.Route != nil {
		b := x.rule.Route.counts[w.id]
		b.Add(int(RouteRequests), 1)
		b.Add(int(RouteBytesIn), x.up.bytes)
		b.Add(int(RouteBytesOut), x.down.bytes)
		if s := x.status / 100; s < 6 {
			b.Add(int(RouteStatus)+s, 1)
		}
		if x.failure != "" {
			b.Add(int(RouteInternal), 1)
		}
		if x.attempts > 1 {
			b.Add(int(RouteRetries), uint64(x.attempts-1))
		}
	}
	if x.traced != nil {
		tracing{x}.end(took)
	}
	if records(w) {
		w.onRecord(x.describe(took))
	}
}

// describe returns the record. It is the worker's, so that none is allocated: who keeps it makes a copy.
func (x *exchange) describe(took time.Duration) *Record {
	info := x.client
	r := &x.w.entry
	*r = Record{
		Began: took, Client: info.addr, Listener: info.listener.Name, Protocol: x.caps.Protocol, Method: x.request.Method,
		Host: x.request.Authority, Path: x.request.Path, Status: x.status, Error: x.failure, Attempts: x.attempts, Backend: x.backendName,
		BytesIn: x.up.bytes, BytesOut: x.down.bytes, Fields: x.request.Fields,
		ServerName: info.sni, JA4: info.ja4, TLSVersion: info.version, CipherSuite: info.cipher,
	}
	if f := &info.listener.Forwarding; len(f.Trusted) > 0 {
		if client := f.Client(x.request.Fields, info.addr.Addr()); client != info.addr.Addr().Unmap() {
			r.Forwarded = client
		}
	}
	if x.attempts > 0 {
		r.Waited, r.Answered = x.started.Sub(x.began), x.latency
	}
	if x.rule != nil {
		if r.Rule = x.rule.Name; x.rule.Route != nil {
			r.Route = x.rule.Route.Name
		}
	}
	if x.pooled != nil {
		r.Pool = x.pooled.Name()
	}
	if len(x.id) > 0 {
		r.RequestID = view(x.id)
	}
	if x.cached != nil {
		r.Cache = x.cached.result.String()
	}
	if x.hold != nil {
		r.Reason, r.User = view(x.hold.reason), view(x.hold.user)
	}
	if q := x.inspected; q != nil && q.reason != "" {
		r.Reason = q.reason
	}
	if s := x.shield; s != nil && len(s.reason) > 0 {
		r.Reason = view(s.reason)
	}
	if t := x.udp; t != nil && t.reason != "" {
		r.Reason = t.reason
	}
	if s := x.session; s != nil && s.reason != "" {
		r.Reason = s.reason
	}
	if x.traced != nil {
		r.TraceID = x.traced.ID()
	}
	return r
}
