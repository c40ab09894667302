package transport

import (
	"io"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollConn is a connection of an EpollLoop. An idle one takes 112 bytes of the heap, and 8 of the table of its loop.
type epollConn struct {
	loop          *EpollLoop
	handler       Handler
	local, remote netip.AddrPort // local is zero until someone asks
	relaying      *relayBuffer   // with bytes that Relay has taken and not sent, else nil
	fd            int32          // -1 once closed
	slot, gen     uint32
	errno         uint8 // why it failed, a unix.Errno; 0 while it has not
	flags         connFlags
}

type connFlags uint8

const (
	connecting connFlags = 1 << iota
	wantWrite            // the send buffer was full: report when it takes more
	readOn               // a short read may not be the last: the kernel has reported the end, or urgent data
	failed               // Failed was reported, of a stackConn
	queued               // in EpollLoop.again
	outputEnd            // CloseWrite was called
	ofClient             // it was accepted
	held                 // the kernel may hold the last bytes, see WriteLast
)

// connEvents are the events that a connection is registered for, once.
const connEvents = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// add gives an open socket to the loop.
func (l *EpollLoop) add(fd int, flags connFlags) (*epollConn, unix.Errno) {
	if l.gen++; l.gen == 0 {
		l.gen = 1 // 0 marks listeners
	}
	c := &epollConn{loop: l, fd: int32(fd), gen: l.gen, flags: flags}
	c.slot = l.conns.add(c)
	if errno := l.register(fd, connEvents, c.slot, c.gen); errno != 0 {
		l.conns.remove(c.slot)
		return nil, errno
	}
	l.stats.open.Add(1)
	l.Descriptors.count(flags&ofClient != 0, 1)
	return c, 0
}

// Dial implements Loop. What the kernel refuses at once is returned: no route, no local port, no fd. Beyond the bounds of Descriptors
// it is EMFILE too.
func (l *EpollLoop) Dial(remote netip.AddrPort, h Handler) (Conn, error) {
	if l.fd < 0 {
		return nil, ErrClosed
	}
	remote = unmap(remote)
	fd, errno := -1, unix.EMFILE
	if l.Descriptors.mayDial() {
		fd, errno = newSocket(remote.Addr())
	}
	if errno == unix.EMFILE || errno == unix.ENFILE {
		l.Descriptors.ranShort()
	}
	if errno == 0 {
		errno = l.connect(fd, remote)
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
	c.handler, c.remote = h, remote
	return c, nil
}

func (l *EpollLoop) connect(fd int, remote netip.AddrPort) unix.Errno {
	n, errno := encodeAddr(&l.addr, remote)
	if errno != 0 {
		return errno
	}
	if errno := setAll(fd, streamOptions); errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&l.addr)), uintptr(n))
	if errno == unix.EINPROGRESS {
		return 0
	}
	return errno
}

// handle reports the events of epoll(7) to the handler. The kernel reports with each edge all that holds, so that
// EPOLLOUT comes only after a write that the send buffer did not take whole.
func (c *epollConn) handle(events uint32) {
	var ev Events
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLPRI) != 0 {
		c.flags |= readOn
	}
	if events&unix.EPOLLERR != 0 {
		ev |= c.takeError()
	}
	if events&unix.EPOLLOUT != 0 && c.flags&(connecting|wantWrite) != 0 && c.errno == 0 {
		c.flags &^= connecting | wantWrite
		ev |= Writable
	}
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 && c.flags&connecting == 0 {
		ev |= Readable
	}
	c.report(ev)
}

// takeError fetches the error of the socket, which forgets it.
func (c *epollConn) takeError() Events {
	errno := unix.Errno(getInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR))
	if errno == 0 { // a read or a write has returned it
		return 0
	}
	c.errno = uint8(errno)
	return Failed
}

func (c *epollConn) report(ev Events) {
	if ev != 0 && c.handler != nil {
		c.handler.Ready(c, ev)
	}
}

// Read implements Conn.
func (c *epollConn) Read(p []byte) (int, error) {
	if c.fd < 0 {
		return 0, ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.receive(p)
	if n > 0 && n < len(p) && c.flags&readOn != 0 {
		c.callLater() // the edge that reported what follows has passed with these bytes
	}
	return n, err
}

// receive is Read of an open connection to a p that is not empty.
func (c *epollConn) receive(p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0, 0)
	if errno != 0 || n == 0 {
		if errno == unix.EAGAIN && c.flags&readOn != 0 && unread(int(c.fd)) > 0 {
			c.callLater() // at the urgent mark the kernel reads nothing while a signal is pending, such as those of preemption
		}
		return 0, c.readError(errno)
	}
	return int(n), nil
}

// readError returns the error of a system call that has read nothing; 0 is the end of the input.
func (c *epollConn) readError(errno unix.Errno) error {
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return ErrAgain
	case errno != 0:
		return c.fail(errno)
	case c.errno != 0 && c.errno != uint8(unix.EPIPE): // SO_ERROR took it, after which the kernel says that the input has ended
		return c.Err()
	}
	return io.EOF // with EPIPE, it did: a reset came after the end of the input
}

// callLater has the loop report Readable once more, after the batch.
func (c *epollConn) callLater() {
	if c.flags&queued == 0 {
		c.flags |= queued
		c.loop.again = append(c.loop.again, c)
	}
}

func (c *epollConn) callAgain() {
	c.flags &^= queued
	if c.fd >= 0 {
		c.report(Readable)
	}
}

// Write implements Conn.
func (c *epollConn) Write(p []byte) (int, error) { return c.send(p, 0) }

// WriteLast implements LastWriter by MSG_MORE: the kernel keeps what does not fill a segment, and adds FIN to it. Without it FIN is a
// packet of its own, which costs this thread as much as the response, since it also runs the receive path of a peer on this machine.
func (c *epollConn) WriteLast(p []byte) (int, error) {
	n, err := c.send(p, unix.MSG_MORE)
	if n > 0 && n == len(p) { // of a part nothing is kept (tcp_sendmsg pushes it)
		c.flags |= held
	}
	return n, err
}

// send is Write with flags of send(2).
func (c *epollConn) send(p []byte, flags uintptr) (int, error) {
	if c.fd < 0 {
		return 0, ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	if c.errno != 0 {
		return 0, c.Err()
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_NOSIGNAL|flags, 0, 0)
	if errno != 0 {
		return 0, c.writeError(errno)
	}
	if int(n) < len(p) {
		c.flags |= wantWrite
	}
	return int(n), nil
}

// SendFile implements FileSender by sendfile(2): no byte of the file passes through the process. head waits in the kernel for what
// follows (MSG_MORE), or it would be a segment of its own. The runtime is not informed of the call, as of Write: that would wake
// another thread for each.
func (c *epollConn) SendFile(head []byte, file int, offset int64, n int) (ofHead, ofFile int, err error) {
	if ofHead, err = c.send(head, unix.MSG_MORE); err != nil || ofHead < len(head) {
		return ofHead, 0, err
	}
	if c.errno != 0 { // of an empty head
		return 0, 0, c.Err()
	}
	sent, _, errno := unix.RawSyscall6(unix.SYS_SENDFILE, uintptr(c.fd), uintptr(file), uintptr(unsafe.Pointer(&offset)), uintptr(n), 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR, unix.EPIPE, unix.ECONNRESET, unix.ETIMEDOUT:
		return ofHead, 0, c.writeError(errno)
	default: // of the file, such as EIO
		return ofHead, 0, errno
	}
	if int(sent) < n {
		c.flags |= wantWrite
	}
	return ofHead, int(sent), nil
}

// writeError returns the error of a system call that has written nothing.
func (c *epollConn) writeError(errno unix.Errno) error {
	switch errno {
	case unix.EAGAIN, unix.EINTR:
		c.flags |= wantWrite
		return ErrAgain
	case unix.EPIPE: // the output has ended; the input may go on
		return errno
	}
	return c.fail(errno)
}

// fail records an error that a system call has returned, which the kernel then forgets.
func (c *epollConn) fail(errno unix.Errno) error {
	if c.errno == 0 {
		c.errno = uint8(errno)
	}
	return c.Err()
}

// CloseWrite implements Conn.
func (c *epollConn) CloseWrite() error {
	if c.fd < 0 {
		return ErrClosed
	}
	c.flags &^= held
	if _, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(c.fd), unix.SHUT_WR, 0); errno != 0 {
		return errno
	}
	return nil
}

// Close implements Conn. The kernel sends what was written. What it holds leaves before: close(2) with unread input sends a reset in its
// place.
func (c *epollConn) Close() {
	if c.fd < 0 {
		return
	}
	if c.flags&held != 0 {
		_ = c.CloseWrite() // it fails only where the connection has failed
	}
	c.loop.conns.remove(c.slot)
	c.loop.stats.open.Add(-1)
	c.loop.Descriptors.count(c.flags&ofClient != 0, -1)
	closeFD(int(c.fd)) // this takes it out of the epoll instance, too: there is no other fd of the socket
	c.fd, c.handler, c.relaying = -1, nil, nil
}

// Linger implements Conn.
func (c *epollConn) Linger() {
	if c.fd >= 0 {
		c.loop.lingering.add(c.loop.now, c)
	}
}

// Abort implements Conn.
func (c *epollConn) Abort() {
	if c.fd < 0 {
		return
	}
	c.flags &^= held
	reset := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(c.fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&reset)), unsafe.Sizeof(reset), 0)
	c.Close()
}

// Err implements Conn.
func (c *epollConn) Err() error {
	if c.errno == 0 {
		return nil
	}
	return unix.Errno(c.errno)
}

// SetHandler implements Conn.
func (c *epollConn) SetHandler(h Handler) { c.handler = h }

// Local implements Conn.
func (c *epollConn) Local() netip.AddrPort {
	if !c.local.IsValid() && c.fd >= 0 {
		c.local = localAddr(int(c.fd))
	}
	return c.local
}

// Remote implements Conn.
func (c *epollConn) Remote() netip.AddrPort { return c.remote }
