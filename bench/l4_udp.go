package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// manyFlows is as many as nginx has source ports for, which are one for each.
const manyFlows = 1 << 14

// udp is forwarding of 64-byte datagrams in one direction, counted at the backend.
func (b *l4Bench) udp() ([]harness.Measure, error) {
	return []harness.Measure{
		b.udpMeasure("UDP 64 B, 1 flow", 1, b.liveFrames),
		b.udpMeasure("UDP 64 B, 16 384 flows", manyFlows, b.liveFrames),
		b.udpMeasure("UDP 64 B, 16 384 flows, socket sender", manyFlows, b.socketSender),
		b.bulkUDP("UDP 1242 B, 1 flow of a socket", 1242),
	}, nil
}

// sender64 is the part that floods a stream.
type sender64 func(*site, role.Stream) harness.Part

func (b *l4Bench) liveFrames(s *site, t role.Stream) harness.Part {
	argv := append([]string{b.e.Self, "role", "source", "-dev", devName, "-size", "64"}, t.Args()...)
	return harness.Part{Name: "source", Argv: argv, CPU: 0, In: s.client}
}

// socketSender is sendmmsg on a packet socket: a third as fast, but what arrives are packets as a
// kernel makes them.
func (b *l4Bench) socketSender(s *site, t role.Stream) harness.Part {
	p, err := t.Probe(64)
	if err != nil {
		panic("bench: " + err.Error()) // the addresses are the suite's own
	}
	return b.packetTx(s, p, t, 64, 0)
}

// packetTx sends the stream that begins with p; pps 0 is as fast as it can.
func (b *l4Bench) packetTx(s *site, p []byte, t role.Stream, batch, pps int) harness.Part {
	argv := []string{
		b.packet.Path, "-b", fmt.Sprint(batch), "-x", fmt.Sprintf("%x", p), "-f", fmt.Sprint(t.Flows),
		"-v", fmt.Sprint(t.Services), "-p", fmt.Sprint(pps), "tx", devName,
	}
	return harness.Part{Name: "source", Argv: argv, CPU: 0, In: s.client}
}

// bulkUDP is what a program of QUIC does: a socket sends bursts of datagrams, with checksums, to one port. They are wire-sized
// before they reach the gateway.
func (b *l4Bench) bulkUDP(name string, size int) harness.Measure {
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		to := fmt.Sprintf("%s:%d", cmp.Or(f.to, serviceAddr), udpPort)
		source := harness.Part{
			Name: "source", CPU: 0, In: s.client,
			Argv: []string{b.e.Self, "role", "datagrams", "-size", fmt.Sprint(size), "-to", to},
		}
		w, err := harness.RunParts(ctx, t, append(append([]harness.Part{b.sinkPart(s)}, f.part(s)...), source)...)
		if err != nil {
			return harness.Sample{}, err
		}
		return w.Delivered("source", "gateway", "sink")
	}
	m := harness.Measure{Name: name, Unit: "packet", Peer: nftDNAT, Gates: []harness.Gate{
		gate(ours, harness.MetricRate, nftDNAT, ">=", 1.2),
		gate(ours, harness.MetricPerCPU, nftDNAT, ">=", 1.2),
	}}
	for _, f := range []forwarder{
		b.gatewayOf(ours, usual("afxdp")), b.gatewayOf(oursAFP, usual("afpacket")),
		b.netfilter(nftDNAT, dnatRules, false), b.netfilter(nftThread, dnatRules, true),
	} {
		f.options.wire = true
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}

func (b *l4Bench) sinkPart(s *site) harness.Part {
	return harness.Part{Name: "sink", Argv: []string{b.e.Self, "role", "sink", "-as", "tc", "-dev", devName}, CPU: 1, In: s.backend}
}

// streamTo is what clients send to a contestant.
func (s *site) streamTo(f forwarder, flows, services uint) role.Stream {
	to := fmt.Sprintf("%s:%d", cmp.Or(f.to, serviceAddr), udpPort)
	return role.Stream{MAC: s.frontMAC, From: manyClients + ":1024", To: to, Flows: flows, Services: services}
}

func (b *l4Bench) udpMeasure(name string, flows uint, send sender64) harness.Measure {
	run := func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
		if flows > 1 {
			t.Warmup = max(t.Warmup, t.Window) // to open the connections
		}
		parts := append([]harness.Part{b.sinkPart(s)}, f.part(s)...)
		w, err := harness.RunParts(ctx, t, append(parts, send(s, s.streamTo(f, flows, 1)))...)
		if err != nil {
			return harness.Sample{}, err
		}
		return w.Delivered("source", "gateway", "sink")
	}
	m := harness.Measure{Name: name, Unit: "packet", Peer: nftDNAT, Gates: []harness.Gate{
		gate(ours, harness.MetricRate, nftDNAT, ">=", 1.2),
		gate(ours, harness.MetricRate, nftThread, ">=", 1.2),
		gate(ours, harness.MetricRate, nginxUDP, ">=", 3),
		gate(ours, harness.MetricOwn, oursFwd, "<=", 1.5),
	}}
	for _, f := range []forwarder{
		b.gatewayOf(ours, usual("afxdp")),
		b.gatewayOf(oursAFP, usual("afpacket")),
		b.bare(),
		b.netfilter(nftDNAT, dnatRules, false),
		b.netfilter(nftThread, dnatRules, true),
		b.netfilter(nftSNAT, snatRules, true),
		b.nginxOf(nginxUDP),
		b.netfilter(routing, "", false),
		b.netfilter(routed, "", true),
	} {
		m.Contestants = append(m.Contestants, f.contestant(run))
	}
	return m
}
