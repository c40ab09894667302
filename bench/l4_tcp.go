package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// Contestants whose gateway's devices merge what they receive, as most NICs and Linux do; veth does not by default.
const (
	nftGRO     = "nft DNAT, GRO"
	oursAFPGRO = "millrace afpacket, GRO"
)

// bulk is iperf3 from client to backend.
func (b *l4Bench) bulk() ([]harness.Measure, error) {
	var all []harness.Measure
	for _, wire := range []bool{false, true} {
		for _, streams := range []int{1, 4} {
			all = append(all, b.bulkMeasure(wire, streams))
		}
	}
	return all, nil
}

func (b *l4Bench) bulkMeasure(wire bool, streams int) harness.Measure {
	m := harness.Measure{Unit: "byte", Peer: nftDNAT}
	count := fmt.Sprintf("%d streams", streams)
	if streams == 1 {
		count = "1 stream"
	}
	if wire {
		m.Name = "TCP bulk, wire-sized packets, " + count
		m.Gates = []harness.Gate{gate(ours, harness.MetricRate, nftDNAT, ">=", 1)}
	} else {
		m.Name = "TCP bulk, veth as it comes, " + count
		m.Gates = []harness.Gate{gate(oursAFP, harness.MetricRate, nftDNAT, ">=", 1)}
	}
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		return b.runBulk(ctx, t, s, f, streams)
	}
	afp := b.gatewayOf(oursAFP, usual("afpacket"))
	afp.options.sums = false // it fills them in itself
	afpGRO := afp
	afpGRO.name = oursAFPGRO
	gro := b.netfilter(nftGRO, dnatRules, false)
	for _, f := range []forwarder{
		b.gatewayOf(ours, usual("afxdp")), afp, afpGRO, b.netfilter(nftDNAT, dnatRules, false), gro, b.nginxOf(nginxUDP), b.netfilter(routing, "", false),
	} {
		f.options.wire, f.options.gro = wire, f.name == nftGRO || f.name == oursAFPGRO
		if f.absent == "" {
			f.absent = b.iperf
		}
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}

// runBulk has the client on CPU 0, and the server with the gateway on CPU 1.
func (b *l4Bench) runBulk(ctx context.Context, t harness.Timing, s *site, f forwarder, streams int) (harness.Sample, error) {
	argvOf := func(name, ready string, argv ...string) []string {
		return append([]string{b.e.Self, "role", name, "-any-end", "-version", b.iperfVersion, "-ready", ready, "--", "stdbuf", "-oL", "iperf3"}, argv...)
	}
	port := strconv.Itoa(role.BulkPort)
	t.Warmup = max(t.Warmup, t.Window/2) // windows have opened
	seconds := strconv.Itoa(int((t.Warmup + t.Window + harness.Patience).Seconds()) + 1)
	server := harness.Part{Name: "server", Argv: argvOf("bulk", "Server listening", "-s", "-p", port), CPU: 1, In: s.backend}
	client := harness.Part{Name: "client", CPU: 0, In: s.client, Argv: argvOf("run", "connected to",
		"-c", cmp.Or(f.to, serviceAddr), "-p", port, "-P", strconv.Itoa(streams), "-t", seconds)}
	w, err := harness.RunParts(ctx, t, append(append([]harness.Part{server}, f.part(s)...), client)...)
	if err != nil {
		return harness.Sample{}, err
	}
	sample := w.Sample("server", "bytes")
	sample.Own, sample.Version = sample.Parts["gateway"], w.Version["gateway"]
	if sample.Units == 0 {
		return sample, fmt.Errorf("nothing arrived")
	}
	return sample, nil
}
