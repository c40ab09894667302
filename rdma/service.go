package rdma

import (
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// Service returns the context as a node serves it: it claims UDP port 4791 of the address. Neighbour resolution for the
// address is left to who has it.
func (c *Context) Service() node.Service {
	list := make([]stack.Handler, len(c.node.Loops()))
	for i := range list {
		list[i] = passer{uint32(c.self)}
	}
	list[c.self] = handler{c}
	rule := pmd.Rule{Addr: c.cfg.Addr, Proto: wire.ProtoUDP, PortLo: roce.Port, PortHi: roce.Port}
	return node.Service{
		Name: "rdma", Handlers: list, Entered: true, Metrics: c.writeMetrics,
		Claims: func() []pmd.Rule { return []pmd.Rule{rule} }, LinkChanged: c.linkChanged,
	}
}

func (c *Context) linkChanged(dev int, l node.Link) {
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	for len(c.links) <= dev {
		c.links = append(c.links, node.Link{})
	}
	c.links[dev] = l
}

// writeMetrics writes the counters of the context.
func (c *Context) writeMetrics(w *metrics.Writer) {
	c.lock.Enter()
	n, qps, regions, windows := c.count, len(c.qps), c.table.Len(), c.table.Windows()
	messages, managed, conns, halfOpen := c.gsi, c.gsi.manager.Counters(), c.gsi.manager.Conns(), c.gsi.manager.HalfOpen()
	c.lock.ExitUnchanged()
	addr := metrics.Label{Name: "address", Value: c.cfg.Addr.String()}
	w.Gauge("millrace_rdma_queue_pairs", "Queue pairs that exist.", float64(qps), addr)
	w.Gauge("millrace_rdma_memory_regions", "Memory regions that exist.", float64(regions), addr)
	w.Gauge("millrace_rdma_memory_windows", "Memory windows that exist.", float64(windows), addr)
	w.Counter("millrace_rdma_received_packets_total", "RoCE packets received.", n.received, addr)
	w.Counter("millrace_rdma_sent_packets_total", "RoCE packets sent.", n.sent, addr)
	const name, help = "millrace_rdma_dropped_packets_total", "RoCE packets received and not taken, by reason."
	drop := func(reason string, v uint64) {
		w.Counter(name, help, v, addr, metrics.Label{Name: "reason", Value: reason})
	}
	for r := roce.Accepted + 1; r < roce.Reasons; r++ {
		drop(r.String(), n.refused[r])
	}
	for r := transport.Taken + 1; r < transport.Reasons; r++ {
		drop("qp_"+r.String(), n.dropped[r])
	}
	w.Counter("millrace_rdma_unreachable_packets_total", "RoCE packets that had no way to their receiver.", n.noPath, addr)
	for r := transport.Taken + 1; r < transport.Reasons; r++ {
		if v := messages.dropped[r]; v > 0 {
			drop("cm_qp_"+r.String(), v)
		}
	}
	for r := cm.Taken + 1; r < cm.Reasons; r++ {
		if r != cm.Duplicate && r != cm.RepliesFull {
			drop("cm_"+r.String(), managed.Received[r])
		}
	}
	w.Gauge("millrace_rdma_cm_connections", "Connections of RDMA-CM, in any state.", float64(conns), addr)
	w.Gauge("millrace_rdma_cm_half_open_connections", "Connections that peers began and that are not established.", float64(halfOpen), addr)
	w.Counter("millrace_rdma_cm_sent_messages_total", "Messages of RDMA-CM sent.", managed.Sent, addr)
	w.Counter("millrace_rdma_cm_repeated_messages_total", "Of these, those that were sent before.", managed.Repeated, addr)
	w.Counter("millrace_rdma_cm_duplicate_messages_total", "Messages of RDMA-CM that had come before.", managed.Received[cm.Duplicate], addr)
	w.Counter("millrace_rdma_cm_unanswered_messages_total", "Messages of RDMA-CM without an answer, because too many waited.", managed.Received[cm.RepliesFull], addr)
	w.Counter("millrace_rdma_cm_expired_total", "Connections of RDMA-CM that ended because an answer did not come.", managed.Expired, addr)
	drop("unknown_qp", n.unknownQP)
	drop("address", n.otherAddr)
}
