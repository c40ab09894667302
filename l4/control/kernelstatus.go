package control

import (
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/metrics"
)

// KernelStatus describes the work of the kernel for the gateway: connections that it forwards without the loops. Packets and bytes
// count for backends too, and are read at least every 4 seconds.
type KernelStatus struct {
	Connections uint64            `json:"connections"` // that it forwards now
	Entered     uint64            `json:"entered"`
	Rejected    uint64            `json:"rejected"`     // attempts to enter one: no place was free, or the kernel does not take it
	FlushErrors uint64            `json:"flush_errors"` // after which the kernel knew a part of what it was given
	TakenBack   map[string]uint64 `json:"taken_back"`   // by reason
	ToPackets   uint64            `json:"to_packets"`   // to backends
	ToBytes     uint64            `json:"to_bytes"`
	FromPackets uint64            `json:"from_packets"`
	FromBytes   uint64            `json:"from_bytes"`
}

// kernelStatus returns the sums over the loops, nil where none gives connections to the kernel.
func (g *Gateway) kernelStatus() (st *KernelStatus) {
	for _, h := range g.handlers {
		k, ok := h.Kernel()
		if !ok {
			continue
		}
		if st == nil {
			st = &KernelStatus{TakenBack: map[string]uint64{}}
		}
		st.Connections += k.Connections
		st.Entered += k.Entered
		st.Rejected += k.Rejected
		st.FlushErrors += k.FlushErrors
		st.ToPackets += k.ToPackets
		st.ToBytes += k.ToBytes
		st.FromPackets += k.FromPackets
		st.FromBytes += k.FromBytes
		for why, n := range k.TakenBack {
			st.TakenBack[datapath.BackReasons[why]] += n
		}
	}
	return st
}

// write writes what the kernel does.
func (s *KernelStatus) write(w *metrics.Writer) {
	w.Gauge("millrace_l4_kernel_connections", "Connections that the kernel forwards.", float64(s.Connections))
	w.Counter("millrace_l4_kernel_entered_connections_total", "Connections given to the kernel.", s.Entered)
	w.Counter("millrace_l4_kernel_rejected_connections_total", "Attempts to give a connection to the kernel that it did not take.", s.Rejected)
	w.Counter("millrace_l4_kernel_flush_errors_total", "System calls that gave the kernel a part of its connections only.", s.FlushErrors)
	for _, why := range datapath.BackReasons {
		w.Counter("millrace_l4_kernel_taken_back_connections_total", "Connections taken back from the kernel, by reason.", s.TakenBack[why],
			metrics.Label{Name: "reason", Value: why})
	}
	const packets, octets = "Packets that the kernel forwarded.", "Bytes of frames that the kernel forwarded."
	to, from := metrics.Label{Name: "direction", Value: "to"}, metrics.Label{Name: "direction", Value: "from"}
	w.Counter("millrace_l4_kernel_packets_total", packets, s.ToPackets, to)
	w.Counter("millrace_l4_kernel_packets_total", packets, s.FromPackets, from)
	w.Counter("millrace_l4_kernel_bytes_total", octets, s.ToBytes, to)
	w.Counter("millrace_l4_kernel_bytes_total", octets, s.FromBytes, from)
}
