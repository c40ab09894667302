package control

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/stack"
)

// WriteMetrics writes the counters of the workers and of their pools. Labels are names of the configuration, classes of
// statuses and kinds of failures: no host, path or client, of which there is no bound.
func (s *Set) WriteMetrics(w *metrics.Writer) {
	t := s.Totals()
	w.Counter("millrace_http_connections_total", "Connections of clients that were accepted.", t.Connections)
	w.Gauge("millrace_http_connections", "Open connections of clients.", float64(t.Open))
	if u := s.files.Use(); u.Limit > 0 {
		w.Gauge("millrace_http_descriptors", "File descriptors of connections, to clients and to backends, and of files that are being sent.", float64(u.Open))
		w.Gauge("millrace_http_descriptors_limit", "File descriptors that connections may have: those to clients three quarters of them.", float64(u.Usable))
		w.Counter("millrace_http_descriptor_shortages_total", "Pauses of accepting, backends that could not be dialed, and files that could not be kept open, for want of file descriptors.", u.Shortages)
	}
	w.Counter("millrace_http_requests_total", "Requests.", t.Requests)
	w.Gauge("millrace_http_active_requests", "Requests in progress.", float64(t.Active))
	w.Gauge("millrace_http_kept_content_bytes", "Content of requests that is kept for another attempt.", float64(t.Kept))
	for i, n := range t.RefusedBy {
		w.Counter("millrace_http_malformed_requests_total", "Requests that were refused before any rule, by reason.", n, metrics.Label{Name: "reason", Value: proxy.Refusal(i).String()})
	}
	for i, n := range t.Status {
		w.Counter("millrace_http_responses_total", "Responses by class; none are requests that ended without one.", n, metrics.Label{Name: "class", Value: Classes[i]})
	}
	w.Counter("millrace_http_retries_total", "Requests that were sent to another backend.", t.Retries)
	w.Counter("millrace_http_backend_connections_total", "Connections to backends that were opened.", t.BackOpened)
	w.Counter("millrace_http_backend_connection_failures_total", "Connections to backends that failed before they were established.", t.BackFailed)
	w.Counter("millrace_http_compressed_responses_total", "Responses that the gateway has compressed.", t.Compressed)
	w.Counter("millrace_http_uncompressed_responses_total", "Responses that were sent as they are since too many were compressed at once.", t.Uncompressed)
	w.Counter("millrace_http_compression_received_bytes_total", "Bytes of responses before they were compressed.", t.Plain)
	w.Counter("millrace_http_compression_sent_bytes_total", "Bytes of responses after they were compressed.", t.Encoded)
	w.Counter("millrace_http_inspection_ended_total", "Requests and connections that a rule of inspection has ended.", t.InspectionEnded)
	w.Counter("millrace_http_inspection_overload_total", "Requests that were ended at a bound of inspection.", t.InspectionFull)
	w.Counter("millrace_http_early_requests_total", "Requests that were sent to a backend as early data.", t.EarlySent)
	w.Counter("millrace_http_early_requests_again_total", "Early requests that were sent again: mostly because the backend has rejected early data, or answered 425.", t.EarlyAgain)
	w.Counter("millrace_http_reused_requests_total", "Requests on a connection to a backend that had carried one before.", t.Reused)
	w.Counter("millrace_http_missing_scripts_total", "Requests to pools that speak FastCGI whose path names no script.", t.NoScript)
	w.Counter("millrace_http_early_hints_total", "Interim responses 103 (Early Hints) of rules.", t.Hints)
	for r := range proxy.MirrorResults {
		w.Counter("millrace_http_mirrored_requests_total", "Copies of requests, by what became of them.", t.Mirrored[r], metrics.Label{Name: "result", Value: r.String()})
	}
	w.Counter("millrace_http_script_log_bytes_total", "Bytes that backends with FastCGI have written for the log.", t.ScriptLog)
	w.Counter("millrace_http_drained_streams_total", "WebSockets and connections passed through that ended with the drain time of their backend.", t.Drained)
	var took metrics.Distribution
	for _, l := range s.loops {
		l.worker.Latency(&took)
	}
	w.Histogram("millrace_http_request_seconds", "Time from the header of a request to the end of the response.", &took, metrics.Nanoseconds)
	writeStreams(w, &t.Stream)
	w.Counter("millrace_http_missing_proxy_headers_total", "Connections, and datagrams of HTTP/3, that lacked the PROXY header that was to come.", t.Headers)
	w.Counter("millrace_http_failed_handshakes_total", "Handshakes of TLS and QUIC that clients began and did not complete.", t.Handshakes)
	writeSignatures(w, &t)
	w.Counter("millrace_http_write_timeouts_total", "Connections and responses that ended because their client took nothing of what was sent.", t.WriteTimeouts)
	if l := s.log.Load(); l != nil {
		w.Counter("millrace_http_access_log_dropped_lines_total", "Lines of the access log that were lost: they did not fit its buffer, or the server did not get them.", l.Dropped())
		w.Counter("millrace_http_access_log_skipped_lines_total", "Requests without a line in the access log, as those of the sample stand for them.", logSkipped(s))
	}
	s.mu.Lock()
	traced := s.traces
	order, routes, guards, counts, tunnels, sessions := s.order, slices.Collect(maps.Values(s.routes)), s.guards, s.firewalls.counts, s.tunnels, s.sessions
	listeners := make([]admission, len(s.cfg.Listeners))
	for i := range listeners {
		name := s.cfg.Listeners[i].Name
		listeners[i] = admission{name, s.admissions[name], s.certificates(&s.cfg.Listeners[i]), demandStatus(s.served[name])}
	}
	s.mu.Unlock()
	traced.write(w)
	counts.write(w)
	tunnels.write(w)
	sessions.write(w)
	for i := range listeners {
		if wanted(&w.Selection, i, listeners[i].name) {
			listeners[i].write(w)
		}
	}
	s.writeRoutes(w, routes)
	guards.write(w)
	s.Caches().write(w)
	writePools(s, w, order)
}

func writePools(s *Set, w *metrics.Writer, order []*pooled) {
	var pools []*pooled
	var states []pool.Status
	now := stack.Now()
	for i, p := range order {
		if wanted(&w.Selection, i, p.cfg.Name) {
			pools, states = append(pools, p), append(states, p.Status(now))
		}
	}
	most := listedOf(&w.Selection, states)
	for i, p := range pools {
		writePool(w, &states[i], most)
		writeQueue(w, p)
		writeAffinity(w, states[i].Name, p.affinity)
		writeNames(w, states[i].Name, namesOfPool(s.names, &p.cfg))
	}
}

func writeSignatures(w *metrics.Writer, t *proxy.Stats) {
	w.Counter("millrace_tls_batch_exchanges_total", "Key exchanges with X25519 that were computed in batches, of up to four each.", t.Exchanges)
	w.Counter("millrace_tls_batch_signatures_total", "Signatures of handshakes that were made in batches, and verified.", t.Signatures.Signatures)
	w.Counter("millrace_tls_batches_total", "Batches of signatures, of up to four (RSA) or eight (ECDSA) each.", t.Signatures.Passes)
	w.Counter("millrace_tls_lone_signatures_total", "Signatures of ECDSA that were made one at a time: a batch of so few takes longer, or the key is rarely used.", t.Signatures.Alone)
	w.Counter("millrace_tls_signature_faults_total", "Signatures that failed their verification and were made again: the machine computes wrongly.", t.Signatures.Faults)
}

// admission is a listener with what counts its connections.
type admission struct {
	name string
	*proxy.Admission
	certificates []CertificateStatus
	demand       *DemandStatus
}

func (a admission) write(w *metrics.Writer) {
	of := metrics.Label{Name: "listener", Value: a.name}
	w.Gauge("millrace_http_listener_connections", "Open connections of clients at a listener.", float64(a.Open()), of)
	for d := range proxy.Denials {
		w.Counter("millrace_http_refused_connections_total", "Connections of clients that were refused as soon as they came, by reason.", a.Refused(d), of,
			metrics.Label{Name: "reason", Value: d.String()})
	}
	writeCertificates(w, a.name, a.certificates)
	if a.demand != nil {
		a.demand.write(w, a.name)
	}
}

// listed is the number of listeners, pools and routes that a scrape lists unless it requests more: the first of the configuration, and the routes
// with the most requests.
const listed = 100

// wanted reports whether a scrape lists the ith of listeners, pools or routes.
func wanted(sel *metrics.Selection, i int, name string) bool {
	if sel.Names == nil {
		return sel.All || i < listed
	}
	return slices.Contains(sel.Names, name)
}

func writeStreams(w *metrics.Writer, t *proxy.StreamStats) {
	w.Counter("millrace_http_streams_total", "Connections that were passed through.", t.Passed)
	w.Gauge("millrace_http_streams", "Connections that are passed through now.", float64(t.Active))
	for _, f := range []struct {
		why string
		n   uint64
	}{{"unrouted", t.Unrouted}, {"no_hello", t.Hellos}, {"no_backend", t.Failed}, {"cut", t.Cut}} {
		w.Counter("millrace_http_stream_failures_total", "Connections that were not passed through to their end, by reason.", f.n,
			metrics.Label{Name: "reason", Value: f.why})
	}
	w.Counter("millrace_http_stream_retries_total", "Backends that were tried after another one.", t.Retries)
	w.Counter("millrace_http_stream_received_bytes_total", "Bytes from clients that were passed through.", t.Up)
	w.Counter("millrace_http_stream_sent_bytes_total", "Bytes to clients that were passed through.", t.Down)
}

// writeRoutes writes the counters of routes, the busiest first.
func (s *Set) writeRoutes(w *metrics.Writer, routes []*proxy.Route) {
	type one struct {
		name   string
		counts [proxy.RouteCounts]uint64
	}
	list := make([]one, 0, len(routes))
	for _, r := range routes {
		list = append(list, one{r.Name, r.Counts()})
	}
	slices.SortFunc(list, func(a, b one) int {
		return cmp.Or(cmp.Compare(b.counts[proxy.RouteRequests], a.counts[proxy.RouteRequests]), cmp.Compare(a.name, b.name))
	})
	for i := range list {
		if !wanted(&w.Selection, i, list[i].name) {
			continue
		}
		of, c := metrics.Label{Name: "route", Value: list[i].name}, &list[i].counts
		w.Counter("millrace_http_route_requests_total", "Requests of a route.", c[proxy.RouteRequests], of)
		for k, class := range Classes {
			w.Counter("millrace_http_route_responses_total", "Responses of a route by class.", c[int(proxy.RouteStatus)+k], of, metrics.Label{Name: "class", Value: class})
		}
		w.Counter("millrace_http_route_internal_responses_total", "Responses that the gateway made, for want of one of a backend.", c[proxy.RouteInternal], of)
		w.Counter("millrace_http_route_retries_total", "Further attempts of requests.", c[proxy.RouteRetries], of)
		w.Counter("millrace_http_route_received_bytes_total", "Bytes of the content of requests.", c[proxy.RouteBytesIn], of)
		w.Counter("millrace_http_route_sent_bytes_total", "Bytes of the content of responses.", c[proxy.RouteBytesOut], of)
	}
}

func writeAffinity(w *metrics.Writer, name string, a *pool.Affinity) {
	if a == nil {
		return
	}
	in, s := metrics.Label{Name: "pool", Value: name}, a.Stats()
	for _, r := range [...]struct {
		result string
		n      uint64
	}{{"hit", s.Hits}, {"miss", s.Misses}} {
		w.Counter("millrace_pool_affinity_lookups_total", "Look-ups of the backend that serves a key.", r.n, in, metrics.Label{Name: "result", Value: r.result})
	}
	w.Counter("millrace_pool_affinity_evicted_keys_total", "Keys in use that made room for others.", s.Evicted, in)
}

// listedBackends is the number of backends that a scrape lists unless it requests more, of all listed pools together. Of pools with
// more those that are down come first, then those that the configuration has first.
const listedBackends = 400

// listedOf returns how many backends of each pool a scrape lists.
func listedOf(sel *metrics.Selection, pools []pool.Status) int {
	if sel.All || sel.Names != nil {
		return math.MaxInt
	}
	for share := math.MaxInt; ; share /= 2 {
		all := 0
		for i := range pools {
			all += min(len(pools[i].Backends), share)
		}
		if all <= listedBackends || share <= 1 {
			return max(share, 1)
		}
		share = min(share, 2*listedBackends)
	}
}

// writeQueue writes the state of a pool's queue, if it has one.
func writeQueue(w *metrics.Writer, p *pooled) {
	if p.cfg.Limits.Queued == 0 {
		return
	}
	st, in := p.proxy.Places.Status(), metrics.Label{Name: "pool", Value: p.cfg.Name}
	w.Gauge("millrace_pool_queued_requests", "Requests that wait for limits.requests of their pool.", float64(st.Pending), in)
	w.Counter("millrace_pool_queue_failures_total", "Requests that got 503 by limits.queued.", st.Full, in, metrics.Label{Name: "reason", Value: "full"})
	w.Counter("millrace_pool_queue_failures_total", "Requests that got 503 by limits.queued.", st.Timeouts, in, metrics.Label{Name: "reason", Value: "timeout"})
}

// writePool writes what a pool counts, with at most so many of its backends.
func writePool(w *metrics.Writer, st *pool.Status, most int) {
	in := metrics.Label{Name: "pool", Value: st.Name}
	w.Gauge("millrace_pool_panic", "1 while too few backends are up and health is ignored.", truth(st.Panic), in)
	w.Counter("millrace_pool_retries_total", "Retries that the budget allowed.", st.Retries, in)
	w.Counter("millrace_pool_retries_denied_total", "Retries that the budget denied.", st.RetriesDenied, in)
	up := 0
	for i := range st.Backends {
		if isUp(&st.Backends[i]) {
			up++
		}
	}
	for _, s := range [...]struct {
		state string
		n     int
	}{{"up", up}, {"down", len(st.Backends) - up}} {
		w.Gauge("millrace_pool_backends", "Backends of a pool, those that are not listed too.", float64(s.n), in, metrics.Label{Name: "state", Value: s.state})
	}
	w.Gauge("millrace_pool_unlisted_backends", "Backends of a pool that this scrape does not list.", float64(max(len(st.Backends)-most, 0)), in)
	if len(st.Backends) > most {
		slices.SortStableFunc(st.Backends, func(a, b pool.BackendStatus) int { return cmp.Compare(truth(isUp(&a)), truth(isUp(&b))) })
		st.Backends = st.Backends[:most]
	}
	for i := range st.Backends {
		b := &st.Backends[i]
		of := metrics.Label{Name: "backend", Value: b.Backend.Name()}
		w.Gauge("millrace_pool_backend_up", "1 while a backend is healthy and not ejected.", truth(isUp(b)), in, of)
		w.Gauge("millrace_pool_backend_ejected", "1 while a backend is ejected because of its responses.", truth(b.Ejected > 0), in, of)
		w.Gauge("millrace_pool_backend_weight", "Weight of a backend, as it counts now.", float64(b.Weight), in, of)
		w.Gauge("millrace_pool_backend_requests", "Requests in progress.", float64(b.Requests), in, of)
		w.Gauge("millrace_pool_backend_connections", "Open connections.", float64(b.Conns), in, of)
		w.Gauge("millrace_pool_backend_pending", "Requests that wait for a connection.", float64(b.Pending), in, of)
		for _, r := range [...]struct {
			reason string
			n      uint64
		}{{"full", b.Refused}, {"timeout", b.Expired}} {
			w.Counter("millrace_pool_backend_wait_failures_total", "Requests that did not get a connection: as many waited as may, or they waited for too long.", r.n, in, of,
				metrics.Label{Name: "reason", Value: r.reason})
		}
		for k, n := range b.Statuses {
			w.Counter("millrace_pool_backend_responses_total", "Responses by class; none ended without one and without a failure.", n, in, of,
				metrics.Label{Name: "class", Value: Classes[k]})
		}
		for f := pool.NoFailure + 1; f < pool.Failures; f++ {
			w.Counter("millrace_pool_backend_failures_total", "Requests that failed, by kind.", b.Failures[f], in, of,
				metrics.Label{Name: "kind", Value: f.String()})
		}
		w.Counter("millrace_pool_backend_retries_total", "Requests that were retries of others.", b.Retries, in, of)
		w.Counter("millrace_pool_backend_ejections_total", "Times a backend was ejected.", b.Ejections, in, of)
		w.Gauge("millrace_pool_backend_latency_seconds", "Time to the header of a response, smoothed.", b.Latency.Seconds(), in, of)
	}
}

func isUp(b *pool.BackendStatus) bool { return b.Healthy && b.Ejected == 0 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
