package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// Bounds on how long a loop sleeps.
const (
	maxSleep   = 100 * time.Millisecond // so that a lost wake-up costs little
	timedSleep = time.Millisecond       // a port has packets that become ready by time (CapTimed)
	blindSleep = 100 * time.Microsecond // a port cannot wake the loop (no CapPoll)
)

// Run polls until ctx ends, until every port has ended (io.EOF: nil is returned; a device that is
// gone: its error), on a thread of its own, bound to Config.Affinity. When it returns no packet is
// in flight: what could not be sent any more is dropped and counted, so that the counters balance.
func (l *Loop) Run(ctx context.Context) error {
	runtime.LockOSThread()
	if len(l.cfg.Affinity) == 0 {
		defer runtime.UnlockOSThread()
	} else if err := bind(l.cfg.Affinity); err != nil { // the thread stays locked: it ends with the goroutine
		return err
	}
	stop := context.AfterFunc(ctx, l.mail.ring)
	defer stop()
	idle := clock.Never
	for ctx.Err() == nil && !l.ended() {
		now := Now()
		if l.Poll(now) > 0 {
			idle = now.Add(l.spin)
			continue
		}
		if idle == clock.Never {
			idle = now.Add(l.spin)
		}
		if now >= idle && !l.ended() { // nobody would wake it
			l.sleep(now)
			idle = clock.Never
		}
	}
	l.drain()
	return l.lastError()
}

// ended reports whether no port will ever receive again, of the other loops of the mesh neither, and
// nothing is left inside.
func (l *Loop) ended() bool {
	for i := range l.ports {
		if p := &l.ports[i]; !p.ended || p.out.Len() > 0 {
			return false
		}
	}
	if l.inside > 0 || l.waiting != nil || l.local.Len() > 0 {
		return false
	}
	if l.mesh == nil {
		return true
	}
	l.quiet.calm()
	return l.mesh.settled(l.looks)
}

// lastError returns the error of a device that is gone; the end of a file is none.
func (l *Loop) lastError() error {
	var errs []error
	for i := range l.ports {
		if p := &l.ports[i]; p.ended && !errors.Is(p.err, io.EOF) {
			errs = append(errs, p.err)
		}
	}
	return errors.Join(errs...)
}

// drain waits for the engine, sends what it can and drops the rest.
func (l *Loop) drain() {
	l.now = Now()
	for l.inside > 0 || l.waiting != nil {
		l.resubmit()
		l.finish(l.now)
	}
	l.leave()
	for i := range l.ports {
		l.transmit(l.now, i)
		l.drop(l.ports[i].out.D, packet.DropTxFull)
		l.ports[i].out.Reset()
	}
	l.drop(l.local.D, packet.DropTxFull)
	l.local.Reset()
	l.publish()
}

// sleep waits in poll(2) until a port has packets, a message comes, or a timer is due. A loop whose
// engine is at work does not sleep.
func (l *Loop) sleep(now clock.Time) {
	if l.inside > 0 || l.waiting != nil {
		return
	}
	fds, limit := l.awaits(now, make([]unix.PollFd, 0, 16))
	ts := unix.NsecToTimespec(int64(limit))
	wait := func() {
		if l.given() { // before the flag was up, so nobody has rung
			return
		}
		l.count.Sleeps++
		_, _ = unix.Ppoll(fds, &ts, nil) // EINTR and time-outs are turns like others
	}
	if l.mail.sleep(wait) {
		l.rearm()
	}
}

// awaits appends what wakes an idle loop to fds, and says how long it may sleep at most.
func (l *Loop) awaits(now clock.Time, fds []unix.PollFd) ([]unix.PollFd, time.Duration) {
	fds = append(fds, unix.PollFd{Fd: int32(l.mail.fd), Events: unix.POLLIN})
	for i := range l.ports {
		if l.wakes(i) {
			fds = append(fds, unix.PollFd{Fd: int32(l.ports[i].info.FD), Events: unix.POLLIN})
		}
	}
	return fds, l.limit(now)
}

// hasFile reports whether port i has a file to sleep on.
func (l *Loop) hasFile(i int) bool { return l.ports[i].info.Caps&pmd.CapPoll != 0 }

// wakes reports whether the file of port i is to wake the loop. That of a port that is down would do so
// at once (POLLERR).
func (l *Loop) wakes(i int) bool {
	p := &l.ports[i]
	return l.hasFile(i) && !p.ended && p.err == nil && p.out.Len() == 0
}

// limit says how long an idle loop may sleep at most.
func (l *Loop) limit(now clock.Time) time.Duration {
	limit := min(maxSleep, max(0, l.tick.Sub(now)))
	if l.owes() { // a payment rings no bell
		limit = min(limit, blindSleep)
	}
	if l.quiet.changes.Load()&1 == 1 { // nor does the end of the last loop
		limit = min(limit, timedSleep)
	}
	for i := range l.ports {
		p := &l.ports[i]
		switch {
		case p.ended:
		case p.err != nil:
			limit = min(limit, retryAfter)
		case p.out.Len() > 0 || !l.hasFile(i) && p.info.Bell == nil:
			limit = min(limit, blindSleep)
		}
		if p.info.Caps&pmd.CapTimed != 0 {
			limit = min(limit, timedSleep)
		}
	}
	return limit
}

// bind binds the calling thread to CPUs.
func bind(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("loop: bind to CPUs %v: %w", cpus, err)
	}
	return nil
}

// RunAll runs loops, each on its own thread, until ctx ends or all have ended by themselves; the
// first that fails stops the others.
func RunAll(ctx context.Context, loops ...*Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(loops))
	for _, l := range loops {
		go func() { results <- l.Run(ctx) }()
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
