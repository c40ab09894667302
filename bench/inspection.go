package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/app/kernbench"
)

// inspectionSuite compares inspection by rules with Suricata.
var inspectionSuite = harness.Suite{
	Name:   "inspection",
	Title:  "Inspection rules",
	Rounds: 3,
	About: []string{
		"One core. Both programs read the same rules (those of the folder MILLRACE_RULES that load here, such as the public ET-open " +
			"set) and the same captures (MILLRACE_PCAPS), all in one file, from disk, and write a line of JSON for each alert to a file. " +
			"Any address is at home.",
		"Suricata is Debian's package with one worker (`--runmode single`): the figure is the CPU time of the worker's thread " +
			"for one pass, without its other threads and without the time to load the rules. Millrace is a process whose CPU " +
			"time is counted whole, garbage collection included, over passes that each begin without flows.",
		"A pair is a rule and two ends that it matched between. A run of Suricata fails unless 98 % of its pairs are found " +
			"by Millrace too; docs/inspection.md lists what differs. Suricata reports a rule of a stream several times, so that " +
			"it writes more lines.",
		"To load rules, Millrace reads, checks and compiles them; Suricata's figure is its process with a capture of one packet.",
	},
	Open: openInspectionSuite,
}

const (
	suricata       = "Suricata"
	suricataConfig = "internal/testkit/interop/testdata/suricata/suricata.yaml"
	samePairs      = 0.98 // of the pairs of Suricata are to be found
)

// inspectionBench is an opened suite.
type inspectionBench struct {
	e       *harness.Env
	dir     string
	program string
	absent  string // why there is no Suricata
	version string
}

// inspectionInput returns the folder of rules and the captures of the suites of inspection.
func inspectionInput(e *harness.Env) (folder string, captures []string, err error) {
	if folder = os.Getenv("MILLRACE_RULES"); folder == "" {
		return "", nil, errors.New("MILLRACE_RULES names no folder of rules")
	}
	captures, reason := role.SampleCaptures(e.Root)
	if reason != "" {
		return "", nil, errors.New(reason)
	}
	return folder, captures, nil
}

func openInspectionSuite(e *harness.Env) (*harness.Bench, error) {
	folder, files, err := inspectionInput(e)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := &inspectionBench{e: e, dir: dir}
	b.findSuricata()
	measures, notes, err := b.measures(folder, files)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &harness.Bench{Measures: measures, Notes: notes, Close: func() error { return os.RemoveAll(dir) }}, nil
}

func (b *inspectionBench) findSuricata() {
	path, err := exec.LookPath("suricata")
	if err != nil {
		b.absent = "no suricata: apt-get install suricata"
		return
	}
	b.program = path
	out, _ := exec.Command(path, "-V").Output()
	b.version = strings.TrimPrefix(strings.TrimSpace(string(out)), "This is ")
}

func (b *inspectionBench) measures(folder string, files []string) ([]harness.Measure, []string, error) {
	active, all, packets := filepath.Join(b.dir, "active.rules"), filepath.Join(b.dir, "all.rules"), filepath.Join(b.dir, "all.pcap")
	nActive, err := role.CollectRules(active, folder, false)
	if err != nil {
		return nil, nil, err
	}
	nAll, err := role.CollectRules(all, folder, true)
	if err != nil {
		return nil, nil, err
	}
	if err := role.CollectCaptures(packets, files); err != nil {
		return nil, nil, err
	}
	want, err := role.InspectionPairs(active, packets)
	if err != nil {
		return nil, nil, err
	}
	inspection := harness.Measure{
		Name: "captures", Unit: "byte", Peer: suricata,
		Contestants: []harness.Contestant{
			harness.OnCore(ours, "", "bytes", b.e.Self, "role", "inspection", active, packets, filepath.Join(b.dir, "alerts.json")),
			{Name: suricata, Absent: b.absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
				return b.inspect(ctx, active, packets, want)
			}},
		},
		Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, suricata, ">=", 1)},
	}
	load := func(name, path string, n int) harness.Measure {
		return harness.Measure{
			Name: fmt.Sprintf("%s: %d rules to load", name, n), Unit: "rule", Peer: suricata,
			Contestants: []harness.Contestant{
				harness.OnCore(ours, "", "rules", b.e.Self, "role", "rule-load", path),
				{Name: suricata, Absent: b.absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
					return b.load(ctx, path, packets, n)
				}},
			},
			Gates: []harness.Gate{gate(ours, harness.MetricCost, "", "<=", 1e9/25_000)}, // 25 000 rules in a second
		}
	}
	notes := []string{fmt.Sprintf("%d captures, %d active rules, %d with those that are commented out, %d pairs found by Millrace",
		len(files), nActive, nAll, len(want))}
	return []harness.Measure{inspection, load("active", active, nActive), load("all", all, nAll)}, notes, nil
}

// start starts Suricata on the second CPU; what it says goes to out.
func (b *inspectionBench) start(ctx context.Context, out *bytes.Buffer, dir, rules, packets string) (*exec.Cmd, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "taskset", "-c", "1", b.program, "-c", filepath.Join(b.e.Root, suricataConfig), "-S", rules, "-l", dir,
		"-k", "none", "--runmode", "single", "-r", packets)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, cmd.Start()
}

// finish waits for Suricata's end.
func finish(cmd *exec.Cmd, out *bytes.Buffer) error {
	err := cmd.Wait()
	if err == nil && bytes.Contains(out.Bytes(), []byte("E: ")) {
		err = errors.New("it reports errors")
	}
	if err != nil {
		return fmt.Errorf("suricata: %w: %.1000s", err, out.String())
	}
	return nil
}

// inspect is one pass of Suricata over a capture.
func (b *inspectionBench) inspect(ctx context.Context, rules, packets string, want map[role.Pair]bool) (s harness.Sample, err error) {
	dir := filepath.Join(b.dir, "suricata")
	var out bytes.Buffer
	cmd, err := b.start(ctx, &out, dir, rules, packets)
	if err != nil {
		return s, err
	}
	worker := make(chan threadTime, 1)
	go func() { worker <- watchThread(cmd.Process.Pid, "W#") }()
	err = finish(cmd, &out)
	w := <-worker
	if err != nil {
		return s, err
	}
	if w.cpu == 0 {
		return s, errors.New("no thread of a worker was seen")
	}
	pairs, alerts, err := readPairs(filepath.Join(dir, "eve.json"))
	if err != nil {
		return s, err
	}
	both := 0
	for p := range pairs {
		if want[p] {
			both++
		}
	}
	if float64(both) < samePairs*float64(len(pairs)) {
		return s, fmt.Errorf("of %d pairs that Suricata reports, Millrace finds %d", len(pairs), both)
	}
	size, err := role.CaptureBytes(packets)
	if err != nil {
		return s, err
	}
	return harness.Sample{
		Units: float64(size), Seconds: w.wall.Seconds(), CPU: w.cpu.Seconds(), Own: w.cpu.Seconds(), Version: b.version,
		Counts: map[string]uint64{"alerts": uint64(alerts), "pairs": uint64(len(pairs)), "pairs of both": uint64(both)},
	}, nil
}

// load is a run of Suricata with hardly anything to inspect.
func (b *inspectionBench) load(ctx context.Context, rules, packets string, n int) (s harness.Sample, err error) {
	one := filepath.Join(b.dir, "one.pcap")
	if err := role.CopyFirstPacket(one, packets); err != nil {
		return s, err
	}
	var out bytes.Buffer
	began := time.Now()
	cmd, err := b.start(ctx, &out, filepath.Join(b.dir, "suricata"), rules, one)
	if err != nil {
		return s, err
	}
	if err := finish(cmd, &out); err != nil {
		return s, err
	}
	cpu := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return harness.Sample{Units: float64(n), Seconds: time.Since(began).Seconds(), CPU: cpu, Own: cpu, Version: b.version}, nil
}

// threadTime is what a thread has used, and for how long it has been seen to use more.
type threadTime struct{ cpu, wall time.Duration }

// watchThread reads the CPU time of the thread of a process whose name begins with a text until the process ends. What the
// thread uses in the last milliseconds before is lost, in which it waits for the main thread.
func watchThread(pid int, name string) (t threadTime) {
	var file string
	var first time.Time
	for {
		time.Sleep(2 * time.Millisecond)
		if file == "" {
			if file = threadFile(pid, name); file == "" {
				if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "task")); err != nil {
					return t
				}
				continue
			}
			first = time.Now()
		}
		b, err := os.ReadFile(file)
		if err != nil || len(b) == 0 {
			return t
		}
		ns, _, _ := strings.Cut(string(b), " ") // proc(5), schedstat: time on the CPU first
		if n, err := strconv.ParseInt(ns, 10, 64); err == nil && time.Duration(n) > t.cpu {
			t = threadTime{time.Duration(n), time.Since(first)}
		}
	}
}

// threadFile returns where the kernel counts the time of a thread; "" where there is none.
func threadFile(pid int, name string) string {
	tasks, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*"))
	for _, dir := range tasks {
		if comm, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil && strings.HasPrefix(string(comm), name) {
			return filepath.Join(dir, "schedstat")
		}
	}
	return ""
}

// readPairs reads the alerts that Suricata has written.
func readPairs(path string) (pairs map[role.Pair]bool, alerts int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	pairs = map[role.Pair]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var j role.AlertLine
		if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
			return nil, 0, err
		}
		if j.Event == "alert" {
			alerts++
			pairs[j.Pair()] = true
		}
	}
	return pairs, alerts, lines.Err()
}

// inspectionGatewaySuite is the cost of inspection in the gateway.
var inspectionGatewaySuite = harness.Suite{
	Name:   "inspection-gateway",
	Title:  "Inspection in the gateway",
	Rounds: 3,
	About: []string{
		"The site of suite l4: client -- gateway -- backend, datagrams in one direction, on AF_XDP. none forwards; the others inspect each packet by " +
			"10 000 rules with one content each, made as rules of intrusion detection have them, in mode detect. own is the CPU " +
			"time of the gateway's process for a packet.",
		"One flow of full packets shows the search, many flows of 64 bytes all else. Datagrams are not joined where rules are, so " +
			"none does not join them either: it has a limit on packets that nothing reaches.",
		"The row on HTTP forwards connections of HTTP, whose requests and responses all rules of a folder are evaluated on (MILLRACE_RULES, " +
			"ET-open for the published figures), or rules of the same shape where none is named.",
		"cuda has a GPU search the payloads.",
	},
	Open: openL4((*l4Bench).inspected),
}

// Names of contestants of the suite.
const (
	notInspected  = "none"
	inspectedCPU  = "10 000 literals"
	inspectedCUDA = "10 000 literals, cuda"
)

func (b *l4Bench) inspected() ([]harness.Measure, error) {
	rules, err := writeLiteralRules(b.dir, 10_000)
	if err != nil {
		return nil, err
	}
	none, cpu, cuda := usual("afxdp"), usual("afxdp"), usual("afxdp")
	none.Apart = true
	cpu.Rules, cuda.Rules, cuda.Engine = rules, rules, "cuda"
	contestants := []forwarder{b.gatewayOf(notInspected, none), b.gatewayOf(inspectedCPU, cpu), b.gatewayOf(inspectedCUDA, cuda)}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		contestants[2].absent = "no GPU"
	}
	many := b.inspectedMeasure("UDP 64 B, 16 384 flows", manyFlows, 64, contestants, b.liveFrames)
	one := b.inspectedMeasure("UDP 1242 B, 1 flow of a socket", 1, 1242, contestants, nil)
	http, err := b.inspectedHTTP()
	return []harness.Measure{many, one, http}, err
}

func (b *l4Bench) inspectedMeasure(name string, flows uint, size int, contestants []forwarder, send sender64) harness.Measure {
	m := harness.Measure{Name: name, Unit: "packet", Peer: notInspected, Gates: []harness.Gate{
		gate(inspectedCPU, harness.MetricOwn, notInspected, "<=", 2),
		gate(inspectedCUDA, harness.MetricOwn, notInspected, "<=", 1.2),
	}}
	for _, f := range contestants {
		f.options = siteOptions{wire: true}
		m.Contestants = append(m.Contestants, f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
			if flows > 1 {
				t.Warmup = max(t.Warmup, t.Window) // to open the connections
			}
			source := harness.Part{
				Name: "source", CPU: 0, In: s.client,
				Argv: []string{b.e.Self, "role", "datagrams", "-size", fmt.Sprint(size), "-to", fmt.Sprintf("%s:%d", serviceAddr, udpPort)},
			}
			if send != nil {
				source = send(s, s.streamTo(f, flows, 1))
			}
			w, err := harness.RunParts(ctx, t, append(append([]harness.Part{b.sinkPart(s)}, f.part(s)...), source)...)
			if err != nil {
				return harness.Sample{}, err
			}
			return w.Delivered("source", "gateway", "sink")
		}))
	}
	return m
}

// writeLiteralRules writes n rules with one content each, and returns the file.
func writeLiteralRules(dir string, n int) (string, error) {
	var out strings.Builder
	for i, p := range kernbench.Literals(1, n, nil) {
		fmt.Fprintf(&out, "alert ip any any -> any any (msg:\"literal %d\"; content:\"%s\"; %ssid:%d;)\n", i, hexContent(p), noCase(p), i+1)
	}
	path := filepath.Join(dir, "literals.rules")
	return path, os.WriteFile(path, []byte(out.String()), 0o600)
}

// hexContent is a content in bytes.
func hexContent(p literal.Pattern) string { return fmt.Sprintf("|% x|", p.Bytes) }

func noCase(p literal.Pattern) string {
	if p.NoCase {
		return "nocase; "
	}
	return ""
}
