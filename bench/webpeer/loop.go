package webpeer

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/tls"
)

const (
	readBytes  = 256 << 10
	batchSize  = 256
	maxDescs   = 1 << 16 // descriptors of a loop
	maxPending = 1 << 20 // ciphertext that one flush makes
)

// A session is what a connection carries.
type session interface {
	// open is called once the connection, and TLS where it has it, is established.
	open()
	// input consumes a part of p and returns how much. fin says that nothing follows. The rest comes again.
	input(p []byte, fin bool) (int, error)
	// sent is called when all output has been sent.
	sent()
	// failed ends the session. The connection is closed already. err is never nil; io.EOF is the end of the input.
	failed(err error)
}

// loop moves the bytes of its connections. One thread uses it.
type loop struct {
	epoll  int
	events [batchSize]unix.EpollEvent
	conns  [maxDescs]*conn // by descriptor
	dirty  []*conn         // may have output
	buf    []byte
	accept func(*conn) session
	listen int // descriptor; 0 is none
	codes  tls.Coroutines
}

func newLoop() (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &loop{epoll: fd, buf: make([]byte, readBytes)}, nil
}

// conn is a connection. Sessions append to out; body is sent after it, and is not copied.
type conn struct {
	l       *loop
	fd      int
	s       session
	tls     *tls.Engine
	rest    []byte // input that was not consumed: ciphertext with TLS
	plain   []byte // plaintext that was not consumed
	out     []byte
	body    []byte
	sealed  []byte // ciphertext that was not sent
	opened  bool   // established
	closing bool   // close it once all output is sent
	dead    bool
	queued  bool // in dirty
}

const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// add registers a socket.
func (l *loop) add(fd int) (*conn, error) {
	if fd >= maxDescs {
		return nil, errors.Join(errors.New("too many connections"), unix.Close(fd))
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	c := &conn{l: l, fd: fd}
	ev := unix.EpollEvent{Events: edges, Fd: int32(fd)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	l.conns[fd] = c
	return c, nil
}

// dial opens a connection.
func (l *loop) dial(to netip.AddrPort, s session, engine *tls.Engine) (*conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		return nil, errors.Join(err, unix.Close(fd))
	}
	c, err := l.add(fd)
	if err == nil {
		c.s, c.tls = s, engine
	}
	return c, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// serve accepts connections on an address.
func (l *loop) serve(at netip.AddrPort, accept func(*conn) session) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err = listen(fd, at); err == nil {
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("listen at %v: %w", at, err), unix.Close(fd))
	}
	l.listen, l.accept = fd, accept
	return nil
}

// listen binds a socket. Backends may share an address: the kernel spreads connections over them.
func listen(fd int, at netip.AddrPort) error {
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return err
	}
	return unix.Listen(fd, 4096)
}

// run handles what has happened, after waiting for it, at most for d.
func (l *loop) run(d time.Duration) error {
	n, err := l.wait(d)
	if err != nil {
		return err
	}
	for i := range l.events[:n] {
		ev := &l.events[i]
		fd := int(ev.Fd)
		if fd == l.listen && fd != 0 {
			l.acceptAll()
		} else if c := l.conns[fd]; c != nil {
			c.ready(ev.Events)
		}
	}
	l.flush()
	return nil
}

// wait is epoll_pwait2(2), whose time-out is in nanoseconds. It looks without giving up the thread first.
func (l *loop) wait(d time.Duration) (int, error) {
	first := uintptr(unsafe.Pointer(&l.events[0]))
	n, _, _ := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), first, batchSize, 0, 0, 0)
	if int(n) > 0 || d <= 0 {
		return max(int(n), 0), nil
	}
	ts := unix.NsecToTimespec(int64(d))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), first, batchSize, uintptr(unsafe.Pointer(&ts)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("epoll_pwait2: %w", errno)
}

func (l *loop) acceptAll() {
	for {
		fd, _, err := unix.Accept4(l.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		if c, err := l.add(fd); err == nil {
			c.s = l.accept(c)
			c.opened = true
			c.s.open()
		}
	}
}

// flush sends the output of this batch of events. Sessions may produce more while it does.
func (l *loop) flush() {
	for i := 0; i < len(l.dirty); i++ {
		c := l.dirty[i]
		c.queued = false
		c.send()
	}
	l.dirty = l.dirty[:0]
}

// kick has the output sent at the end of the batch.
func (c *conn) kick() {
	if !c.queued && !c.dead {
		c.queued = true
		c.l.dirty = append(c.l.dirty, c)
	}
}

// ready handles events of the socket.
func (c *conn) ready(ev uint32) {
	if !c.opened && c.tls == nil && ev&unix.EPOLLOUT != 0 && ev&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		c.opened = true
		c.s.open()
	}
	if ev&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.receive(ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
	}
	c.kick()
}

// receive reads until nothing is left. A short read is the end of it, unless the peer has ended.
func (c *conn) receive(ended bool) {
	for !c.dead {
		buf := c.l.buf
		at := copy(buf, c.rest) // the rest is short: a part of a record, a header or a frame
		n, errno := read(c.fd, buf[at:])
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			c.fail(errno)
			return
		}
		c.take(buf[:at+n], n == 0)
		if n == 0 || n < len(buf)-at && !ended {
			return
		}
	}
}

// take gives input to TLS or to the session and keeps what is not consumed.
func (c *conn) take(p []byte, fin bool) {
	var err error
	var n int
	if c.tls != nil {
		n, err = c.decrypt(p)
	} else {
		n, err = c.s.input(p, fin)
	}
	switch {
	case c.dead:
	case err != nil:
		c.fail(err)
	case fin:
		c.fail(io.EOF)
	default:
		c.rest = append(c.rest[:0], p[n:]...)
	}
}

// decrypt gives the plaintext of records to the session.
func (c *conn) decrypt(p []byte) (used int, err error) {
	for !c.dead {
		ev, n, err := c.tls.Next(p[used:])
		used += n
		switch {
		case err != nil:
			return used, err
		case ev.Kind == tls.NeedInput:
			return used, nil
		case ev.Kind == tls.HandshakeComplete:
			c.opened = true
			c.s.open()
		case ev.Kind == tls.Data:
			if err := c.decrypted(ev.Data); err != nil {
				return used, err
			}
		}
	}
	return used, nil
}

func (c *conn) decrypted(p []byte) error {
	if len(c.plain) > 0 {
		c.plain = append(c.plain, p...)
		p = c.plain
	}
	n, err := c.s.input(p, false)
	c.plain = append(c.plain[:0], p[n:]...)
	return err
}

// send sends as much output as the socket takes.
func (c *conn) send() {
	if c.dead {
		return
	}
	if c.tls != nil {
		if err := c.seal(); err != nil {
			c.fail(err)
			return
		}
	}
	out := &c.out
	if c.tls != nil {
		out = &c.sealed
	}
	if len(*out)+len(c.body) == 0 {
		return
	}
	n, errno := write2(c.fd, *out, c.body)
	if errno == unix.EAGAIN || !c.opened && errno == unix.ENOTCONN {
		return
	}
	if errno != 0 {
		c.fail(errno)
		return
	}
	head := min(n, len(*out))
	*out = append((*out)[:0], (*out)[head:]...)
	c.body = c.body[n-head:]
	if len(*out)+len(c.body) > 0 {
		return // EPOLLOUT follows
	}
	if c.closing {
		c.close()
		return
	}
	c.s.sent()
}

// seal encrypts the output. Clients alone have TLS, and their output is small.
func (c *conn) seal() (err error) {
	c.sealed = append(c.sealed, c.tls.Pending()...)
	c.tls.Advance(len(c.tls.Pending()))
	for len(c.out) > 0 && c.opened && err == nil {
		var n int
		if n, err = c.tls.Write(c.out); n == 0 {
			break
		}
		c.out = append(c.out[:0], c.out[n:]...)
		c.sealed = append(c.sealed, c.tls.Pending()...)
		c.tls.Advance(len(c.tls.Pending()))
	}
	return err
}

func (c *conn) fail(err error) {
	if c.dead {
		return
	}
	c.close()
	c.s.failed(err)
}

// close ends the connection. The session is not called again.
func (c *conn) close() {
	if c.dead {
		return
	}
	c.dead = true
	c.l.conns[c.fd] = nil
	_ = unix.Close(c.fd)
	if c.tls != nil {
		c.tls.Close()
	}
}

func read(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	return int(n), errno
}

// write2 sends a and then b.
func write2(fd int, a, b []byte) (int, unix.Errno) {
	var iov [2]unix.Iovec
	k := 0
	for _, p := range [2][]byte{a, b} {
		if len(p) > 0 {
			iov[k].Base = &p[0]
			iov[k].SetLen(len(p))
			k++
		}
	}
	msg := unix.Msghdr{Iov: &iov[0]}
	msg.SetIovlen(k)
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
	return int(n), errno
}
