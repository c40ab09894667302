package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// l4Established is on its own because a run of l4 takes half an hour, and none of its other rows has flows in the kernel.
var l4Established = harness.Suite{
	Name:   "l4-established",
	Title:  "Established connections of the L4 gateway",
	Rounds: 3,
	About: []string{
		"The site of suite l4, with connections that both sides have confirmed: with `kernel_flows` the kernel forwards them for the gateway. " +
			"Client and gateway share the kernel's work, so only the CPU time of all parts compares; rates are those of a busy machine.",
		"UDP is 64-byte datagrams in one direction, of which the backend answers one of 64. TCP is iperf3. " +
			"veth as it comes hands segments of 64 KiB from socket to socket; wire-sized is what a NIC would deliver.",
	},
	Open: openL4((*l4Bench).established),
}

// established is the forwarding of connections that both sides have confirmed, which is what the kernel forwards for the
// gateway (kernel_flows).
func (b *l4Bench) established() ([]harness.Measure, error) {
	all := []harness.Measure{
		b.establishedUDP("established UDP 64 B, 1 flow", 1, b.liveFrames, 1.2),
		b.establishedUDP("established UDP 64 B, 16 384 flows", manyFlows, b.liveFrames, 1.3),
		b.establishedUDP("established UDP 64 B, 16 384 flows, socket sender", manyFlows, b.socketSender, 1),
	}
	for _, wire := range []bool{false, true} {
		for _, streams := range []int{1, 4} {
			all = append(all, b.establishedTCP(wire, streams))
		}
	}
	return all, nil
}

// answerOneOf is of how many datagrams the backend answers one: all the time, since a gateway that opens many connections
// loses some.
const answerOneOf = 64

// openingTime is the time that it may take until all of many connections are open, and the kernel has them.
const openingTime = 10 * time.Second

// establishedUDP is udpMeasure with a backend that answers some of the datagrams: without an answer no gateway knows that
// there is somebody.
func (b *l4Bench) establishedUDP(name string, flows uint, send sender64, least float64) harness.Measure {
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		// To open the connections, and for the packets after which the kernel gets them.
		if flows > 1 {
			t.Warmup = max(t.Warmup, openingTime)
		} else {
			t.Warmup = max(t.Warmup, t.Window/2)
		}
		sink := b.sinkPart(s)
		sink.Argv = append(sink.Argv, "-answer", fmt.Sprint(answerOneOf))
		w, err := harness.RunParts(ctx, t, append(append([]harness.Part{sink}, f.part(s)...), send(s, s.streamTo(f, flows, 1)))...)
		if err != nil {
			return harness.Sample{}, err
		}
		return w.Delivered("source", "gateway", "sink")
	}
	m := harness.Measure{Name: name, Unit: "packet", Peer: nftDNAT, Gates: []harness.Gate{
		gate(oursKern, harness.MetricPerCPU, nftDNAT, ">=", least),
	}}
	for _, f := range []forwarder{
		b.gatewayOf(ours, usual("afxdp")), b.kernelGateway("afpacket"), b.kernelGateway("afxdp"),
		b.netfilter(nftDNAT, dnatRules, false),
	} {
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}

func (b *l4Bench) establishedTCP(wire bool, streams int) harness.Measure {
	count := fmt.Sprintf("%d streams", streams)
	if streams == 1 {
		count = "1 stream"
	}
	what, least := "veth as it comes", 0.9
	if wire {
		what, least = "wire-sized packets", 1
	}
	m := harness.Measure{Name: fmt.Sprintf("established TCP, %s, %s", what, count), Unit: "byte", Peer: nftDNAT, Gates: []harness.Gate{
		gate(oursKern, harness.MetricPerCPU, nftDNAT, ">=", least),
	}}
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		return b.runBulk(ctx, t, s, f, streams)
	}
	for _, f := range []forwarder{
		b.gatewayOf(oursAFP, usual("afpacket")), b.kernelGateway("afpacket"), b.kernelGateway("afxdp"), b.netfilter(nftDNAT, dnatRules, false),
	} {
		f.options.wire, f.options.gro = wire, false
		if f.name != oursKernX {
			f.options.sums = false
		}
		if f.absent == "" {
			f.absent = b.iperf
		}
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}

// kernelGateway is our gateway with flows in the kernel.
func (b *l4Bench) kernelGateway(driver string) forwarder {
	name, c := oursKern, usual(driver)
	if driver == "afxdp" {
		name = oursKernX
	}
	c.Kernel = true
	return b.gatewayOf(name, c)
}
