package stack

import (
	"context"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"golang.org/x/sys/unix"
)

// sleeper suspends the runner of a served loop until a device has packets, a command comes or a timer
// is due.
//
// With files it waits in ppoll(2), on the thread that the loop runs on. The kernel wakes that thread,
// and it continues with the processor (the runtime's P) that it had, or with any idle one. The
// runtime's poller needs a processor before it looks for events: where all of them compute, it looks
// every 10 ms. A sleep is one system call, and two where the notifier ended it.
//
// Without files it waits for a channel that the notifier fills, which costs no system call, until the first Watch of the
// loop.
type sleeper struct {
	l     *Loop
	files bool
	fds   []unix.PollFd // of the notifier, the devices and what the loop watches
	limit time.Duration // of this sleep
	timer *time.Timer   // ends a sleep without files
}

func newSleeper(l *Loop) *sleeper {
	p := &sleeper{l: l, fds: make([]unix.PollFd, 0, len(l.devices)+2)}
	for i := range l.devices {
		p.files = p.files || l.hasFile(i)
	}
	if !p.files {
		l.notifier.useChannel(make(chan struct{}, 1))
		p.timer = time.AfterFunc(time.Hour, l.notifier.wake)
		p.timer.Stop()
	}
	return p
}

// useFiles ends the waits for the channel. It reports whether a notification was in it.
func (p *sleeper) useFiles() (notified bool) {
	p.files = true
	ch := p.l.notifier.ch
	p.l.notifier.useChannel(nil)
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// close may be called once.
func (p *sleeper) close() {
	if !p.files {
		p.timer.Stop()
		p.l.notifier.useChannel(nil)
	}
}

// sleep sleeps, and reports whether it did. From arm on, a goroutine that enters the loop sends its own output,
// and one that has work for the loop notifies it; the iteration in prepare finds what came before.
func (p *sleeper) sleep(ctx context.Context) bool {
	n := p.l.notifier
	n.arm()
	slept := p.prepare() && ctx.Err() == nil
	if slept {
		p.wait()
	}
	n.disarm()
	return slept
}

// prepare does the last iteration before a sleep, and sets up what ends it; false means that there
// is work instead.
func (p *sleeper) prepare() bool {
	l := p.l
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	now := max(l.out.now, l.cfg.Now())
	l.armAll()
	if l.poll(now) > 0 || l.mayNotSleep() || !p.files && l.files != nil && p.useFiles() {
		return false
	}
	if p.fds, p.limit = l.awaits(now, p.fds[:0]); p.limit <= 0 {
		return false
	}
	l.lock.wakeAt = now.Add(p.limit)
	l.count.Sleeps++
	l.publish()
	return true
}

// wait returns when the notifier notifies, a file is readable or the limit has passed.
func (p *sleeper) wait() {
	if !p.files {
		p.timer.Reset(p.limit)
		<-p.l.notifier.ch
		p.timer.Stop() // a running timer makes each switch between goroutines read the clock
		return
	}
	ts := unix.NsecToTimespec(int64(p.limit))
	_, _ = unix.Ppoll(p.fds, &ts, nil) // after EINTR and a timeout an iteration follows, too
	if p.fds[0].Revents != 0 {
		p.l.notifier.drain()
	}
}

// Bounds on how long a loop sleeps.
const (
	maxSleep   = 100 * time.Millisecond // so that a lost wakeup costs little
	timedSleep = time.Millisecond       // a device has packets that become ready by time (CapTimed)
	blindSleep = 100 * time.Microsecond // a device cannot wake the loop (no CapPoll)
)

// mayNotSleep reports whether there is work that no notification announces: batches in the engine,
// which is polled, packets that other loops handed over before the notifier was armed, and files that are to be called again.
func (l *Loop) mayNotSleep() bool {
	return l.inside > 0 || l.waiting != nil || len(l.after) > 0 || l.handedOver() || l.files.waiting()
}

// hasFile reports whether device i has a file to sleep on.
func (l *Loop) hasFile(i int) bool { return l.devices[i].info.Caps&pmd.CapPoll != 0 }

// wakes reports whether the file of device i shall wake the loop. That of a device that is down would
// do so at once (POLLERR); one with a full transmit ring is polled instead.
func (l *Loop) wakes(i int) bool {
	p := &l.devices[i]
	return l.hasFile(i) && !p.ended && p.err == nil && !l.paused && l.out.queues[i].out.Len() == 0
}

// awaits appends what wakes an idle loop to fds, its notifier first and its files last, and returns how long it may
// sleep at most.
func (l *Loop) awaits(now clock.Time, fds []unix.PollFd) ([]unix.PollFd, time.Duration) {
	fds = append(fds, unix.PollFd{Fd: int32(l.notifier.fd), Events: unix.POLLIN})
	for i := range l.devices {
		if l.wakes(i) {
			fds = append(fds, unix.PollFd{Fd: int32(l.devices[i].info.FD), Events: unix.POLLIN})
		}
	}
	if l.files != nil && l.files.fd >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(l.files.fd), Events: unix.POLLIN})
	}
	return fds, l.sleepLimit(now)
}

// sleepLimit returns how long an idle loop may sleep at most.
func (l *Loop) sleepLimit(now clock.Time) time.Duration {
	limit := min(l.maxSleep, max(0, l.out.tick.Sub(now)))
	if len(l.pollers) > 0 {
		limit = min(limit, max(0, l.pollBy.Sub(now)))
	}
	if l.hasCredits() { // a returned frame does not notify
		limit = min(limit, blindSleep)
	}
	if l.activity != nil && l.activity.isIdle() { // nor does the end of the last loop
		limit = min(limit, timedSleep)
	}
	for i := range l.devices {
		p := &l.devices[i]
		switch {
		case p.ended:
		case p.err != nil:
			limit = min(limit, retryAfter)
		case l.out.queues[i].out.Len() > 0 || !l.hasFile(i) && p.info.Notifier == nil:
			limit = min(limit, blindSleep)
		}
		if p.info.Caps&pmd.CapTimed != 0 {
			limit = min(limit, timedSleep)
		}
	}
	return limit
}
