//go:build cuda

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// soakGrowth is by how much the memory of the gateway may grow after the first tenth of TestDPDKSoak, KiB. Go's heap, which is
// collected when it has doubled, is a few MiB.
const soakGrowth = 8 << 10

// TestDPDKSoak runs the gateway with exception paths under slow, mixed traffic for MILLRACE_DPDK_SOAK (`make dpdk-soak`: 10m):
// its memory stays as it is, and all requests are answered to the end.
func TestDPDKSoak(t *testing.T) {
	text := os.Getenv("MILLRACE_DPDK_SOAK")
	if text == "" {
		t.Skip("it takes minutes: `make dpdk-soak` runs it")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	w, out := newExceptionSite(t, "dpdksoak")
	get(t, w.client, "http://198.18.0.2/", "from the backend", out)
	pid := childOf(t, "gateway")
	background(t, w.client, "ping", "-q", "-i", "0.02", "198.18.0.2")
	var first, most, requests, failures int
	for end, tenth := time.Now().Add(length), time.Now().Add(length/10); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		requests++
		if got, err := w.client.Run("curl", "-s", "-m", "10", "http://198.18.0.2/"); err != nil || !strings.Contains(got, "from the backend") {
			failures++
		}
		if got, _ := w.client.Run("nc", "-w", "10", "198.18.0.2", "2222"); !strings.Contains(got, "from the kernel") {
			failures++
		}
		kib := residentKiB(t, pid)
		if time.Now().Before(tenth) {
			first = max(first, kib)
		}
		most = max(most, kib)
	}
	t.Logf("%v: %d rounds, %d failures; %d KiB after a tenth, %d KiB at most", length, requests, failures, first, most)
	if failures > 0 {
		t.Errorf("%d of %d requests failed\n%s", failures, 2*requests, out.String())
	}
	if most > first+soakGrowth {
		t.Errorf("the memory grows from %d to %d KiB", first, most)
	}
}

// childOf returns the process of this test that runs a command of millrace.
func childOf(t *testing.T, command string) int {
	t.Helper()
	text, err := exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "-f", command+" -c").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// residentKiB returns the resident memory of a process (proc_pid_status(5)).
func residentKiB(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err = strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}
