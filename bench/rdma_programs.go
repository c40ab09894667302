package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// unmodified compares ib_write_lat under millrace exec --rdma with a ping-pong over the kernel's TCP.
func (b *rdmaBench) unmodified() harness.Measure {
	absent := b.millrace.Absent
	if absent == "" {
		absent = missing(writeLat)
	}
	return harness.Measure{
		Name: "unmodified programs over veth: 8 bytes, half of a round trip", Unit: "round trip", Peer: tcpKernel,
		Contestants: []harness.Contestant{
			{Name: writeLat, Absent: absent, Run: b.runWriteLat},
			{Name: tcpKernel, Absent: b.sockets.Absent, Run: b.runPingPong},
		},
		Gates: []harness.Gate{gate(writeLat, metricP50, tcpKernel, "<=", 1)},
	}
}

// runPingPong is a program with libc's sockets on each host.
func (b *rdmaBench) runPingPong(ctx context.Context, t harness.Timing) (harness.Sample, error) {
	w, err := rdmaHosts(true)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	const port = "7000"
	win, err := harness.RunParts(
		ctx, t,
		harness.Part{Name: "server", CPU: 1, In: w.server, Argv: []string{b.sockets.Path, "echo", transportTo, port}},
		harness.Part{Name: "client", CPU: 0, In: w.client, Argv: []string{b.sockets.Path, "rtt", transportTo, port, "8"}},
	)
	if err != nil {
		return harness.Sample{}, err
	}
	s := win.Sample("client", "requests")
	s.Own = s.CPU
	s.Counts[string(metricP50)] = win.Last["client"].Counts[string(metricP50)] / 2
	return s, nil
}

// runWriteLat is ib_write_lat on each host, and a node. They run on all CPUs: the program polls its memory and never yields, so that a node on
// the same CPU would run once in each of its time slices.
func (b *rdmaBench) runWriteLat(ctx context.Context, t harness.Timing) (harness.Sample, error) {
	w, err := rdmaHosts(false)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	var parts []harness.Part
	for _, h := range []struct {
		name, addr string
		in         *testnet.Namespace
		cpu        int
	}{{"server", transportTo, w.server, 1}, {"client", rdmaFrom, w.client, 0}} {
		part, err := b.rdmaNode(h.name, h.addr, h.cpu, h.in)
		if err != nil {
			return harness.Sample{}, err
		}
		parts = append(parts, part)
	}
	under := func(name string, args ...string) []string {
		return append(onAllCPUs(b.millrace.Path), append([]string{"exec", "--socket", b.socket(name), "--rdma", "--", writeLat, "-F", "-s", "8", "-n", latencyIterations}, args...)...)
	}
	perftest := func(name, op string, cpu int, in *testnet.Namespace, args ...string) harness.Part {
		argv := append([]string{b.e.Self, "role", "perftest", "-op", op, "-version", firstLine(writeLat, "--version"), "--"}, under(name, args...)...)
		return harness.Part{Name: name, CPU: cpu, In: in, Argv: argv}
	}
	parts = append(parts, perftest("server", "serve", 1, w.server), perftest("client", "load", 0, w.client, transportTo))
	t.Warmup, t.Window = max(t.Warmup, 3*time.Second), max(t.Window, 3*time.Second) // several runs
	win, err := harness.RunParts(ctx, t, parts...)
	if err != nil {
		return harness.Sample{}, err
	}
	s := win.Sample("client", "ops")
	s.Own, s.Version = s.CPU, win.Version["client"]
	s.Counts[string(metricP50)] = win.Last["client"].Counts[string(metricP50)]
	if s.Units == 0 {
		return s, errors.New("no run ended in the window: the machine is too busy for programs that poll")
	}
	return s, nil
}

// latencyIterations are those of one run of ib_write_lat.
const latencyIterations = "1000"

// onAllCPUs begins a command that may run on all CPUs, where the harness has pinned it to one.
func onAllCPUs(program string) []string {
	return []string{"taskset", "-c", "0-" + strconv.Itoa(runtime.NumCPU()-1), program}
}

func (b *rdmaBench) socket(name string) string { return filepath.Join(b.dir, name+".sock") }

// rdmaNode is a node with an RDMA device, on a host.
func (b *rdmaBench) rdmaNode(name, addr string, cpu int, in *testnet.Namespace) (harness.Part, error) {
	file := filepath.Join(b.dir, name+".yaml")
	text := fmt.Sprintf("devices:\n  - name: %s\n    addresses: [%s/24]\ncontrol: {socket: %s}\nrdma: {address: %s, everyone: true}\n", transportDev, addr, b.socket(name), addr)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return harness.Part{}, err
	}
	argv := []string{b.e.Self, "role", "run", "-ready", "state=up control=", "--"}
	argv = append(append(argv, onAllCPUs("env")...), "-u", "GOMAXPROCS", b.millrace.Path, "stack", "up", "-c", file)
	return harness.Part{Name: name + " node", CPU: cpu, In: in, Argv: argv}, nil
}
