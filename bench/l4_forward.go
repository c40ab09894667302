package main

import (
	"context"
	"fmt"
)

const testpmd = "dpdk-testpmd"

// forward is the bump in the wire against DPDK's, both on AF_XDP.
func (b *l4Bench) forward() ([]Measure, error) {
	run := func(ctx context.Context, t Timing, s *site, f forwarder) (Sample, error) {
		w, err := runParts(ctx, t, append(append([]Part{b.sinkPart(s)}, f.part(s)...), b.liveFrames(s, s.streamTo(f, 1, 1)))...)
		if err != nil {
			return Sample{}, err
		}
		return w.delivered("source", "gateway", "sink")
	}
	m := Measure{Name: "plain forwarding 64 B", Unit: "packet", Peer: testpmd, Gates: []Gate{
		{oursFwd, MetricRate, testpmd, ">=", 0.95},
		{oursFwd, MetricRate, testpmd + ", busy poll", ">=", 0.95},
	}}
	for _, f := range []forwarder{
		b.bare(),
		b.testpmdOf(testpmd, "busy_budget=0"),
		b.testpmdOf(testpmd+", busy poll", "busy_budget=64"),
	} {
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return []Measure{m}, nil
}

// testpmdOf is testpmd with one forwarding core, which swaps the link addresses, and an argument of
// its AF_XDP driver. Without busy polling the kernel fills its rings on the sender's back, as it does ours.
func (b *l4Bench) testpmdOf(name, arg string) forwarder {
	vdev := func(n int, dev string) string { return fmt.Sprintf("--vdev=net_af_xdp%d,iface=%s,%s", n, dev, arg) }
	return forwarder{name: name, absent: b.testpmd, options: siteOptions{sums: true}, part: func(s *site) []Part {
		return []Part{b.run(s, b.testpmdVersion, "Press enter to exit", testpmd,
			"--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix", "millrace-bench",
			"--lcores", "0@1,1@1", "--main-lcore", "0", vdev(0, frontDev), vdev(1, backDev), "--log-level", "lib.eal:error",
			"--", "--forward-mode=macswap", "--auto-start", "--total-num-mbufs=32768", "--rxd=4096", "--txd=4096", "--burst=64", "--stats-period=0")}
	}}
}
