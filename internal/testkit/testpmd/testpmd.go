// Package testpmd runs DPDK's forwarder, dpdk-testpmd, as the peer of a test.
package testpmd

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Need skips a test where DPDK is not asked for.
func Need(t *testing.T) {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	testnet.Program(t, "dpdk-testpmd")
}

// Process is a dpdk-testpmd that runs until the end of the test.
type Process struct {
	Out *testnet.Log // all that it prints

	cmd *exec.Cmd
}

// Start starts dpdk-testpmd with virtual devices and arguments of its own, beside those of every test: no huge pages, two lcores, few
// mbufs and rings of 256.
func Start(t *testing.T, devices []string, args ...string) *Process {
	t.Helper()
	prefix := fmt.Sprintf("mrtest%d", os.Getpid())
	all := []string{"--no-huge", "-m", "192", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix=" + prefix, "-l", "0-1", "--main-lcore=0"}
	for _, d := range devices {
		all = append(all, "--vdev="+d)
	}
	all = append(all, "--", "--total-num-mbufs=4096", "--stats-period=1", "--no-flush-rx", "--rxd=256", "--txd=256")
	p := &Process{Out: &testnet.Log{}, cmd: exec.Command("dpdk-testpmd", append(all, args...)...)}
	p.cmd.Stdout, p.cmd.Stderr = p.Out, p.Out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if err := os.RemoveAll("/var/run/dpdk/" + prefix); err != nil { // EAL's, of a process that is killed
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("dpdk-testpmd:\n%s", p.Out.String())
		}
	})
	return p
}

// End has it stop as a user would, so that its devices write what they keep, and waits for that.
func (p *Process) End() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait()
}
