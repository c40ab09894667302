package notify

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// typeMask selects the bits of socket(2)'s type that are not SOCK_CLOEXEC or SOCK_NONBLOCK.
const typeMask = 0xf

// socket is socket(2) of AF_INET and AF_INET6.
func (c *call) socket() outcome {
	v6 := int32(c.args[0]) == unix.AF_INET6
	kind, flags, err := socketKind(int(int32(c.args[1])), int(int32(c.args[2])))
	if err != nil {
		return failed(err)
	}
	if !c.readable() { // bind(2) and the like would be the kernel's then, with errors that name no reason
		return failed(syscall.EPERM)
	}
	fd, err := shim.NewSocket(kind, v6, flags|unix.SOCK_CLOEXEC)
	if err != nil {
		return failed(syscall.ENFILE)
	}
	if kind != shim.Stream { // the node has the other end at once: without one, poll(2) says that it is hung up
		if _, _, err := c.s.client.Names(int(c.tid), fd); err != nil {
			unix.Close(fd)
			return c.refused(err)
		}
	}
	return c.give(fd, flags&unix.SOCK_CLOEXEC != 0)
}

// socketKind returns what a socket of the type and protocol is, and the type's flags.
func socketKind(kind, proto int) (shim.Kind, int, error) {
	base, flags := kind&typeMask, kind&^typeMask
	switch {
	case flags&^(unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK) != 0:
		return 0, 0, syscall.EINVAL
	case base == unix.SOCK_STREAM && (proto == 0 || proto == unix.IPPROTO_TCP):
		return shim.Stream, flags, nil
	case base == unix.SOCK_DGRAM && (proto == 0 || proto == unix.IPPROTO_UDP):
		return shim.Datagram, flags, nil
	case base == unix.SOCK_RAW: // never the kernel's stack in silence
		return 0, 0, syscall.EPERM
	case base == unix.SOCK_STREAM || base == unix.SOCK_DGRAM:
		return 0, 0, syscall.EPROTONOSUPPORT
	}
	return 0, 0, syscall.ESOCKTNOSUPPORT
}

// served returns a descriptor for the file of the first argument, and what the socket is. Otherwise the outcome is that of
// the call.
func (c *call) served() (int, shim.Mark, *outcome) {
	fd, err := c.file(int32(c.args[0]))
	switch err {
	case nil:
	case syscall.EPERM: // the process has forbidden it (PR_SET_DUMPABLE), or Yama
		c.report("cannot read the descriptors of this process (it is not dumpable, or kernel.yama.ptrace_scope forbids it): its sockets do not work")
		return -1, shim.Mark{}, &kernels
	case syscall.EMFILE:
		return -1, shim.Mark{}, &outcome{err: syscall.ENFILE}
	default:
		return -1, shim.Mark{}, &outcome{err: err}
	}
	m := shim.ReadMark(fd)
	if m.Kind == shim.NotServed {
		unix.Close(fd)
		return -1, m, &kernels
	}
	return fd, m, nil
}

// refused is the outcome of a request that failed.
func (c *call) refused(err error) outcome {
	var e *shim.BindError
	if errors.As(err, &e) {
		c.report(e.Cause)
		return failed(e.Errno)
	}
	switch err {
	case syscall.ENETDOWN:
		c.report("the node does not answer: is millrace stack up still running?")
	case nil:
		return outcome{}
	}
	return failed(err)
}

// bind is bind(2).
func (c *call) bind() outcome {
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	defer unix.Close(fd)
	b, err := c.readAddress(1)
	if err != nil {
		return failed(err)
	}
	a, scope, err := decodeAddress(b, m.V6)
	if err != nil {
		return failed(err)
	}
	local, permit, err := c.s.client.Bind(int(c.tid), fd, a, scope, nil)
	if err == nil && c.s.Rebinds {
		instance, _ := c.s.client.Instance(int(c.tid), fd) // without it, it is not made again
		c.change(fd, func(m *made) {
			m.addr, m.scope, m.permit, m.instance = netip.AddrPortFrom(a.Addr(), local.Port()), scope, permit, instance
		})
	}
	return c.refused(err)
}

// listen is listen(2).
func (c *call) listen() outcome {
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	defer unix.Close(fd)
	if m.Kind != shim.Stream {
		return failed(syscall.EOPNOTSUPP)
	}
	backlog := int(int32(c.args[1]))
	err := c.s.client.Listen(int(c.tid), fd, backlog)
	if err == nil {
		c.change(fd, func(m *made) { m.backlog = max(backlog, 1) })
	}
	return c.refused(err)
}

// connect is connect(2).
func (c *call) connect() outcome {
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	b, err := c.readAddress(1)
	var a netip.AddrPort
	var scope uint32
	if err == nil {
		a, scope, err = decodePeer(m, b)
	}
	if err == nil {
		err = c.s.client.Connect(int(c.tid), fd, a, scope)
	}
	if (err == syscall.EINPROGRESS || err == syscall.EALREADY) && m.Kind == shim.Stream && blocking(fd) {
		return c.later(func(c *call) outcome { return c.awaitConnected(fd, a, scope) })
	}
	unix.Close(fd)
	return c.refused(err)
}

// decodePeer is decodeAddress for connect: AF_UNSPEC ends the association of a UDP socket.
func decodePeer(m shim.Mark, b []byte) (netip.AddrPort, uint32, error) {
	if f, err := family(b); err == nil && f == unix.AF_UNSPEC {
		if m.Kind == shim.Stream {
			return netip.AddrPort{}, 0, syscall.EOPNOTSUPP
		}
		return netip.AddrPort{}, 0, nil
	}
	if f, err := family(b); err == nil && f == unix.AF_INET && m.V6 && m.Kind != shim.Stream {
		return decodeAddress(b, false)
	}
	return decodeAddress(b, m.V6)
}

// blocking reports whether calls on the file of fd may wait.
func blocking(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_NONBLOCK == 0
}

// later lets a goroutine answer the call.
func (c *call) later(f func(c *call) outcome) outcome {
	own := *c
	go func() { own.answer(f(&own)) }()
	return outcome{kind: done}
}

// awaitConnected is the second half of a blocking connect: the node makes the socket writable when the handshake is complete.
// It closes fd.
func (c *call) awaitConnected(fd int, a netip.AddrPort, scope uint32) outcome {
	err := c.awaitWritable(fd)
	if err == nil { // this is the call that reports the connection: the next one is EISCONN
		_ = c.s.client.Connect(int(c.tid), fd, a, scope)
	}
	unix.Close(fd)
	if err == syscall.EAGAIN {
		err = syscall.EINPROGRESS
	}
	if err != nil {
		return failed(err)
	}
	return outcome{}
}

func (c *call) awaitWritable(fd int) error {
	f, stop, err := c.s.waits.connecting(fd)
	if err != nil {
		return syscall.ENFILE
	}
	defer stop()
	p := newPause(timeout(fd, unix.SO_SNDTIMEO))
	for {
		event := c.s.waits.next(f)
		ev := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(ev, 0)
		switch {
		case n == 1 && ev[0].Revents&(unix.POLLERR|unix.POLLHUP) == 0:
			return nil
		case n == 1:
			return c.socketError(fd)
		case err != nil && err != unix.EINTR:
			return err
		}
		if err := p.wait(c, event); err != nil {
			return err
		}
	}
}

// socketError takes the error of a connection; nil is that it was complete, and the peer has closed it since.
func (c *call) socketError(fd int) error {
	b, err := c.s.client.Option(int(c.tid), fd, unix.SOL_SOCKET, unix.SO_ERROR, 4)
	if err != nil {
		return err
	}
	if n := intOf(b); n != 0 {
		return syscall.Errno(n)
	}
	return nil
}

// timeout returns SO_RCVTIMEO or SO_SNDTIMEO; 0 is none.
func timeout(fd, name int) time.Duration {
	tv, err := unix.GetsockoptTimeval(fd, unix.SOL_SOCKET, name)
	if err != nil {
		return 0
	}
	return time.Duration(tv.Nano())
}
