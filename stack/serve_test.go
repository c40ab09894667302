package stack

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// serving serves the loop of w until the test ends, or stop is called, which returns what Serve did.
func (w *world) serving(t *testing.T) (stop func() error) {
	t.Helper()
	for i := range w.loop.devices { // the scripts have no file, and nothing comes by itself
		w.loop.devices[i].info.Notifier = new(pmd.Notifier)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.loop.Serve(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// asleep waits until the loop sleeps.
func (w *world) asleep(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		w.loop.lock.Enter()
		idle := w.loop.lock.asleep()
		w.loop.lock.mu.Unlock()
		if idle {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the loop does not sleep")
		}
	}
}

// until waits for something that other goroutines do.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: never", what)
		}
	}
}

// receive returns what comes on a channel, which must come.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing comes")
	}
	return v
}

// mustEnd has the test crash with all stacks if the returned function is not called: for calls that block a thread.
func mustEnd(what string) (stop func() bool) {
	return time.AfterFunc(30*time.Second, func() { panic(what + ": it does not end") }).Stop
}

func TestOutputOfASleepingLoopLeavesAtExit(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	stop := w.serving(t)
	w.asleep(t)
	ticks := len(w.hand.ticks)
	w.loop.lock.Enter()
	if err := w.loop.out.Send(0, []byte{1}); err != nil {
		t.Error(err)
	}
	if len(w.port[0].sent) != 0 {
		t.Error("sent before Exit")
	}
	w.loop.lock.Exit()
	w.loop.lock.Enter()
	if len(w.port[0].sent) != 1 || len(w.hand.ticks) != ticks+1 {
		t.Errorf("%d sent after Exit, %d ticks", len(w.port[0].sent), len(w.hand.ticks)-ticks)
	}
	w.loop.lock.Exit()
	if s := w.loop.Stats(); s.Forwarded != 1 || s.Originated != 1 {
		t.Errorf("%+v", s)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.settled(t)
}

func TestOutputOfAnActiveLoopLeavesWithItsIteration(t *testing.T) {
	w := newWorld(t)
	w.loop.Poll(0)
	w.loop.lock.Enter()
	w.hand.ticks = nil
	_ = w.loop.out.Send(0, []byte{1})
	w.loop.lock.Exit()
	if len(w.port[0].sent) != 0 || len(w.hand.ticks) != 0 {
		t.Error("sent by one who is not the loop")
	}
	w.loop.Poll(1)
	if len(w.port[0].sent) != 1 || len(w.hand.ticks) != 1 {
		t.Errorf("%d sent, %d ticks", len(w.port[0].sent), len(w.hand.ticks))
	}
	w.settled(t)
}

func TestAServedLoopRunsCommandsAndTimers(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(2 * time.Millisecond)
	w.serving(t)
	var ran atomic.Bool
	w.asleep(t)
	w.loop.Do(func() { ran.Store(true) })
	until(t, "Do", ran.Load)
	w.loop.lock.Enter()
	n := len(w.hand.ticks)
	w.loop.lock.Exit()
	until(t, "timers", func() bool {
		w.loop.lock.Enter()
		defer w.loop.lock.mu.Unlock() // leave it asleep: only a timer may cause a Tick
		return len(w.hand.ticks) > n+5
	})
}

// TestAnEarlierTimerWakesTheLoop has a loop that sleeps until some time, and an owner who wants a timer
// before or after it.
func TestAnEarlierTimerWakesTheLoop(t *testing.T) {
	for every, wakes := range map[clock.Time]int{clock.Time(time.Second): 1, clock.Time(time.Hour): 0} {
		w := newWorld(t)
		ch := make(chan struct{}, 1)
		w.loop.notifier.useChannel(ch)
		w.loop.lock.served.Store(true)
		w.loop.notifier.armed.Store(true)
		w.loop.lock.wakeAt = Now().Add(time.Minute)
		w.hand.every = every
		w.loop.lock.Enter()
		w.loop.lock.Exit()
		if len(ch) != wakes {
			t.Errorf("a timer in %v: %d notifications", time.Duration(every), len(ch))
		}
	}
}

// filed is a script whose packets are announced by a pipe.
type filed struct {
	script
	ready atomic.Int32
	polls atomic.Int32
}

func (f *filed) Rx(now clock.Time, b *packet.Batch) (int, error) {
	f.polls.Add(1)
	if f.rxErr != nil {
		return 0, f.rxErr
	}
	if f.ready.Load() == 0 {
		return 0, nil
	}
	var one [1]byte
	if n, _ := unix.Read(f.fd, one[:]); n != 1 {
		return 0, nil
	}
	f.ready.Add(-1)
	off, _ := f.pool.Get()
	b.Append(packet.Desc{Off: off, Len: 1, Hash: uint32(packet.DropRule)})
	return 1, nil
}

func newFiled(t *testing.T, pool *ring.Pool) (*filed, *os.File) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in := os.NewFile(uintptr(p[1]), "in")
	t.Cleanup(func() { unix.Close(p[0]); in.Close() })
	f := &filed{script: script{pool: pool, room: 64, fd: p[0], caps: pmd.CapPoll}}
	return f, in
}

func TestAFileWakesAServedLoop(t *testing.T) {
	w := newWorld(t)
	f, in := newFiled(t, w.pool)
	w.hand.every = clock.Time(time.Hour)
	l, err := NewLoop(Config{Devices: []pmd.Driver{f}, Pool: w.pool, Engine: w.eng, Handler: w.hand})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.loop.Close()
	w.loop = l
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx) }()
	for range 20 {
		w.asleep(t)
		before := l.Stats().Received
		f.ready.Add(1)
		if _, err := in.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		until(t, "a packet", func() bool { return l.Stats().Received == before+1 })
	}
	var ran atomic.Bool
	w.asleep(t)
	l.Do(func() { ran.Store(true) })
	until(t, "Do", ran.Load)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAFileThatIsUpForNothingDoesNotKeepTheLoopAwake has a port whose file is readable while its link is
// down, as an error condition is.
func TestAFileThatIsUpForNothingDoesNotKeepTheLoopAwake(t *testing.T) {
	w := newWorld(t)
	f, in := newFiled(t, w.pool)
	f.rxErr = pmd.ErrDown
	if _, err := in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	w.hand.every = clock.Time(time.Hour)
	l, err := NewLoop(Config{Devices: []pmd.Driver{f}, Pool: w.pool, Engine: w.eng, Handler: w.hand})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Serve(ctx); err != nil {
		t.Error(err)
	}
	if n := f.polls.Load(); n > 40 { // one every 10 ms, and those while it spins are none: the port rests
		t.Errorf("polled %d times in 100 ms", n)
	}
}

func TestServeEndsWithItsPorts(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	gone := errors.New("gone")
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, gone
	if err := w.loop.Serve(t.Context()); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	w.settled(t)
}

// TestLockHoldersAndTheLoopAlternate has goroutines enter again and again while packets come without end, on
// one processor and on several.
func TestLockHoldersAndTheLoopAlternate(t *testing.T) {
	for _, procs := range []int{1, 4} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			a, err := ring.NewArena(ring.ArenaConfig{Frames: 1024, Huge: ring.HugeOff})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			pool, _ := a.Cut(0)
			src := &source{pool}
			l, err := NewLoop(Config{Devices: []pmd.Driver{src, src}, Pool: pool, Engine: &through{}, Handler: Bridge{}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Serve(ctx) }()
			var wg sync.WaitGroup
			entered := 0 // belongs to the owner
			for range 4 {
				wg.Go(func() {
					for range 500 {
						l.lock.Enter()
						entered++
						_ = l.out.Send(0, []byte{1})
						l.lock.Exit()
					}
				})
			}
			wg.Wait()
			before := l.Stats().Iterations
			until(t, "iterations after others", func() bool { return l.Stats().Iterations > before+10 })
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if s := l.Stats(); entered != 2000 || s.Originated != 2000 || s.InFlight() != 0 {
				t.Errorf("%d processors: %d entered, %+v", procs, entered, s)
			}
		}()
	}
}

// bounce sends back what comes, and lets others wait for it.
type bounce struct {
	loop    *Loop
	came    int
	back    bool
	arrived chan struct{}
}

func (h *bounce) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		h.came++
		if b.D[i].Verdict = packet.DropRule; h.back {
			b.D[i].Verdict = packet.Forward
		}
	}
	if !h.back {
		h.arrived <- struct{}{}
	}
}
func (h *bounce) Tick(clock.Time) clock.Time { return clock.Never }

// TestMemoryDriversWakeServedLoops has a packet go there and back many times, with both loops asleep most of
// the time: a lost wakeup would cost 100 ms each.
func TestMemoryDriversWakeServedLoops(t *testing.T) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 256, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	pa, _ := a.Cut(128)
	pb, _ := a.Cut(128)
	da, db, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb})
	if err != nil {
		t.Fatal(err)
	}
	near := &bounce{arrived: make(chan struct{}, 1)}
	far := &bounce{back: true}
	var loops []*Loop
	for i, h := range []*bounce{near, far} {
		h.loop, err = NewLoop(Config{Devices: []pmd.Driver{[]pmd.Driver{da, db}[i]}, Pool: []*ring.Pool{pa, pb}[i], Engine: &through{}, Handler: h, Spin: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		defer h.loop.Close()
		h.loop.maxSleep = time.Hour // a lost wakeup is no delay but a hang
		loops = append(loops, h.loop)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, l := range loops {
		go func() { done <- l.Serve(ctx) }()
	}
	const rounds = 300
	for range rounds {
		near.loop.lock.Enter()
		if err := near.loop.out.Send(0, []byte{1, 2, 3}); err != nil {
			t.Error(err)
		}
		near.loop.lock.Exit()
		receive(t, near.arrived)
	}
	cancel()
	for range loops {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if near.came != rounds || far.came != rounds {
		t.Errorf("%d and %d came", near.came, far.came)
	}
	if s := far.loop.Stats(); s.Sleeps < rounds/10 {
		t.Errorf("it slept %d times: the test shows little", s.Sleeps)
	}
	if err := ring.Audit(a, pa, pb, da, db); err != nil {
		t.Error(err)
	}
}

// TestASleepWithAFileEnds by the file, the notifier, both and the limit. The notifier is drained, so that it
// ends one sleep only; the file is the driver's to read.
func TestASleepWithAFileEnds(t *testing.T) {
	for name, c := range map[string]struct {
		file, notifier bool
		limit          time.Duration
		atLeast        time.Duration
	}{
		"by the file":      {file: true, limit: time.Hour},
		"by the notifier":  {notifier: true, limit: time.Hour},
		"by both":          {file: true, notifier: true, limit: time.Hour},
		"at the next tick": {limit: 5 * time.Millisecond, atLeast: 5 * time.Millisecond},
		"at the most":      {limit: time.Hour, atLeast: maxSleep},
	} {
		w := newWorld(t)
		f, in := newFiled(t, w.pool)
		w.hand.every = clock.Time(c.limit)
		l, err := NewLoop(Config{Devices: []pmd.Driver{f}, Pool: w.pool, Engine: w.eng, Handler: w.hand})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p := newSleeper(l)
		defer p.close()
		if c.file {
			_, _ = in.Write([]byte{1})
		}
		if c.notifier {
			l.notifier.notify()
		}
		if c.atLeast == 0 {
			l.maxSleep = time.Hour
		}
		due, stop := time.Now().Add(c.atLeast), mustEnd(name)
		if !p.sleep(t.Context()) {
			t.Errorf("%s: it did not sleep", name)
		}
		if stop(); time.Now().Before(due) || l.notifier.armed.Load() {
			t.Errorf("%s: early, or armed %v", name, l.notifier.armed.Load())
		}
		fds := []unix.PollFd{{Fd: int32(l.notifier.fd), Events: unix.POLLIN}, {Fd: int32(f.fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 0)
		if fds[0].Revents != 0 || (fds[1].Revents != 0) != c.file {
			t.Errorf("%s: then notifier %v, file %v", name, fds[0].Revents, fds[1].Revents)
		}
	}
}

// TestALoopBesideComputingGoroutinesKeepsItsProcessor has one processor for a loop that does not sleep and two
// goroutines that compute in time slices of 10 ms. All of them advance, and the loop makes several iterations for
// each slice, which is longer where the runtime's monitor has to wait for a processor, too: with runtime.Gosched it made
// one for every two.
func TestALoopBesideComputingGoroutinesKeepsItsProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newWorld(t)
	w.loop.cfg.Spin = time.Hour
	stop := w.serving(t)
	var end atomic.Bool
	var computed [2]atomic.Uint64
	var all sync.WaitGroup
	for i := range computed {
		all.Go(func() {
			for !end.Load() {
				computed[i].Add(1)
			}
		})
	}
	const slices = 50
	for begin, deadline := cpuTime(t), time.Now().Add(30*time.Second); cpuTime(t)-begin < slices*10*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Error("other processes have the CPU")
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	end.Store(true)
	all.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
	n := w.loop.Stats().Iterations
	if n < 2*slices || computed[0].Load() == 0 || computed[1].Load() == 0 {
		t.Errorf("%d iterations, and %d and %d of the others", n, computed[0].Load(), computed[1].Load())
	}
}

// cpuTime is what the process has used: the machine may run others, too.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hooked is a script that calls a function once for each iteration of its loop.
type hooked struct {
	script
	hook func()
}

func (h *hooked) Rx(clock.Time, *packet.Batch) (int, error) {
	h.hook()
	return 0, nil
}

// TestThoseWhomALoopWakesRunNext has one processor for a loop that now and then wakes a goroutine: that runs
// before the next iteration.
func TestThoseWhomALoopWakesRunNext(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newWorld(t)
	var iterations atomic.Int64
	const rounds, every = 20, 100
	woken := make(chan int64, 1)
	h := &hooked{script{pool: w.pool, fd: -1}, func() {
		if n := iterations.Add(1); n%every == 0 && n <= rounds*every {
			woken <- n
		}
	}}
	l, err := NewLoop(Config{Devices: []pmd.Driver{h}, Pool: w.pool, Engine: w.eng, Handler: w.hand, Spin: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.loop.Close()
	w.loop = l
	w.serving(t)
	late := 0
	for range rounds {
		if n := <-woken; iterations.Load() > n {
			late++
		}
	}
	if late > rounds/4 { // the runtime preempts the loop now and then
		t.Errorf("%d of %d were late", late, rounds)
	}
}

// TestPrepareSetsUpASleep looks at a loop whose next timer is some time away, or due with each iteration.
func TestPrepareSetsUpASleep(t *testing.T) {
	for _, every := range []clock.Time{5_000_000, 0} {
		w := newWorld(t)
		w.hand.every = every
		w.loop.cfg.Now = func() clock.Time { return 1000 }
		for i := range w.loop.devices {
			w.loop.devices[i].info.Notifier = new(pmd.Notifier)
		}
		p := newSleeper(w.loop)
		sleeps := p.prepare()
		if sleeps != (every > 0) || sleeps && (p.limit != time.Duration(every) || w.loop.lock.wakeAt != 1000+every) {
			t.Errorf("a timer every %d: sleeps %v for %v until %d", every, sleeps, p.limit, w.loop.lock.wakeAt)
		}
		p.close()
		if w.loop.notifier.ch != nil {
			t.Error("after close it notifies by the channel")
		}
	}
}

// TestExtraProcessorsLastAsLongAsTheirLoops serves three loops, two of which ask for a processor, and ends them.
func TestExtraProcessorsLastAsLongAsTheirLoops(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var stops []func() error
	for _, extra := range []bool{true, false, true} {
		w := newWorld(t)
		w.loop.cfg.ExtraProcessor = extra
		stops = append(stops, w.serving(t))
		w.asleep(t)
	}
	if got := runtime.GOMAXPROCS(0); got != before+2 {
		t.Errorf("%d processors, %d before", got, before)
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors after, %d before", got, before)
	}
}

// TestASleepAllocatesNothing parks with a file and without.
func TestASleepAllocatesNothing(t *testing.T) {
	for _, file := range []bool{false, true} {
		w := newWorld(t)
		w.hand.every = clock.Time(time.Hour)
		l := w.loop
		if file {
			f, in := newFiled(t, w.pool)
			_, _ = in.Write([]byte{1})
			var err error
			if l, err = NewLoop(Config{Devices: []pmd.Driver{f}, Pool: w.pool, Engine: w.eng, Handler: w.hand}); err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		for i := range l.devices {
			l.devices[i].info.Notifier = new(pmd.Notifier)
		}
		p := newSleeper(l)
		defer p.close()
		sleeps, ctx := l.count.Sleeps, t.Context()
		n := testing.AllocsPerRun(100, func() {
			l.notifier.notify()
			p.sleep(ctx)
		})
		if n != 0 && !raceEnabled || l.count.Sleeps != sleeps+101 {
			t.Errorf("file %v: %v allocations, %d sleeps", file, n, l.count.Sleeps-sleeps)
		}
	}
}

// TestTheAnswerToASinglePacketLeavesAtExit has a loop that is awake and received packets: what others make
// after one packet leaves on their goroutine, once; after several, or without Serve, with the next iteration.
func TestTheAnswerToASinglePacketLeavesAtExit(t *testing.T) {
	for _, c := range []struct {
		served  bool
		packets int
		want    [3]int // sent after each of two answers, and after the next iteration
	}{
		{true, 1, [3]int{1, 1, 2}},
		{true, 2, [3]int{0, 0, 2}},
		{false, 1, [3]int{0, 0, 2}},
	} {
		w := newWorld(t)
		w.port[0].in = [][]packet.Desc{w.packets(t, c.packets, packet.DropRule, 0)}
		w.loop.Poll(0)
		w.loop.Poll(1) // iterations in vain change nothing
		w.loop.lock.served.Store(c.served)
		var got [3]int
		for i := range 2 {
			w.loop.lock.Enter()
			_ = w.loop.out.Send(0, []byte{1})
			w.loop.lock.Exit()
			got[i] = len(w.port[0].sent)
		}
		w.loop.lock.served.Store(false)
		w.loop.Poll(2)
		got[2] = len(w.port[0].sent)
		if got != c.want {
			t.Errorf("%+v: sent %v", c, got)
		}
		w.settled(t)
	}
}

// TestExitUnchangedCausesNothing looks at a loop that is left instead of exited, asleep and awake.
func TestExitUnchangedCausesNothing(t *testing.T) {
	for _, asleep := range []bool{true, false} {
		w := newWorld(t)
		w.hand.every = clock.Time(time.Hour)
		w.loop.Poll(0)
		ticks := len(w.hand.ticks)
		w.loop.notifier.armed.Store(asleep)
		w.loop.lock.served.Store(true)
		w.loop.lock.Enter()
		w.loop.lock.ExitUnchanged()
		w.loop.lock.served.Store(false)
		w.loop.notifier.armed.Store(false)
		w.loop.lock.Enter() // it is free
		w.loop.lock.ExitUnchanged()
		if w.loop.Poll(1); len(w.hand.ticks) != ticks {
			t.Errorf("asleep %v: %d ticks more", asleep, len(w.hand.ticks)-ticks)
		}
	}
}

// TestAServedLoopPublishesItsCountersNowAndThen counts iterations until the counters are visible, awake and before sleep.
func TestAServedLoopPublishesItsCountersNowAndThen(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	for i := range 2*publishEvery + 1 {
		w.loop.lock.iterate(clock.Time(i))
		if got, want := w.loop.Stats().Iterations, uint64((i+1)/publishEvery*publishEvery); got != want {
			t.Errorf("%d iterations published after %d, want %d", got, i+1, want)
		}
	}
	for i := range w.loop.devices {
		w.loop.devices[i].info.Notifier = new(pmd.Notifier)
	}
	p := newSleeper(w.loop)
	defer p.close()
	if !p.prepare() {
		t.Fatal("it does not sleep")
	}
	if s := w.loop.Stats(); s.Iterations != 2*publishEvery+2 || s.Sleeps != 1 {
		t.Errorf("before sleep: %+v", s)
	}
}
