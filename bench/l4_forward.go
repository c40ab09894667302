package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// Names of the contestants of DPDK.
const (
	testpmd     = "dpdk-testpmd"
	testpmdBusy = "dpdk-testpmd, busy poll"
	testpmdHuge = "dpdk-testpmd, busy poll, huge pages"
)

// forward is the bump in the wire against DPDK's, both on AF_XDP.
func (b *l4Bench) forward() ([]harness.Measure, error) {
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		w, err := harness.RunParts(ctx, t, append(append([]harness.Part{b.sinkPart(s)}, f.part(s)...), b.liveFrames(s, s.streamTo(f, 1, 1)))...)
		if err != nil {
			return harness.Sample{}, err
		}
		return w.Delivered("source", "gateway", "sink")
	}
	huge := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (sample harness.Sample, err error) {
		put, err := hugePages(300)
		if err != nil {
			return harness.Sample{}, err
		}
		defer func() { err = errors.Join(err, put()) }()
		return run(ctx, t, s, f)
	}
	m := harness.Measure{Name: "plain forwarding 64 B", Unit: "packet", Peer: testpmd}
	for _, peer := range []string{testpmd, testpmdBusy, testpmdHuge} {
		m.Gates = append(m.Gates, gate(oursFwd, harness.MetricRate, peer, ">=", 0.95))
	}
	const noHuge, inMemory = "--no-huge --no-shconf", "--in-memory"
	m.Contestants = []harness.Contestant{
		b.bare().contestant(run),
		b.testpmdOf(testpmd, noHuge, 0).contestant(run),
		b.testpmdOf(testpmdBusy, noHuge, 64).contestant(run),
		b.testpmdOf(testpmdHuge, inMemory, 64).contestant(huge),
	}
	return []harness.Measure{m}, nil
}

// testpmdOf is testpmd with one forwarding core, which swaps the link addresses. With a budget its
// AF_XDP driver polls the device itself, without one the kernel fills its rings on the sender's back,
// as it does ours. Bursts of 64 are its fastest here. Its first core only waits for the end.
func (b *l4Bench) testpmdOf(name, memory string, budget int) forwarder {
	vdev := func(n int, dev string) string {
		return fmt.Sprintf("--vdev=net_af_xdp%d,iface=%s,busy_budget=%d", n, dev, budget)
	}
	argv := []string{"stdbuf", "-oL", testpmd} // it says when it is ready in a buffer otherwise
	argv = append(argv, strings.Fields(memory)...)
	argv = append(argv, "-m", "512", "--no-pci", "--no-telemetry", "--file-prefix", "millrace-bench",
		"--lcores", "0@1,1@1", "--main-lcore", "0", vdev(0, role.FrontDev), vdev(1, role.BackDev),
		"--", "--forward-mode=macswap", "--auto-start", "--total-num-mbufs=32768", "--rxd=4096", "--txd=4096", "--burst=64")
	return forwarder{name: name, absent: b.testpmd, options: siteOptions{sums: true}, part: func(s *site) []harness.Part {
		return []harness.Part{b.run(s, b.testpmdVersion, "Press enter to exit", argv...)}
	}}
}

// rawRings is the C program on raw AF_XDP rings. It has one socket, so what it forwards goes back to the client.
func (b *l4Bench) rawRings() forwarder {
	return forwarder{absent: b.xsk.Absent, options: siteOptions{sums: true}, part: func(s *site) []harness.Part {
		return []harness.Part{{Name: "gateway", Argv: []string{b.xsk.Path, "forward", role.FrontDev}, CPU: 1, In: s.gateway}}
	}}
}

// hugePages has the kernel reserve pages of 2 MiB until put is called.
func hugePages(n int) (put func() error, err error) {
	const file = "/proc/sys/vm/nr_hugepages"
	before := harness.ReadFile(file)
	if err := os.WriteFile(file, fmt.Append(nil, n), 0o644); err != nil {
		return nil, err
	}
	put = func() error { return os.WriteFile(file, []byte(before), 0o644) }
	if got := harness.ReadFile(file); got != fmt.Sprint(n) {
		return nil, errors.Join(fmt.Errorf("%s of %d huge pages were to be had", got, n), put())
	}
	return put, nil
}
