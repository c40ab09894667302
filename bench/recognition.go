package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

const (
	nDPI = "nDPI"

	// recognitionCopies is how often the captures are in the file, with other addresses each time.
	recognitionCopies = 10
)

// recognitionAbout describes the measure in the report.
const recognitionAbout = "Recognition: `millrace replay --classify` and nDPI's reader (`ndpiReader -q`, Debian's package) read one " +
	"file, all sample captures 10 times over with other addresses, so that each copy has flows of its own. A process runs on one " +
	"CPU; its figure is its whole CPU time, without that of a run on the first packet alone, over the packets of the file. " +
	"Millrace verifies checksums, and both keep all flows to the end. How far the results agree is in docs/recognition.md."

// recognition is the measure of protocol recognition over the sample captures.
func recognition(e *harness.Env, dir string) (harness.Measure, error) {
	files, reason := role.SampleCaptures(e.Root)
	if reason != "" {
		return harness.Measure{}, errors.New(reason)
	}
	all, one := filepath.Join(dir, "flows.pcap"), filepath.Join(dir, "one.pcap")
	packets, err := role.CollectFlows(all, files, recognitionCopies)
	if err != nil {
		return harness.Measure{}, err
	}
	if err := role.CopyFirstPacket(one, all); err != nil {
		return harness.Measure{}, err
	}
	reader := func(name, absent, version string, argv ...string) harness.Contestant {
		return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
			cpu, wall, err := readBoth(ctx, argv, all, one)
			return harness.Sample{Units: float64(packets), Seconds: wall, CPU: cpu, Own: cpu, Version: version}, err
		}}
	}
	program := e.BuildMillrace()
	path, absent, version := findNDPI()
	return harness.Measure{
		Name: fmt.Sprintf("recognition, %d captures", len(files)), Unit: "packet", Peer: nDPI,
		Contestants: []harness.Contestant{
			reader(ours, program.Absent, "", program.Path, "replay", "--classify=1"),
			reader(nDPI, absent, version, path, "-q", "-i"),
		},
		Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, nDPI, ">=", 1.5)},
	}, nil
}

func findNDPI() (path, absent, version string) {
	path, err := exec.LookPath("ndpiReader")
	if err != nil {
		return "", "no ndpiReader: apt-get install libndpi-bin", ""
	}
	out, _ := exec.Command(path, "--help").Output()
	version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return path, "", strings.TrimPrefix(version, "Welcome to ")
}

// readBoth returns what reading a file costs more than reading one of a single packet does, in seconds of CPU and of
// time.
func readBoth(ctx context.Context, argv []string, all, one string) (cpu, wall float64, err error) {
	cpu, wall, err = readerTime(ctx, argv, all)
	if err != nil {
		return 0, 0, err
	}
	startCPU, startWall, err := readerTime(ctx, argv, one)
	return cpu - startCPU, wall - startWall, err
}

// readerTime runs a program on CPU 1.
func readerTime(ctx context.Context, argv []string, file string) (cpu, wall float64, err error) {
	cmd := exec.CommandContext(ctx, "taskset", append(append([]string{"-c", "1"}, argv...), file)...)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer null.Close()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = null, &said
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %.500s", filepath.Base(argv[0]), err, said.String())
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), time.Since(began).Seconds(), nil
}
