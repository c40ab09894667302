package stack

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// socketPair returns two connected stream sockets, which the test closes.
func socketPair(t testing.TB) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// eventFD returns an eventfd, readable if set.
func eventFD(t testing.TB, set bool) int {
	t.Helper()
	n := uint(0)
	if set {
		n = 1
	}
	fd, err := unix.Eventfd(n, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// watch watches fd and returns what is reported of it.
func (w *world) watch(t testing.TB, fd int, want FileEvents) (*FileWatch, *[]FileEvents) {
	t.Helper()
	var seen []FileEvents
	f, err := w.loop.Watch(fd, want, func(ev FileEvents) { seen = append(seen, ev) })
	if err != nil {
		t.Fatal(err)
	}
	return f, &seen
}

func put(t testing.TB, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

// TestFilesReportWhatEpollDoes: levels, edges, changes of the interest, and the ends of AF_UNIX sockets.
func TestFilesReportWhatEpollDoes(t *testing.T) {
	w := newWorld(t)
	a, b := socketPair(t)
	level, seen := w.watch(t, a, FileReadable|FilePeerClosed)
	step := func(what string, want ...FileEvents) {
		t.Helper()
		*seen = nil
		if moved := w.loop.Poll(0); moved != len(want) {
			t.Errorf("%s: %d moved, want %d", what, moved, len(want))
		}
		if len(*seen) != len(want) || len(want) > 0 && (*seen)[0] != want[0] {
			t.Errorf("%s: %x, want %x", what, *seen, want)
		}
	}
	step("nothing")
	put(t, b)
	step("a byte", FileReadable)
	step("it stays", FileReadable)
	if err := level.Modify(FileReadable | FileEdge); err != nil {
		t.Fatal(err)
	}
	step("as an edge", FileReadable)
	step("once")
	put(t, b)
	step("a new byte", FileReadable)
	if err := level.Modify(FileWritable | FileEdge); err != nil {
		t.Fatal(err)
	}
	step("room", FileWritable)
	if err := level.Modify(FilePeerClosed); err != nil {
		t.Fatal(err)
	}
	step("not asked for")
	_ = unix.Shutdown(b, unix.SHUT_WR)
	step("its end, with data left", FilePeerClosed)
	_ = unix.Close(b)
	*seen = nil
	w.loop.Poll(0)
	if len(*seen) != 1 || (*seen)[0]&(FileHangup|FilePeerClosed) != FileHangup|FilePeerClosed {
		t.Errorf("closed: %x", *seen)
	}
	level.Remove()
	level.Remove()
	step("removed")
	if err := level.Modify(FileReadable); !errors.Is(err, unix.ENOENT) {
		t.Error("a removed watch is modified:", err)
	}
	if level.Again(FileReadable); w.loop.files.waiting() {
		t.Error("a removed watch is called again")
	}
}

// TestWatchErrors are those of epoll_ctl, and that of a closed loop.
func TestWatchErrors(t *testing.T) {
	w := newWorld(t)
	fd := eventFD(t, false)
	w.watch(t, fd, FileReadable)
	if _, err := w.loop.Watch(fd, FileReadable, nil); !errors.Is(err, unix.EEXIST) {
		t.Error(err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.loop.Watch(int(f.Fd()), FileReadable, nil); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	_ = w.loop.Close()
	if _, err := w.loop.Watch(eventFD(t, false), FileReadable, nil); err != ErrNoFiles {
		t.Error(err)
	}
	w = newWorld(t)
	_ = w.loop.Close()
	if _, err := w.loop.Watch(fd, FileReadable, nil); err != ErrNoFiles {
		t.Error(err)
	}
}

// TestAFileThatAnotherCallRemoves: of two that are ready the first call removes the other, and watches a third file in
// its place. Neither the removed nor the new one gets the event.
func TestAFileThatAnotherCallRemoves(t *testing.T) {
	w := newWorld(t)
	var both [2]*FileWatch
	calls, third := 0, eventFD(t, false)
	for i := range both {
		var err error
		both[i], err = w.loop.Watch(eventFD(t, true), FileReadable, func(FileEvents) {
			calls++
			both[1-i].Remove()
			if _, err := w.loop.Watch(third, FileReadable, func(FileEvents) { t.Error("the new file is called") }); err != nil {
				t.Error(err)
			}
			both[i].Remove()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.loop.Poll(0)
	w.loop.Poll(0)
	if calls != 1 || len(w.loop.files.slots) != 2 {
		t.Errorf("%d calls, %d numbers", calls, len(w.loop.files.slots))
	}
}

// TestAgainCallsOnceMore: in the next iteration, with all events that were asked for, and the loop does not sleep before.
func TestAgainCallsOnceMore(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	f, seen := w.watch(t, eventFD(t, false), FileReadable)
	w.loop.Poll(0)
	f.Again(FileReadable)
	f.Again(FileWritable)
	if newThread(w.loop).sleep(0); w.loop.count.Sleeps != 0 || !w.loop.mayNotSleep() {
		t.Error("the loop sleeps")
	}
	ticks := len(w.hand.ticks)
	w.loop.Poll(0)
	w.loop.Poll(0)
	if len(*seen) != 1 || (*seen)[0] != FileReadable|FileWritable {
		t.Errorf("%x", *seen)
	}
	if len(w.hand.ticks) != ticks+1 {
		t.Error("no Tick followed the call")
	}
	f.Again(FileReadable)
	f.Remove()
	if w.loop.Poll(0); len(*seen) != 1 {
		t.Error("a removed file is called again")
	}
}

// TestFilesLeaveTimeForPackets: one iteration makes a bounded number of calls however many files are ready, and all come
// to their turn; a loop that moves packets looks at intervals only.
func TestFilesLeaveTimeForPackets(t *testing.T) {
	const n = 4 * fileCalls
	w := newWorld(t)
	called, again := map[int]int{}, map[int]int{}
	for i := range n {
		if _, err := w.loop.Watch(eventFD(t, true), FileReadable, func(FileEvents) { called[i]++ }); err != nil {
			t.Fatal(err)
		}
		var f *FileWatch
		f, err := w.loop.Watch(eventFD(t, false), FileReadable, func(FileEvents) { again[i]++; f.Again(FileReadable) })
		if err != nil {
			t.Fatal(err)
		}
		f.Again(FileReadable)
	}
	for range 2 * n / fileCalls {
		if moved := w.loop.Poll(0); moved != fileCalls {
			t.Fatalf("%d calls in one iteration", moved)
		}
	}
	if len(called) != n || len(again) != n || called[0] != 1 || again[0] != 1 {
		t.Errorf("%d and %d of %d files were called, the first %d and %d times", len(called), len(again), n, called[0], again[0])
	}

	w = newWorld(t)
	fd := eventFD(t, false)
	_, seen := w.watch(t, fd, FileReadable)
	now := clock.Time(0)
	busy := func(d time.Duration) int {
		now = now.Add(d)
		w.port[0].in = [][]packet.Desc{w.packets(t, 1, packet.DropRule, 0)}
		w.loop.Poll(now)
		return len(*seen)
	}
	busy(lookEvery)
	_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if busy(lookEvery-1) != 0 || busy(1) != 1 || busy(1) != 2 {
		t.Error("a busy loop looks at the wrong times")
	}
}

// TestTenThousandFiles: an iteration costs what is ready.
func TestTenThousandFiles(t *testing.T) {
	const n = 10_000
	w := newWorld(t)
	fds := make([]int, n)
	calls := make([]int, n)
	for i := range fds {
		fds[i] = eventFD(t, false)
		if _, err := w.loop.Watch(fds[i], FileReadable|FileEdge, func(FileEvents) { calls[i]++ }); err != nil {
			t.Fatal(err)
		}
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	if a := testing.AllocsPerRun(100, func() {
		_, _ = unix.Write(fds[n/2], one)
		if moved := w.loop.Poll(0); moved != 1 {
			t.Fatalf("%d calls", moved)
		}
		w.loop.Poll(0)
	}); a != 0 && !raceEnabled {
		t.Errorf("%v allocations", a)
	}
	if calls[n/2] != 101 {
		t.Error(calls[n/2])
	}
}

// TestFilesWakeALoop that sleeps: served without files of devices (on a channel) and with, and on its own thread. The
// watch begins while the loop sleeps.
func TestFilesWakeALoop(t *testing.T) {
	for name, c := range map[string]struct {
		file bool
		run  func(*Loop, context.Context) error
	}{"served": {false, (*Loop).Serve}, "served with a file": {true, (*Loop).Serve}, "thread": {true, (*Loop).Run}} {
		w := newWorld(t)
		w.hand.every = clock.Time(time.Hour)
		devices := []pmd.Driver{w.port[0]}
		if c.file {
			f, _ := newFiled(t, w.pool)
			devices[0] = f
		}
		l, err := NewLoop(Config{Devices: devices, Pool: w.pool, Engine: w.eng, Handler: w.hand, Spin: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		l.devices[0].info.Notifier = new(pmd.Notifier)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.run(l, ctx) }()
		until(t, "asleep", l.notifier.armed.Load)
		a, b := socketPair(t)
		got := make(chan string, 1)
		echo := func(FileEvents) {
			var buf [8]byte
			n, _ := unix.Read(a, buf[:])
			got <- string(buf[:n])
		}
		watched := make(chan error, 1)
		l.Do(func() {
			l.maxSleep = time.Hour // only the file wakes it
			_, err := l.Watch(a, FileReadable, echo)
			watched <- err
		})
		if err := <-watched; err != nil {
			t.Fatal(err)
		}
		for range 20 {
			until(t, "asleep", l.notifier.armed.Load)
			put(t, b)
			if s := receive(t, got); s != "x" {
				t.Errorf("%s: %q", name, s)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(name, err)
		}
		_ = l.Close()
	}
}

// TestTheFirstWatchOfALockHolder: the loop sleeps on a channel, where it would not see the file.
func TestTheFirstWatchOfALockHolder(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	w.serving(t)
	a, b := socketPair(t)
	got := make(chan FileEvents, 1)
	w.asleep(t)
	w.loop.Lock().Enter()
	f, err := w.loop.Watch(a, FileReadable|FileEdge, func(ev FileEvents) { got <- ev })
	if err != nil || w.loop.notifier.armed.Load() {
		t.Fatal("not woken", err)
	}
	w.loop.Lock().Exit()
	put(t, b)
	within := time.After(20 * time.Second)
	for range 2 {
		select {
		case <-got:
		case <-within:
			t.Fatal("the file does not wake the loop")
		}
		w.asleep(t)
		w.loop.Lock().Enter()
		f.Again(FileReadable)
		if w.loop.notifier.armed.Load() {
			t.Error("Again does not wake the loop")
		}
		w.loop.Lock().Exit()
	}
	<-got
}

// BenchmarkFileWakeup is a byte from a file to its callback and back, through a loop that polls without sleeping.
func BenchmarkFileWakeup(b *testing.B) {
	for _, idle := range []int{0, 10_000} {
		b.Run(map[int]string{0: "alone", 10_000: "beside10000"}[idle], func(b *testing.B) {
			fd := eventFD(b, false)
			f := &files{l: &Loop{}}
			var err error
			if f.fd, err = unix.EpollCreate1(0); err != nil {
				b.Fatal(err)
			}
			defer f.close()
			for range idle {
				if _, err := f.watch(eventFD(b, false), FileReadable|FileEdge, nil); err != nil {
					b.Fatal(err)
				}
			}
			var buf [8]byte
			calls := 0
			if _, err := f.watch(fd, FileReadable|FileEdge, func(FileEvents) { calls++ }); err != nil {
				b.Fatal(err)
			}
			buf[0] = 1
			for b.Loop() {
				_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&buf)), 8)
				f.serve(0, false)
			}
			b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
		})
	}
}
