package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// SyscallConn returns a RawConn for programs that set options by setsockopt(2), such as those over
// golang.org/x/net/ipv4. Its Control opens a kernel socket, which carries no packets, sets on it the options of
// the connection, calls the function with its descriptor, and applies to the connection what the function has
// changed. These are the options of SOL_SOCKET, TCP and IP that Option names; a change of another one is
// lost, and getsockopt of TCP_INFO speaks of the kernel socket. Read and Write fail with ENOTSUP. There is no
// File: no descriptor of the kernel has the bytes of the connection.
func (c *TCPConn) SyscallConn() (syscall.RawConn, error) {
	if _, err := c.Option(OptNoDelay); err != nil {
		return nil, err
	}
	return tcpRawConn{of: c, v4: c.tuple.Local.Is4()}, nil
}

// SyscallConn is TCPConn.SyscallConn for the options of connections that will be accepted.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if _, err := l.Option(OptNoDelay); err != nil {
		return nil, err
	}
	return tcpRawConn{of: l, v4: l.addr.IP.To4() != nil}, nil
}

// optioned has Options: a TCPConn or Listener.
type optioned interface {
	Option(opt Option) (int, error)
	SetOption(opt Option, v int) error
}

// tcpRawConn is the syscall.RawConn of a TCPConn or Listener.
type tcpRawConn struct {
	of optioned
	v4 bool
	optionsOnly
}

// kernelOption is the number of an Option in setsockopt(2).
type kernelOption struct {
	opt         Option
	level, name int
	doubled     bool // the kernel returns twice the value that was set (socket(7))
}

var kernelOptions = []kernelOption{
	{opt: OptNoDelay, level: unix.IPPROTO_TCP, name: unix.TCP_NODELAY},
	{opt: OptCork, level: unix.IPPROTO_TCP, name: unix.TCP_CORK},
	{opt: OptKeepIdle, level: unix.IPPROTO_TCP, name: unix.TCP_KEEPIDLE},
	{opt: OptKeepInterval, level: unix.IPPROTO_TCP, name: unix.TCP_KEEPINTVL},
	{opt: OptKeepCount, level: unix.IPPROTO_TCP, name: unix.TCP_KEEPCNT},
	{opt: OptKeepAlive, level: unix.SOL_SOCKET, name: unix.SO_KEEPALIVE},
	{opt: OptUserTimeout, level: unix.IPPROTO_TCP, name: unix.TCP_USER_TIMEOUT},
	{opt: OptSYNCount, level: unix.IPPROTO_TCP, name: unix.TCP_SYNCNT},
	{opt: OptOrphanTime, level: unix.IPPROTO_TCP, name: unix.TCP_LINGER2},
	{opt: OptWindowClamp, level: unix.IPPROTO_TCP, name: unix.TCP_WINDOW_CLAMP},
	{opt: OptNotSentLowat, level: unix.IPPROTO_TCP, name: unix.TCP_NOTSENT_LOWAT},
	{opt: OptOutOfBandInline, level: unix.SOL_SOCKET, name: unix.SO_OOBINLINE},
	{opt: OptSendBuffer, level: unix.SOL_SOCKET, name: unix.SO_SNDBUF, doubled: true},
	{opt: OptReceiveBuffer, level: unix.SOL_SOCKET, name: unix.SO_RCVBUF, doubled: true},
	{opt: OptTOS, level: unix.IPPROTO_IP, name: unix.IP_TOS},
	{opt: OptTTL, level: unix.IPPROTO_IP, name: unix.IP_TTL},
	{opt: OptMTUDiscover, level: unix.IPPROTO_IP, name: unix.IP_MTU_DISCOVER},
	{opt: OptTOS, level: unix.IPPROTO_IPV6, name: unix.IPV6_TCLASS},
	{opt: OptTTL, level: unix.IPPROTO_IPV6, name: unix.IPV6_UNICAST_HOPS},
}

// Control implements syscall.RawConn.
func (r tcpRawConn) Control(f func(fd uintptr)) error {
	if _, err := r.of.Option(OptNoDelay); err != nil {
		return err // closed
	}
	fd, err := openOptionSocket(r.v4, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	before := make([]int, len(kernelOptions))
	for i, o := range kernelOptions {
		// Where the kernel rejects a value, as IPv6 options of an IPv4 socket, its own stays, and is no change.
		// A buffer size of 0 grows with need, as the kernel's does until it is set.
		if v, err := r.of.Option(o.opt); err == nil && !(o.doubled && v == 0) {
			_ = unix.SetsockoptInt(fd, o.level, o.name, v)
		}
		before[i], _ = unix.GetsockoptInt(fd, o.level, o.name)
	}
	f(uintptr(fd))
	for i, o := range kernelOptions {
		v, err := unix.GetsockoptInt(fd, o.level, o.name)
		if err != nil || v == before[i] {
			continue
		}
		if o.doubled {
			v /= 2
		}
		if err := r.of.SetOption(o.opt, v); err != nil {
			return err
		}
	}
	return nil
}
