package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
)

// collectiveSuite compares package collective with Open MPI, both over TCP of the loopback interface.
var collectiveSuite = harness.Suite{
	Name:   "collective",
	Title:  "Collective operations over loopback",
	Rounds: 5,
	About: []string{
		"All-reduce of float32 (sum) between 8 processes of this machine over TCP of the loopback interface: `millrace collective bench` " +
			"and a program of Open MPI (`btl tcp,self`, `pml ob1`) that does and prints the same. A rate is 1 / median of the iterations, where " +
			"of each iteration the slowest rank counts. CPU is that of all ranks for an operation. Both choose their algorithms themselves. " +
			"Open MPI polls and yields where there are more ranks than cores (`mpi_yield_when_idle`, which it sets itself then).",
	},
	Open: openCollective,
}

const (
	collectiveRanks = "8"
	openMPI         = "Open MPI"
)

func openCollective(e *harness.Env) (*harness.Bench, error) {
	millrace, peer := e.BuildMillrace(), e.BuildC("collective_mpi", "ompi-c")
	if _, err := exec.LookPath("mpirun"); err != nil {
		peer.Absent = "no mpirun: apt-get install openmpi-bin libopenmpi-dev"
	}
	b := &harness.Bench{}
	for _, size := range []int{8, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 16 << 20} {
		bytes, iterations := strconv.Itoa(size), strconv.Itoa(min(max(32<<20/size, 20), 2000))
		b.Measures = append(b.Measures, harness.Measure{
			Name: "all-reduce " + bytes + " B", Unit: "operation", Peer: openMPI,
			Contestants: []harness.Contestant{
				{Name: ours, Absent: millrace.Absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
					return runCollective(ctx, millrace.Path, "collective", "bench", "--local", collectiveRanks, "--min", bytes, "--max", bytes, "-n", iterations, "--json")
				}},
				{Name: openMPI, Absent: peer.Absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
					return runCollective(ctx, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", collectiveRanks, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", peer.Path, bytes, iterations)
				}},
			},
			Gates: []harness.Gate{gate(ours, harness.MetricRate, openMPI, ">=", 1)},
		})
	}
	return b, nil
}

// runCollective runs a contestant, whose output is an object of JSON.
func runCollective(ctx context.Context, program string, args ...string) (s harness.Sample, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "OMPI_MCA_rmaps_base_oversubscribe=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", program, err, stderr.String())
	}
	return parseCollective(out)
}

// parseCollective makes a sample of one operation.
func parseCollective(out []byte) (s harness.Sample, err error) {
	var r struct {
		Median float64 `json:"median_us"`
		CPU    float64 `json:"cpu_us"`
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Median <= 0 || r.CPU < 0 {
		return s, fmt.Errorf("no result: %q (%v)", out, err)
	}
	return harness.Sample{Units: 1, Seconds: r.Median / 1e6, CPU: r.CPU / 1e6}, nil
}
