package stack

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

func TestASleepIsShortWherePacketsEndedTheLastSoon(t *testing.T) {
	const us = time.Microsecond
	var n nap
	for i, c := range []struct {
		at           time.Duration
		taken        bool
		short, yield bool
		woken        bool
		took         time.Duration
	}{
		{2000 * us, true, false, false, true, 100 * us}, // the first
		{2200 * us, true, true, false, true, napLimit - 1},
		{2400 * us, false, false, false, true, 100 * us}, // others have processors
		{3300 * us, true, true, false, true, 100 * us},
		{3399 * us, true, true, false, true, 100 * us},
		{3400 * us, true, true, true, true, 100 * us}, // 1 ms after the last that gave its processor up
		{4399 * us, true, true, false, true, napLimit},
		{4400 * us, true, false, false, true, 100 * us},
		{4500 * us, true, true, false, false, 100 * us},
		{5500 * us, true, false, false, false, 100 * us},
	} {
		short, yield := n.begin(clock.Time(c.at), c.taken)
		if short != c.short || yield != c.yield {
			t.Errorf("sleep %d: short %v, yield %v", i, short, yield)
		}
		n.ended(c.woken, c.took)
	}
}

func TestPpollSaysWhetherAFileIsReadable(t *testing.T) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	fds := []unix.PollFd{{Fd: int32(p[0]), Events: unix.POLLIN}}
	defer blockSignals(t)() // one ends a sleep
	for _, short := range []bool{false, true} {
		due := time.Now().Add(napLimit)
		if ppoll(fds, time.Millisecond, short) || short && time.Now().Before(due) {
			t.Errorf("short %v: an empty pipe is readable, or it did not wait", short)
		}
	}
	stop := mustEnd("a short sleep, which has a limit of its own")
	if ppoll(fds, time.Hour, true) {
		t.Error("an empty pipe is readable")
	}
	stop()
	if _, err := unix.Write(p[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	for _, short := range []bool{false, true} {
		if !ppoll(fds, 10*time.Second, short) {
			t.Errorf("short %v: a full pipe is not readable", short)
		}
	}
}

// blockSignals keeps the goroutine on its thread, which gets no signal before the result is called: the runtime sends SIGURG
// to threads that it preempts.
func blockSignals(t *testing.T) func() {
	t.Helper()
	runtime.LockOSThread()
	all, before := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		runtime.UnlockOSThread()
	}
}

// Beside a loop that takes short sleeps on the only processor, other goroutines run every yieldEvery. Unless it yields,
// they do when the runtime preempts it, every 10 ms.
func TestOtherGoroutinesRunBesideShortSleeps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	running.Add(1)
	defer running.Add(-1)
	w := newWorld(t)
	var ran atomic.Int32
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				ran.Add(1)
				runtime.Gosched()
			}
		}
	}()
	th, now := newThread(w.loop), clock.Time(0)
	w.loop.out.tick = clock.Never
	for range 1000 { // 100 ms of them, in virtual time
		w.loop.notifier.notify()
		th.sleep(now)
		now += clock.Time(100 * time.Microsecond)
	}
	if n := ran.Load(); n < 50 || w.loop.count.Sleeps != 1000 {
		t.Errorf("the other goroutine ran %d times beside %d sleeps", n, w.loop.count.Sleeps)
	}
	close(done)
}
