package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// filterSuite compares what drops packets in the kernel with the least that can.
var filterSuite = harness.Suite{
	Name:  "filter",
	Title: "Dropping in XDP, and recognition of protocols",
	About: []string{
		"One veth pair between two network namespaces. The kernel itself makes frames on CPU 0 and sends them; a program on " +
			"the other side drops all of them, on CPU 1. The device counts, so that the programs need not. " +
			"C is one instruction, attached by a bpf_link. filter is the same object as `millrace filter` attaches it, and " +
			"defence, that of the gateway, finds a verdict on the packet's source, which has a time, and counts by rule and CPU; " +
			"or one on 0.0.0.0/0, as of a prefix of any length.",
		"The version of each contestant says whether filter is a component of a dispatcher or alone, which the kernel " +
			"decides: the cost of a dispatcher is in these figures only where it says so.",
		"The program alone is what is attached, run by BPF_PROG_TEST_RUN again and again on one frame, of which the kernel's time " +
			"is counted: there the loop around the program is all that contestants share.",
		"The time of a verdict is from the packet that the gateway (AF_XDP, one loop on CPU 1) decides on, or the operator's command, " +
			"to the first packet of the source that XDP drops. The source sends a packet in 4 us; failed are those of which none was " +
			"dropped within 12 ms. The operator's includes the request on the control socket.",
		recognitionAbout,
	},
	Open: openFilter,
}

// smallestC is the object of the smallest program that drops.
const smallestC = "filter/ebpf/testdata/objects/drop.o"

func openFilter(e *harness.Env) (*harness.Bench, error) {
	p, dir, closeAll, err := newPacketBench(e)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.a.Up(devName, "198.18.0.2/24"), p.b.Up(devName, "198.18.0.1/24")); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	apps, err := recognition(e, dir)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &harness.Bench{Close: closeAll, Measures: []harness.Measure{
		p.drop("XDP drop 64 B, live frames", 64, false),
		p.drop("XDP drop 64 B, the program alone", 64, true),
		p.verdict("from a verdict to the drop in XDP", dir, e.BuildMillrace()),
		apps,
	}}, nil
}

// drop is a measure of programs that drop what a source sends, or one frame when they are run alone.
func (p *packetBench) drop(name string, size int, alone bool) harness.Measure {
	const smallest, filter, defence, prefix = "C", "filter", "defence", "defence, a prefix"
	dropper := func(name string) harness.Contestant {
		as := map[string]string{smallest: "c", filter: "filter", defence: "defence", prefix: "prefix"}[name]
		argv := []string{p.e.Self, "role", "xdpdrop", "-dev", devName, "-size", strconv.Itoa(size), "-as", as, filepath.Join(p.e.Root, smallestC)}
		if alone {
			argv = append(argv, role.RunAlone)
		}
		return harness.Contestant{Name: name, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			part := harness.Part{Name: "dropper", Argv: argv, CPU: 1, In: p.b}
			parts := []harness.Part{part}
			if !alone {
				parts = append(parts, p.source(size))
			}
			w, err := harness.RunParts(ctx, t, parts...)
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
	m := harness.Measure{
		Name: name, Unit: "packet", Peer: smallest,
		Contestants: []harness.Contestant{dropper(filter), dropper(defence), dropper(prefix), dropper(smallest)},
		Gates:       []harness.Gate{gate(filter, harness.MetricPerCPU, smallest, ">=", 0.9)},
	}
	if !alone { // where one instruction costs next to nothing, a look-up of any kind is many times as much
		m.Gates = append(m.Gates, gate(defence, harness.MetricPerCPU, smallest, ">=", 0.9))
	}
	return m
}

// verdictConfig is a gateway with a defence, whose backend is the client's host: an answer is not needed.
const verdictConfig = `
devices: [{name: %[1]s, driver: afxdp}]
snat: 198.18.2.1
admin: {socket: %[2]s}
limits: {packets: %[3]d, burst: %[4]dms}
services: [{name: dns, protocol: udp, address: %[5]q, backends: [{address: "198.18.0.2:53"}]}]
%[6]s
`

// verdict is a measure of the time from what the gateway decides on to the first packet that XDP drops.
func (p *packetBench) verdict(name string, dir string, millrace harness.Peer) harness.Measure {
	m := harness.Measure{Name: name, Unit: "verdict"}
	for _, as := range []string{"inspection", "limits", "operator"} {
		m.Contestants = append(m.Contestants, harness.Contestant{Name: as, Absent: millrace.Absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			return p.verdicts(ctx, t.Opening(), dir, millrace.Path, as)
		}})
		m.Gates = append(m.Gates,
			gate(as, harness.P50, "", "<=", 1000), gate(as, harness.P99, "", "<=", 10_000), gate(as, "failed", "", "<=", 0))
	}
	return m
}

func (p *packetBench) verdicts(ctx context.Context, t harness.Timing, dir, millrace, as string) (s harness.Sample, err error) {
	file, socket := filepath.Join(dir, as+".yaml"), filepath.Join(dir, as+".sock")
	// Only what is measured may decide: without a limit, and with one that is reached soon.
	limit, more := 1_000_000, "defence: {time: 30s}"
	switch as {
	case "limits":
		limit, more = role.VerdictLimit, fmt.Sprintf("defence: {time: 30s, limits: {excess: %d, action: drop}}", role.VerdictExcess)
	case "inspection":
		rules := filepath.Join(dir, "verdict.rules")
		text := fmt.Sprintf("drop udp any any -> any any (msg:\"verdict\"; content:\"%s\"; sid:1;)\n", role.VerdictText)
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			return s, err
		}
		more = fmt.Sprintf("defence: {time: 30s, inspection: {}}\ninspection: {policies: [{name: p, mode: prevent, rules: [%s]}]}", rules)
	}
	text := fmt.Sprintf(verdictConfig, devName, socket, limit, role.VerdictBurst*1000/role.VerdictLimit, role.VerdictService, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return s, err
	}
	mac, err := linkAddress(p.b)
	if err != nil {
		return s, err
	}
	gateway := harness.Part{Name: "gateway", CPU: 1, In: p.b, Argv: []string{
		p.e.Self, "role", "run", "-version", "millrace gateway, afxdp", "-ready", "msg=gateway", "--", millrace, "gateway", "-c", file,
	}}
	client := harness.Part{Name: "client", CPU: 0, In: p.a, Argv: []string{p.e.Self, "role", "verdicts", "-dev", devName, "-as", as, socket, mac}}
	w, err := harness.RunParts(ctx, t, gateway, client)
	if err != nil {
		return s, err
	}
	s = w.Sample("client", "verdicts")
	s.Counts, s.Version = w.Final["client"].Counts, w.Version["client"]
	if s.Units == 0 {
		return s, errors.New("XDP has dropped nothing")
	}
	return s, nil
}

// linkAddress returns that of the device in a namespace.
func linkAddress(ns *testnet.Namespace) (mac string, err error) {
	err = ns.Do(func() error {
		nic, err := net.InterfaceByName(devName)
		if err == nil {
			mac = nic.HardwareAddr.String()
		}
		return err
	})
	return mac, err
}

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
