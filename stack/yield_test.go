package stack

import (
	"context"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestASpinningLoopLeavesItsCPUToOthers: a thread that computes on the CPU of a served loop without work gets most of it, although
// the loop spins.
func TestASpinningLoopLeavesItsCPUToOthers(t *testing.T) {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	w := newWorld(t)
	w.loop.cfg.Spin, w.loop.cfg.Affinity = time.Hour, []int{cpu}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.loop.Serve(ctx) }()
	var loop, own [2]time.Duration
	ofLoop := func() (d time.Duration) {
		used := make(chan time.Duration, 1)
		w.loop.Do(func() { used <- threadTime(t) })
		return <-used
	}
	loop[0] = ofLoop()
	computed := make(chan time.Duration)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		begin := threadTime(t)
		for threadTime(t)-begin < 300*time.Millisecond {
		}
		computed <- threadTime(t) - begin
	}()
	own[1] = <-computed
	loop[1] = ofLoop()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if used := loop[1] - loop[0]; used > own[1]/3 {
		t.Errorf("the loop took %v of the CPU beside a thread that took %v", used, own[1])
	}
}

// threadTime returns the CPU time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
