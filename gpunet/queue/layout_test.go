package queue

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLayout compares what Go and C make of the slab: offsets, operations, states and their transitions.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	l, err := Layout{Blocks: 5, Connections: 7, Slots: 32, Ring: 8192}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	fields := []struct {
		c  string
		at int
	}{
		{"GPUNET_MAGIC", magic},
		{"GPUNET_VERSION", version},
		{"GPUNET_PAGE", page},
		{"sizeof(struct gpunet_slab)", headerSize},
		{"offsetof(struct gpunet_slab, blocks)", 8},
		{"offsetof(struct gpunet_slab, connections)", 12},
		{"offsetof(struct gpunet_slab, slots)", 16},
		{"offsetof(struct gpunet_slab, ring)", 20},
		{"offsetof(struct gpunet_slab, stride)", 24},
		{"gpunet_down_at(&s, 3)", l.downAt(3)},
		{"gpunet_up_at(&s, 3)", l.upAt(3)},
		{"gpunet_ring_at(&s, 3, 6)", l.ringAt(3, 6)},
		{"GPUNET_ACCEPT", opAccept},
		{"GPUNET_FIN", opFin},
		{"GPUNET_RESET", opReset},
		{"GPUNET_LISTENING", opListening},
		{"GPUNET_STOP", opStop},
		{"GPUNET_DATA", opData},
		{"GPUNET_RING", opRing},
		{"GPUNET_CREDIT", opCredit},
		{"GPUNET_LISTEN", opListen},
		{"GPUNET_SHUTDOWN", opShutdown},
		{"GPUNET_CLOSE", opClose},
		{"GPUNET_EXIT", opExit},
		{"GPUNET_NONE", none},
		{"GPUNET_STATES", int(states)},
		{"GPUNET_CHANGES", int(changes)},
	}
	for s := range states {
		for c := range changes {
			fields = append(fields, struct {
				c  string
				at int
			}{fmt.Sprintf("gpunet_transitions[%d][%d]", s, c), int(s.Next(c))})
		}
	}
	var c strings.Builder
	fmt.Fprintf(&c, "#include <stdio.h>\n#include \"slab.h\"\nint main() {\nstruct gpunet_slab s = {0, 0, %d, %d, %d, %d, %d};\n(void)s;\n",
		l.Blocks, l.Connections, l.Slots, l.Ring, l.stride())
	for _, f := range fields {
		fmt.Fprintf(&c, "printf(\"%%zu\\n\", (size_t)%s);\n", f.c)
	}
	c.WriteString("}\n")
	got := strings.Fields(runC(t, cc, c.String()))
	if len(got) != len(fields) {
		t.Fatalf("%d values of C for %d", len(got), len(fields))
	}
	for i, f := range fields {
		if got[i] != fmt.Sprint(f.at) {
			t.Errorf("%s is %s in C and %d in Go", f.c, got[i], f.at)
		}
	}
}

func runC(t *testing.T, cc, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.cc"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-pthread", "-x", "c++", "-I.", "-o", bin, file, "../../gpukern/cuda/host.cc").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLayoutsThatCannotBe(t *testing.T) {
	for _, l := range []Layout{
		{},
		{Blocks: 1},
		{Connections: 1},
		{Blocks: -1, Connections: 1},
		{Blocks: maxBlocks + 1, Connections: 1},
		{Blocks: 1, Connections: maxConnections + 1},
		{Blocks: 1, Connections: 1, Slots: 3},
		{Blocks: 1, Connections: 1, Slots: 1},
		{Blocks: 1, Connections: 1, Slots: 2 * maxSlots},
		{Blocks: 1, Connections: 1, Ring: 3000},
		{Blocks: 1, Connections: 1, Ring: 512},
		{Blocks: 1, Connections: 1, Ring: 2 * maxRing},
		{Blocks: maxBlocks, Connections: maxConnections, Ring: maxRing},
	} {
		if n, err := l.Size(); err == nil {
			t.Errorf("%+v: %d bytes", l, n)
		}
	}
	if _, err := New(make([]byte, page), Layout{Blocks: 1, Connections: 1}); err == nil {
		t.Error("a slab that is longer than its memory")
	}
}

// TestTransitions: each change is allowed in some state, and only Close frees a slot.
func TestTransitions(t *testing.T) {
	for c := range changes {
		allowed := 0
		for s := range states {
			if next := s.Next(c); next != Invalid {
				allowed++
				if next == Free && c != Close || c == Close && next != Free {
					t.Errorf("state %d, change %d: %d", s, c, next)
				}
				if next.sends() && !s.sends() && s != Free || next.receives() && !s.receives() && s != Free {
					t.Errorf("state %d, change %d opens a direction again", s, c)
				}
			}
		}
		if allowed == 0 {
			t.Errorf("change %d is never allowed", c)
		}
	}
	if states.Next(Close) != Invalid || Open.Next(changes) != Invalid {
		t.Error("a state or a change that is none")
	}
}
