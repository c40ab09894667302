package ring

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// schedules is how many orders of steps TestInterleavings tries; MILLRACE_RING_SCHEDULES is another number of them.
const schedules = "6000"

// TestInterleavings runs both ends of rings between two programs by the preloaded library's own code, in one process, in seeded orders of
// their accesses to shared words and system calls (testdata/interleave.c).
func TestInterleavings(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc)")
	}
	sources, err := filepath.Glob("../preload/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	program := filepath.Join(t.TempDir(), "interleave")
	args := append([]string{"-std=c11", "-O1", "-D_GNU_SOURCE", "-include", "testdata/steps.h", "-I../preload", "-o", program, "testdata/interleave.c"}, sources...)
	if out, err := exec.Command(cc, append(args, "-ldl", "-pthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	last := schedules
	if n := os.Getenv("MILLRACE_RING_SCHEDULES"); n != "" {
		last = n
	}
	for _, busy := range []string{"0", "2000"} { // ns that a read polls
		run := exec.Command(program, "1", last)
		run.Env = append(os.Environ(), "MILLRACE_SHIM_BUSY_POLL="+busy)
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("busy poll %s: %v\n%s", busy, err, out)
		}
	}
}
