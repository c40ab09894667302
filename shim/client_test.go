package shim

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// A program that speaks the protocol by system calls alone, as the library does.

// limit is how long a test waits for what is to happen.
const limit = 30 * time.Second

// client is a process: a control channel.
type client struct {
	t    testing.TB
	fd   int
	last atomic.Uint32

	programs []*program // its sockets
}

func dial(t testing.TB, path string) *client {
	t.Helper()
	c := &client{t: t, fd: rawSocket(t, unix.SOCK_SEQPACKET)}
	if err := unix.Connect(c.fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.fd) })
	if r := c.ask(request{op: opHello, arg: requestSize, value: []byte("test")}, -1); r.errno != 0 {
		t.Fatal(r.errno)
	}
	return c
}

func rawSocket(t testing.TB, kind int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// ask sends a request and waits for its reply.
func (c *client) ask(q request, fds ...int) reply {
	c.t.Helper()
	r, err := c.try(q, fds...)
	if err != nil {
		c.t.Fatalf("request %d: %v", q.op, err)
	}
	return r
}

func (c *client) try(q request, fds ...int) (r reply, err error) {
	q.id = c.last.Add(1)
	var b [requestSize]byte
	q.encode(b[:])
	var oob []byte
	if len(fds) > 0 && fds[0] >= 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, err := unix.SendmsgN(c.fd, b[:], oob, nil, unix.MSG_NOSIGNAL); err != nil {
		return r, err
	}
	var in [replySize + 1]byte
	n, err := recv(c.fd, in[:])
	if err != nil {
		return r, err
	}
	if n == 0 {
		return r, io.EOF
	}
	r, err = decodeReply(in[:n])
	if err == nil && (r.id != q.id || r.op != q.op) {
		err = errors.New("reply to another request")
	}
	r.value = append([]byte{}, r.value...)
	return r, err
}

func recv(fd int, b []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// sock is a socket of the program.
type program struct {
	*client
	fd int
}

// socket is socket(2) with the library.
func (c *client) socket(kind int, v6 bool) *program {
	c.t.Helper()
	mark := markInet
	if v6 {
		mark = markInet6
	}
	p := &program{c, rawSocket(c.t, kind)}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_PRIORITY, mark); err != nil {
		c.t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		c.t.Fatal(err)
	}
	if kind == unix.SOCK_SEQPACKET {
		if r := c.ask(request{op: opNames}, p.fd); r.errno != 0 {
			c.t.Fatal(r.errno)
		}
	}
	c.t.Cleanup(p.close)
	c.programs = append(c.programs, p)
	return p
}

func (p *program) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// poll waits for events, and returns those that are there.
func (p *program) poll(want int16, d time.Duration) int16 {
	f := []unix.PollFd{{Fd: int32(p.fd), Events: want}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(f, max(int(time.Until(end)/time.Millisecond), 0))
		if err != unix.EINTR || n > 0 {
			return f[0].Revents
		}
	}
}

// connect is connect(2) of a blocking socket.
func (p *program) connect(to string) error {
	p.t.Helper()
	r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(to)}, p.fd)
	if r.errno != syscall.EINPROGRESS {
		if r.errno == 0 {
			return nil
		}
		return r.errno
	}
	ev := p.poll(unix.POLLOUT, limit)
	switch {
	case ev == 0:
		return os.ErrDeadlineExceeded
	case ev&(unix.POLLERR|unix.POLLHUP) == 0:
		return nil
	}
	if n := p.soError(); n != 0 {
		return n
	}
	return nil
}

func (p *program) soError() syscall.Errno {
	p.t.Helper()
	return syscall.Errno(p.getInt(unix.SOL_SOCKET, unix.SO_ERROR))
}

func (p *program) getInt(level, name int) int {
	p.t.Helper()
	r := p.ask(request{op: opGetOption, level: int32(level), name: int32(name), arg: 4}, p.fd)
	if r.errno != 0 || len(r.value) != 4 {
		p.t.Fatalf("getsockopt %d %d: %v, %d bytes", level, name, r.errno, len(r.value))
	}
	return int(int32(order.Uint32(r.value)))
}

func (p *program) setInt(level, name, v int) error {
	p.t.Helper()
	if r := p.ask(request{op: opSetOption, level: int32(level), name: int32(name), value: appendInt(nil, v)}, p.fd); r.errno != 0 {
		return r.errno
	}
	return nil
}

// write is write(2) of all of b.
func (p *program) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(p.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// read is read(2).
func (p *program) read(b []byte) (int, error) {
	n, err := recv(p.fd, b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Read implements io.Reader, and Write io.Writer.
func (p *program) Read(b []byte) (int, error) {
	n, err := p.read(b)
	return max(n, 0), err
}

func (p *program) Write(b []byte) (int, error) { return len(b), p.write(b) }

// name returns the name of a descriptor's own end, as getsockname(2) of the library.
func (p *program) name() (name, error) {
	var sa unix.RawSockaddrUnix // x/sys ends names at a zero byte
	size := uint32(unsafe.Sizeof(sa))
	if _, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(p.fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return name{}, errno
	}
	if size < 3 || sa.Path[0] != 0 {
		return name{}, errors.New("no abstract name")
	}
	return decodeName(unsafe.Slice((*byte)(unsafe.Pointer(&sa.Path[1])), int(size)-3))
}

// bed is a Server over one end of a pair of stacks.
type bed struct {
	*Server
	node, peer *socket.Stack
}

const (
	nodeAddr = "198.18.0.1"
	peerAddr = "198.18.0.2"
)

func newBed(t testing.TB, change func(*Config)) *bed {
	t.Helper()
	node, peer, err := socket.Pair(netip.MustParsePrefix(nodeAddr+"/24"), netip.MustParsePrefix(peerAddr+"/24"))
	if err != nil {
		t.Fatal(err)
	}
	return newBedOn(t, node, peer, change)
}

// newBedOn is newBed over a stack and its peer, which it closes.
func newBedOn(t testing.TB, node, peer *socket.Stack, change func(*Config)) *bed {
	t.Helper()
	cfg := Config{Stack: node, Path: filepath.Join(t.TempDir(), "shim"), Name: "stack"}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{s, node, peer}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), node.Close(), peer.Close()); err != nil {
			t.Error(err)
		}
		if n := s.Stats(); n.Sockets != 0 || n.Channels != 0 {
			t.Errorf("after Close: %+v", n)
		}
		until(t, "descriptors are given back", func() bool { return s.Stats().Files == 0 })
	})
	return b
}

func (b *bed) dial(t testing.TB) *client { return dial(t, b.cfg.Path) }

// until waits for f to hold.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", limit, what)
		}
	}
}
