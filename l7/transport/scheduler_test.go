package transport

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// TestOtherGoroutinesRun: a loop that has the only processor lets others run before the 10 ms after which the runtime would
// preempt it, whether it always has work or waits a short time for it. The bound is on the CPU time of the process, which
// other processes leave as it is.
func TestOtherGoroutinesRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const times, most = 20, 8 * time.Millisecond
	for _, x := range []struct {
		name string
		wait time.Duration
		do   func(t *testing.T) (once func())
	}{
		{"busy, timers", 0, sleeping},
		{"waiting, timers", 300 * time.Microsecond, sleeping},
		{"waiting, connections", 300 * time.Microsecond, echoing},
	} {
		t.Run(x.name, func(t *testing.T) {
			inEachWorld(t, func(t *testing.T, w *world) {
				once := x.do(t)
				w.on(w.client, func() {
					w.client.SetTick(func(now clock.Time) clock.Time { return now.Add(x.wait) })
				})
				defer w.on(w.client, func() { w.client.SetTick(nil) })
				w.eventually("other goroutines wait for the loop", func() bool {
					begin := processCPU(t)
					for range times {
						once()
					}
					took := processCPU(t) - begin
					t.Logf("%v of CPU time each", took/times)
					return took < times*most
				})
			})
		})
	}
}

// processCPU returns the CPU time that the process has had.
func processCPU(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func sleeping(*testing.T) func() { return func() { time.Sleep(time.Millisecond) } }

// echoing returns a function that sends a byte to another goroutine, by package net, and waits for it.
func echoing(t *testing.T) func() {
	li, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := li.Accept()
		for b := make([]byte, 1); err == nil; {
			if _, err = c.Read(b); err == nil {
				_, err = c.Write(b)
			}
		}
	}()
	c, err := net.Dial("tcp", li.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); li.Close() })
	b := make([]byte, 1)
	return func() {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMonitorSleeps: the runtime's monitor thread does not wake again and again beside a loop that waits often, see
// yieldEvery. Such a monitor sleeps some 3 times for each wait of a millisecond.
func TestMonitorSleeps(t *testing.T) {
	w := newEpollWorld(t, 0, "127.0.0.1:0")
	waits := 0
	w.on(w.client, func() {
		w.client.SetTick(func(now clock.Time) clock.Time {
			waits++
			return now.Add(time.Millisecond)
		})
	})
	count := func() (n int) {
		w.on(w.client, func() { n = waits })
		return n
	}
	w.eventually("another thread wakes more often than the loop", func() bool {
		sleeps, waits := threadSleeps(t), count()
		time.Sleep(500 * time.Millisecond)
		sleeps, waits = threadSleeps(t)-sleeps, count()-waits
		t.Logf("threads have slept %d times while the loop waited %d times", sleeps, waits)
		return sleeps < 2*waits
	})
}

// threadSleeps returns how often the threads of the process have gone to sleep.
func threadSleeps(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) == 0 {
		t.Fatal("no threads", err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // one that has ended has none
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				k, err := strconv.Atoi(strings.TrimSpace(v))
				if err != nil {
					t.Fatal(err)
				}
				n += k
			}
		}
	}
	return n
}
