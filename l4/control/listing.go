package control

import (
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
)

// listing selects what a scrape lists one by one: services of the configuration at its begin, and one that sums up those
// that are not listed.
type listing struct {
	g        *Gateway
	services []*config.Service
	other    otherServices  // that are not listed
	rest     *ServiceStatus // their sums, with one backend; nil where all are listed
}

// choose lists the chosen services, by their place in the configuration, and sums up the others. The caller holds g.mu.
func (l *listing) choose(chosen func(i int) bool) {
	s := l.g.snap.Load()
	for i := range l.g.cfg.Services {
		if sv := &l.g.cfg.Services[i]; chosen(i) {
			l.services = append(l.services, sv)
		} else {
			l.g.addService(s, sv, &l.other)
		}
	}
}

// otherName is the service, and the backend, that sums up what is not listed. No configured name begins so.
const otherName = "_other"

// sumUp makes the service that sums up what is not listed, if anything is not.
func (l *listing) sumUp(sums *serviceSums) {
	if l.other.services == 0 {
		return
	}
	b := sums.counts.status()
	b.Name, b.Connections, b.Closing = otherName, l.other.connections, l.other.closing
	l.rest = &ServiceStatus{Name: otherName, Dropped: map[string]uint64{}, Evicted: sums.evicted, Backends: []BackendStatus{b}}
	addDrops(l.rest.Dropped, func(v packet.Verdict) uint64 { return sums.dropped[v] })
}

// all yields each listed service, as it is now, and then the sums of the others. A service that a reload has removed
// since the scrape began is left out. The lock is not held while it yields, because the reader of a scrape may be slow.
func (l *listing) all(yield func(*ServiceStatus) bool) {
	for _, sv := range l.services {
		l.g.mu.Lock()
		var st ServiceStatus
		_, found := l.g.reg.services.of[sv.Name]
		if found {
			st = l.g.serviceStatus(l.g.snap.Load(), sv)
		}
		l.g.mu.Unlock()
		if found && !yield(&st) {
			return
		}
	}
	if l.rest != nil {
		yield(l.rest)
	}
}

// write writes the metrics of services and backends.
func (l *listing) write(w *metrics.Writer) {
	w.Rows(metrics.CounterKind, "millrace_l4_service_drop_packets_total", "Packets of a service that were dropped, by reason.", l.drops)
	w.Rows(metrics.CounterKind, "millrace_l4_service_evicted_connections_total", "Connections of a service that made room for others.", l.evictions)
	for i := range backendMetrics {
		m := &backendMetrics[i]
		w.Rows(m.kind, m.name, m.help, func(yield func([]metrics.Label, float64) bool) { l.backends(m, yield) })
	}
}

func (l *listing) drops(yield func([]metrics.Label, float64) bool) {
	for s := range l.all {
		for reason, n := range s.Dropped {
			if !yield([]metrics.Label{{Name: "service", Value: s.Name}, {Name: "reason", Value: reason}}, float64(n)) {
				return
			}
		}
	}
}

func (l *listing) evictions(yield func([]metrics.Label, float64) bool) {
	for s := range l.all {
		for kind, n := range map[string]uint64{"half_open": s.Evicted.HalfOpen, "confirmed": s.Evicted.Confirmed} {
			if !yield([]metrics.Label{{Name: "service", Value: s.Name}, {Name: "kind", Value: kind}}, float64(n)) {
				return
			}
		}
	}
}

// backends yields the series of a metric of backends.
func (l *listing) backends(m *backendMetric, yield func([]metrics.Label, float64) bool) {
	labels := make([]metrics.Label, 3, 4)
	for s := range l.all {
		for i := range s.Backends {
			b := &s.Backends[i]
			address := ""
			if s == l.rest {
				if !m.summed {
					continue
				}
			} else {
				address = b.Address.String()
			}
			labels[0] = metrics.Label{Name: "service", Value: s.Name}
			labels[1] = metrics.Label{Name: "backend", Value: b.Name}
			labels[2] = metrics.Label{Name: "address", Value: address}
			for _, part := range m.parts {
				v, ok := part.value(b)
				if ok && !yield(part.label(labels), v) {
					return
				}
			}
		}
	}
}

// backendMetric is a metric of each backend.
type backendMetric struct {
	kind       metrics.Kind
	name, help string
	summed     bool // also has the sum of the backends that are not listed
	parts      []backendPart
}

// backendPart is a series of each backend: the only one, or that of a direction.
type backendPart struct {
	direction string // its label; "" is none
	value     func(*BackendStatus) (v float64, ok bool)
}

// label returns the labels of the part: those of the backend, and its own.
func (p *backendPart) label(labels []metrics.Label) []metrics.Label {
	if p.direction == "" {
		return labels
	}
	return append(labels, metrics.Label{Name: "direction", Value: p.direction})
}

// one is the part of a metric with one series for each backend.
func one(value func(*BackendStatus) float64) []backendPart {
	return []backendPart{{"", func(b *BackendStatus) (float64, bool) { return value(b), true }}}
}

// both are the parts of a metric with a series for each direction.
func both(to, from func(*BackendStatus) uint64) []backendPart {
	return []backendPart{
		{"to", func(b *BackendStatus) (float64, bool) { return float64(to(b)), true }},
		{"from", func(b *BackendStatus) (float64, bool) { return float64(from(b)), true }},
	}
}

// checkSeconds is the time of the last check, if there was one.
func checkSeconds(b *BackendStatus) (float64, bool) {
	if b.Check == nil {
		return 0, false
	}
	return b.Check.Seconds, true
}

var backendMetrics = []backendMetric{
	{
		metrics.GaugeKind, "millrace_l4_backend_healthy", "1 while the backend passes its checks.", false,
		one(func(b *BackendStatus) float64 { return bit(b.Healthy) }),
	},
	{
		metrics.GaugeKind, "millrace_l4_backend_ejected", "1 while the outlier detector keeps new connections off the backend.", false,
		one(func(b *BackendStatus) float64 { return bit(b.Ejected) }),
	},
	{
		metrics.GaugeKind, "millrace_l4_backend_check_duration_seconds", "How long the last health check took.", false,
		[]backendPart{{"", checkSeconds}},
	},
	{
		metrics.GaugeKind, "millrace_l4_backend_weight", "Share of new connections; 0 takes none.", false,
		one(func(b *BackendStatus) float64 { return float64(b.Weight) }),
	},
	{
		metrics.GaugeKind, "millrace_l4_backend_connections", "Connections of the backend.", true,
		one(func(b *BackendStatus) float64 { return float64(b.Connections) }),
	},
	{
		metrics.GaugeKind, "millrace_l4_backend_closing_connections", "Connections of the backend that a FIN or RST has begun to close.", true,
		one(func(b *BackendStatus) float64 { return float64(b.Closing) }),
	},
	{
		metrics.CounterKind, "millrace_l4_backend_connections_opened_total", "Connections given to the backend.", true,
		one(func(b *BackendStatus) float64 { return float64(b.Opened) }),
	},
	{
		metrics.CounterKind, "millrace_l4_backend_packets_total", "Packets to and from the backend.", true,
		both(func(b *BackendStatus) uint64 { return b.ToPackets }, func(b *BackendStatus) uint64 { return b.FromPackets }),
	},
	{
		metrics.CounterKind, "millrace_l4_backend_bytes_total", "Bytes of frames to and from the backend.", true,
		both(func(b *BackendStatus) uint64 { return b.ToBytes }, func(b *BackendStatus) uint64 { return b.FromBytes }),
	},
}
