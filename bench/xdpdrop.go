package main

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testnet"
)

// filterSuite compares what drops packets in the kernel with the least that can.
var filterSuite = harness.Suite{
	Name:  "filter",
	Title: "Dropping in XDP",
	About: []string{
		"One veth pair between two network namespaces. The kernel itself makes frames on CPU 0 and sends them; a program on " +
			"the other side drops all of them, on CPU 1. The device counts, so that the programs need not. " +
			"C is one instruction, attached by a bpf_link. filter is the same object as `millrace filter` attaches it, and " +
			"defence finds a verdict on the packet's source and counts by rule and CPU.",
		"The version of each contestant says whether filter is a component of a dispatcher or alone, which the kernel " +
			"decides: the cost of a dispatcher is in these figures only where it says so.",
	},
	Open: openFilter,
}

// smallestC is the object of the smallest program that drops.
const smallestC = "filter/ebpf/testdata/objects/drop.o"

func openFilter(e *harness.Env) (*harness.Bench, error) {
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
	return &harness.Bench{Measures: []harness.Measure{p.drop("XDP drop 64 B, live frames", 64)}, Close: net.Close}, nil
}

// drop is a measure of programs that drop what a source sends.
func (p *packetBench) drop(name string, size int) harness.Measure {
	const smallest, filter, defence = "C", "filter", "defence"
	dropper := func(name string) harness.Contestant {
		as := map[string]string{smallest: "c", filter: "filter", defence: "defence"}[name]
		argv := []string{p.e.Self, "role", "xdpdrop", "-dev", devName, "-size", strconv.Itoa(size), "-as", as, filepath.Join(p.e.Root, smallestC)}
		return harness.Contestant{Name: name, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			part := harness.Part{Name: "dropper", Argv: argv, CPU: 1, In: p.b}
			w, err := harness.RunParts(ctx, t, part, p.source(size))
			if err != nil {
				return harness.Sample{}, err
			}
			s := w.Sample("dropper", "packets")
			s.Own, s.Version = s.Parts["dropper"], w.Version["dropper"]
			if s.Units == 0 {
				return s, errors.New("nothing arrived")
			}
			return s, nil
		}}
	}
	return harness.Measure{
		Name: name, Unit: "packet", Peer: smallest,
		Contestants: []harness.Contestant{dropper(filter), dropper(defence), dropper(smallest)},
		Gates: []harness.Gate{
			gate(filter, harness.MetricPerCPU, smallest, ">=", 0.9),
			gate(defence, harness.MetricPerCPU, smallest, ">=", 0.9),
		},
	}
}
