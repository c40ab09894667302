package transport

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack"
	"golang.org/x/sys/unix"
)

// batchEvents is the number of events that one epoll_pwait(2) returns at most.
const batchEvents = 256

// yieldEvery is the time that a loop runs at most before it calls the Go scheduler.
//
// The runtime's monitor thread preempts a goroutine that the scheduler has not seen for 10 ms, and takes the processor (P)
// of one that is in a system call at that moment, even where nothing else can run. Once all Ps are idle the monitor sleeps.
// Then the loop wakes it when its call returns, and it looks every 20 us again: 800 times in a second beside a loop that
// waits often, in place of 100, which cost 3 % of the CPU time. A yield costs 5 us at most, and goroutines that are ready
// run earlier than by preemption.
const yieldEvery = 5 * time.Millisecond

// EpollLoop is a Loop over kernel sockets: one goroutine and one epoll instance, in which each socket is registered once,
// edge-triggered, for its life. No event allocates memory.
//
// Calls that cannot block (recvfrom, sendto, accept4, a poll with a zero time-out) are made without telling the Go
// scheduler, which saves its bookkeeping at each. Only the wait for events is known to it: a collection need not wait for
// the loop, and other goroutines get its processor.
type EpollLoop struct {
	fd     int // epoll instance, -1 once the loop has ended
	wakefd int // eventfd, edge-triggered, so that nothing reads it
	now    clock.Time
	tick   func(now clock.Time) clock.Time
	next   clock.Time // when tick wants to be called

	yielded clock.Time // when other goroutines could last run
	spin    spin

	Descriptors *Descriptors // shared with other loops, nil for no bounds; set before Run
	Inherited   *Sockets     // that Listen takes first; nil for none; set before Run
	held        bool         // see HoldAccept

	conns     slots[epollConn] // by epoll_data
	gen       uint32           // of the connection opened last, never 0
	again     []*epollConn     // to call once more, see epollConn.Read
	called    []*epollConn     // the other buffer of again
	listeners []*epollListener

	relayBuffers relayBuffers
	lingering    lingerers
	lingerEnd    clock.Time // of the first of them
	events       [batchEvents]unix.EpollEvent
	addr         unix.RawSockaddrInet6 // of accept4 and connect; large enough for both families
	addrLen      uint32

	commands commandList
	running  atomic.Bool
	stop     atomic.Bool
	stats    epollStats
}

// NewEpollLoop returns a loop without connections. The caller calls Run, or Close to free what it has.
func NewEpollLoop() (*EpollLoop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("transport: epoll_create1: %w", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("transport: eventfd: %w", err)
	}
	now := stack.Now()
	l := &EpollLoop{fd: fd, wakefd: wakefd, now: now, spin: spin{since: now}, next: clock.Never, lingerEnd: clock.Never}
	l.commands.notify = l.notify
	if errno := l.register(wakefd, unix.EPOLLIN|unix.EPOLLET, uint32(wakefd), 0); errno != 0 {
		l.freeFDs()
		return nil, fmt.Errorf("transport: epoll_ctl: %w", errno)
	}
	return l, nil
}

// Run runs the loop on the calling goroutine until ctx or Close ends it. Then it closes all listeners and connections; no
// handler is called for that. It may be called once.
//
// The goroutine is not bound to a thread, since each yield would then cost two switches between threads.
func (l *EpollLoop) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrClosed
	}
	defer l.end()
	stop := context.AfterFunc(ctx, l.halt)
	defer stop()
	for !l.stop.Load() {
		if errno := l.iterate(); errno != 0 {
			return fmt.Errorf("transport: epoll_pwait: %w", errno)
		}
	}
	return nil
}

// iterate waits for events and does all that is due.
func (l *EpollLoop) iterate() unix.Errno {
	n, began, errno := l.wait()
	l.now = stack.Now()
	l.spin.waited(began, l.now)
	l.dispatch(n)
	l.commands.run()
	l.callAgain()
	l.resumeAccept()
	if l.tick != nil {
		l.next = l.tick(l.now)
	}
	l.lingerEnd = l.lingering.expire(l.now) // last, since all of the others may make connections linger
	return errno
}

// Close ends Run, which frees everything when it returns. Any goroutine may call it. On a loop that was never run, it
// frees everything itself.
func (l *EpollLoop) Close() error {
	if l.running.CompareAndSwap(false, true) {
		l.end()
		return nil
	}
	l.halt()
	return nil
}

// halt ends Run soon.
func (l *EpollLoop) halt() {
	l.stop.Store(true)
	l.commands.wake()
}

// notify wakes a loop that waits.
func (l *EpollLoop) notify() {
	one := [8]byte{1}
	_, _ = unix.Write(l.wakefd, one[:]) // it cannot fail: the counter does not come near its end
}

// end runs the commands that were accepted, and frees all that the loop has.
func (l *EpollLoop) end() {
	l.commands.end()
	for _, li := range l.listeners {
		li.closeFD()
	}
	l.conns.each((*epollConn).Close)
	l.freeFDs()
}

func (l *EpollLoop) freeFDs() {
	_ = unix.Close(l.wakefd)
	_ = unix.Close(l.fd)
	l.wakefd, l.fd = -1, -1 // the numbers may be others' now
}

// wait returns how many events there are, and when it began. It blocks where nothing else is to do.
func (l *EpollLoop) wait() (n int, began clock.Time, errno unix.Errno) {
	l.yield()
	l.commands.arm()
	defer l.commands.disarm()
	began = stack.Now()
	limit := l.limit(began)
	if limit == 0 || len(l.again) > 0 || l.commands.pending() || l.stop.Load() {
		n, errno = l.poll(unix.RawSyscall6, 0)
		return n, began, errno
	}
	if l.spin.on {
		for now := began; n == 0 && errno == 0 && now.Sub(began) < spinTime; now = stack.Now() {
			n, errno = l.poll(unix.RawSyscall6, 0)
		}
	}
	if n == 0 && errno == 0 {
		n, errno = l.poll(unix.Syscall6, limit)
	}
	return n, began, errno
}

// yield lets other goroutines run once in yieldEvery.
func (l *EpollLoop) yield() {
	if l.now.Sub(l.yielded) >= yieldEvery {
		l.yielded = l.now
		runtime.Gosched()
	}
}

// limit returns for how many milliseconds from now the loop may wait, -1 for any time.
func (l *EpollLoop) limit(now clock.Time) int {
	next := min(l.next, l.lingerEnd)
	for _, li := range l.listeners {
		if !l.held {
			next = min(next, li.resume)
		}
	}
	if next == clock.Never {
		return -1
	}
	const ms = time.Millisecond
	return int(max(0, min((next.Sub(now)+ms-1)/ms, 1<<30))) // rounded up: not before the time
}

type syscall6 func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err unix.Errno)

func (l *EpollLoop) poll(call syscall6, ms int) (int, unix.Errno) {
	n, _, errno := call(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), uintptr(unsafe.Pointer(&l.events)), batchEvents, uintptr(ms), 0, 0)
	switch errno {
	case 0:
		return int(n), 0
	case unix.EINTR:
		return 0, 0
	}
	return 0, errno
}

// dispatch handles the first n events. The events of a connection that another event of the batch has closed are
// dropped, although its slot may have another connection by now: that has another generation.
func (l *EpollLoop) dispatch(n int) {
	for i := range l.events[:n] {
		e := &l.events[i]
		slot, gen := uint32(e.Fd), uint32(e.Pad)
		if gen == 0 {
			l.control(int(slot))
		} else if c := l.conns.list[slot]; c != nil && c.gen == gen {
			c.handle(e.Events)
		}
	}
}

// control handles an event of a listener, by its fd. That of the eventfd needs nothing done.
func (l *EpollLoop) control(fd int) {
	for _, li := range l.listeners {
		if li.fd == fd {
			li.accept()
			return
		}
	}
}

// register adds an fd to the epoll instance.
func (l *EpollLoop) register(fd int, events, slot, gen uint32) unix.Errno {
	e := unix.EpollEvent{Events: events, Fd: int32(slot), Pad: int32(gen)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.fd), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return errno
}

// callAgain calls the connections that asked for it in this iteration.
func (l *EpollLoop) callAgain() {
	l.again, l.called = l.called[:0], l.again
	for i, c := range l.called {
		l.called[i] = nil
		c.callAgain()
	}
}

// Now implements Loop.
func (l *EpollLoop) Now() clock.Time { return l.now }

// SetTick implements Loop.
func (l *EpollLoop) SetTick(f func(now clock.Time) clock.Time) {
	l.tick, l.next = f, l.now // the loop may not run yet: it must not wait for an event before the first call
}

// Do implements Loop. What it accepts runs, at the latest when the loop ends.
func (l *EpollLoop) Do(f func()) bool { return l.commands.do(f) }
