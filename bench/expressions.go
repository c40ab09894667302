package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// expressionSuite compares packet filter expressions with libpcap and the kernel.
var expressionSuite = harness.Suite{
	Name:  "expressions",
	Title: "Packet filter expressions",
	About: []string{
		"One core, Ethernet packets of all sample captures in frames of 2 KiB on huge pages, 256 a batch: hot is one batch over " +
			"and over, cold is 131 072 frames, 256 MiB. millrace decides batches as the engine's header pass leaves them, bare " +
			"such without it. libpcap runs the program that its optimizer made, by its interpreter, a packet a call.",
		"The kernel compiles the same optimized program to machine code, for a socket (SO_ATTACH_FILTER). It is sent the hot " +
			"packets, with so many copies of the program behind each other as its version says, and dropped; the CPU time of the same " +
			"sends with a filter of one instruction is subtracted. So neither the call of the program nor a miss of the cache is in " +
			"the kernel's figure, and most of its branches are predicted from the copy before. Its CPU time is this difference, and " +
			"its rate says nothing.",
		"All contestants decide every packet once before the run and must find as many matches as the file says.",
	},
	Open: openExpressionSuite,
}

const (
	libpcap   = "libpcap"
	kernelJIT = "kernel's JIT"
	bare      = "bare"

	hotFrames  = 256
	coldFrames = 131072
)

// filterExpressions are the rows: name, if it is not the expression, and the expression.
var filterExpressions = []struct{ name, text string }{
	{"every packet", ""},
	{"", "ip6"},
	{"", "tcp"},
	{"", "arp or icmp"},
	{"", "tcp port 80"},
	{"", "port 53"},
	{"", "host 192.168.1.1"},
	{"", "net 10.0.0.0/8 and not port 22"},
	{"", "not broadcast and not multicast"},
	{"", "vlan and tcp port 443"},
	{"", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0"},
	{"", "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420"},
	{"", "udp and len > 500 and ip[8] < 64"},
	{"", "tcp portrange 8000-8999 or udp portrange 5000-5999"},
	{"", "ip and not (host 192.168.1.1 or host 10.0.0.1) and (tcp port 80 or 443 or 8080 or udp port 53 or 123)"},
	{"100 ports", listOf("port %d", func(i int) []any { return []any{1000 + 7*i} })},
	{"100 hosts", listOf("host 10.1.%d.%d", func(i int) []any { return []any{i, i + 3} })},
	{"100 networks with ports", listOf("(src net 10.%d.0.0/16 and dst port %d)", func(i int) []any { return []any{i, 1000 + i} })},
}

// coldExpressions are measured with cold packets too.
var coldExpressions = []string{"ip6", "tcp port 80", "host 192.168.1.1", "100 ports"}

func listOf(format string, of func(int) []any) string {
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf(format, of(i)...))
	}
	return strings.Join(all, " or ")
}

func openExpressionSuite(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := expressionBench{e: e, dir: dir, peer: e.BuildC("bpf", "libpcap")}
	all, err := b.measures()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &harness.Bench{Measures: all, Close: func() error { return os.RemoveAll(dir) }}, nil
}

type expressionBench struct {
	e    *harness.Env
	dir  string
	peer harness.Peer
}

func (b expressionBench) measures() (all []harness.Measure, err error) {
	named := map[string]string{}
	for _, x := range filterExpressions {
		if x.name == "" {
			x.name = x.text
		}
		named[x.name] = x.text
		m, err := b.measure(x.name, x.text, hotFrames)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	for _, name := range coldExpressions {
		m, err := b.measure(name, named[name], coldFrames)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// measure compares all contestants with hot packets, and those of user space with cold ones.
func (b expressionBench) measure(name, text string, frames int) (harness.Measure, error) {
	label := map[int]string{hotFrames: "hot", coldFrames: "cold"}[frames]
	path := filepath.Join(b.dir, label+" "+strings.ReplaceAll(name, "/", "_"))
	if err := role.WriteExpression(path, text, b.e.Root, frames); err != nil {
		return harness.Measure{}, err
	}
	count := strconv.Itoa(frames)
	m := harness.Measure{
		Name: label + ": " + name, Unit: "packet", Peer: libpcap,
		Contestants: []harness.Contestant{
			harness.OnCore(ours, "", "packets", b.e.Self, "role", "expression", path, count, text),
			harness.OnCore(bare, "", "packets", b.e.Self, "role", "expression", "-as", "bare", path, count, text),
			harness.OnCore(libpcap, b.peer.Absent, "packets", b.peer.Path, path, count, text),
		},
		Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, libpcap, ">=", 5)},
	}
	if frames == hotFrames && text != "" { // the kernel runs nothing for that
		m.Contestants = append(m.Contestants, measuredItself(harness.OnCore(kernelJIT, b.peer.Absent, "packets", b.peer.Path, path, count, text, "kernel")))
		m.Gates = append(m.Gates, gate(ours, harness.MetricPerCPU, kernelJIT, ">=", 1))
	}
	return m, nil
}

// measuredItself is a contestant whose CPU time is only a part of what it uses, so that the rest must not count as
// that of others.
func measuredItself(c harness.Contestant) harness.Contestant {
	run := c.Run
	c.Run = func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		s, err := run(ctx, t)
		s.CPUs = 0
		return s, err
	}
	return c
}
