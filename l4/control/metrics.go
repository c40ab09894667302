package control

import (
	"slices"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
)

// WriteMetrics writes the present counts; it is a metrics.Source. Labels are names and addresses of the
// configuration and names of drop reasons, never what packets carry, so their number is bounded.
//
// The series of services and backends are read while they are sent, a service at a time (metrics.Writer.Rows).
func (g *Gateway) WriteMetrics(w *metrics.Writer) {
	l := listing{g: g}
	g.mu.Lock()
	st, all := g.status(func(int) bool { return false })
	l.choose(g.listed(&w.Selection))
	sums := g.others(g.snap.Load())
	g.mu.Unlock()
	w.Gauge("millrace_l4_connections", "Connections in the table.", float64(st.Connections))
	w.Gauge("millrace_l4_half_open_connections", "Connections of which only one side has been seen.", float64(st.HalfOpen))
	w.Gauge("millrace_l4_active_connections", "Connections that are confirmed and open in both directions.", float64(st.Active))
	w.Gauge("millrace_l4_closing_connections", "Connections that a FIN or RST has begun to close.", float64(st.Closing))
	w.Gauge("millrace_l4_half_open_size_connections", "Half-open connections that the table can hold.", float64(st.HalfOpenLimit))
	w.Gauge("millrace_l4_table_size_connections", "Connections that the table can hold.", float64(st.TableSize))
	w.Counter("millrace_l4_forwarded_packets_total", "Packets sent on, and answers to ARP and neighbour solicitations.", st.Forwarded)
	for _, kind := range datapath.AnswerKinds {
		w.Counter("millrace_l4_answers_total", "Echo replies, ICMP errors and resets that the gateway made itself, by kind.", st.Answers[kind],
			metrics.Label{Name: "kind", Value: kind})
	}
	writeDrops(w, "l4", st.Dropped)
	for i := range st.SNAT {
		st.SNAT[i].write(w)
	}
	all.writeStates(w)
	if st.Sync != nil {
		st.Sync.write(w)
	}
	if st.Kernel != nil {
		st.Kernel.write(w)
	}
	unlisted := 0
	if w.Selection.Names == nil { // else they were not asked for
		unlisted = l.other.backends
		l.sumUp(&sums)
	}
	l.write(w)
	w.Gauge("millrace_l4_unlisted_backends", "Backends without series of their own: their counts are those of the service \"_other\".", float64(unlisted))
}

// writeStates writes how many backends are in which condition.
func (o *otherServices) writeStates(w *metrics.Writer) {
	for _, c := range []struct {
		state string
		n     int
	}{{"healthy", o.backends - o.unhealthy - o.ejected}, {"unhealthy", o.unhealthy}, {"ejected", o.ejected}} {
		w.Gauge("millrace_l4_backends", "Backends of all services, by what checks and clients' connections say.", float64(c.n),
			metrics.Label{Name: "state", Value: c.state})
	}
}

// writeDrops writes the drops of a stage by reason, the reasons without drops too, so that a rate
// can be computed from the first drop on.
func writeDrops(w *metrics.Writer, stage string, dropped map[string]uint64) {
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		if reason := v.String(); dropped[reason] != 0 || slices.Contains(datapath.DropReasons, v) {
			w.Counter("millrace_drop_packets_total", "Packets dropped, by stage and reason.", dropped[reason],
				metrics.Label{Name: "stage", Value: stage}, metrics.Label{Name: "reason", Value: reason})
		}
	}
}

// write writes the use of the ports of an SNAT address.
func (s *SNATStatus) write(w *metrics.Writer) {
	address := metrics.Label{Name: "address", Value: s.Address.String()}
	w.Gauge("millrace_l4_snat_ports", "Source ports to each backend.", float64(s.Ports), address)
	w.Gauge("millrace_l4_snat_open_ports", "Source ports of open connections, to all backends.", float64(s.Open), address)
	w.Gauge("millrace_l4_snat_closed_ports", "Source ports of closed connections, to all backends.", float64(s.Closed), address)
	w.Gauge("millrace_l4_snat_used_ratio", "Part of the source ports that open connections use, to the backend with the most.", float64(s.UsedPercent)/100, address)
	const reclaimed = "Source ports used again early because ports were short, by what had them."
	w.Counter("millrace_l4_snat_reclaimed_ports_total", reclaimed, s.Reclaimed.Resting, address, metrics.Label{Name: "kind", Value: "resting"})
	w.Counter("millrace_l4_snat_reclaimed_ports_total", reclaimed, s.Reclaimed.Closed, address, metrics.Label{Name: "kind", Value: "closed"})
	w.Counter("millrace_l4_snat_reclaimed_ports_total", reclaimed, s.Reclaimed.HalfOpen, address, metrics.Label{Name: "kind", Value: "half_open"})
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// write writes the state of the other gateway.
func (s *SyncStatus) write(w *metrics.Writer) {
	send, receive := metrics.Label{Name: "stream", Value: "send"}, metrics.Label{Name: "stream", Value: "receive"}
	const up, records, octets = "1 while the stream to or from the other gateway is up.", "Records of connections sent and received.", "Bytes of records sent and received."
	w.Gauge("millrace_l4_sync_up", up, bit(s.Sends), send)
	w.Gauge("millrace_l4_sync_up", up, bit(s.Receives), receive)
	w.Counter("millrace_l4_sync_records_total", records, s.SentRecords, send)
	w.Counter("millrace_l4_sync_records_total", records, s.ReceivedRecords, receive)
	w.Counter("millrace_l4_sync_bytes_total", octets, s.SentBytes, send)
	w.Counter("millrace_l4_sync_bytes_total", octets, s.ReceivedBytes, receive)
	w.Counter("millrace_l4_sync_transfers_total", "Transfers of all connections to the other gateway.", s.Transfers)
	w.Counter("millrace_l4_sync_dropped_changes_total", "Changes of connections that came faster than they were sent.", s.Dropped)
	w.Gauge("millrace_l4_sync_lag_seconds", "Time from sending the last heartbeat to its echo.", s.LagSeconds)
	for _, name := range outcomeNames {
		w.Counter("millrace_l4_sync_results_total", "Received records, by what became of them.", s.Outcomes[name], metrics.Label{Name: "result", Value: name})
	}
}
