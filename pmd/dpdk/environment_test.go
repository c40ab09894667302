package dpdk_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
)

// inChild runs a test in a process of its own with an environment variable, since DPDK's environment starts once in a process, and
// reports whether this is that process.
func inChild(t *testing.T, variable, value string) bool {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_CHILD") == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "MILLRACE_DPDK_CHILD="+t.Name(), variable+"="+value)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestEnvironmentThatFailedStaysFailed gives DPDK an argument that it does not have. A second start would leave it in pieces, so
// there is none: the second error is the first.
func TestEnvironmentThatFailedStaysFailed(t *testing.T) {
	need(t)
	if !inChild(t, dpdk.EALVariable, "--no-such-argument") {
		return
	}
	_, pools := memory(t, 1, 64, 2048)
	var texts []string
	for range 2 {
		_, err := dpdk.Open(dpdk.Config{Name: "net_null0", Pools: pools})
		var op *pmd.OpError
		if !errors.Is(err, dpdk.ErrEnvironment) || !errors.As(err, &op) || !strings.Contains(op.Remedy, dpdk.EALVariable) || !strings.Contains(err.Error(), "no-such-argument") {
			t.Fatal(err)
		}
		texts = append(texts, err.Error())
	}
	if texts[0] != texts[1] {
		t.Errorf("the second start: %s\nthe first: %s", texts[1], texts[0])
	}
}

// TestTooLittleMemoryOfDPDK opens devices until DPDK's heap has no room for the rings of the next. Those that are open go on.
func TestTooLittleMemoryOfDPDK(t *testing.T) {
	need(t)
	if !inChild(t, dpdk.EALVariable, "-m 2") {
		return
	}
	arena, pools := memory(t, 2, 4096, 2048)
	first := open(t, dpdk.Config{Name: "net_null0", Pools: pools[1:]})
	for i := range 64 {
		d, err := dpdk.Open(dpdk.Config{Name: fmt.Sprintf("net_ring%d", i), Pools: pools[:1]})
		if err == nil {
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			continue
		}
		var op *pmd.OpError
		if !errors.Is(err, dpdk.ErrMemory) || !errors.As(err, &op) || !strings.Contains(op.Remedy, dpdk.EALVariable) {
			t.Errorf("after %d devices: %v", i, err)
		}
		b := packet.NewBatch(arena.View(), 32)
		if n, err := first.Queues[0].Rx(1, b); n != 32 || err != nil {
			t.Errorf("the first device: %d, %v", n, err)
		}
		pools[1].PutBatch(b)
		return
	}
	t.Error("64 devices fit into 2 MiB")
}
