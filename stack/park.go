package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// parker puts the goroutine of a served loop to sleep until a port has packets, a message comes or a
// timer is due.
//
// Without files it waits for a channel that the bell fills, which costs no system call. Ports with files
// are watched, with the mailbox's eventfd, by an epoll of their own, and that one file by the runtime's
// poller. The runtime's interest is edge-triggered, ours is not: each wait looks at the epoll after the
// runtime has been told to forget old edges, so none is lost.
//
// Each port is watched for one event only (EPOLLONESHOT), and anew with each sleep: for every packet that
// comes while the loop is awake the kernel would wake a thread of the runtime, for nothing.
type parker struct {
	l       *Loop
	file    *os.File // the epoll; nil without files
	raw     syscall.RawConn
	watched []watch // of each port
	timer   *time.Timer

	// Made once, so that no sleep allocates.
	events []unix.EpollEvent
	look   func(epoll uintptr) bool
	follow func(epoll uintptr)
	err    error // of follow
}

// watch says what the epoll knows of a port.
type watch uint8

const (
	unknown watch = iota
	spent         // it has told of the file, and does not look any more
	armed
)

func newParker(l *Loop) (*parker, error) {
	p := &parker{l: l, watched: make([]watch, len(l.ports)), events: make([]unix.EpollEvent, len(l.ports)+1)}
	p.look, p.follow = p.poll, p.arm
	p.timer = time.AfterFunc(time.Hour, l.mail.wake)
	p.timer.Stop()
	for i := range l.ports {
		if l.hasFile(i) {
			return p, p.open()
		}
	}
	l.mail.toll(make(chan struct{}, 1))
	return p, nil
}

// open makes the epoll and adds the eventfd.
func (p *parker) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("loop: epoll: %w", err)
	}
	err = errors.Join(
		unix.SetNonblock(fd, true), // or the runtime's poller does not take it
		unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, p.l.mail.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}))
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
func (p *parker) close() {
	p.timer.Stop()
	p.l.mail.toll(nil)
	if p.file != nil {
		_ = p.file.Close()
	}
}

// park sleeps, and reports whether it did. From the moment that the flag of the mailbox is up whoever enters
// the loop does what there is to do, and whoever has something for it rings; the turn after that finds what
// came before.
func (p *parker) park(ctx context.Context) bool {
	l := p.l
	l.mail.asleep.Store(true)
	slept := p.prepare() && ctx.Err() == nil
	if slept {
		p.wait()
	}
	l.mail.asleep.Store(false)
	p.timer.Stop() // one that runs makes each switch between goroutines read the clock
	return slept
}

// prepare makes the last turn before sleep, and sets up what ends it; false says that there is
// something to do instead.
func (p *parker) prepare() bool {
	l := p.l
	l.token.mu.Lock()
	defer l.token.mu.Unlock()
	now := max(l.now, l.cfg.Now())
	if l.poll(now) > 0 || l.inside > 0 || l.waiting != nil || l.given() {
		return false
	}
	limit := l.limit(now)
	if limit <= 0 || p.watch() != nil {
		return false
	}
	l.until = now.Add(limit)
	p.timer.Reset(limit)
	l.count.Sleeps++
	l.publish()
	return true
}

// wait returns when the bell rings or, with files, one is readable.
func (p *parker) wait() {
	if p.file == nil {
		<-p.l.mail.bell
		return
	}
	_ = p.raw.Read(p.look)
}

// poll asks the epoll what has happened, and reports whether anything has.
func (p *parker) poll(epoll uintptr) bool {
	n, err := unix.EpollWait(int(epoll), p.events, 0)
	if err != nil {
		return !errors.Is(err, unix.EINTR)
	}
	for _, e := range p.events[:n] {
		if e.Fd < 0 {
			p.l.mail.hush()
		} else {
			p.watched[e.Fd] = spent
		}
	}
	if n > 0 {
		p.disarm(epoll)
	}
	return n > 0
}

// watch has the epoll follow what awaits says: the file of a port that is down would wake it for ever.
func (p *parker) watch() error {
	if p.file == nil {
		return nil
	}
	p.err = nil
	return errors.Join(p.raw.Control(p.follow), p.err)
}

// arm is watch with the epoll's number.
func (p *parker) arm(epoll uintptr) {
	for i, w := range p.watched {
		wakes := p.l.wakes(i)
		switch {
		case wakes && w == unknown:
			p.control(epoll, unix.EPOLL_CTL_ADD, i, armed)
		case wakes && w == spent:
			p.control(epoll, unix.EPOLL_CTL_MOD, i, armed)
		case !wakes && w != unknown:
			p.control(epoll, unix.EPOLL_CTL_DEL, i, unknown)
		}
	}
}

// disarm has the epoll look away from what did not end the sleep.
func (p *parker) disarm(epoll uintptr) {
	for i, w := range p.watched {
		if w == armed {
			p.control(epoll, unix.EPOLL_CTL_MOD, i, spent)
		}
	}
}

// control makes the epoll know of port i what w says.
func (p *parker) control(epoll uintptr, op, i int, w watch) {
	e := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(i)}
	if w == armed {
		e.Events |= unix.EPOLLIN
	}
	if err := unix.EpollCtl(int(epoll), op, p.l.ports[i].info.FD, &e); err != nil {
		p.err = fmt.Errorf("loop: epoll: %w", err)
		return
	}
	p.watched[i] = w
}
