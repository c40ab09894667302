package stack

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// TestWhatAnIdleLoopWaitsFor looks at the poll set and the limit of a loop over two ports that can
// both wake it, with one thing changed at a time.
func TestWhatAnIdleLoopWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Loop)
		fds    []int32 // of the ports
		limit  time.Duration
	}{
		"nothing special":       {func(*Loop) {}, []int32{70, 71}, maxSleep},
		"a timer":               {func(l *Loop) { l.out.tick = 1_000 + 5_000 }, []int32{70, 71}, 5_000},
		"a timer that is due":   {func(l *Loop) { l.out.tick = 900 }, []int32{70, 71}, 0},
		"no timer":              {func(l *Loop) { l.out.tick = clock.Never }, []int32{70, 71}, maxSleep},
		"a port that is down":   {func(l *Loop) { l.deviceFailed(1_000, 0, pmd.ErrDown) }, []int32{71}, retryAfter},
		"a port that has ended": {func(l *Loop) { l.devices[0].ended = true }, []int32{71}, maxSleep},
		"a port without file":   {func(l *Loop) { l.devices[0].info.Caps = 0 }, []int32{71}, blindSleep},
		"packets by time":       {func(l *Loop) { l.devices[1].info.Caps |= pmd.CapTimed }, []int32{70, 71}, timedSleep},
		"packets to send": {func(l *Loop) {
			l.out.queues[1].out.Append(packet.Desc{})
		}, []int32{70}, blindSleep},
	} {
		w := newWorld(t)
		for i := range w.loop.devices {
			w.loop.devices[i].info = pmd.Info{Caps: pmd.CapPoll, FD: 70 + i}
		}
		w.loop.out.tick = clock.Never
		c.change(w.loop)
		fds, limit := w.loop.awaits(1_000, nil)
		if limit != c.limit || len(fds) != len(c.fds)+1 || fds[0].Fd != int32(w.loop.notifier.fd) {
			t.Errorf("%s: %v for %v; want ports %v for %v", name, fds, limit, c.fds, c.limit)
			continue
		}
		for i, fd := range fds {
			if fd.Events != unix.POLLIN || i > 0 && fd.Fd != c.fds[i-1] {
				t.Errorf("%s: %+v at %d, want ports %v", name, fd, i, c.fds)
			}
		}
	}
}

func TestALoopWhoseEngineIsAtWorkDoesNotSleep(t *testing.T) {
	w := newWorld(t)
	w.eng.late = 1
	w.port[0].in = [][]packet.Desc{w.packets(t, 1, packet.DropRule, 0)}
	w.loop.Poll(0)
	if newThread(w.loop).sleep(0); w.loop.count.Sleeps != 0 {
		t.Error("it slept")
	}
	w.loop.Poll(0)
	if newThread(w.loop).sleep(0); w.loop.count.Sleeps != 1 {
		t.Error("it did not sleep with nothing to do")
	}
	w.settled(t)
}

func TestAPortThatIsUpAgainWakesTheLoop(t *testing.T) {
	w := newWorld(t)
	w.loop.devices[0].info = pmd.Info{Caps: pmd.CapPoll, FD: 70}
	w.port[0].rxErr = pmd.ErrDown
	w.loop.Poll(0)
	down, _ := w.loop.awaits(0, nil)
	w.port[0].rxErr = nil
	w.loop.Poll(clock.Time(retryAfter))
	if up, _ := w.loop.awaits(0, nil); len(down) != 1 || len(up) != 2 {
		t.Errorf("it waits for %v while the link is down, for %v then", down, up)
	}
}

func TestACommandQueuedBeforeTheNotifierIsArmedRunsInsteadOfSleeping(t *testing.T) {
	w := newWorld(t)
	read := false
	w.loop.commands.ring.Push(func() { read = true }) // as Do does, just before the notifier is armed
	newThread(w.loop).sleep(0)
	if !read || w.loop.notifier.armed.Load() || w.loop.count.Sleeps != 0 {
		t.Errorf("run: %v, armed: %v, %d sleeps", read, w.loop.notifier.armed.Load(), w.loop.count.Sleeps)
	}
}

func TestALoopDoesNotSleepOverPacketsHandedOver(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0].loop, w.nodes[1].loop
	b.out.tick = 1 // due: a loop that sleeps all the same does so for no time
	w.give(0, plan(1, planForward))
	a.Poll(0) // does not notify: b is awake until it sleeps
	if newThread(b).sleep(1); b.count.Sleeps != 0 {
		t.Error("it slept with a packet before it")
	}
	b.Poll(1)
	b.out.tick = 1
	if newThread(b).sleep(1); b.count.Sleeps != 1 {
		t.Error("it did not sleep with nothing to do")
	}
	a.Poll(1)
	w.balance()
}

func TestANotificationWakesOnce(t *testing.T) {
	w := newWorld(t)
	readable := func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(w.loop.notifier.fd), Events: unix.POLLIN}}, 0)
		return n == 1
	}
	w.loop.notifier.notify()
	if !readable() {
		t.Error("the notification is not readable")
	}
	if newThread(w.loop).sleep(0); readable() {
		t.Error("it stays readable")
	}
}

// ended is a context that has been cancelled.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestTheEndWaitsForTheEngine(t *testing.T) {
	w := newWorld(t)
	w.eng.late = 3
	for range 3 { // one goes into the engine, one waits
		w.port[0].in = append(w.port[0].in, w.packets(t, 2, packet.Forward, 1))
	}
	w.loop.Poll(0)
	w.loop.Poll(0)
	if w.loop.inside == 0 || w.loop.waiting == nil {
		t.Fatal("the engine is idle: the test shows nothing")
	}
	held := uint64(w.loop.Stats().Received)
	if err := w.loop.Run(ended(t)); err != nil {
		t.Error(err)
	}
	for _, d := range w.port[0].in { // never received
		for _, d := range d {
			w.pool.Put(d.Off)
		}
	}
	if s := w.settled(t); s.Forwarded != held {
		t.Errorf("forwarded %d of %d", s.Forwarded, held)
	}
}

func TestALinkThatIsDownAtTheEndIsNoError(t *testing.T) {
	w := newWorld(t)
	w.port[0].rxErr = pmd.ErrDown
	w.loop.Poll(0)
	if err := w.loop.Run(ended(t)); err != nil {
		t.Error(err)
	}
}

func TestWallIsTheCalendarOfNow(t *testing.T) {
	at := clock.Time(5 * time.Second)
	if d := Wall(at).Sub(Wall(0)); d != 5*time.Second {
		t.Errorf("five seconds of the clock are %v of the calendar", d)
	}
	before := time.Now()
	if w := Wall(Now()); w.Before(before) || w.After(time.Now()) {
		t.Errorf("now is %v on the wall, between %v and later", w, before)
	}
}
