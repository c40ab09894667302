package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/wire"
)

// The SYN flood: sources of a /16, at most floodRate packets per second.
const (
	floodRate  = 150_000
	floodFlows = 1 << 21
	floodBatch = 32   // packets sent at once
	legitRate  = 2000 // new connections per second; far from what the client can
)

// Names of the contestants of the floods.
const (
	oursFlood = "millrace, flood"
	nftFlood  = "nft DNAT, flood"
	oursPaced = "millrace, 150 kpps"
	oursFlat  = "millrace, flat out"
	fwdPaced  = "millrace forward, 150 kpps"
	cPaced    = "AF_XDP forwarder in C, 150 kpps"
	nftPaced  = "nft DNAT, threaded, 150 kpps"
	nftFlat   = "nft DNAT, threaded, flat out"
)

// syn asks what a flood of SYNs with forged sources does: to the connections of others, and to the
// gateway's CPU.
func (b *l4Bench) syn() ([]harness.Measure, error) {
	return []harness.Measure{b.legit(), b.synCost()}, nil
}

// synFlood is the sender of a flood.
func (b *l4Bench) synFlood(s *site, pps int) (harness.Part, error) {
	p, err := synPacket(s.frontMAC)
	return b.packetTx(s, p, role.Stream{Flows: floodFlows, Services: 1}, floodBatch, pps), err
}

// synPacket returns the first packet of a flood: a SYN with an MSS option, marked by its TOS. The
// sender fills the transport checksum in.
func synPacket(mac string) ([]byte, error) {
	to, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	p := make([]byte, 60)
	copy(p, to)
	copy(p[6:], []byte{2, 0, 0, 0, 0, 1, 0x08, 0x00})
	ip := p[14:34]
	copy(ip, []byte{0x45, role.FloodMark, 0, 44, 0, 0, 0, 0, 64, wire.ProtoTCP})
	src, dst := netip.MustParseAddr(spoofed).As4(), netip.MustParseAddr(serviceAddr).As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip, 0)))
	tcp := p[34:58]
	binary.BigEndian.PutUint16(tcp, 1024)
	binary.BigEndian.PutUint16(tcp[2:], tcpPort)
	copy(tcp[12:], []byte{6 << 4, byte(wire.FlagSYN), 0xfa, 0xf0})
	copy(tcp[20:], []byte{2, 4, 5, 0xb4}) // MSS 1460, RFC 9293 3.2
	return p[:58], nil
}

// legit counts the connections that clients get, with and without a flood. The flood ends at the
// backend's interface: what SYNs cost a backend is not the gateway's doing.
func (b *l4Bench) legit() harness.Measure {
	m := harness.Measure{Name: "SYN flood, connections of others", Unit: "connection", Peer: ours, Gates: []harness.Gate{
		gate(oursFlood, harness.MetricRate, ours, ">=", 0.9),
	}}
	add := func(f forwarder, name string, flood bool) {
		f.name = name
		if flood && f.absent == "" {
			f.absent = b.packet.Absent
		}
		m.Contestants = append(m.Contestants, f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
			return b.runLegit(ctx, t, s, f, flood)
		}))
	}
	c := usual("afxdp")
	c.Table = million1 // the default
	for _, flood := range []bool{false, true} {
		add(b.gatewayOf("millrace under attack", c), map[bool]string{false: ours, true: oursFlood}[flood], flood)
		add(b.netfilter(nftDNAT, dnatRules, true), map[bool]string{false: nftDNAT, true: nftFlood}[flood], flood)
	}
	return m
}

// connectionSample returns what the client of role connect did in a window, and what it cost the gateway.
func connectionSample(w *harness.Window) harness.Sample {
	sample := w.Sample("client", "connections")
	sample.Own, sample.Version = sample.Parts["gateway"], w.Version["gateway"]
	sample.Counts["failed"] = w.Last["client"].Counts["failed"] - w.First["client"].Counts["failed"]
	return sample
}

func (b *l4Bench) runLegit(ctx context.Context, t harness.Timing, s *site, f forwarder, flood bool) (harness.Sample, error) {
	t = t.Opening() // tables are full before the window
	argvOf := func(name string, more ...string) []string { return append([]string{b.e.Self, "role", name}, more...) }
	guard := harness.Part{Name: "guard", Argv: argvOf("guard", "-dev", devName), CPU: 0, In: s.backend}
	server := harness.Part{Name: "server", Argv: argvOf("serve", "-to", fmt.Sprintf("%s:%d", backendAddr, servePort)), CPU: 0, In: s.backend}
	client := harness.Part{
		Name: "client", CPU: 0, In: s.client,
		Argv: argvOf("connect", "-to", fmt.Sprintf("%s:%d", serviceAddr, tcpPort), "-rate", fmt.Sprint(legitRate)),
	}
	parts := append(append([]harness.Part{guard, server}, f.part(s)...), client)
	if flood {
		sender, err := b.synFlood(s, floodRate)
		if err != nil {
			return harness.Sample{}, err
		}
		parts = append(parts, sender)
	}
	w, err := harness.RunParts(ctx, t, parts...)
	if err != nil {
		return harness.Sample{}, err
	}
	sample := connectionSample(w)
	first, last := w.First["client"].Counts, w.Last["client"].Counts
	if n := last["connections"] - first["connections"]; n > 0 {
		sample.Counts["mean us"] = (last["micros"] - first["micros"]) / n
	}
	if flood {
		sample.Counts["flood"] = w.Last["source"].Counts["packets"] - w.First["source"].Counts["packets"]
	}
	return sample, nil
}

// synCost is what a SYN of a flood costs. At 150 kpps the gateway has time to wait for packets, which
// is in its CPU time, so the flood as fast as it can be sent is beside it. What waiting and the kernel's
// transmit path cost any program that forwards through AF_XDP show a bump in the wire, and one in C that
// looks for packets every 20 us.
func (b *l4Bench) synCost() harness.Measure {
	m := harness.Measure{Name: "SYN flood, CPU time", Unit: "packet", Peer: nftFlat, Gates: []harness.Gate{
		gate(oursPaced, harness.MetricOwn, "", "<=", 1000), gate(oursFlat, harness.MetricOwn, "", "<=", 1000),
		gate(oursPaced, harness.MetricOwn, fwdPaced, "<=", 1.5),
	}}
	c := usual("afxdp")
	c.Table = million1
	add := func(f forwarder, name string, pps int) {
		f.name = name
		if f.absent == "" {
			f.absent = b.packet.Absent
		}
		m.Contestants = append(m.Contestants, f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
			t = t.Opening()
			sender, err := b.synFlood(s, pps)
			if err != nil {
				return harness.Sample{}, err
			}
			sink := b.sinkPart(s)
			if f.name == cPaced { // it sends packets back to where they came from
				sink.In = s.client
			}
			w, err := harness.RunParts(ctx, t, append(append([]harness.Part{sink}, f.part(s)...), sender)...)
			if err != nil {
				return harness.Sample{}, err
			}
			return w.Arrived()
		}))
	}
	add(b.gatewayOf("millrace under attack", c), oursPaced, floodRate)
	add(b.gatewayOf("millrace under attack", c), oursFlat, 0)
	add(b.bare(), fwdPaced, floodRate)
	add(b.rawRings(), cPaced, floodRate)
	add(b.netfilter(nftDNAT, dnatRules, true), nftPaced, floodRate)
	add(b.netfilter(nftDNAT, dnatRules, true), nftFlat, 0)
	return m
}
