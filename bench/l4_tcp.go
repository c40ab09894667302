package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
)

const nftGRO = "nft DNAT, GRO"

// bulk is iperf3 from client to backend.
func (b *l4Bench) bulk() ([]Measure, error) {
	var all []Measure
	for _, wire := range []bool{false, true} {
		for _, streams := range []int{1, 4} {
			all = append(all, b.bulkMeasure(wire, streams))
		}
	}
	return all, nil
}

func (b *l4Bench) bulkMeasure(wire bool, streams int) Measure {
	m := Measure{Unit: "byte", Peer: nftDNAT}
	count := fmt.Sprintf("%d streams", streams)
	if streams == 1 {
		count = "1 stream"
	}
	if wire {
		m.Name = "TCP bulk, wire-sized packets, " + count
		m.Gates = []Gate{{ours, MetricRate, nftDNAT, ">=", 1}}
	} else {
		m.Name = "TCP bulk, veth as it comes, " + count
		m.Gates = []Gate{{oursAFP, MetricRate, nftDNAT, ">=", 1}}
	}
	run := func(ctx context.Context, t Timing, s *site, f forwarder) (Sample, error) {
		return b.runBulk(ctx, t, s, f, streams)
	}
	afp := b.gatewayOf(oursAFP, usual("afpacket"))
	afp.options.sums = false // it fills them in itself
	gro := b.netfilter(nftGRO, dnatRules, false)
	for _, f := range []forwarder{
		b.gatewayOf(ours, usual("afxdp")), afp, b.netfilter(nftDNAT, dnatRules, false), gro, b.nginxOf(nginxUDP), b.netfilter(routing, "", false),
	} {
		f.options.wire, f.options.gro = wire, f.name == nftGRO
		if f.absent == "" {
			f.absent = b.iperf
		}
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}

// runBulk has the client on CPU 0, and the server with the gateway on CPU 1.
func (b *l4Bench) runBulk(ctx context.Context, t Timing, s *site, f forwarder, streams int) (Sample, error) {
	role := func(name, ready string, argv ...string) []string {
		return append([]string{b.e.Self, "role", name, "-any-end", "-version", b.iperfVersion, "-ready", ready, "--", "stdbuf", "-oL", "iperf3"}, argv...)
	}
	port := strconv.Itoa(bulkPort)
	t.Warmup = max(t.Warmup, t.Window/2) // windows have opened
	seconds := strconv.Itoa(int((t.Warmup + t.Window + patience).Seconds()) + 1)
	server := Part{Name: "server", Argv: role("bulk", "Server listening", "-s", "-p", port), CPU: 1, In: s.backend}
	client := Part{Name: "client", CPU: 0, In: s.client, Argv: role("run", "connected to",
		"-c", cmp.Or(f.to, serviceAddr), "-p", port, "-P", strconv.Itoa(streams), "-t", seconds)}
	w, err := runParts(ctx, t, append(append([]Part{server}, f.part(s)...), client)...)
	if err != nil {
		return Sample{}, err
	}
	sample := w.Sample("server", "bytes")
	sample.Own, sample.Version = sample.Parts["gateway"], w.version["gateway"]
	if sample.Units == 0 {
		return sample, fmt.Errorf("nothing arrived")
	}
	return sample, nil
}
