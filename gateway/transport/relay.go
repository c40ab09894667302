package transport

import (
	"errors"

	"golang.org/x/sys/unix"
)

// pipe has bytes on their way between two kernel sockets.
type pipe struct {
	r, w int
	held int // bytes
}

const (
	pipeSize   = 256 << 10 // docs/design/027 has the figures
	pipesMost  = 512       // of a loop
	spliceMost = 1 << 30   // of one call
)

const spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

// pipes are the pipes of a loop. A connection has one only while it holds bytes.
type pipes struct {
	empty []*pipe
	n     int // with those that connections have
}

// Relay implements Conn by splice(2): the pages in which bytes were received are sent, and nothing is copied. The bytes
// go through a pipe, which is filled only when it is empty: so EAGAIN says that nothing has arrived.
func (c *epollConn) Relay(dst Conn, n int) (taken int, in, out error) {
	d, ok := dst.(*epollConn)
	switch {
	case !ok:
		return 0, nil, errors.ErrUnsupported
	case c.fd < 0:
		return 0, ErrClosed, nil
	case d.fd < 0:
		return 0, nil, ErrClosed
	}
	if c.pipe == nil {
		if c.pipe = c.loop.pipes.take(); c.pipe == nil {
			return 0, nil, errors.ErrUnsupported
		}
	}
	for in == nil {
		if out = d.drain(c.pipe); out != nil {
			return taken, nil, out
		}
		if taken == n {
			break
		}
		var k int
		k, in = c.fill(n - taken)
		taken += k
	}
	c.loop.pipes.put(c.pipe)
	c.pipe = nil
	return taken, in, nil
}

// fill moves at most n received bytes to the empty pipe.
func (c *epollConn) fill(n int) (int, error) {
	k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(c.fd), 0, uintptr(c.pipe.w), 0, uintptr(min(n, spliceMost)), spliceFlags)
	if errno != 0 || k == 0 {
		return 0, c.readError(errno)
	}
	c.pipe.held = int(k)
	return int(k), nil
}

// drain sends what is in a pipe.
func (c *epollConn) drain(p *pipe) error {
	for p.held > 0 {
		if c.err != 0 {
			return c.err
		}
		k, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(p.r), 0, uintptr(c.fd), 0, uintptr(p.held), spliceFlags)
		if errno != 0 {
			return c.writeError(errno)
		}
		p.held -= int(k)
	}
	return nil
}

// take returns an empty pipe; nil if there are too many, or no more fds.
func (s *pipes) take() *pipe {
	if n := len(s.empty); n > 0 {
		p := s.empty[n-1]
		s.empty = s.empty[:n-1]
		return p
	}
	var fds [2]int
	if s.n == pipesMost || unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	s.n++
	// Beyond the limit of a user's pipes (pipe(7)) it stays small, which costs calls and nothing else.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{r: fds[0], w: fds[1]}
}

// put takes back a pipe. What it holds is lost with it.
func (s *pipes) put(p *pipe) {
	if p.held == 0 {
		s.empty = append(s.empty, p)
		return
	}
	s.n--
	closeFD(p.r)
	closeFD(p.w)
}

// close closes the empty pipes.
func (s *pipes) close() {
	for _, p := range s.empty {
		closeFD(p.r)
		closeFD(p.w)
	}
	s.empty = nil
}

// Relay implements Conn: bytes are copied once, from the receive ring of c to the send queue of dst.
func (c *stackConn) Relay(dst Conn, n int) (taken int, in, out error) {
	d, ok := dst.(*stackConn)
	switch {
	case !ok:
		return 0, nil, errors.ErrUnsupported
	case c.t == nil:
		return 0, ErrClosed, nil
	case d.t == nil:
		return 0, nil, ErrClosed
	}
	now := c.loop.h.Now()
	for taken < n {
		p := c.t.Peek()[0]
		if len(p) == 0 {
			return taken, c.readError(), nil
		}
		p = p[:min(len(p), n-taken)]
		k := d.t.Write(now, p)
		c.t.Discard(now, k)
		if taken += k; k < len(p) {
			d.flags |= wantWrite
			return taken, nil, d.writeError()
		}
	}
	return taken, nil, nil
}
