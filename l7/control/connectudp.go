package control

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/udptunnel"
	"github.com/millrace/millrace/metrics"
)

// tunnelCounts are the counters of rules that relay datagrams, by the rule's name. They outlive reloads.
type tunnelCounts map[string]*udptunnel.Counts

// service returns what relays the datagrams of a rule, nil for none.
func (t tunnelCounts) service(before tunnelCounts, name string, c *config.ConnectUDP) *udptunnel.Service {
	if c == nil {
		return nil
	}
	if t[name] == nil {
		if t[name] = before[name]; t[name] == nil {
			t[name] = &udptunnel.Counts{}
		}
	}
	o := udptunnel.Options{Tunnels: c.Tunnels, Idle: c.Idle}
	for _, target := range c.Targets {
		o.Targets = append(o.Targets, udptunnel.Target(target))
	}
	return udptunnel.NewService(o, t[name])
}

func (t tunnelCounts) write(w *metrics.Writer) {
	for i, name := range slices.Sorted(maps.Keys(t)) {
		if !wanted(&w.Selection, i, name) {
			continue
		}
		c, of := t[name], metrics.Label{Name: "rule", Value: name}
		w.Gauge("millrace_http_udp_tunnels", "Open tunnels of UDP.", float64(c.Open.Load()), of)
		for _, r := range []struct {
			result string
			n      uint64
		}{{"opened", c.Opened.Load()}, {"denied", c.Denied.Load()}, {"full", c.Full.Load()}, {"failed", c.Failed.Load()}} {
			w.Counter("millrace_http_udp_tunnels_total", "Requests for tunnels of UDP, by result.", r.n, of, metrics.Label{Name: "result", Value: r.result})
		}
		to, from := metrics.Label{Name: "direction", Value: "to_target"}, metrics.Label{Name: "direction", Value: "from_target"}
		const datagrams, bytes = "Datagrams of tunnels.", "Bytes of datagrams of tunnels."
		w.Counter("millrace_http_udp_tunnel_datagrams_total", datagrams, c.Sent.Load(), of, to)
		w.Counter("millrace_http_udp_tunnel_datagrams_total", datagrams, c.Received.Load(), of, from)
		w.Counter("millrace_http_udp_tunnel_bytes_total", bytes, c.SentBytes.Load(), of, to)
		w.Counter("millrace_http_udp_tunnel_bytes_total", bytes, c.ReceivedBytes.Load(), of, from)
		w.Counter("millrace_http_udp_tunnel_dropped_datagrams_total", "Datagrams of tunnels that were lost in the gateway: a queue was full, or they were of another context.", c.Dropped.Load(), of)
	}
}
