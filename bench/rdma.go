package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/netpeer"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// rdmaSuite compares RDMA with TCP and UDP over the same links.
var rdmaSuite = harness.Suite{
	Name:   "rdma",
	Title:  "RDMA: RoCEv2 in user space beside TCP and UDP",
	Rounds: 5,
	About: []string{
		"over veth: two network namespaces joined by a veth pair, MTU 1500, offloads off. Both ends have the same stack, one on each of two " +
			"CPUs, over AF_XDP in copy mode; kernel is the kernel's TCP at both ends. cost is the CPU time of both. RDMA's packets carry 1024 bytes, " +
			"the largest power of two that the MTU has room for, and TCP's 1448.",
		"latencies over veth are whole round trips of two programs in Go: a WRITE of 8 bytes with immediate data and one back, or a datagram of 8 " +
			"bytes and one back. Those of unmodified programs are half a round trip, as ib_write_lat prints it; its peer is a program with the " +
			"sockets of libc. ib_write_lat polls its memory; its node and it run on any CPU.",
		"in memory: both ends on one core. queue pairs is the protocol alone: requests, frames, ICRC, acknowledgements. contexts are two of a node, " +
			"with its loop and drivers, joined by a wire.",
		"repetition is in virtual time, on a link of 10 Gb/s and a round trip of 1 ms that loses each packet with the same probability: a " +
			"figure of the protocol that no machine changes. Its CPU time is that of the simulation.",
	},
	Open: openRDMASuite,
}

// Contestants of suite rdma.
const (
	rdmaWrite    = "rdma"
	rdmaQueues   = "queue pairs"
	rdmaContexts = "contexts"
	tcpOurs      = "tcp, millrace"
	tcpKernel    = "tcp, kernel"
	udpOurs      = "udp, millrace"
	onePass      = "one pass"
	twoPasses    = "copy, then crc32"
	goBackN      = "go-back-N"
	selectively  = "selective repeat"
	writeLat     = "ib_write_lat"
)

type rdmaBench struct {
	e        *harness.Env
	dir      string
	millrace harness.Peer
	sockets  harness.Peer
}

func openRDMASuite(e *harness.Env) (*harness.Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for each host")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	if said, err := exec.Command("make", "-s", "-C", e.Root, "preload").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make preload: %w: %s", err, said)
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := &rdmaBench{e: e, dir: dir, millrace: e.BuildMillrace(), sockets: e.BuildC("sockets")}
	return &harness.Bench{Measures: b.measures(), Close: func() error { return os.RemoveAll(dir) }}, nil
}

func (b *rdmaBench) measures() []harness.Measure {
	return []harness.Measure{
		{
			Name: "over veth: WRITE of 64 KiB", Unit: "byte", Peer: tcpKernel,
			Contestants: []harness.Contestant{
				b.overVeth(rdmaWrite, "rdma", "client", "bytes", "-op", "write"),
				b.overVeth(tcpOurs, "millrace", "server", "bytes", "-op", "send"),
				b.overVeth(tcpKernel, "kernel", "server", "bytes", "-op", "send"),
			},
			Gates: []harness.Gate{
				gate(rdmaWrite, harness.MetricRate, tcpKernel, ">=", 1), gate(rdmaWrite, harness.MetricCost, tcpOurs, "<=", 0.8),
			},
		},
		{
			Name: "over veth: round trip of 8 bytes", Unit: "round trip", Peer: udpOurs,
			Contestants: []harness.Contestant{
				b.overVeth(rdmaWrite, "rdma", "client", "ops", "-op", "echo"),
				b.overVeth(udpOurs, "datagrams", "client", "ops", "-size", "8"),
			},
			Gates: []harness.Gate{gate(rdmaWrite, metricP50, udpOurs, "<=", 1.1)},
		},
		b.inMemory(),
		b.checksums(),
		b.repetition(),
		b.unmodified(),
	}
}

func (b *rdmaBench) inMemory() harness.Measure {
	role := func(name, as string) harness.Contestant {
		return harness.OnCore(name, "", "ops", b.e.Self, "role", "rdma-memory", "-as", as, "-size", "64")
	}
	return harness.Measure{
		Name: "in memory: WRITE of 64 bytes", Unit: "operation", Peer: rdmaQueues,
		Contestants: []harness.Contestant{role(rdmaQueues, "queues"), role(rdmaContexts, "contexts")},
		Gates:       []harness.Gate{gate(rdmaQueues, harness.MetricPerCPU, "", ">=", 3e6), gate(rdmaContexts, harness.MetricPerCPU, "", ">=", 3e6)},
	}
}

func (b *rdmaBench) checksums() harness.Measure {
	role := func(as string) harness.Contestant {
		return harness.OnCore(as, "", "bytes", b.e.Self, "role", "icrc", "-as", map[string]string{onePass: "fused", twoPasses: "separate"}[as], "-size", "1024")
	}
	return harness.Measure{
		Name: "in memory: copy of 1024 bytes with ICRC", Unit: "byte", Peer: twoPasses,
		Contestants: []harness.Contestant{role(onePass), role(twoPasses)},
		Gates:       []harness.Gate{gate(onePass, harness.MetricPerCPU, "", ">=", 8e9)},
	}
}

// overVeth runs a load between two namespaces. Stacks of Millrace take an interface without an address, contexts of RDMA one of the kernel's.
func (b *rdmaBench) overVeth(name, stack, part, count string, args ...string) harness.Contestant {
	return harness.Contestant{Name: name, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		w, err := rdmaHosts(stack == "rdma" || stack == stackKernel)
		if err != nil {
			return harness.Sample{}, err
		}
		defer w.net.Close()
		win, err := harness.RunParts(ctx, t, b.parts(w, stack, args)...)
		if err != nil {
			return harness.Sample{}, err
		}
		if n := win.Final["client"].Counts["failed"]; n > 0 {
			return harness.Sample{}, fmt.Errorf("%d requests failed", n)
		}
		s, err := win.Served(part, count)
		s.Own = s.CPU
		return s, err
	}}
}

// rdmaHosts joins two namespaces.
func rdmaHosts(kernel bool) (*twoHosts, error) {
	n, err := testnet.New("mr-rdma")
	if err != nil {
		return nil, err
	}
	w := &twoHosts{net: n, client: n.Namespace("client"), server: n.Namespace("server")}
	var client, server []string
	if kernel {
		client, server = []string{rdmaFrom + "/24"}, []string{transportTo + "/24"}
	}
	for _, step := range []func() error{
		w.quiet, w.link, func() error { return w.client.Up(transportDev, client...) }, func() error { return w.server.Up(transportDev, server...) },
		func() error { return errors.Join(w.client.NoOffload(transportDev), w.server.NoOffload(transportDev)) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return w, nil
}

const rdmaFrom = "198.18.0.2"

// parts are a server on CPU 1 and a client on CPU 0.
func (b *rdmaBench) parts(w *twoHosts, stack string, args []string) []harness.Part {
	part := func(name, role, addr string, cpu int, in *testnet.Namespace, more ...string) harness.Part {
		argv := append([]string{b.e.Self, "role", role, "-dev", transportDev, "-to", addr}, more...)
		return harness.Part{Name: name, CPU: cpu, In: in, Argv: argv}
	}
	server, client := transportTo+"/24", rdmaFrom+"/24"
	switch stack {
	case "rdma":
		return []harness.Part{
			part("server", "rdma-serve", server, 1, w.server), part("client", "rdma-load", client, 0, w.client, append(args, transportTo)...),
		}
	case "datagrams":
		return []harness.Part{
			part("server", "udp-serve", server, 1, w.server, "-as", stackOurs),
			part("client", "udp-load", client, 0, w.client, append(append([]string{"-as", stackOurs}, args...), transportTo)...),
		}
	}
	args = append(args, "-as", stack, "-cc", kernelCC)
	return []harness.Part{
		part("server", "tcp-serve", server, 1, w.server, "-as", stack, "-cc", kernelCC), part("client", "tcp-load", transportTo, 0, w.client, args...),
	}
}

// repetition writes 64 MiB over a link in virtual time.
func (b *rdmaBench) repetition() harness.Measure {
	seed := uint64(0)
	run := func(name string, selective bool, loss float64) harness.Contestant {
		return harness.Contestant{Name: name, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
			const messages = 1024
			seed++
			l := netpeer.LossyLink{Bits: 10, Delay: 500 * time.Microsecond, Loss: loss}
			var before, after unix.Rusage
			err := unix.Getrusage(unix.RUSAGE_SELF, &before)
			took, repeated, err2 := l.Write(ctx, messages, selective, seed)
			err = errors.Join(err, err2, unix.Getrusage(unix.RUSAGE_SELF, &after))
			cpu := time.Duration(after.Utime.Nano() - before.Utime.Nano()).Seconds()
			return harness.Sample{
				Units: messages << 16, Seconds: took.Seconds(), CPU: cpu, Own: cpu, Counts: map[string]uint64{"repeated": repeated},
			}, err
		}}
	}
	lossless := selectively + ", no loss"
	return harness.Measure{
		Name: "repetition: 1 % loss, 1 ms", Unit: "byte", Peer: goBackN,
		Contestants: []harness.Contestant{run(goBackN, false, 0.01), run(selectively, true, 0.01), run(lossless, true, 0)},
		Gates: []harness.Gate{
			gate(selectively, harness.MetricRate, goBackN, ">=", 5), gate(selectively, harness.MetricRate, lossless, ">=", 0.9),
		},
	}
}
