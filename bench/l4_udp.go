package main

import (
	"cmp"
	"context"
	"fmt"
)

// manyFlows is as many as nginx has source ports for, which are one for each.
const manyFlows = 1 << 14

// udp is forwarding of 64-byte datagrams in one direction, counted at the backend.
func (b *l4Bench) udp() ([]Measure, error) {
	return []Measure{
		b.udpMeasure("UDP 64 B, 1 flow", 1, b.liveFrames),
		b.udpMeasure("UDP 64 B, 16 384 flows", manyFlows, b.liveFrames),
		b.udpMeasure("UDP 64 B, 16 384 flows, socket sender", manyFlows, b.socketSender),
	}, nil
}

// sender is the part that floods a stream.
type sender64 func(*site, stream) Part

func (b *l4Bench) liveFrames(s *site, t stream) Part {
	argv := append([]string{b.e.Self, "role", "source", "-dev", devName, "-size", "64"}, t.args()...)
	return Part{Name: "source", Argv: argv, CPU: 0, In: s.client}
}

// socketSender is sendmmsg on a packet socket: a third as fast, but what arrives are packets as a
// kernel makes them.
func (b *l4Bench) socketSender(s *site, t stream) Part {
	p, err := t.probe(64)
	if err != nil {
		panic("bench: " + err.Error()) // the addresses are the suite's own
	}
	return b.packetTx(s, p, t, 64, 0)
}

// packetTx sends the stream that begins with p; pps 0 is as fast as it can.
func (b *l4Bench) packetTx(s *site, p []byte, t stream, batch, pps int) Part {
	argv := []string{
		b.packet.Path, "-b", fmt.Sprint(batch), "-x", fmt.Sprintf("%x", p), "-f", fmt.Sprint(t.flows),
		"-v", fmt.Sprint(t.services), "-p", fmt.Sprint(pps), "tx", devName,
	}
	return Part{Name: "source", Argv: argv, CPU: 0, In: s.client}
}

func (b *l4Bench) sinkPart(s *site) Part {
	return Part{Name: "sink", Argv: []string{b.e.Self, "role", "sink", "-as", "tc", "-dev", devName}, CPU: 1, In: s.backend}
}

// streamTo is what clients send to a contestant.
func (s *site) streamTo(f forwarder, flows, services uint) stream {
	to := fmt.Sprintf("%s:%d", cmp.Or(f.to, serviceAddr), udpPort)
	return stream{mac: s.frontMAC, from: manyClients + ":1024", to: to, flows: flows, services: services}
}

func (b *l4Bench) udpMeasure(name string, flows uint, send sender64) Measure {
	run := func(ctx context.Context, t Timing, s *site, f forwarder) (Sample, error) {
		if flows > 1 {
			t.Warmup = max(t.Warmup, t.Window) // to open the connections
		}
		parts := append([]Part{b.sinkPart(s)}, f.part(s)...)
		w, err := runParts(ctx, t, append(parts, send(s, s.streamTo(f, flows, 1)))...)
		if err != nil {
			return Sample{}, err
		}
		return w.delivered("source", "gateway", "sink")
	}
	m := Measure{Name: name, Unit: "packet", Peer: nftDNAT, Gates: []Gate{
		{ours, MetricRate, nftDNAT, ">=", 1.2},
		{ours, MetricRate, nftThread, ">=", 1.2},
		{ours, MetricRate, nginxUDP, ">=", 3},
		{ours, MetricOwn, oursFwd, "<=", 1.5},
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
