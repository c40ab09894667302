package main

import "github.com/millrace/millrace/bench/harness"

// Names of contestants of QUIC: who over what. They are -as of the role too.
const (
	quicOurs        = "quic millrace"
	quicOursPlain   = "quic millrace plain"
	quicKernel      = "quic kernel"
	quicKernelPlain = "quic kernel plain"
	quicGoOurs      = "quic-go millrace"
	quicGoKernel    = "quic-go kernel"
)

// quicBulk sends one stream, both ends in one process on one core. Over millrace the wire is memory
// with an MTU of 1500, over the kernel it is loopback. With offloads: batches of 8 when reading,
// UDP_SEGMENT and ECN, in both. plain: none of them over millrace, no UDP_SEGMENT over the kernel.
func quicBulk(e *harness.Env) []harness.Measure {
	m := harness.Measure{
		Name: "QUIC, one stream, both ends on one core", Unit: "byte", Peer: quicGoKernel,
		Gates: []harness.Gate{
			gate(quicOurs, harness.MetricCost, quicGoKernel, "<=", 1),
			gate(quicKernel, harness.MetricCost, quicGoKernel, "<=", 1.05),
		},
	}
	for _, as := range []string{quicOurs, quicOursPlain, quicKernel, quicKernelPlain, quicGoOurs, quicGoKernel} {
		m.Contestants = append(m.Contestants, harness.OnCore(as, "", "bytes", e.Self, "role", "quic-bulk", "-as", as))
	}
	return []harness.Measure{m}
}
