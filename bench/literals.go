package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/app/kernbench"
)

// literals compares the search for sets of literals with Hyperscan.
var literals = harness.Suite{
	Name:  "literals",
	Title: "Sets of literals",
	About: []string{
		"One core, a payload a call. Patterns are made as rules of intrusion detection have them: 3 to 64 bytes, " +
			"paths, headers, hosts, binary signatures, half of the texts in either case, one in twenty cut out of the " +
			"captures. Texts are the payloads of the sample captures; near misses, which are patterns with a byte " +
			"missing or changed, and hardly match; and random bytes.",
		"Both contestants search all texts once before the run and must find as many matches as the other; " +
			"Hyperscan runs in block mode and tells each end of a rule once, as we do.",
	},
	Open: openLiteralSuite,
}

const hyperscan = "Hyperscan"

func openLiteralSuite(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := literalBench{e: e, dir: dir, peer: e.BuildC("hyperscan", "libhs")}
	measures, err := b.measures()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &harness.Bench{Measures: measures, Close: func() error { return os.RemoveAll(dir) }}, nil
}

type literalBench struct {
	e    *harness.Env
	dir  string
	peer harness.Peer
}

func (b literalBench) measures() ([]harness.Measure, error) {
	captured, err := kernbench.Payloads(role.CaptureDir(b.e.Root))
	if err != nil {
		return nil, err
	}
	var all []harness.Measure
	for _, n := range []int{100, 1000, 10000} {
		patterns := kernbench.Literals(1, n, captured)
		for _, in := range []struct {
			name  string
			texts [][]byte
		}{
			{"captures", captured},
			{"near misses", kernbench.NearMisses(1, patterns, 1400, 4<<20)},
			{"random bytes", kernbench.Noise(1, 1400, 4<<20)},
		} {
			if len(in.texts) == 0 {
				continue
			}
			m, err := b.measure(fmt.Sprintf("%d literals, %s", n, in.name), patterns, in.texts)
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	return all, nil
}

func (b literalBench) measure(name string, patterns []literal.Pattern, texts [][]byte) (harness.Measure, error) {
	s, err := literal.Compile(patterns)
	if err != nil {
		return harness.Measure{}, err
	}
	p, t := filepath.Join(b.dir, name+" patterns"), filepath.Join(b.dir, name+" texts")
	if err := kernbench.WriteLiterals(p, t, patterns, texts, role.CountMatches(s, texts)); err != nil {
		return harness.Measure{}, err
	}
	return harness.Measure{
		Name: name, Unit: "byte", Peer: hyperscan,
		Contestants: []harness.Contestant{
			harness.OnCore(ours, "", "bytes", b.e.Self, "role", "literals", p, t),
			harness.OnCore(hyperscan, b.peer.Absent, "bytes", b.peer.Path, p, t),
		},
		Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, hyperscan, ">=", 1/3.0)},
	}, nil
}
