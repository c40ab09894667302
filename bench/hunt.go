package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// huntSuite compares inspection of large captures on all cores with Suricata.
var huntSuite = harness.Suite{
	Name:   "hunt",
	Title:  "Rules over large captures",
	Rounds: 3,
	About: []string{
		"All cores. Both programs read the same rules (those of the folder MILLRACE_RULES that load here) and the same file from the " +
			"page cache, and write a line of JSON for each alert to a file: the captures of MILLRACE_PCAPS again and again, up to " +
			"MILLRACE_HUNT_BYTES bytes (10 GB by default). Each copy begins an hour after the one before, so no flow goes on.",
		"Millrace is `filter inspect`, and its time and CPU time are those of the whole process, rules and all. Suricata's begin when its engine has " +
			"started, behind the loading of its rules. It has its threads for captures (autofp, more workers than cores), " +
			"Hyperscan where it was built with it, 20 000 pending packets and memory without a limit that matters.",
		"A run fails unless its alerts grow with the copies: 98 % of those of the first copy, times copies.",
	},
	Open: openHunt,
}

// huntBench is an opened suite.
type huntBench struct {
	inspectionBench
	millrace       string
	rules, packets string
	size, copies   int
	packetsOfOne   uint64
}

func openHunt(e *harness.Env) (*harness.Bench, error) {
	folder, files, err := inspectionInput(e)
	if err != nil {
		return nil, err
	}
	program := e.BuildMillrace()
	if program.Absent != "" {
		return nil, errors.New(program.Absent)
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := &huntBench{inspectionBench: inspectionBench{e: e, dir: dir}, millrace: program.Path}
	b.findSuricata()
	notes, err := b.prepare(folder, files)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	m := harness.Measure{
		Name: "captures, all cores", Unit: "byte", Peer: suricata,
		Contestants: []harness.Contestant{
			{Name: ours, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) { return b.runMillrace(ctx) }},
			{Name: suricata, Absent: b.absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) { return b.runSuricata(ctx) }},
		},
		Gates: []harness.Gate{gate(ours, harness.MetricRate, suricata, ">=", 3), gate(ours, harness.MetricPerCPU, suricata, ">=", 1)},
	}
	return &harness.Bench{Measures: []harness.Measure{m}, Notes: notes, Close: func() error { return os.RemoveAll(dir) }}, nil
}

// prepare writes the rules and the large capture.
func (b *huntBench) prepare(folder string, files []string) ([]string, error) {
	aim := 10_000_000_000
	if s := os.Getenv("MILLRACE_HUNT_BYTES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("MILLRACE_HUNT_BYTES=%q is no number of bytes", s)
		}
		aim = n
	}
	b.rules, b.packets = filepath.Join(b.dir, "active.rules"), filepath.Join(b.dir, "hunt.pcap")
	n, err := role.CollectRules(b.rules, folder, false)
	if err != nil {
		return nil, err
	}
	one := filepath.Join(b.dir, "one.pcap")
	if err := role.CollectCaptures(one, files); err != nil {
		return nil, err
	}
	bytesOfOne, err := role.CaptureBytes(one)
	if err != nil {
		return nil, err
	}
	b.copies = max(1, (aim+bytesOfOne-1)/bytesOfOne)
	b.size = b.copies * bytesOfOne
	if b.packetsOfOne, err = role.RepeatCapture(b.packets, one, b.copies); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%d captures of %d bytes of packets, %d copies: %.2f GB; %d rules; %d cores",
		len(files), bytesOfOne, b.copies, float64(b.size)/1e9, n, runtime.GOMAXPROCS(0))}, os.Remove(one)
}

// runMillrace is one pass of filter inspect.
func (b *huntBench) runMillrace(ctx context.Context) (s harness.Sample, err error) {
	path := filepath.Join(b.dir, "alerts.json")
	out, err := os.Create(path)
	if err != nil {
		return s, err
	}
	defer out.Close()
	var report bytes.Buffer
	// As in the configuration of Suricata any address is at home.
	cmd := exec.CommandContext(ctx, b.millrace, append(append([]string{"filter", "inspect"}, anyHome()...), b.rules, b.packets)...)
	cmd.Stdout, cmd.Stderr = out, &report
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return s, fmt.Errorf("filter inspect: %w: %.1000s", err, report.String())
	}
	took := time.Since(began)
	return b.sample(path, took, processTime(cmd.ProcessState), "")
}

// anyHome returns the flags that make any address one of home.
func anyHome() []string {
	var flags []string
	for _, name := range role.InspectionNetworks() {
		flags = append(flags, "--set", name+"=any")
	}
	return flags
}

func processTime(p *os.ProcessState) time.Duration { return p.UserTime() + p.SystemTime() }

// sample makes the sample of a pass whose alerts are in a file, and checks their number.
func (b *huntBench) sample(alerts string, took, cpu time.Duration, version string) (s harness.Sample, err error) {
	total, first, err := countAlerts(alerts, b.packetsOfOne)
	if err != nil {
		return s, err
	}
	if total == 0 || float64(total) < samePairs*float64(first*b.copies) {
		return s, fmt.Errorf("%d alerts in %d copies, of which the first has %d", total, b.copies, first)
	}
	return harness.Sample{
		Units: float64(b.size), Seconds: took.Seconds(), CPU: cpu.Seconds(), Own: cpu.Seconds(), Version: version,
		Counts: map[string]uint64{"alerts": uint64(total), "alerts of the first copy": uint64(first)},
	}, nil
}

// runSuricata is one pass of Suricata on all cores, from the start of its engine on.
func (b *huntBench) runSuricata(ctx context.Context) (s harness.Sample, err error) {
	dir := filepath.Join(b.dir, "suricata")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, b.program, "-c", filepath.Join(b.e.Root, suricataConfig), "-S", b.rules, "-l", dir, "-k", "none",
		"--runmode", "autofp", "--set", "logging.default-log-level=notice", "--set", "max-pending-packets=20000",
		"--set", "flow.memcap=4gb", "--set", "stream.memcap=8gb", "--set", "stream.reassembly.memcap=16gb", "-r", b.packets)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return s, err
	}
	var out bytes.Buffer
	began, before, found := awaitEngine(io.TeeReader(pipe, &out), cmd.Process.Pid)
	if err := finish(cmd, &out); err != nil {
		return s, err
	}
	if !found {
		return s, fmt.Errorf("suricata reported no start of its engine: %.1000s", out.String())
	}
	return b.sample(filepath.Join(dir, "eve.json"), time.Since(began), processTime(cmd.ProcessState)-before, b.version)
}

// awaitEngine reads what Suricata reports to its end, and returns when its engine started, and the CPU time it had used by then.
func awaitEngine(in io.Reader, pid int) (at time.Time, used time.Duration, found bool) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if !found && strings.Contains(lines.Text(), "Engine started") {
			at, used, found = time.Now(), usedByProcess(pid), true
		}
	}
	return at, used, found
}

// usedByProcess returns the CPU time of all threads of a process that runs (proc(5), stat: fields 14 and 15).
func usedByProcess(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / clockTicks
}

const clockTicks = 100 // of proc(5) in a second (sysconf(_SC_CLK_TCK)), on all Linux machines

// countAlerts counts the alerts of a file, and those of the first packets. Alerts at the end of a flow have no number of a packet, and are not among these.
func countAlerts(path string, firstPackets uint64) (total, first int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	number := []byte(`"pcap_cnt":`)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.Contains(line, []byte(`"event_type":"alert"`)) {
			continue
		}
		total++
		at := bytes.Index(line, number)
		if at < 0 {
			continue
		}
		digits, _, _ := bytes.Cut(line[at+len(number):], []byte(","))
		if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil && n > 0 && n <= firstPackets {
			first++
		}
	}
	return total, first, lines.Err()
}
