package main

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// A shimPart is a process of a row of suite shim.
type shimPart struct {
	name    string
	host    bool // under test; otherwise the peer, over the kernel's stack
	cpu     int
	argv    []string
	program bool     // it knows nothing of the harness: role run plays it
	flags   []string // of role run
	version string
}

// A shimRow is one thing that programs do.
type shimRow struct {
	name, unit  string
	part, count string // whose count is the unit
	parts       []shimPart
	needs       []string // programs
	warmup      time.Duration
	prepare     func() error
	gates       []harness.Gate // against the kernel
	ways        []string       // nil is usualWays
}

const (
	echoAt, hangupAt, sinkAt = 7000, 7001, 7002
)

// sample turns a run into figures. own are the parts on the host.
func (w shimRow) sample(win *harness.Window, own []string) (harness.Sample, error) {
	s := win.Sample(w.part, w.count)
	if s.Units == 0 {
		return s, errors.New("nothing was done")
	}
	for _, name := range own {
		s.Own += s.Parts[name]
	}
	s.Version = win.Version[own[len(own)-1]]
	for _, name := range []string{"p50 ns", "p99 ns"} {
		if n := win.Last[w.part].Counts[name]; n > 0 {
			s.Counts[name] = n
		}
	}
	return s, nil
}

// contestants are the names of the row's ways.
func (w shimRow) contestants() []string {
	if w.ways == nil {
		return usualWays
	}
	return w.ways
}

// socketsPart is a role of bench/peers/sockets.c.
func (b *shimBench) socketsPart(name string, host bool, cpu int, role, addr string, port int, more ...string) shimPart {
	return shimPart{name: name, host: host, cpu: cpu, argv: append([]string{b.sockets.Path, role, addr, strconv.Itoa(port)}, more...)}
}

// ratio is a gate of a contestant against the kernel.
func ratio(contestant string, m harness.Metric, op string, bound float64) harness.Gate {
	return gate(contestant, m, overKernel, op, bound)
}

// atLeast is a gate of the rate for tier 0 and for rings.
func atLeast(bound float64) []harness.Gate {
	return []harness.Gate{ratio(tier0, harness.MetricRate, ">=", bound), ratio(tier1, harness.MetricRate, ">=", bound)}
}

// rows are all there are.
func (b *shimBench) rows() []shimRow {
	return slices.Concat(b.roundTrips(), b.localBulk(), b.connections(), b.bulkRows(), b.redisRows(), b.nginxRows(), b.databaseRows())
}

func (b *shimBench) roundTrips() []shimRow {
	local := func(cpus string, server, client int) shimRow {
		return shimRow{
			name: "1 B round trip, two programs of one host, " + cpus, unit: "request", part: "client", count: "requests",
			parts: []shimPart{
				b.socketsPart("server", true, server, "echo", "127.0.0.1", echoAt),
				b.socketsPart("client", true, client, "rtt", "127.0.0.1", echoAt, "1"),
			},
			ways:  []string{overKernel, tier0, throughLoop, tier1, busyPoll},
			gates: []harness.Gate{ratio(tier1, metricP50, "<=", 0.8)},
		}
	}
	veth := func(cpus string, peer int) shimRow {
		return shimRow{
			name: "64 B round trip" + cpus, unit: "request", part: "client", count: "requests",
			parts: []shimPart{
				b.socketsPart("server", false, peer, "echo", peerAddr, echoAt),
				b.socketsPart("client", true, hostCPU, "rtt", peerAddr, echoAt, "64"),
			},
		}
	}
	far := veth("", peerCPU)
	far.gates = []harness.Gate{ratio(tier0, metricP50, "<=", 1.2), ratio(tier1, metricP50, "<=", 0.8)}
	far.ways = append(slices.Clone(usualWays), busyApart) // on one CPU with its node a program that polls only keeps that from it
	apart := local("a CPU each", peerCPU, hostCPU)
	apart.gates = append(apart.gates, ratio(busyPoll, metricP50, "<=", 0.3))
	one := veth(", host and peer on one CPU", hostCPU)
	one.ways = []string{overKernel, tier0, tier1}
	return []shimRow{far, one, local("one CPU", hostCPU, hostCPU), apart}
}

// localBulk are writes of 64 KiB from one program of the host to another.
func (b *shimBench) localBulk() (all []shimRow) {
	for _, o := range []struct {
		cpus   string
		client int
	}{{"one CPU", hostCPU}, {"a CPU each", peerCPU}} {
		all = append(all, shimRow{
			name: "64 KiB writes, two programs of one host, " + o.cpus, unit: "byte", part: "server", count: "bytes",
			parts: []shimPart{
				b.socketsPart("server", true, hostCPU, "sink", "127.0.0.1", sinkAt),
				b.socketsPart("client", true, o.client, "bulk", "127.0.0.1", sinkAt, strconv.Itoa(64<<10)),
			},
			ways: []string{overKernel, tier0, tier1, busyPoll},
		})
	}
	return all
}

func (b *shimBench) connections() []shimRow {
	return []shimRow{
		{
			name: "connect + close", unit: "connection", part: "client", count: "requests",
			parts: []shimPart{
				b.socketsPart("server", false, peerCPU, "hangup", peerAddr, hangupAt),
				b.socketsPart("client", true, hostCPU, "connect", peerAddr, hangupAt),
			},
			gates: []harness.Gate{ratio(tier0, metricP50, "<=", 2), ratio(tier1, metricP50, "<=", 2)},
		},
		{
			name: "accept + close", unit: "connection", part: "client", count: "requests",
			parts: []shimPart{
				b.socketsPart("server", true, hostCPU, "hangup", hostAddr, hangupAt),
				b.socketsPart("client", false, peerCPU, "connect", hostAddr, hangupAt),
			},
			gates: []harness.Gate{ratio(tier0, metricP50, "<=", 2), ratio(tier1, metricP50, "<=", 2)},
		},
		{
			name: "setsockopt or getsockopt of a connection", unit: "call", part: "client", count: "requests", ways: []string{overKernel, tier0},
			parts: []shimPart{
				b.socketsPart("server", false, peerCPU, "echo", peerAddr, echoAt),
				b.socketsPart("client", true, hostCPU, "options", peerAddr, echoAt),
			},
		},
	}
}
