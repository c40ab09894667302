package transport

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"golang.org/x/sys/unix"
)

const (
	backlog      = 4096                   // the kernel takes less where net.core.somaxconn is less
	acceptBurst  = 64                     // connections of a listener in one iteration
	acceptPause  = 100 * time.Millisecond // without fds or memory
	acceptedMost = 2 * backlog            // when a listener closes
)

// EpollStats are counters of an EpollLoop.
type EpollStats struct {
	Open     int64  // connections that are open, dials included
	Accepted uint64 // connections
	Dropped  uint64 // connections that ended before they could be accepted, or found no memory
	Paused   uint64 // how often accepting paused, for 100 ms, since there was no memory, no fd, or none for clients
}

type epollStats struct {
	open                      atomic.Int64
	accepted, dropped, paused atomic.Uint64
}

// Stats returns the counters. Any goroutine may call it.
func (l *EpollLoop) Stats() EpollStats {
	s := &l.stats
	return EpollStats{Open: s.open.Load(), Accepted: s.accepted.Load(), Dropped: s.dropped.Load(), Paused: s.paused.Load()}
}

// epollListener accepts connections of an EpollLoop. It is registered level-triggered, and so reported again after a
// burst.
type epollListener struct {
	loop   *EpollLoop
	f      func(c Conn) Handler
	fd     int // -1 once closed
	addr   netip.AddrPort
	local  netip.AddrPort   // of its connections, zero if it listens on all addresses
	resume clock.Time       // when accepting goes on, clock.Never while it has not paused
	others []*epollListener // of the same address, see Sockets
}

// Listen implements Loop. The listeners of several loops share the address by SO_REUSEPORT: the kernel spreads
// connections over them. An address of IPv6 takes no connections of IPv4. Inherited sockets of the address are used instead.
func (l *EpollLoop) Listen(a netip.AddrPort, accept func(c Conn) Handler) (Listener, error) {
	if l.fd < 0 {
		return nil, ErrClosed
	}
	a = unmap(a)
	fds := l.Inherited.take(a)
	if len(fds) == 0 {
		fd, errno := l.open(a)
		if errno != 0 {
			return nil, errno
		}
		fds = []int{fd}
	}
	var all []*epollListener
	for _, fd := range fds {
		li := &epollListener{loop: l, f: accept, fd: fd, addr: localAddr(fd), resume: clock.Never}
		if !a.Addr().IsUnspecified() {
			li.local = li.addr
		}
		if errno := l.register(fd, unix.EPOLLIN, uint32(fd), 0); errno != 0 {
			for _, fd := range fds {
				closeFD(fd)
			}
			return nil, errno
		}
		all = append(all, li)
	}
	l.listeners = append(l.listeners, all...)
	all[0].others = all[1:]
	return all[0], nil
}

// open returns a socket that listens.
func (l *EpollLoop) open(a netip.AddrPort) (fd int, errno unix.Errno) {
	if fd, errno = newSocket(a.Addr()); errno == 0 {
		errno = l.listen(fd, a)
	}
	if errno != 0 {
		closeFD(fd)
	}
	return fd, errno
}

// listen prepares the socket of a listener.
func (l *EpollLoop) listen(fd int, a netip.AddrPort) unix.Errno {
	n, errno := encodeAddr(&l.addr, a)
	if errno != 0 {
		return errno
	}
	options := append(slices.Clip(streamOptions), socketOption{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}, socketOption{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	if a.Addr().Is6() {
		options = append(options, socketOption{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	if errno := setAll(fd, options); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&l.addr)), uintptr(n)); errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall(unix.SYS_LISTEN, uintptr(fd), backlog, 0)
	return errno
}

// accept accepts what waits, at most a burst.
func (li *epollListener) accept() {
	for range acceptBurst {
		if li.fd < 0 || !li.acceptOne() {
			return
		}
	}
}

// acceptOne reports whether there may be another connection.
func (li *epollListener) acceptOne() bool {
	l := li.loop
	if !l.Descriptors.mayAccept() {
		li.pause()
		l.Descriptors.ranShort()
		return false
	}
	l.addrLen = uint32(unsafe.Sizeof(l.addr))
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(li.fd), uintptr(unsafe.Pointer(&l.addr)),
		uintptr(unsafe.Pointer(&l.addrLen)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	switch errno {
	case 0:
		li.open(int(fd))
		return true
	case unix.EAGAIN:
		return false
	case unix.EMFILE, unix.ENFILE:
		l.Descriptors.ranShort()
		li.pause()
		return false
	case unix.ENOBUFS, unix.ENOMEM:
		li.pause()
		return false
	}
	l.stats.dropped.Add(1) // ECONNABORTED and errors of the network, see accept(2): the next one may be well
	return true
}

// open makes a connection of an accepted socket.
func (li *epollListener) open(fd int) {
	remote := decodeAddr(&li.loop.addr)
	c, errno := li.loop.add(fd, ofClient)
	if errno != 0 {
		li.loop.stats.dropped.Add(1)
		closeFD(fd)
		return
	}
	li.loop.stats.accepted.Add(1)
	c.local, c.remote = li.local, remote
	c.handler = li.f(c)
}

// pause stops accepting for a while. Without it, the listener would be reported again and again; the connections wait in
// the backlog.
func (li *epollListener) pause() {
	li.loop.stats.paused.Add(1)
	li.resume = li.loop.now.Add(acceptPause)
	li.modify(0)
}

func (li *epollListener) modify(events uint32) {
	e := unix.EpollEvent{Events: events, Fd: int32(li.fd)}
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(li.loop.fd), unix.EPOLL_CTL_MOD, uintptr(li.fd), uintptr(unsafe.Pointer(&e)), 0, 0)
}

// resumeAccept ends the pauses that are over.
func (l *EpollLoop) resumeAccept() {
	for _, li := range l.listeners {
		if li.resume <= l.now && !l.held {
			li.resume = clock.Never
			li.modify(unix.EPOLLIN)
		}
	}
}

// Addr implements Listener.
func (li *epollListener) Addr() netip.AddrPort { return li.addr }

// Close implements Listener. It accepts the connections that the kernel has completed, which it would reset otherwise; while accepting
// is held, another process has the socket and accepts them.
func (li *epollListener) Close() {
	for range acceptedMost {
		if li.fd < 0 || li.loop.held || !li.acceptOne() {
			break
		}
	}
	if li.fd >= 0 {
		li.closeFD()
		li.loop.listeners = slices.DeleteFunc(slices.Clone(li.loop.listeners), func(x *epollListener) bool { return x == li })
	}
	for _, other := range li.others {
		other.Close()
	}
}

// closeFD takes the socket out of the epoll instance first: close(2) does that only for the last descriptor, and another process may
// have one (epoll(7)).
func (li *epollListener) closeFD() {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(li.loop.fd), unix.EPOLL_CTL_DEL, uintptr(li.fd), 0, 0, 0)
	closeFD(li.fd)
	li.fd = -1
}
