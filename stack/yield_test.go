package stack

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestASpinningLoopLeavesItsCPUToOthers: a process that computes on the CPU of a served loop without work gets most of it,
// although the loop spins.
func TestASpinningLoopLeavesItsCPUToOthers(t *testing.T) {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	pin(t, &one)
	defer pin(t, &allowed)
	w := newWorld(t)
	w.loop.cfg.Spin = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.loop.Serve(ctx) }()
	other := exec.Command("sh", "-c", "while :; do :; done")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	begin := processTime(t)
	time.Sleep(400 * time.Millisecond)
	used := processTime(t) - begin
	_ = other.Process.Kill()
	_ = other.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if of := other.ProcessState.UserTime(); used > of/3 {
		t.Errorf("the loop took %v of the CPU beside a process that took %v", used, of)
	}
}

// pin binds all threads of the process to CPUs.
func pin(t *testing.T, to *unix.CPUSet) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range threads {
		tid, _ := strconv.Atoi(e.Name())
		if err := unix.SchedSetaffinity(tid, to); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
}

// processTime returns the CPU time of the process.
func processTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
