package proxy

import (
	"sync/atomic"

	"github.com/millrace/millrace/metrics"
)

// StreamStats are the counters of connections that are passed through.
type StreamStats struct {
	Passed   uint64 // so far
	Active   int64
	Unrouted uint64 // no rule: the server name is not known
	Hellos   uint64 // what came was no ClientHello, or none in time
	Failed   uint64 // there was no backend
	Retries  uint64
	Cut      uint64 // ended by a reset or a time-out
	Up, Down uint64 // bytes from and to clients
}

// streamCounters are written by the loop of a worker alone, and read by any goroutine. active falls as well, which a
// metrics.Counter cannot.
type streamCounters struct {
	passed, unrouted, hellos, failed, retries, cut, up, down metrics.Counter
	active                                                   atomic.Int64
}

// load reads the counters. Each is of its own moment, so that a pass which ends meanwhile may be in some of them alone.
func (c *streamCounters) load() StreamStats {
	return StreamStats{
		Passed: c.passed.Load(), Active: c.active.Load(), Unrouted: c.unrouted.Load(), Hellos: c.hellos.Load(), Failed: c.failed.Load(),
		Retries: c.retries.Load(), Cut: c.cut.Load(), Up: c.up.Load(), Down: c.down.Load(),
	}
}

// Names of failures beside those of requests (RFC 9209 2.3). No client gets them, since a connection that is passed
// through has no field to carry them: they are for the access log, in the words that it has for requests.
const (
	cutByReset  = "connection_terminated"
	cutIdle     = "connection_read_timeout"
	cutNotTaken = "connection_write_timeout"
)

// record counts a pass that has ended for its route, and reports it. It counts as internal only if no backend was
// connected: what is cut later was served by one.
func (p *pass) record() {
	w := p.w
	if p.rule != nil && p.rule.Route != nil {
		b := p.rule.Route.counts[w.id]
		b.Add(int(RouteRequests), 1)
		b.Add(int(RouteBytesIn), p.client.bytes)
		b.Add(int(RouteBytesOut), p.server.bytes)
		if p.failure != "" && p.server.l == nil {
			b.Add(int(RouteInternal), 1)
		}
		if p.attempts > 1 {
			b.Add(int(RouteRetries), uint64(p.attempts-1))
		}
	}
	if records(w) {
		p.report()
	}
}

// report gives the record to the access log. There is no request: the server name stands for the host, and what was passed on in
// each direction for its content.
func (p *pass) report() {
	r := &p.w.entry
	*r = Record{
		Began: p.w.Now.Sub(p.began), Client: p.info.addr, Listener: p.info.listener.Name, Protocol: "TCP", Host: p.info.sni,
		Error: p.failure, Attempts: p.attempts, Backend: p.backendName, BytesIn: p.client.bytes, BytesOut: p.server.bytes,
		ServerName: p.info.sni, JA4: p.info.ja4,
	}
	if p.info.listener.Stream == StreamTLS {
		r.Protocol = "TLS"
	}
	if p.rule != nil {
		if r.Rule = p.rule.Name; p.rule.Route != nil {
			r.Route = p.rule.Route.Name
		}
	}
	if p.pooled != nil {
		r.Pool = p.pooled.Name()
	}
	p.w.onRecord(r)
}
