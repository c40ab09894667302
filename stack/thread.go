package stack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// Run polls until ctx ends, until every device has ended (io.EOF: nil is returned; a device that is
// gone: its error), on an OS thread of its own, bound to Config.Affinity. When it returns no packet
// is in flight: what could not be sent any more is dropped and counted, so that the counters
// balance.
func (l *Loop) Run(ctx context.Context) error {
	if l.handler == nil {
		return errNoHandler
	}
	release, err := lockThread(l.cfg.Affinity)
	if err != nil {
		return err
	}
	defer release()
	defer l.extraProcessor()()
	stop := context.AfterFunc(ctx, l.notifier.notify)
	defer stop()
	running.Add(1)
	defer running.Add(-1)
	newThread(l).run(ctx)
	l.drain()
	return l.lastError()
}

// thread is the runner of a loop on an OS thread: it spins, and sleeps in ppoll(2).
type thread struct {
	l    *Loop
	spin time.Duration
	nap  nap
}

func newThread(l *Loop) *thread {
	t := &thread{l: l, spin: l.cfg.Spin}
	if t.spin == 0 {
		t.spin = DefaultSpin
	}
	return t
}

func (t *thread) run(ctx context.Context) {
	l, idle := t.l, clock.Never // idle is when the loop has polled in vain for long enough
	for ctx.Err() == nil && !l.ended() {
		now := Now()
		if l.Poll(now) > 0 {
			idle = now.Add(t.spin)
			continue
		}
		if idle == clock.Never {
			idle = now.Add(t.spin)
		}
		if now >= idle && !l.ended() { // a loop that has ended is never notified
			t.sleep(now)
			idle = clock.Never
		}
	}
}

// sleep waits in ppoll(2) until a device has packets, a command comes, or a timer is due. A command
// that was queued before the notifier was armed runs instead.
func (t *thread) sleep(now clock.Time) {
	l := t.l
	if l.inside > 0 || l.waiting != nil || l.files.waiting() {
		return
	}
	short, yield := t.nap.begin(now, allTaken())
	if yield {
		runtime.Gosched()
	}
	l.armAll()
	if l.pollAll(now) > 0 {
		return // the next iteration sends what it caused
	}
	fds, limit := l.awaits(now, make([]unix.PollFd, 0, 16))
	l.notifier.arm()
	defer l.notifier.disarm()
	if l.commands.runOne() {
		l.out.rearm()
		return
	}
	if !l.handedOver() { // what came before the notifier was armed did not notify
		l.count.Sleeps++
		begin := Now()
		woken := ppoll(fds, limit, short)
		t.nap.ended(woken, Now().Sub(begin))
	}
	l.notifier.drain()
}

// lockThread locks the calling goroutine to its thread and binds that to CPUs, where there are any.
// release undoes both; a thread whose old CPUs cannot be had again stays locked and ends with its
// goroutine.
func lockThread(cpus []int) (release func(), err error) {
	runtime.LockOSThread()
	if len(cpus) == 0 {
		return runtime.UnlockOSThread, nil
	}
	var old, set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := errors.Join(unix.SchedGetaffinity(0, &old), unix.SchedSetaffinity(0, &set)); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("loop: bind to CPUs %v: %w", cpus, err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &old) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// RunAll runs loops, each on its own thread, until ctx ends or all have ended by themselves; the
// first that fails stops the others.
func RunAll(ctx context.Context, loops ...*Loop) error { return all(ctx, (*Loop).Run, loops) }

// ServeAll serves loops, each on a goroutine of its own, until ctx ends or all have ended by
// themselves; the first that fails stops the others.
func ServeAll(ctx context.Context, loops ...*Loop) error { return all(ctx, (*Loop).Serve, loops) }

// all calls f for all loops at the same time.
func all(ctx context.Context, f func(*Loop, context.Context) error, loops []*Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(loops))
	for _, l := range loops {
		go func() { results <- f(l, ctx) }()
	}
	var errs []error
	for range loops {
		if err := <-results; err != nil {
			errs = append(errs, err)
			cancel()
		}
	}
	return errors.Join(errs...)
}
