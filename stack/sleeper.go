package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"golang.org/x/sys/unix"
)

// sleeper suspends the goroutine of a served loop until a device has packets, a command comes or a
// timer is due.
//
// Without files it waits for a channel that the notifier fills, which costs no system call. Devices
// with files are watched, with the notifier's eventfd, by an epoll of their own, and that one file by
// the runtime's poller. The runtime's interest is edge-triggered, that of the inner epoll is not:
// each wait polls the inner epoll after the runtime has been told to forget old edges, so none is
// lost.
//
// Each device is watched for one event only (EPOLLONESHOT), and anew with each sleep: for every
// packet that comes while the loop is awake the kernel would wake a thread of the runtime, for
// nothing.
type sleeper struct {
	l       *Loop
	file    *os.File // the epoll; nil without files
	raw     syscall.RawConn
	watched []watch // of each device
	timer   *time.Timer

	// Made once, so that no sleep allocates.
	events []unix.EpollEvent
	look   func(epoll uintptr) bool
	follow func(epoll uintptr)
	err    error // of follow
}

// watch is the state of a device in the epoll.
type watch uint8

const (
	unwatched watch = iota
	reported        // the epoll has reported the file once and is disabled for it
	watching
)

func newSleeper(l *Loop) (*sleeper, error) {
	p := &sleeper{l: l, watched: make([]watch, len(l.devices)), events: make([]unix.EpollEvent, len(l.devices)+1)}
	p.look, p.follow = p.poll, p.update
	p.timer = time.AfterFunc(time.Hour, l.notifier.wake)
	p.timer.Stop()
	for i := range l.devices {
		if l.hasFile(i) {
			return p, p.open()
		}
	}
	l.notifier.useChannel(make(chan struct{}, 1))
	return p, nil
}

// open makes the epoll and adds the eventfd.
func (p *sleeper) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("loop: epoll: %w", err)
	}
	err = errors.Join(
		unix.SetNonblock(fd, true), // or the runtime's poller does not take it
		unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, p.l.notifier.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}))
	p.file = os.NewFile(uintptr(fd), "loop")
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		return fmt.Errorf("loop: epoll: %w", errors.Join(err, p.file.Close()))
	}
	return nil
}

// close may be called once.
func (p *sleeper) close() {
	p.timer.Stop()
	p.l.notifier.useChannel(nil)
	if p.file != nil {
		_ = p.file.Close()
	}
}

// sleep sleeps, and reports whether it did. From arm on, whoever enters the loop sends its own output,
// and whoever has work for the loop notifies; the iteration in prepare finds what came before.
func (p *sleeper) sleep(ctx context.Context) bool {
	n := p.l.notifier
	n.arm()
	slept := p.prepare() && ctx.Err() == nil
	if slept {
		p.wait()
	}
	n.disarm()
	p.timer.Stop() // a running timer makes each switch between goroutines read the clock
	return slept
}

// prepare does the last iteration before a sleep, and sets up what ends it; false means that there
// is work instead.
func (p *sleeper) prepare() bool {
	l := p.l
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	now := max(l.out.now, l.cfg.Now())
	if l.poll(now) > 0 || l.mayNotSleep() {
		return false
	}
	limit := l.sleepLimit(now)
	if limit <= 0 || p.watch() != nil {
		return false
	}
	l.lock.wakeAt = now.Add(limit)
	p.timer.Reset(limit)
	l.count.Sleeps++
	l.publish()
	return true
}

// wait returns when the notifier notifies or, with files, one is readable.
func (p *sleeper) wait() {
	if p.file == nil {
		<-p.l.notifier.ch
		return
	}
	_ = p.raw.Read(p.look)
}

// poll asks the epoll for events, and reports whether there is one.
func (p *sleeper) poll(epoll uintptr) bool {
	n, err := unix.EpollWait(int(epoll), p.events, 0)
	if err != nil {
		return !errors.Is(err, unix.EINTR)
	}
	for _, e := range p.events[:n] {
		if e.Fd < 0 {
			p.l.notifier.drain()
		} else {
			p.watched[e.Fd] = reported
		}
	}
	if n > 0 {
		p.unwatch(epoll)
	}
	return n > 0
}

// watch makes the epoll watch the files that shall wake the loop.
func (p *sleeper) watch() error {
	if p.file == nil {
		return nil
	}
	p.err = nil
	return errors.Join(p.raw.Control(p.follow), p.err)
}

// update is watch with the epoll's descriptor.
func (p *sleeper) update(epoll uintptr) {
	for i, w := range p.watched {
		wakes := p.l.wakes(i)
		switch {
		case wakes && w == unwatched:
			p.control(epoll, unix.EPOLL_CTL_ADD, i, watching)
		case wakes && w == reported:
			p.control(epoll, unix.EPOLL_CTL_MOD, i, watching)
		case !wakes && w != unwatched:
			p.control(epoll, unix.EPOLL_CTL_DEL, i, unwatched)
		}
	}
}

// unwatch disables the files that did not end the sleep.
func (p *sleeper) unwatch(epoll uintptr) {
	for i, w := range p.watched {
		if w == watching {
			p.control(epoll, unix.EPOLL_CTL_MOD, i, reported)
		}
	}
}

// control changes the state of device i in the epoll to w.
func (p *sleeper) control(epoll uintptr, op, i int, w watch) {
	e := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(i)}
	if w == watching {
		e.Events |= unix.EPOLLIN
	}
	if err := unix.EpollCtl(int(epoll), op, p.l.devices[i].info.FD, &e); err != nil {
		p.err = fmt.Errorf("loop: epoll: %w", err)
		return
	}
	p.watched[i] = w
}

// Bounds on how long a loop sleeps.
const (
	maxSleep   = 100 * time.Millisecond // so that a lost wakeup costs little
	timedSleep = time.Millisecond       // a device has packets that become ready by time (CapTimed)
	blindSleep = 100 * time.Microsecond // a device cannot wake the loop (no CapPoll)
)

// mayNotSleep reports whether there is work that no notification announces: batches in the engine,
// which is polled, and packets that other loops handed over before the notifier was armed.
func (l *Loop) mayNotSleep() bool {
	return l.inside > 0 || l.waiting != nil || l.handedOver()
}

// hasFile reports whether device i has a file to sleep on.
func (l *Loop) hasFile(i int) bool { return l.devices[i].info.Caps&pmd.CapPoll != 0 }

// wakes reports whether the file of device i shall wake the loop. That of a device that is down would
// do so at once (POLLERR); one with a full transmit ring is polled instead.
func (l *Loop) wakes(i int) bool {
	p := &l.devices[i]
	return l.hasFile(i) && !p.ended && p.err == nil && l.out.queues[i].out.Len() == 0
}

// sleepLimit returns how long an idle loop may sleep at most.
func (l *Loop) sleepLimit(now clock.Time) time.Duration {
	limit := min(maxSleep, max(0, l.out.tick.Sub(now)))
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
