package transport

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DialUnix implements Loop. A path that has no socket, or one on which nothing listens, or whose backlog is full, is a refusal: it is
// what a server looks like that does not run, or not keep up. The kernel has no wait for a place in the backlog that epoll(7) reports.
func (l *EpollLoop) DialUnix(path string, h Handler) (Conn, error) {
	if l.fd < 0 {
		return nil, ErrClosed
	}
	fd, errno := -1, unix.EMFILE
	if l.Descriptors.mayDial() {
		fd, errno = newUnixSocket()
	}
	if errno == unix.EMFILE || errno == unix.ENFILE {
		l.Descriptors.ranShort()
	}
	if errno == 0 {
		errno = connectUnix(fd, path)
	}
	if errno != 0 {
		closeFD(fd)
		return nil, errno
	}
	c, errno := l.add(fd, connecting)
	if errno != 0 {
		closeFD(fd)
		return nil, errno
	}
	c.handler, c.local, c.remote = h, nowhere, nowhere
	return c, nil
}

// nowhere is the address of both ends of a connection that has none: valid, so that no system call asks for it again.
var nowhere = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)

func newUnixSocket() (int, unix.Errno) {
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), 0
}

// connectUnix connects at once: what needs no handshake cannot be in progress. The path ends with a NUL (unix(7)).
func connectUnix(fd int, path string) unix.Errno {
	sa := unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	if len(path) >= len(sa.Path) {
		return unix.ENAMETOOLONG
	}
	for i := range len(path) {
		sa.Path[i] = int8(path[i])
	}
	size := unsafe.Offsetof(sa.Path) + uintptr(len(path)) + 1
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), size)
	if errno == unix.ENOENT || errno == unix.EAGAIN {
		return unix.ECONNREFUSED
	}
	return errno
}
