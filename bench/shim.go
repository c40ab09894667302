package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench/harness"
)

// shimSuite compares programs over the kernel's stack with the same programs under millrace exec.
var shimSuite = harness.Suite{
	Name:   "shim",
	Title:  "Unmodified programs: millrace exec against the kernel's sockets",
	Rounds: 3,
	About: []string{
		"Two network namespaces, host -- peer, joined by a veth pair and made anew for every run; checksum and segmentation offloads " +
			"are off at both ends. The peer uses the kernel's stack on CPU 0. The program under test is on CPU 1 with its stack: the " +
			"kernel's, or `millrace stack up` over AF_XDP, whose loop sleeps when it has no work. Both see the same programs with the same configuration. " +
			"Rows of two programs of one host say which CPUs they have. A contestant with its node apart has that on a third CPU, as a stack that " +
			"polls is deployed: it has two CPUs where the kernel has one, so own is to be read beside the rate. The node has as many processors of " +
			"Go (GOMAXPROCS) as CPUs, which is Go's own choice.",
		"own is the CPU time per operation of what is on the host: the program, its children and the node. A loop that waits spins for up to " +
			"100 us before it sleeps, which is in its CPU time. Meanwhile it offers the CPU to others, such as the program.",
	},
	Open: openShim,
}

// Contestants of suite shim.
const (
	overKernel  = "kernel"
	tier0       = "tier 0"
	throughLoop = "tier 0, through the loop"
	tier1       = "rings"
	busyPoll    = "rings, busy-poll"
	tier0Apart  = "tier 0, node apart"
	tier1Apart  = "rings, node apart"
	busyApart   = "rings, busy-poll, node apart"
)

// A way is how a contestant runs programs.
type way struct {
	name   string
	flags  []string // of millrace exec
	config string   // of section shim of the node
	apart  bool     // the node has a CPU of its own
}

// ways are all there are.
var ways = []way{
	{name: overKernel},
	{name: tier0},
	{name: throughLoop, config: ", through_loop: true"},
	{name: tier1, flags: []string{"--rings"}},
	{name: busyPoll, flags: []string{"--rings", "--busy-poll", "50us"}},
	{name: tier0Apart, apart: true},
	{name: tier1Apart, flags: []string{"--rings"}, apart: true},
	{name: busyApart, flags: []string{"--rings", "--busy-poll", "50us"}, apart: true},
}

// usualWays are those of most rows.
var usualWays = []string{overKernel, tier0, tier1, tier0Apart, tier1Apart}

// withNodeApart has the contestants that differ from others only in where the node runs.
var withNodeApart = map[string]string{tier0: tier0Apart, tier1: tier1Apart, busyPoll: busyApart}

// shimBench is the opened suite.
type shimBench struct {
	e        *harness.Env
	dir      string // of configurations, sockets and logs
	millrace harness.Peer
	sockets  harness.Peer
	help     string // of millrace exec
}

func openShim(e *harness.Env) (*harness.Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for the peer and one for the host")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	if said, err := exec.Command("make", "-s", "-C", e.Root, "preload").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make preload: %w: %s", err, said)
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // PostgreSQL runs as a user of its own
	}
	if err != nil {
		return nil, err
	}
	b := &shimBench{e: e, dir: dir, millrace: e.BuildMillrace(), sockets: e.BuildC("sockets")}
	if b.millrace.Absent == "" {
		said, _ := exec.Command(b.millrace.Path, "exec", "--help").CombinedOutput() // without it, no flag is known
		b.help = string(said)
	}
	return &harness.Bench{Measures: b.measures(), Close: func() error { return os.RemoveAll(dir) }}, nil
}

// absent says why a row cannot run in a way, if so.
func (b *shimBench) absent(v *way, w *shimRow) string {
	if v.name != overKernel && b.millrace.Absent != "" {
		return b.millrace.Absent
	}
	if v.apart && runtime.NumCPU() <= nodeCPU {
		return "three CPUs are needed"
	}
	for _, f := range v.flags {
		if strings.HasPrefix(f, "--") && !strings.Contains(b.help, f) {
			return "millrace exec has no " + f
		}
	}
	for _, program := range w.needs {
		if why := missing(program); why != "" {
			return why
		}
	}
	return b.sockets.Absent
}

// measures are all rows with all contestants.
func (b *shimBench) measures() (all []harness.Measure) {
	for _, w := range b.rows() {
		m := harness.Measure{Name: w.name, Unit: w.unit, Peer: overKernel}
		for _, v := range ways {
			if slices.Contains(w.contestants(), v.name) {
				m.Contestants = append(m.Contestants, b.contestant(v, w))
			}
		}
		for _, g := range w.gates {
			g.Against = overKernel
			m.Gates = append(m.Gates, g)
			if apart := withNodeApart[g.Contestant]; slices.Contains(w.contestants(), apart) {
				g.Contestant = apart
				m.Gates = append(m.Gates, g)
			}
		}
		all = append(all, m)
	}
	return all
}

func (b *shimBench) contestant(v way, w shimRow) harness.Contestant {
	return harness.Contestant{Name: v.name, Absent: b.absent(&v, &w), Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		return b.run(ctx, t, &v, w)
	}}
}

// run measures a row once.
func (b *shimBench) run(ctx context.Context, t harness.Timing, v *way, w shimRow) (sample harness.Sample, err error) {
	if w.prepare != nil {
		if err := w.prepare(); err != nil {
			return sample, err
		}
	}
	s, err := newPair(v.name == overKernel)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	own := []string{}
	var parts []harness.Part
	if v.name != overKernel {
		node, err := b.node(s, v)
		if err != nil {
			return sample, err
		}
		parts, own = append(parts, node), append(own, node.Name)
	}
	for _, p := range w.parts {
		part := harness.Part{Name: p.name, CPU: p.cpu, In: s.peer, Argv: p.argv}
		if p.host {
			part.In, own = s.host, append(own, p.name)
			part.Argv = b.under(v, p.argv)
		}
		if p.program { // it knows nothing of the harness
			part.Argv = append(append([]string{b.e.Self, "role", "run", "-version", p.version}, p.flags...), append([]string{"--"}, part.Argv...)...)
		}
		parts = append(parts, part)
	}
	if w.warmup > t.Warmup {
		t.Warmup = w.warmup
	}
	win, err := harness.RunParts(ctx, t, parts...)
	if err != nil {
		return sample, err
	}
	return w.sample(win, own)
}

// node is the part that has the stack. Its loop is on the CPU of the host, or on its own.
func (b *shimBench) node(s *pair, v *way) (harness.Part, error) {
	file, socket := filepath.Join(b.dir, "stack.yaml"), filepath.Join(b.dir, "stack.sock")
	text := fmt.Sprintf("devices:\n  - name: %s\n    addresses: [%s/24]\ncontrol: {socket: %s}\nshim: {everyone: true%s}\n", devName, hostAddr, socket, v.config)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return harness.Part{}, err
	}
	argv := []string{b.e.Self, "role", "run", "-ready", "state=up control=", "--", "env", "-u", "GOMAXPROCS", b.millrace.Path, "stack", "up", "-c", file}
	node := harness.Part{Name: "node", CPU: hostCPU, In: s.host, Argv: argv}
	if v.apart {
		node.CPU = nodeCPU
	}
	return node, nil
}

// under returns the command that runs a program over the stack of a contestant. A prefix of the arguments that changes
// the user comes first, so that the library is one that the user may read.
func (b *shimBench) under(v *way, argv []string) []string {
	if v.name == overKernel {
		return argv
	}
	user := 0
	if argv[0] == "setpriv" {
		user = slices.Index(argv, "--") + 1
	}
	command := append([]string{}, argv[:user]...)
	command = append(command, b.millrace.Path, "exec", "--socket", filepath.Join(b.dir, "stack.sock"))
	return append(append(append(command, v.flags...), "--"), argv[user:]...)
}
