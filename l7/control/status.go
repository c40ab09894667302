package control

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/stack"
)

// Status is a picture of the workers.
type Status struct {
	Loops     int              `json:"loops"`
	Listeners []ListenerStatus `json:"listeners"`
	Pools     []PoolStatus     `json:"pools"`
	Counts    Counts           `json:"counts"`
}

// ListenerStatus is a listener of the configuration.
type ListenerStatus struct {
	Name      string                  `json:"name"`
	Protocol  config.ListenerProtocol `json:"protocol"`
	Versions  []config.HTTPVersion    `json:"versions"`
	Addresses []netip.AddrPort        `json:"addresses"`
	Open      int64                   `json:"open_connections"`
	Refused   map[string]uint64       `json:"refused_connections"` // by reason; those that have not happened are left out

	Certificates []CertificateStatus `json:"certificates,omitempty"`
	OnDemand     *DemandStatus       `json:"on_demand,omitempty"`
}

// Counts are the totals of the workers since the start.
type Counts struct {
	Connections        uint64            `json:"connections"` // of clients
	OpenConnections    int64             `json:"open_connections"`
	Requests           uint64            `json:"requests"`
	ActiveRequests     int64             `json:"active_requests"`
	Malformed          uint64            `json:"malformed_requests"`
	Retries            uint64            `json:"retries"`
	Responses          map[string]uint64 `json:"responses"` // by class: "2xx"; "none" ended without one
	BackendConnections uint64            `json:"backend_connections"`
	BackendFailures    uint64            `json:"backend_failures"` // connections that could not be opened
	Reused             uint64            `json:"reused"`           // requests on a connection to a backend that had carried one
	Streams            Streams           `json:"streams"`
	WriteTimeouts      uint64            `json:"write_timeouts"` // connections and responses of clients that took nothing of what was sent
	LogDropped         uint64            `json:"access_log_dropped_lines"`
	LogSkipped         uint64            `json:"access_log_skipped_lines"` // as those of the sample stand for them
}

// Streams are the connections that were passed through.
type Streams struct {
	Passed   uint64 `json:"passed"`
	Active   int64  `json:"active"`
	Unrouted uint64 `json:"unrouted"` // no route has the server name
	NoHello  uint64 `json:"no_hello"` // what came was no ClientHello
	Failed   uint64 `json:"failed"`   // there was no backend
	Retries  uint64 `json:"retries"`
	Cut      uint64 `json:"cut"` // ended by a reset or a time-out
	BytesIn  uint64 `json:"bytes_in"`
	BytesOut uint64 `json:"bytes_out"`
}

// PoolStatus is the state of a pool.
type PoolStatus struct {
	Name          string              `json:"name"`
	Protocol      config.PoolProtocol `json:"protocol"`
	Balance       config.PoolBalance  `json:"balance"`
	Panic         bool                `json:"panic"` // too few backends are up, and health is ignored
	Retries       uint64              `json:"retries"`
	RetriesDenied uint64              `json:"retries_denied"`   // by the budget
	Queued        *int                `json:"queued,omitempty"` // requests that wait, where the pool has limits.queued
	Backends      []BackendStatus     `json:"backends"`
	Summary       *PoolSummary        `json:"summary,omitempty"` // in place of the backends, where Summarize was called
	Names         []NameStatus        `json:"names,omitempty"`   // that backends come from
}

// PoolSummary sums up the backends of a pool.
type PoolSummary struct {
	Backends    int               `json:"backends"`
	Up          int               `json:"up_backends"`   // that take new requests
	Down        int               `json:"down_backends"` // unhealthy or ejected
	Requests    int               `json:"active_requests"`
	Connections int               `json:"connections"`
	Responses   map[string]uint64 `json:"responses"`
	Failures    uint64            `json:"failures"`
}

// Sum returns the sums of the backends.
func (p *PoolStatus) Sum() *PoolSummary {
	if p.Summary != nil {
		return p.Summary
	}
	sum := &PoolSummary{Backends: len(p.Backends), Responses: map[string]uint64{}}
	for i := range p.Backends {
		b := &p.Backends[i]
		switch {
		case !b.Healthy || b.Ejected:
			sum.Down++
		case b.State == "active":
			sum.Up++
		}
		sum.Requests, sum.Connections = sum.Requests+b.Requests, sum.Connections+b.Connections
		for class, n := range b.Responses {
			sum.Responses[class] += n
		}
		for _, n := range b.Failures {
			sum.Failures += n
		}
	}
	return sum
}

// Summarize has the sums in place of the backends: of thousands the list takes megabytes.
func (p *PoolStatus) Summarize() { p.Summary, p.Backends = p.Sum(), []BackendStatus{} }

// BackendStatus is the state of a backend of a pool.
type BackendStatus struct {
	Name           string            `json:"name"`
	Address        netip.AddrPort    `json:"address"`
	Path           string            `json:"path,omitempty"` // in place of the address: of a socket on this machine
	State          string            `json:"state"`          // "active", "draining" or "inactive"
	Operator       bool              `json:"operator"`       // an operator set the state or the weight
	Weight         int               `json:"weight"`
	SlowStart      int               `json:"slow_start_percent"` // of its weight
	Healthy        bool              `json:"healthy"`
	Ejected        bool              `json:"ejected"`
	EjectedSeconds float64           `json:"ejected_seconds,omitempty"` // for how long still
	Since          *time.Time        `json:"since,omitempty"`           // of the last change of health or ejection
	Cause          string            `json:"cause,omitempty"`           // why it is unhealthy or ejected
	Requests       int               `json:"active_requests"`
	Connections    int               `json:"connections"`
	Pending        int               `json:"pending"` // requests that wait for a connection
	Responses      map[string]uint64 `json:"responses"`
	Failures       map[string]uint64 `json:"failures"` // by kind; those that have not happened are left out
	Retries        uint64            `json:"retries"`
	Ejections      uint64            `json:"ejections"`
	Latency        float64           `json:"latency_seconds"` // to the header of a response, smoothed
}

// Where returns the address or the path of a backend as text.
func (b *BackendStatus) Where() string {
	if b.Path != "" {
		return "unix:" + b.Path
	}
	return b.Address.String()
}

// Classes are the names of classes of responses, by the hundreds of the status; 0 is no response.
var Classes = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Status returns the state of the listeners and of the pools that named chooses; nil is all.
func (s *Set) Status(named func(string) bool) Status {
	counts := s.Totals()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Loops: len(s.loops), Listeners: []ListenerStatus{}, Pools: []PoolStatus{}, Counts: countsOf(&counts)}
	if l := s.log.Load(); l != nil {
		st.Counts.LogDropped, st.Counts.LogSkipped = l.Dropped(), logSkipped(s)
	}
	for i := range s.cfg.Listeners {
		l := &s.cfg.Listeners[i]
		st.Listeners = append(st.Listeners, s.listenerStatus(l))
	}
	now := stack.Now()
	for _, p := range s.order {
		if named == nil || named(p.cfg.Name) {
			st.Pools = append(st.Pools, poolStatus(s.names, p, now))
		}
	}
	return st
}

func (s *Set) listenerStatus(l *config.Listener) ListenerStatus {
	a := s.admissions[l.Name]
	st := ListenerStatus{Name: l.Name, Protocol: l.Protocol, Versions: l.Versions, Addresses: l.Addresses, Open: a.Open(), Refused: map[string]uint64{}, Certificates: s.certificates(l), OnDemand: demandStatus(s.served[l.Name])}
	for d := range proxy.Denials {
		if n := a.Refused(d); n > 0 {
			st.Refused[d.String()] = n
		}
	}
	return st
}

func countsOf(s *proxy.Stats) Counts {
	return Counts{
		Connections: s.Connections, OpenConnections: s.Open, Requests: s.Requests, ActiveRequests: s.Active, Malformed: s.Refused,
		Retries: s.Retries, Responses: classes(s.Status), BackendConnections: s.BackOpened, BackendFailures: s.BackFailed, Reused: s.Reused, WriteTimeouts: s.WriteTimeouts,
		Streams: Streams{
			s.Stream.Passed, s.Stream.Active, s.Stream.Unrouted, s.Stream.Hellos, s.Stream.Failed, s.Stream.Retries, s.Stream.Cut, s.Stream.Up, s.Stream.Down,
		},
	}
}

// classes returns counts by the names of classes, those that are not 0.
func classes(n [6]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for i, k := range n {
		if k > 0 {
			m[Classes[i]] = k
		}
	}
	return m
}

func (p *pooled) status(now clock.Time) PoolStatus {
	st := p.Status(now)
	out := PoolStatus{
		Name: p.cfg.Name, Protocol: p.cfg.Protocol, Balance: p.cfg.Balance, Panic: st.Panic, Retries: st.Retries, RetriesDenied: st.RetriesDenied,
		Backends: []BackendStatus{},
	}
	if p.cfg.Limits.Queued > 0 {
		n := p.proxy.Places.Status().Pending
		out.Queued = &n
	}
	for i := range st.Backends {
		out.Backends = append(out.Backends, backendStatus(now, &st.Backends[i]))
	}
	return out
}

func backendStatus(now clock.Time, b *pool.BackendStatus) BackendStatus {
	out := BackendStatus{
		Name: b.Backend.Name(), Address: b.Backend.Address(), Path: b.Backend.Path(), State: b.State.String(), Operator: b.Operator, Weight: b.Weight,
		SlowStart: int(b.Share*100 + 0.5), Healthy: b.Healthy, Ejected: b.Ejected > 0, EjectedSeconds: b.Ejected.Seconds(),
		Requests: b.Requests, Connections: b.Conns, Pending: b.Pending, Responses: classes(b.Statuses), Failures: map[string]uint64{},
		Retries: b.Retries, Ejections: b.Ejections, Latency: b.Latency.Round(time.Microsecond).Seconds(),
	}
	if b.Since != 0 {
		at := time.Now().Add(-now.Sub(b.Since))
		out.Since = &at
	}
	if b.Cause != nil && (!b.Healthy || b.Ejected > 0) {
		out.Cause = b.Cause.Error()
	}
	for f := pool.NoFailure + 1; f < pool.Failures; f++ {
		if n := b.Failures[f]; n > 0 {
			out.Failures[f.String()] = n
		}
	}
	return out
}

// add adds counters.
func add(s *proxy.Stats, o proxy.Stats) {
	s.Connections += o.Connections
	s.Requests += o.Requests
	s.Active += o.Active
	s.Kept += o.Kept
	s.Open += o.Open
	for i := range s.Status {
		s.Status[i] += o.Status[i]
	}
	s.Refused += o.Refused
	for i := range s.RefusedBy {
		s.RefusedBy[i] += o.RefusedBy[i]
	}
	s.Retries += o.Retries
	s.BackOpened += o.BackOpened
	s.BackFailed += o.BackFailed
	s.Reused += o.Reused
	s.EarlySent += o.EarlySent
	s.Compressed += o.Compressed
	s.Uncompressed += o.Uncompressed
	s.InspectionEnded += o.InspectionEnded
	s.InspectionFull += o.InspectionFull
	s.Plain += o.Plain
	s.Encoded += o.Encoded
	s.EarlyAgain += o.EarlyAgain
	s.Drained += o.Drained
	s.NoScript += o.NoScript
	for i := range s.Mirrored {
		s.Mirrored[i] += o.Mirrored[i]
	}
	s.ScriptLog += o.ScriptLog
	s.Hints += o.Hints
	s.Headers += o.Headers
	s.Handshakes += o.Handshakes
	s.WriteTimeouts += o.WriteTimeouts
	s.Signatures.Add(o.Signatures)
	s.Exchanges += o.Exchanges
	a, b := &s.Stream, &o.Stream
	a.Passed += b.Passed
	a.Active += b.Active
	a.Unrouted += b.Unrouted
	a.Hellos += b.Hellos
	a.Failed += b.Failed
	a.Retries += b.Retries
	a.Cut += b.Cut
	a.Up += b.Up
	a.Down += b.Down
}
