package main

import (
	"context"
	"slices"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/netpeer"
)

// lossyPath is a path between server and client that `millrace forward` makes: what it does to
// what the server sends, and to what comes back.
type lossyPath struct {
	name      string
	out, back string
	peers     []lossyPeer
	gates     []harness.Gate
}

// lossyPeer is a stack and its congestion control.
type lossyPeer struct{ stack, cc string }

func (p lossyPeer) name() string { return p.stack + ", " + p.cc }

// Contestants that gates name.
const (
	oursBBR, kernelBBR, gvisorCubic = "millrace, bbr", "kernel, bbr", "gvisor, cubic"
	oursCubic, kernelCubic          = "millrace, cubic", "kernel, cubic"
	oursReno, kernelReno            = "millrace, reno", "kernel, reno"
)

// lossyPaths are the paths. Reordering is jitter of 2 ms on a path of 1.2 ms: each packet is up
// to 2 ms later than the others, so most are overtaken. Its rate leaves the CPUs time.
func lossyPaths() []lossyPath {
	const (
		far   = "rate=1gbit queue=1000 delay=5ms fifo seed=1"
		late  = "rate=300mbit queue=1000 delay=1600us±1ms seed=1"
		fifo5 = "delay=5ms fifo"
		near  = "delay=600us fifo"
	)
	both := func(cc string) []lossyPeer { return []lossyPeer{{stackOurs, cc}, {stackKernel, cc}} }
	return []lossyPath{{
		name: "1 % loss, 10 ms", out: "loss=1% " + far, back: fifo5,
		peers: slices.Concat(both("bbr"), []lossyPeer{{stackGVisor, "cubic"}}, both("cubic")),
		gates: []harness.Gate{
			gate(oursBBR, harness.MetricRate, gvisorCubic, ">=", 10),
			gate(oursBBR, harness.MetricRate, kernelBBR, ">=", 1),
			gate(oursCubic, harness.MetricRate, kernelCubic, ">=", 0.9),
		},
	}, {
		name: "2 % loss, 10 ms", out: "loss=2% " + far, back: fifo5, peers: both("bbr"),
		gates: []harness.Gate{gate(oursBBR, harness.MetricRate, kernelBBR, ">=", 0.9)},
	}, {
		name: "reordering of 2 ms, 1.2 ms", out: late, back: near, peers: slices.Concat(both("bbr"), both("cubic"), both("reno")),
		gates: []harness.Gate{
			gate(oursBBR, harness.MetricRate, kernelBBR, ">=", 0.9),
			gate(oursCubic, harness.MetricRate, kernelCubic, ">=", 0.9),
			gate(oursReno, harness.MetricRate, kernelReno, ">=", 0.9),
		},
	}, {
		name: "reordering of 2 ms with 0.5 % loss, 1.2 ms", out: "loss=0.5% " + late, back: near, peers: slices.Concat(both("bbr"), both("cubic")),
		gates: []harness.Gate{
			gate(oursBBR, harness.MetricRate, kernelBBR, ">=", 0.9),
			gate(oursCubic, harness.MetricRate, kernelCubic, ">=", 0.9),
		},
	}}
}

// lossy sends through `millrace forward`, which delays, loses and reorders.
func (b *transportBench) lossy() (all []harness.Measure) {
	for _, path := range lossyPaths() {
		m := harness.Measure{Name: path.name + ", server sends", Unit: "byte", Peer: kernelBBR, Gates: path.gates}
		for _, p := range path.peers {
			m.Contestants = append(m.Contestants, harness.Contestant{Name: p.name(), Absent: b.millrace.Absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
				return b.runLossy(ctx, t.Opening(), &path, p)
			}})
		}
		all = append(all, m)
	}
	return all
}

func (b *transportBench) runLossy(ctx context.Context, t harness.Timing, path *lossyPath, p lossyPeer) (harness.Sample, error) {
	w, err := newHosts(p.stack, false, true)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	parts := b.parts(w, p.stack, "-op", "receive")
	parts[0].Argv = append(parts[0].Argv, "-cc", p.cc)
	forward := harness.Part{Name: "forward", CPU: 0, In: w.between, Argv: []string{
		b.e.Self, "role", "run", "-ready", "", "--", b.millrace.Path, "forward", "a", "b",
		"--impair-b", "rx: " + path.out, "--impair-a", "rx: " + path.back,
	}}
	win, err := harness.RunParts(ctx, t, forward, parts[0], parts[1])
	if err != nil {
		return harness.Sample{}, err
	}
	return win.Served("client", "bytes")
}

// scale asks what more loops and more connections do.
func (b *transportBench) scale() []harness.Measure {
	memory := func(name string, args ...string) harness.Contestant {
		return b.alone(name, "ops", nil, append([]string{b.e.Self, "role", "tcp-memory", "-as", stackOurs}, args...)...)
	}
	idle := func(n int) []string { return []string{"-op", "echo", "-conns", "1000", "-idle", strconv.Itoa(n)} }
	loops := func(name, op, way, count string, n int, also []int) harness.Contestant {
		return b.alone(name, count, also, b.e.Self, "role", "tcp-memory", "-as", stackOurs, "-op", op, "-way", way, "-conns", "64", "-loopback", "-loops", strconv.Itoa(n))
	}
	second := func(what, unit, op, way, count string, bound float64) harness.Measure {
		const one, two = "1 loop, 1 core", "2 loops, 2 cores"
		return harness.Measure{
			Name: "in memory: second loop, 64 flows, " + what, Unit: unit, Peer: one,
			Contestants: []harness.Contestant{loops(one, op, way, count, 1, nil), loops(two, op, way, count, 2, []int{0})},
			Gates:       []harness.Gate{gate(two, harness.MetricRate, one, ">=", bound)},
		}
	}
	return []harness.Measure{
		second("bulk", "byte", "send", "", "served bytes", 1.5),
		second("round trips", "round trip", "echo", "", "ops", 1.7),
		second("round trips by callbacks", "round trip", "echo", netpeer.Callbacks, "ops", 1.7),
		second("round trips by pollers", "round trip", "echo", netpeer.Polled, "ops", 1.7),
		{
			Name: "in memory: idle connections beside active ones", Unit: "round trip", Peer: "1 k active",
			Contestants: []harness.Contestant{
				memory("1 k active", idle(0)...), memory("100 k idle + 1 k active", idle(100_000)...),
			},
			Gates: []harness.Gate{
				gate("100 k idle + 1 k active", harness.MetricRate, "1 k active", ">=", 0.9),
				gate("100 k idle + 1 k active", harness.GCPause, "", "<=", 200_000),
			},
		},
	}
}

// quic has quic-go send one stream over our UDP conn, and over the kernel's on loopback.
func (b *transportBench) quic() []harness.Measure {
	m := harness.Measure{Name: "QUIC, one stream, both ends on one core", Unit: "byte", Peer: stackKernel, Gates: []harness.Gate{
		gate(stackOurs, harness.MetricRate, stackKernel, ">=", 1),
	}}
	for _, stack := range []string{stackOurs, stackKernel} {
		m.Contestants = append(m.Contestants, b.alone(stack, "bytes", nil, b.e.Self, "role", "quic", "-as", stack))
	}
	return []harness.Measure{m}
}
