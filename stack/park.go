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
type parker struct {
	l       *Loop
	file    *os.File // the epoll; nil without files
	raw     syscall.RawConn
	watched []bool // of each port: whether the epoll has its file
	timer   *time.Timer
}

func newParker(l *Loop) (*parker, error) {
	p := &parker{l: l, watched: make([]bool, len(l.ports))}
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

// park sleeps. From the moment that the flag of the mailbox is up whoever enters the loop does what
// there is to do, and whoever has something for it rings; the turn after that finds what came before.
func (p *parker) park(ctx context.Context) {
	l := p.l
	l.mail.asleep.Store(true)
	if p.prepare() && ctx.Err() == nil {
		p.wait()
	}
	l.mail.asleep.Store(false)
	p.timer.Stop() // one that runs makes each switch between goroutines read the clock
}

// prepare makes the last turn before sleep, and sets up what ends it; false says that there is
// something to do instead.
func (p *parker) prepare() bool {
	l := p.l
	l.token.mu.Lock()
	defer l.token.mu.Unlock()
	now := max(l.now, l.cfg.Now())
	if l.Poll(now) > 0 || l.inside > 0 || l.waiting != nil || l.given() {
		return false
	}
	limit := l.limit(now)
	if limit <= 0 || p.watch() != nil {
		return false
	}
	l.until = now.Add(limit)
	p.timer.Reset(limit)
	l.count.Sleeps++
	return true
}

// wait returns when the bell rings or, with files, one is readable.
func (p *parker) wait() {
	if p.file == nil {
		<-p.l.mail.bell
		return
	}
	var events [1]unix.EpollEvent
	_ = p.raw.Read(func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), events[:], 0)
		return n != 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	p.l.mail.hush()
}

// watch has the epoll follow what awaits says: the file of a port that is down would wake it for ever.
func (p *parker) watch() error {
	if p.file == nil {
		return nil
	}
	l := p.l
	for i := range l.ports {
		want := l.wakes(i)
		if want == p.watched[i] {
			continue
		}
		op := unix.EPOLL_CTL_DEL
		if want {
			op = unix.EPOLL_CTL_ADD
		}
		fd := l.ports[i].info.FD
		err := p.control(op, fd)
		if err != nil {
			return fmt.Errorf("loop: epoll: %w", err)
		}
		p.watched[i] = want
	}
	return nil
}

// control adds or removes fd.
func (p *parker) control(op, fd int) error {
	var err error
	other := p.raw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), op, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
	return errors.Join(err, other)
}
