package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// packetIO compares our AF_XDP driver with a C program on raw rings, with asavie/xdp and with
// packet sockets, on one veth pair.
var packetIO = harness.Suite{
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

// xskGate is the share of the C program's packets that ours must have, with as much CPU.
const xskGate = 0.97

// packetBench is the opened suite: namespace a sends and sinks, b is where rx and forward run.
type packetBench struct {
	e                   *harness.Env
	a, b                *testnet.Namespace
	xsk, packet, asavie harness.Peer
}

// newPacketBench links the namespaces and makes a folder. closeAll removes both.
func newPacketBench(e *harness.Env) (p *packetBench, dir string, closeAll func() error, err error) {
	if runtime.NumCPU() < 2 {
		return nil, "", nil, errors.New("two CPUs are needed, one for each side")
	}
	net, err := testnet.New("mr-bench")
	if err != nil {
		return nil, "", nil, err
	}
	p = &packetBench{e: e, a: net.Namespace("a"), b: net.Namespace("b")}
	if err := p.link(net); err != nil {
		return nil, "", nil, errors.Join(err, net.Close())
	}
	if dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
		return nil, "", nil, errors.Join(err, net.Close())
	}
	return p, dir, func() error { return errors.Join(net.Close(), os.RemoveAll(dir)) }, nil
}

func openPacketIO(e *harness.Env) (*harness.Bench, error) {
	p, dir, closeAll, err := newPacketBench(e)
	if err != nil {
		return nil, err
	}
	p.xsk, p.packet, p.asavie = e.BuildC("xsk"), e.BuildC("packet"), e.BuildGo("asavie")
	headers, notes, err := headerMeasures(e, dir)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &harness.Bench{
		Notes: notes,
		Measures: append([]harness.Measure{
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

func (p *packetBench) c(peer harness.Peer, role string, size, ring int) []string {
	return []string{peer.Path, "-s", strconv.Itoa(size), "-r", strconv.Itoa(ring), role, devName}
}

// big is c with batches of bigBatch packets.
func (p *packetBench) big(peer harness.Peer, role string, size int) []string {
	argv := p.c(peer, role, size, 4096)
	return append([]string{argv[0], "-b", bigBatch}, argv[1:]...)
}

// source is the fast sender for receivers.
func (p *packetBench) source(size int) harness.Part {
	return harness.Part{Name: "source", Argv: p.self("source", size), CPU: 0, In: p.a}
}

// sender is a socket as sender.
func (p *packetBench) sender(size int) harness.Part {
	return harness.Part{Name: "source", Argv: p.c(p.xsk, "tx", size, 4096), CPU: 0, In: p.a}
}

func (p *packetBench) sink(size int) harness.Part {
	return harness.Part{Name: "sink", Argv: p.self("sink", size), CPU: 1, In: p.b}
}

// rx is a measure of receivers under a source.
func (p *packetBench) rx(name string, size int, source func(int) harness.Part) harness.Measure {
	receiver := func(name, absent string, argv []string) harness.Contestant {
		return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			part := harness.Part{Name: "receiver", Argv: argv, CPU: 1, In: p.b}
			w, err := harness.RunParts(ctx, t, part, source(size))
			if err != nil {
				return harness.Sample{}, err
			}
			return w.Delivered("source", "receiver", "receiver")
		}}
	}
	return harness.Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []harness.Contestant{
			receiver(ours, "", p.self("rx", size, ringFlag("-ring", bigRing)...)),
			receiver(cXSK, p.xsk.Absent, p.c(p.xsk, "rx", size, bigRing)),
			receiver(asavie, p.asavie.Absent, p.c(p.asavie, "rx", size, bigRing)),
			receiver(afp, p.packet.Absent, p.c(p.packet, "rx", size, bigRing)),
			receiver(xdpDrp, "", p.self("sink", size)),
		},
		Gates: []harness.Gate{
			gate(ours, harness.MetricRate, cXSK, ">=", xskGate),
			gate(ours, harness.MetricPerCPU, cXSK, ">=", xskGate),
			gate(ours, harness.MetricRate, asavie, ">", 1),
			gate(ours, harness.MetricPerCPU, asavie, ">", 1),
		},
	}
}

// tx is a measure of senders into XDP_DROP.
func (p *packetBench) tx(name string, size int) harness.Measure {
	sender := func(name, absent string, argv []string) harness.Contestant {
		return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			part := harness.Part{Name: "sender", Argv: argv, CPU: 0, In: p.a}
			w, err := harness.RunParts(ctx, t, p.sink(size), part)
			if err != nil {
				return harness.Sample{}, err
			}
			return w.Delivered("sender", "sender", "sink")
		}}
	}
	return harness.Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []harness.Contestant{
			sender(ours, "", p.self("tx", size, "-batch", bigBatch)),
			sender(cXSK, p.xsk.Absent, p.c(p.xsk, "tx", size, 4096)),
			sender(asavie, p.asavie.Absent, p.c(p.asavie, "tx", size, 4096)),
			sender(afp, p.packet.Absent, p.c(p.packet, "tx", size, 4096)),
			sender(cXSK+" 256", p.xsk.Absent, p.big(p.xsk, "tx", size)),
			sender(afp+" 256", p.packet.Absent, p.big(p.packet, "tx", size)),
			sender(afp+" bypass", p.packet.Absent, append([]string{p.packet.Path, "-y"}, p.c(p.packet, "tx", size, 4096)[1:]...)),
		},
		Gates: []harness.Gate{
			gate(ours, harness.MetricRate, cXSK, ">=", xskGate),
			gate(ours, harness.MetricPerCPU, cXSK, ">=", xskGate),
			gate(ours, harness.MetricRate, afp, ">=", 1.3),
			gate(ours, harness.MetricPerCPU, afp, ">=", 1.3),
		},
	}
}

// forwarder is a program that sends back what a fast source on the other device sends.
func (p *packetBench) forwarder(name, absent string, size int, argv []string) harness.Contestant {
	return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		sink := p.sink(size)
		sink.In = p.a
		part := harness.Part{Name: "forwarder", Argv: argv, CPU: 1, In: p.b}
		w, err := harness.RunParts(ctx, t, sink, part, p.source(size))
		if err != nil {
			return harness.Sample{}, err
		}
		return w.Delivered("source", "forwarder", "sink")
	}}
}

// forward is a measure of programs that swap the link addresses and send back: source and sink are
// on the same device, forwarders on the other.
func (p *packetBench) forward(name string, size int) harness.Measure {
	forwarder := func(name, absent string, argv []string) harness.Contestant {
		return p.forwarder(name, absent, size, argv)
	}
	return harness.Measure{
		Name: name, Unit: "packet", Peer: cXSK,
		Contestants: []harness.Contestant{
			forwarder(ours, "", p.self("forward", size, "-batch", bigBatch)),
			forwarder(cXSK, p.xsk.Absent, p.c(p.xsk, "forward", size, 4096)),
			forwarder(asavie, p.asavie.Absent, p.c(p.asavie, "forward", size, 4096)),
			forwarder(afp, p.packet.Absent, p.c(p.packet, "forward", size, 4096)),
			forwarder(cXSK+" 256", p.xsk.Absent, p.big(p.xsk, "forward", size)),
			forwarder(afp+" 256", p.packet.Absent, p.big(p.packet, "forward", size)),
		},
		Gates: []harness.Gate{
			gate(ours, harness.MetricRate, cXSK, ">=", xskGate),
			gate(ours, harness.MetricPerCPU, cXSK, ">=", xskGate),
			gate(ours, harness.MetricRate, asavie, ">=", 1.1),
			gate(ours, harness.MetricPerCPU, asavie, ">=", 1.1),
			gate(ours, harness.MetricRate, afp, ">=", 1.5),
			gate(ours, harness.MetricPerCPU, afp, ">=", 1.5),
		},
	}
}
