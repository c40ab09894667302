package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/millrace/millrace/internal/testnet"
)

// packetIO compares our AF_XDP driver with a C program on raw rings, with asavie/xdp and with
// packet sockets, on one veth pair.
var packetIO = Suite{
	Name:  "packet-io",
	Title: "Packets in, packets out",
	About: []string{
		"One veth pair between two network namespaces. The sender runs on CPU 0, the contestant that " +
			"receives or forwards on CPU 1; a contestant that sends runs on CPU 0 and its sink is an XDP " +
			"program on the other side. Rates are counted where packets arrive. CPU ns is the time of all " +
			"processes of the run and of ksoftirqd on both CPUs, so the kernel's work on either side is in it.",
		"Every packet carries a sequence number that the receiver checks. offered = received + lost over " +
			"the whole run, warm-up included; a source that is faster than the contestant makes losses, " +
			"they are no fault but the measure of its limit. All receivers wait alike: 20 us of sleep when there is nothing.",
		"Batches have 64 packets, with which C and AF_PACKET are fastest; millrace sends and forwards by 256 " +
			"(packet.BatchSize), and C 256 and AF_PACKET 256 show what that does to the others.",
	},
	Open: openPacketIO,
}

// Names of contestants.
const (
	ours    = "millrace"
	cXSK    = "C"
	asavie  = "asavie"
	afp     = "AF_PACKET"
	xdpDrp  = "XDP_DROP"
	devName = "eth0"
)

// packetBench is the opened suite: namespace a sends and sinks, b is where rx and forward run.
type packetBench struct {
	e                   *Env
	a, b                *testnet.Namespace
	xsk, packet, asavie Peer
}

func openPacketIO(e *Env) (*Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for each side")
	}
	net, err := testnet.New("mr-bench")
	if err != nil {
		return nil, err
	}
	p := &packetBench{e: e, a: net.Namespace("a"), b: net.Namespace("b")}
	if err := p.link(net); err != nil {
		return nil, errors.Join(err, net.Close())
	}
	p.xsk, p.packet, p.asavie = e.buildC("xsk"), e.buildC("packet"), e.buildGo("asavie")
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, errors.Join(err, net.Close())
	}
	closeAll := func() error { return errors.Join(net.Close(), os.RemoveAll(dir)) }
	headers, notes, err := headerMeasures(e, dir)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &Bench{
		Notes: notes,
		Measures: append([]Measure{
			p.rx("rx 64 B, live frames", 64, p.source),
			p.rx("rx 1500 B, live frames", 1500, p.source),
			p.rx("rx 64 B, AF_XDP sender", 64, p.sender),
			p.tx("tx 64 B", 64),
			p.tx("tx 1500 B", 1500),
			p.forward("forward 64 B", 64),
		}, headers...),
		Close: closeAll,
	}, nil
}

// link joins the namespaces. IPv6 is off so that no packet but the probes is on the wire.
func (p *packetBench) link(net *testnet.Net) error {
	if err := net.Link(p.a, devName, p.b, devName); err != nil {
		return err
	}
	for _, ns := range []*testnet.Namespace{p.a, p.b} {
		for _, key := range []string{"net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"} {
			if err := ns.Sysctl(key, "1"); err != nil {
				return err
			}
		}
		if err := ns.Up(devName); err != nil {
			return err
		}
	}
	return nil
}

// Parts. All of them send, receive or forward on devName.

const bigBatch = "256" // packet.BatchSize, for contestants that it makes faster

const bigRing = 16384 // rides out bursts; 4096 loses packets that any contestant could take

func (p *packetBench) self(name string, size int, more ...string) []string {
	argv := []string{p.e.Self, "role", name, "-dev", devName, "-size", strconv.Itoa(size)}
	return append(argv, more...)
}

func ringFlag(flag string, n int) []string { return []string{flag, strconv.Itoa(n)} }

func (p *packetBench) c(peer Peer, role string, size, ring int) []string {
	return []string{peer.Path, "-s", strconv.Itoa(size), "-r", strconv.Itoa(ring), role, devName}
}

// big is c with batches of bigBatch packets.
func (p *packetBench) big(peer Peer, role string, size int) []string {
	argv := p.c(peer, role, size, 4096)
	return append([]string{argv[0], "-b", bigBatch}, argv[1:]...)
}

// source is the fast sender for receivers.
func (p *packetBench) source(size int) Part {
	return Part{Name: "source", Argv: p.self("source", size), CPU: 0, In: p.a}
}

// sender is a socket as sender.
func (p *packetBench) sender(size int) Part {
	return Part{Name: "source", Argv: p.c(p.xsk, "tx", size, 4096), CPU: 0, In: p.a}
}

func (p *packetBench) sink(size int) Part {
	return Part{Name: "sink", Argv: p.self("sink", size), CPU: 1, In: p.b}
}

// rx is a measure of receivers under a source.
func (p *packetBench) rx(name string, size int, source func(int) Part) Measure {
	receiver := func(name, absent string, argv []string) Contestant {
		return Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t Timing) (Sample, error) {
			part := Part{Name: "receiver", Argv: argv, CPU: 1, In: p.b}
			w, err := runParts(ctx, t, part, source(size))
			if err != nil {
				return Sample{}, err
			}
			return w.delivered("source", "receiver", "receiver")
		}}
	}
	return Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []Contestant{
			receiver(ours, "", p.self("rx", size, ringFlag("-ring", bigRing)...)),
			receiver(cXSK, p.xsk.Absent, p.c(p.xsk, "rx", size, bigRing)),
			receiver(asavie, p.asavie.Absent, p.c(p.asavie, "rx", size, bigRing)),
			receiver(afp, p.packet.Absent, p.c(p.packet, "rx", size, bigRing)),
			receiver(xdpDrp, "", p.self("sink", size)),
		},
		Gates: []Gate{
			{ours, MetricRate, cXSK, ">=", 0.95},
			{ours, MetricPerCPU, cXSK, ">=", 0.95},
			{ours, MetricRate, asavie, ">", 1},
			{ours, MetricPerCPU, asavie, ">", 1},
		},
	}
}

// tx is a measure of senders into XDP_DROP.
func (p *packetBench) tx(name string, size int) Measure {
	sender := func(name, absent string, argv []string) Contestant {
		return Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t Timing) (Sample, error) {
			part := Part{Name: "sender", Argv: argv, CPU: 0, In: p.a}
			w, err := runParts(ctx, t, p.sink(size), part)
			if err != nil {
				return Sample{}, err
			}
			return w.delivered("sender", "sender", "sink")
		}}
	}
	return Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []Contestant{
			sender(ours, "", p.self("tx", size, "-batch", bigBatch)),
			sender(cXSK, p.xsk.Absent, p.c(p.xsk, "tx", size, 4096)),
			sender(asavie, p.asavie.Absent, p.c(p.asavie, "tx", size, 4096)),
			sender(afp, p.packet.Absent, p.c(p.packet, "tx", size, 4096)),
			sender(cXSK+" 256", p.xsk.Absent, p.big(p.xsk, "tx", size)),
			sender(afp+" 256", p.packet.Absent, p.big(p.packet, "tx", size)),
			sender(afp+" bypass", p.packet.Absent, append([]string{p.packet.Path, "-y"}, p.c(p.packet, "tx", size, 4096)[1:]...)),
		},
		Gates: []Gate{
			{ours, MetricRate, cXSK, ">=", 0.95},
			{ours, MetricPerCPU, cXSK, ">=", 0.95},
			{ours, MetricRate, afp, ">=", 1.3},
			{ours, MetricPerCPU, afp, ">=", 1.3},
		},
	}
}

// forward is a measure of programs that swap the link addresses and send back: source and sink are
// on the same device, forwarders on the other.
func (p *packetBench) forward(name string, size int) Measure {
	forwarder := func(name, absent string, argv []string) Contestant {
		return Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t Timing) (Sample, error) {
			sink := p.sink(size)
			sink.In = p.a
			part := Part{Name: "forwarder", Argv: argv, CPU: 1, In: p.b}
			w, err := runParts(ctx, t, sink, part, p.source(size))
			if err != nil {
				return Sample{}, err
			}
			return w.delivered("source", "forwarder", "sink")
		}}
	}
	return Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []Contestant{
			forwarder(ours, "", p.self("forward", size, "-batch", bigBatch)),
			forwarder(cXSK, p.xsk.Absent, p.c(p.xsk, "forward", size, 4096)),
			forwarder(asavie, p.asavie.Absent, p.c(p.asavie, "forward", size, 4096)),
			forwarder(afp, p.packet.Absent, p.c(p.packet, "forward", size, 4096)),
			forwarder(cXSK+" 256", p.xsk.Absent, p.big(p.xsk, "forward", size)),
			forwarder(afp+" 256", p.packet.Absent, p.big(p.packet, "forward", size)),
		},
		Gates: []Gate{
			{ours, MetricRate, cXSK, ">=", 1},
			{ours, MetricPerCPU, cXSK, ">=", 1},
			{ours, MetricRate, asavie, ">=", 1.1},
			{ours, MetricPerCPU, asavie, ">=", 1.1},
			{ours, MetricRate, afp, ">=", 1.5},
			{ours, MetricPerCPU, afp, ">=", 1.5},
		},
	}
}

// delivered makes the sample of a run in which packets go from one part to another and own is the
// contestant. It checks the books: no packet arrives that was not sent, and the gaps in the sequence numbers are the losses.
func (w *Window) delivered(from, own, to string) (Sample, error) {
	s := w.Sample(to, "packets")
	s.Own, s.Version = s.Parts[own], w.version[own]
	offered, got := w.final[from].Counts["packets"], w.final[to].Counts
	received := got["packets"]
	s.Counts["offered"], s.Counts["received"] = offered, received
	s.Counts["reordered"] = got["reordered"]
	switch {
	case received > offered:
		return s, fmt.Errorf("%d packets received but only %d sent", received, offered)
	case received == 0:
		return s, fmt.Errorf("nothing arrived of %d packets sent", offered)
	}
	s.Counts["lost"] = offered - received
	if gaps := got["gaps"]; got["reordered"] == 0 && gaps > s.Counts["lost"] {
		return s, fmt.Errorf("%d packets lost, but the sequence numbers say %d", s.Counts["lost"], gaps)
	}
	return s, nil
}
