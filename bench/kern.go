package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// kern measures the batch engine: against the libraries that a user would take instead on one core, and on
// the GPU, where there is one.
var kern = harness.Suite{
	Name:   "kern",
	Title:  "The batch engine",
	Rounds: 3,
	About: []string{
		"On one core, against what a user would take instead: literals against Hyperscan in block mode. All contestants of a " +
			"measure have the same patterns and inputs, and their numbers of matches are compared. Rules and routes are of the " +
			"suite tables (tables.md).",
		"Below, `millrace bench kern` over all operations and sizes: one core, all cores, and a GPU from host memory and " +
			"from its own. Every result of every run was compared; what the CPU wins stands in the same table. Where this " +
			"machine has no GPU, these figures may come from another one (-merge FILE), which is named then.",
	},
	Open: openKern,
}

func openKern(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	closeAll := func() error { return os.RemoveAll(dir) }
	small := filepath.Join(dir, "small.pcap")
	if err := role.WriteTraffic(small, 4096, []int{64}); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	lb := literalBench{e: e, peer: e.BuildC("hyperscan", "libhs"), dir: dir}
	literals, err := lb.measures()
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	k, err := newKernRun(e)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	measures := append([]harness.Measure{headerBench{e}.pass("header pass, one core, 64 B", small)}, literals...)
	measures = append(measures, k.measures()...)
	return &harness.Bench{Measures: measures, Pages: k.pages, Close: closeAll}, nil
}
