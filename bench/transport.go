package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// transport compares the TCP of Millrace with gVisor's netstack and the kernel's.
var transport = harness.Suite{
	Name:   "tcp",
	Title:  "TCP: Millrace, gVisor's netstack and the kernel",
	Rounds: 5,
	About: []string{
		"in memory: two stacks of one kind in one process on one core, joined by their own wire in memory, MTU 1500, no " +
			"offloads: what TCP itself costs, both ends together. Nothing else runs, so this is the figure to trust.",
		"second loop: one stack is both ends, and both ends of a connection are on one loop, so that loops share no packet. One " +
			"loop has one core and GOMAXPROCS 1, two loops have two.",
		"over veth: two network namespaces joined by a veth pair, MTU 1500, offloads off. The client is one Go program over the " +
			"kernel's sockets on CPU 0; the server, a Go program over the stack that is compared, has CPU 1. own is the server's CPU time. " +
			"What veth receives runs on the sender's back, so the kernel's cost of receiving is partly the client's.",
		"gvisor is netstack over a packet socket (fdbased: recvmmsg, GRO, fifo queueing discipline), gvisor-xdp the same over AF_XDP; " +
			"both with SACK and CUBIC. millrace is over AF_XDP in copy mode, as veth has it. The kernel has CUBIC too, as client and as server.",
	},
	Open: openTransport,
}

// Names of contestants of suite tcp: those of netpeer.
const (
	stackKernel, stackOurs    = "kernel", "millrace"
	stackGVisor, stackGXDP    = "gvisor", "gvisor-xdp"
	stackOursGSO, stackGVGSO  = "millrace-gso", "gvisor-gso"
	transportDev, transportTo = "eth0", "198.18.0.1"
)

type transportBench struct {
	e        *harness.Env
	millrace harness.Peer
}

func openTransport(e *harness.Env) (*harness.Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for the client and one for the server")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	b := &transportBench{e: e, millrace: e.BuildMillrace()}
	all := b.inMemory()
	for _, group := range [][]harness.Measure{b.overVeth(), b.computing(), b.segments(), b.lossy(), b.quic(), b.scale()} {
		all = append(all, group...)
	}
	return &harness.Bench{Measures: all, Close: func() error { return nil }}, nil
}

// inMemory has one program on CPU 1 for both ends.
func (b *transportBench) inMemory() []harness.Measure {
	measure := func(name, unit, count string, bound float64, args ...string) harness.Measure {
		m := harness.Measure{Name: "in memory: " + name, Unit: unit, Peer: stackGVisor, Gates: []harness.Gate{
			gate(stackOurs, harness.MetricCost, stackGVisor, "<=", bound),
		}}
		for _, stack := range []string{stackOurs, stackGVisor} {
			argv := append([]string{b.e.Self, "role", "tcp-memory", "-as", stack}, args...)
			m.Contestants = append(m.Contestants, b.alone(stack, count, nil, argv...))
		}
		return m
	}
	idle := measure("memory of an idle connection", "connection", "conns", 0, "-op", "hold", "-conns", "4000")
	idle.Gates = []harness.Gate{gate(stackOurs, harness.HeapPerConn, "", "<=", 1024)}
	return []harness.Measure{
		measure("bulk", "byte", "served bytes", 0.5, "-op", "send"),
		measure("1-byte round trip", "round trip", "ops", 0.5, "-op", "echo"),
		measure("connect, round trip, close", "connection", "ops", 0.4, "-op", "connect-echo"),
		idle,
	}
}

// alone is a contestant that is one process on CPU 1, and on also where that is not nil.
func (b *transportBench) alone(name, count string, also []int, argv ...string) harness.Contestant {
	return harness.Contestant{Name: name, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		if count == "conns" { // a connection rests after a second
			t.Warmup = max(t.Warmup, 2*time.Second)
		}
		w, err := harness.RunParts(ctx, t, harness.Part{Name: name, Argv: argv, CPU: 1, Also: also})
		if err != nil {
			return harness.Sample{}, err
		}
		s := w.Sample(name, count)
		s.Own, s.Version = s.Parts[name], w.Version[name]
		end := w.Last[name].Counts
		for _, c := range []string{"p50 ns", "p99 ns", harness.HeapPerConn, harness.GCPause, harness.GCStop, "failed"} {
			if n, ok := end[c]; ok {
				s.Counts[c] = n
			}
		}
		if _, told := end[harness.HeapPerConn]; told { // they were all opened before the window
			s.Units = float64(end[count])
		}
		if s.Units == 0 {
			return s, errors.New("nothing arrived")
		}
		return s, nil
	}}
}

// twoHosts is the network of one run: two namespaces, and what lies between.
type twoHosts struct {
	net            *testnet.Net
	client, server *testnet.Namespace
	between        *testnet.Namespace // nil where the link is direct
}

// newHosts joins two namespaces, by one in the middle where something is to be done on the way. Only the
// client has an address of its own; the server's kernel has one where it is the contestant.
func newHosts(stack string, offloads, between bool) (w *twoHosts, err error) {
	n, err := testnet.New("mr-tcp")
	if err != nil {
		return nil, err
	}
	w = &twoHosts{net: n, client: n.Namespace("client"), server: n.Namespace("server")}
	if between {
		w.between = n.Namespace("between")
	}
	for _, step := range []func() error{w.quiet, w.link, func() error { return w.up(stack == stackKernel) }} {
		if err := step(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if !offloads {
		err = errors.Join(w.client.NoOffload(transportDev), w.server.NoOffload(transportDev))
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return w, nil
}

// quiet has the kernels send nothing of their own.
func (w *twoHosts) quiet() error {
	for _, ns := range []*testnet.Namespace{w.client, w.server, w.between} {
		for _, key := range []string{"net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"} {
			if ns == nil {
				continue
			}
			if err := ns.Sysctl(key, "1"); err != nil {
				return err
			}
		}
	}
	return nil
}

// link joins the namespaces; a of the one between faces the client, b the server.
func (w *twoHosts) link() error {
	if w.between == nil {
		return w.net.Link(w.client, transportDev, w.server, transportDev)
	}
	return errors.Join(w.net.Link(w.client, transportDev, w.between, "a"), w.net.Link(w.between, "b", w.server, transportDev),
		w.between.Up("a"), w.between.Up("b"), w.between.NoOffload("a"), w.between.NoOffload("b"))
}

func (w *twoHosts) up(kernel bool) error {
	var addrs []string
	if kernel {
		addrs = []string{transportTo + "/24"}
	}
	return errors.Join(w.client.Up(transportDev, "198.18.0.2/24"), w.server.Up(transportDev, addrs...))
}

// parts are the server over the stack and the client over the kernel's.
func (b *transportBench) parts(w *twoHosts, stack string, args ...string) []harness.Part {
	argvOf := func(name, as, to string, more ...string) []string {
		return append([]string{b.e.Self, "role", name, "-as", as, "-dev", transportDev, "-to", to}, more...)
	}
	return []harness.Part{
		{Name: "server", CPU: 1, In: w.server, Argv: argvOf("tcp-serve", stack, transportTo+"/24")},
		{Name: "client", CPU: 0, In: w.client, Argv: argvOf("tcp-load", stackKernel, transportTo, args...)},
	}
}

// kernelCC is the congestion control of the kernel, as client and as server: that of the other stacks. Where the
// machine's default is BBR, the timer that paces each segment would be what is measured.
const kernelCC = "cubic"

// vethTest is one test over veth.
type vethTest struct {
	name, unit  string
	part, count string // who counts, and what
	args        []string
	metric      harness.Metric
	op          string
	vsK, vsG    float64
	stacks      []string // ours first, the kernel's second, then gVisor's
	compute     string   // how many goroutines compute in the server
	offloads    bool
}

func (b *transportBench) overVeth() []harness.Measure {
	wired := []string{stackOurs, stackKernel, stackGVisor, stackGXDP}
	tests := []vethTest{
		{name: "bulk, server sends", unit: "byte", part: "client", count: "bytes", args: []string{"-op", "receive"}, metric: harness.MetricRate, op: ">=", vsK: 0.5, vsG: 2},
		{name: "bulk, server receives", unit: "byte", part: "server", count: "bytes", args: []string{"-op", "send"}, metric: harness.MetricRate, op: ">=", vsK: 0.5, vsG: 2},
		{name: "1-byte round trip", unit: "round trip", part: "client", count: "ops", args: []string{"-op", "echo"}, metric: "p50 ns", op: "<=", vsK: 1.2, vsG: 0.4},
		{name: "64 connections", unit: "round trip", part: "client", count: "ops", args: []string{"-op", "echo", "-conns", "64"}, metric: harness.MetricOwn, op: "<=", vsK: 1, vsG: 0.35},
		{name: "connections, one at a time", unit: "connection", part: "client", count: "ops", args: []string{"-op", "connect"}, metric: harness.MetricRate, op: ">=", vsK: 0.7, vsG: 2.5},
	}
	var all []harness.Measure
	for _, t := range tests {
		t.stacks = wired
		all = append(all, b.veth(t))
	}
	return all
}

// computing has a server with two goroutines that compute, as many as GOMAXPROCS, on all CPUs. Its CPU time is
// mostly theirs.
func (b *transportBench) computing() []harness.Measure {
	var all []harness.Measure
	for _, t := range []vethTest{
		{name: "beside 2 computing goroutines, server sends", unit: "byte", part: "client", count: "bytes", args: []string{"-op", "receive"}, metric: harness.MetricRate, op: ">=", vsK: 0.8},
		{name: "beside 2 computing goroutines, server receives", unit: "byte", part: "server", count: "bytes", args: []string{"-op", "send"}, metric: harness.MetricRate, op: ">=", vsK: 0.8},
		{name: "beside 2 computing goroutines, 1-byte round trip", unit: "round trip", part: "client", count: "ops", args: []string{"-op", "echo"}, metric: harness.MetricRate, op: ">=", vsK: 0.8},
	} {
		t.stacks, t.compute = []string{stackOurs, stackKernel}, "2"
		all = append(all, b.veth(t))
	}
	return all
}

// segments are large ones: offloads on, 64 KiB between socket and device.
func (b *transportBench) segments() []harness.Measure {
	var all []harness.Measure
	for _, t := range []vethTest{
		{name: "64 KiB segments, server sends", unit: "byte", part: "client", count: "bytes", args: []string{"-op", "receive"}, metric: harness.MetricRate, op: ">=", vsK: 0.4, vsG: 1.5},
		{name: "64 KiB segments, server receives", unit: "byte", part: "server", count: "bytes", args: []string{"-op", "send"}, metric: harness.MetricRate, op: ">=", vsK: 0.4, vsG: 1.5},
	} {
		t.stacks, t.offloads = []string{stackOursGSO, stackKernel, stackGVGSO}, true
		all = append(all, b.veth(t))
	}
	return all
}

func (b *transportBench) veth(t vethTest) harness.Measure {
	m := harness.Measure{Name: "over veth: " + t.name, Unit: t.unit, Peer: stackKernel}
	ours := t.stacks[0]
	m.Gates = append(m.Gates, gate(ours, t.metric, stackKernel, t.op, t.vsK))
	for _, g := range t.stacks[2:] {
		m.Gates = append(m.Gates, gate(ours, t.metric, g, t.op, t.vsG))
	}
	for _, stack := range t.stacks {
		m.Contestants = append(m.Contestants, harness.Contestant{Name: stack, Run: func(ctx context.Context, tm harness.Timing) (harness.Sample, error) {
			w, err := newHosts(stack, t.offloads, false)
			if err != nil {
				return harness.Sample{}, err
			}
			defer w.net.Close()
			parts := b.parts(w, stack, append(t.args, "-cc", kernelCC)...)
			if stack == stackKernel {
				parts[0].Argv = append(parts[0].Argv, "-cc", kernelCC)
			}
			if t.compute != "" {
				parts[0].Argv = append(parts[0].Argv, "-compute", t.compute)
			}
			win, err := harness.RunParts(ctx, tm, parts...)
			if err != nil {
				return harness.Sample{}, err
			}
			return win.Served(t.part, t.count)
		}})
	}
	return m
}
