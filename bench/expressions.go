package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// expressionSuite compares packet filter expressions with libpcap and the kernel.
var expressionSuite = harness.Suite{
	Name:  "expressions",
	Title: "Packet filter expressions",
	About: []string{
		"One core, the first 1024 Ethernet packets of the sample captures in memory, 256 a batch. libpcap runs the " +
			"program that its optimizer made, by its interpreter, a packet a call.",
		"The kernel runs the XDP form of the expression, compiled to machine code, by BPF_PROG_TEST_RUN, which repeats " +
			"each packet 10 000 times: all of its branches are predicted and its data are in the cache, so that this is " +
			"the best that it does. The call itself costs too: row \"every packet\" is that of an empty program.",
		"All contestants decide every packet once before the run and must find as many matches as the file says.",
	},
	Open: openExpressionSuite,
}

const (
	libpcap   = "libpcap"
	kernelJIT = "kernel's JIT"
)

// filterExpressions are the rows.
var filterExpressions = []string{
	"", "ip6", "tcp port 80", "host 192.168.1.1", "port 53", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
	"net 10.0.0.0/8 and not port 22", "vlan and tcp port 443",
}

func openExpressionSuite(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	done := func() error { return os.RemoveAll(dir) }
	peer := e.BuildC("bpf", "libpcap")
	var all []harness.Measure
	for i, text := range filterExpressions {
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := role.WriteExpression(path, text, e.Root); err != nil {
			return nil, errors.Join(err, done())
		}
		all = append(all, harness.Measure{
			Name: "expression " + cmp.Or(text, "of every packet"), Unit: "packet", Peer: libpcap,
			Contestants: []harness.Contestant{
				harness.OnCore(ours, "", "packets", e.Self, "role", "expression", path, text),
				harness.OnCore(kernelJIT, "", "packets", e.Self, "role", "expression", "-as", "kernel", path, text),
				harness.OnCore(libpcap, peer.Absent, "packets", peer.Path, path, text),
			},
			Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, libpcap, ">=", 5)},
		})
	}
	return &harness.Bench{Measures: all, Close: done}, nil
}
