package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gpukern"
)

// Names of contestants of the header measures.
const (
	allOps    = "all operations"
	parseOnly = "parse only"
	reference = "reference"
	goLayers  = "gopacket layers"
	goChecked = "gopacket checked"
	goPackets = "gopacket packets"
	threeOps  = "parse, checksum, hash"

	opsThree = gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash
)

// headerMeasures are the header pass over batches in memory and the replay of captures in memory,
// on one core. Synthesized captures are written to dir.
func headerMeasures(e *harness.Env, dir string) ([]harness.Measure, []string, error) {
	small, mixed := filepath.Join(dir, "small.pcap"), filepath.Join(dir, "imix.pcap")
	if err := role.WriteTraffic(small, 4096, []int{64}); err != nil {
		return nil, nil, fmt.Errorf("synthesize traffic: %w", err)
	}
	if err := role.WriteTraffic(mixed, 16384, role.IMIX); err != nil {
		return nil, nil, fmt.Errorf("synthesize traffic: %w", err)
	}
	samples, absent := role.SampleCaptures(e.Root)
	notes := []string{fmt.Sprintf("synthesized captures: TCP and UDP over IPv4 by halves, random addresses; 4096 packets of 64 B, 16384 of the IMIX (7 x 60, 4 x 590, 1 x 1514 B); tables: %d rules, %d routes", role.TableRules, role.TableRoutes)}
	if absent == "" {
		notes = append(notes, fmt.Sprintf("sample captures: %d files that are read to their end, %.1f MB", len(samples), megabytes(samples)))
	}
	h := headerBench{e}
	return []harness.Measure{
		h.pass("header pass, 64 B", small),
		h.replay("replay, sample captures", absent, samples),
		h.replay("replay, synthesized IMIX", "", []string{mixed}),
	}, notes, nil
}

func megabytes(files []string) float64 {
	var sum int64
	for _, f := range files {
		if i, err := os.Stat(f); err == nil {
			sum += i.Size()
		}
	}
	return float64(sum) / 1e6
}

type headerBench struct{ e *harness.Env }

// contestant runs role headers on CPU 1.
func (h headerBench) contestant(name, absent, as string, ops gpukern.Ops, files []string) harness.Contestant {
	argv := append([]string{h.e.Self, "role", "headers", "-as", as, "-ops", strconv.Itoa(int(ops))}, files...)
	return harness.OnCore(name, absent, "packets", argv...)
}

func (h headerBench) pass(name, file string) harness.Measure {
	files := []string{file}
	return harness.Measure{
		Name: name, Unit: "packet", Peer: goLayers,
		Contestants: []harness.Contestant{
			h.contestant(allOps, "", "engine", gpukern.OpsHeader, files),
			h.contestant(threeOps, "", "engine", opsThree, files),
			h.contestant(parseOnly, "", "engine", gpukern.OpParse, files),
			h.contestant(reference, "", "reference", gpukern.OpsHeader, files),
			h.contestant(goLayers, "", "layers", 0, files),
			h.contestant(goChecked, "", "checked", 0, files),
		},
		Gates: []harness.Gate{
			gate(allOps, harness.MetricPerCPU, "", ">=", 10e6),
			gate(allOps, "allocs", "", "<=", 0),
		},
	}
}

func (h headerBench) replay(name, absent string, files []string) harness.Measure {
	return harness.Measure{
		Name: name, Unit: "packet", Peer: goLayers,
		Contestants: []harness.Contestant{
			h.contestant(allOps, absent, "replay", gpukern.OpsHeader, files),
			h.contestant(threeOps, absent, "replay", opsThree, files),
			h.contestant(parseOnly, absent, "replay", gpukern.OpParse, files),
			h.contestant(goLayers, absent, "layers", 0, files),
			h.contestant(goChecked, absent, "checked", 0, files),
			h.contestant(goPackets, absent, "packets", 0, files),
		},
		Gates: []harness.Gate{
			gate(allOps, harness.MetricPerCPU, "", ">=", 8e6),
			gate(allOps, "allocs", "", "<=", 0),
		},
	}
}
