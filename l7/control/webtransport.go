package control

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/metrics"
)

// sessionCounts are the counters of rules with sessions of WebTransport, by the rule's name. They outlive reloads.
type sessionCounts map[string]*proxy.WebTransportCounts

// rule returns what lets the sessions of a rule through, nil for none.
func (t sessionCounts) rule(before sessionCounts, name string, c *config.WebTransport) *proxy.WebTransport {
	if c == nil {
		return nil
	}
	if t[name] == nil {
		if t[name] = before[name]; t[name] == nil {
			t[name] = &proxy.WebTransportCounts{}
		}
	}
	return &proxy.WebTransport{Sessions: c.Sessions, Limits: sessionLimits(c), Idle: c.Idle, WebTransportCounts: t[name]}
}

func sessionLimits(c *config.WebTransport) http3.SessionLimits {
	return http3.SessionLimits{Streams: uint64(c.Streams), UniStreams: uint64(c.Streams), Data: uint64(c.BufferBytes)}
}

// serveSessions has a listener announce WebTransport where one of its rules has it. SETTINGS hold for all sessions of a connection, and come
// before it is known which rule one has: they have the smallest limits, and each session gets what its rule permits beyond them.
func serveSessions(m *http3.MachineOptions, refs []config.RuleRef) {
	for i := range refs {
		c := refs[i].Rule.WebTransport
		if c == nil {
			continue
		}
		l := sessionLimits(c)
		if m.WebTransport == 0 {
			m.WebTransport, m.Session = proxy.SessionsOfConn, l
		}
		m.Session = http3.SessionLimits{Streams: min(m.Session.Streams, l.Streams), UniStreams: min(m.Session.UniStreams, l.UniStreams), Data: min(m.Session.Data, l.Data)}
	}
}

func (t sessionCounts) write(w *metrics.Writer) {
	for i, name := range slices.Sorted(maps.Keys(t)) {
		if !wanted(&w.Selection, i, name) {
			continue
		}
		c, of := t[name], metrics.Label{Name: "rule", Value: name}
		w.Gauge("millrace_http_webtransport_sessions", "Open sessions of WebTransport.", float64(c.Open.Load()), of)
		for _, r := range []struct {
			result string
			n      uint64
		}{{"opened", c.Opened.Load()}, {"refused", c.Refused.Load()}, {"full", c.Full.Load()}, {"broken", c.Misbehaved.Load()}} {
			w.Counter("millrace_http_webtransport_sessions_total", "Requests for sessions of WebTransport, by result, and sessions that broke the protocol.", r.n, of, metrics.Label{Name: "result", Value: r.result})
		}
		for end, name := range [2]string{"client", "backend"} { // h3side.ClientEnd, BackendEnd
			from := metrics.Label{Name: "from", Value: name}
			w.Counter("millrace_http_webtransport_streams_total", "Streams of sessions that were opened, by the end that did.", c.Streams[end].Load(), of, from)
			w.Counter("millrace_http_webtransport_bytes_total", "Bytes of streams of sessions that were passed on.", c.Bytes[end].Load(), of, from)
			w.Counter("millrace_http_webtransport_datagrams_total", "Datagrams of sessions that were passed on.", c.Datagrams[end].Load(), of, from)
		}
		w.Counter("millrace_http_webtransport_refused_streams_total", "Streams of sessions that were opened above the rule's limit, by ends without flow control.", c.StreamsRefused.Load(), of)
		w.Counter("millrace_http_webtransport_dropped_datagrams_total", "Datagrams of sessions that were lost in the gateway, as a queue was full.", c.Lost.Load(), of)
	}
}
