package main

import (
	"context"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
)

// lossyWay is the path of the measure of loss: 1 Gbit/s, 10 ms there and back, a queue of a little more than that, and 1 % of what the server sends is lost.
const (
	lossyOut  = "loss=1% rate=1gbit queue=1000 delay=5ms fifo seed=1"
	lossyBack = "delay=5ms fifo"
)

// Contestants of the measure of loss: a stack and its congestion control.
const (
	oursBBR, kernelBBR, gvisorCubic = "millrace, bbr", "kernel, bbr", "gvisor, cubic"
	oursCubic, kernelCubic          = "millrace, cubic", "kernel, cubic"
)

// lossy sends through `millrace forward`, which delays and loses.
func (b *transportBench) lossy() []harness.Measure {
	m := harness.Measure{Name: "1 % loss, 10 ms, server sends", Unit: "byte", Peer: kernelBBR, Gates: []harness.Gate{
		gate(oursBBR, harness.MetricRate, gvisorCubic, ">=", 10),
		gate(oursBBR, harness.MetricRate, kernelBBR, ">=", 0.5),
		gate(oursCubic, harness.MetricRate, kernelCubic, ">=", 0.9),
	}}
	for _, c := range []struct{ name, stack, cc string }{
		{oursBBR, stackOurs, "bbr"},
		{kernelBBR, stackKernel, "bbr"},
		{gvisorCubic, stackGVisor, "cubic"},
		{oursCubic, stackOurs, "cubic"},
		{kernelCubic, stackKernel, "cubic"},
	} {
		m.Contestants = append(m.Contestants, harness.Contestant{Name: c.name, Absent: b.millrace.Absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			return b.runLossy(ctx, t.Opening(), c.stack, c.cc)
		}})
	}
	return []harness.Measure{m}
}

func (b *transportBench) runLossy(ctx context.Context, t harness.Timing, stack, cc string) (harness.Sample, error) {
	w, err := newHosts(stack, false, true)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	parts := b.parts(w, stack, "-op", "receive")
	parts[0].Argv = append(parts[0].Argv, "-cc", cc)
	way := harness.Part{Name: "way", CPU: 0, In: w.between, Argv: []string{
		b.e.Self, "role", "run", "-ready", "", "--", b.millrace.Path, "forward", "a", "b",
		"--impair-b", "rx: " + lossyOut, "--impair-a", "rx: " + lossyBack,
	}}
	win, err := harness.RunParts(ctx, t, way, parts[0], parts[1])
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
	loops := func(name, op, count string, n int, also []int) harness.Contestant {
		return b.alone(name, count, also, b.e.Self, "role", "tcp-memory", "-as", stackOurs, "-op", op, "-conns", "64", "-loops", strconv.Itoa(n))
	}
	second := func(what, unit, op, count string) harness.Measure {
		const one, two = "1 loop, 1 core", "2 loops, 2 cores"
		return harness.Measure{
			Name: "in memory: second loop, 64 flows, " + what, Unit: unit, Peer: one,
			Contestants: []harness.Contestant{loops(one, op, count, 1, nil), loops(two, op, count, 2, []int{0})},
			Gates:       []harness.Gate{gate(two, harness.MetricRate, one, ">=", 1.5)},
		}
	}
	return []harness.Measure{second("bulk", "byte", "send", "served bytes"), second("round trips", "round trip", "echo", "ops"), {
		Name: "in memory: idle connections beside active ones", Unit: "round trip", Peer: "1 k active",
		Contestants: []harness.Contestant{
			memory("1 k active", idle(0)...), memory("100 k idle + 1 k active", idle(100_000)...),
		},
		Gates: []harness.Gate{
			gate("100 k idle + 1 k active", harness.MetricRate, "1 k active", ">=", 0.9),
			gate("100 k idle + 1 k active", harness.GCPause, "", "<=", 200_000),
		},
	}}
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
