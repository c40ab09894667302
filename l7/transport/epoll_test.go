package transport

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"golang.org/x/sys/unix"
)

// newLoop returns a loop for a test that iterates it.
func newLoop(t testing.TB) *EpollLoop {
	t.Helper()
	l, err := NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// iterateUntil iterates until f holds.
func iterateUntil(t testing.TB, l *EpollLoop, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); {
		l.Do(func() {}) // so that it does not wait
		if errno := l.iterate(); errno != 0 || time.Now().After(end) {
			t.Fatal(what, errno)
		}
	}
}

func listenLocal(t testing.TB, l *EpollLoop, accept func(c Conn) Handler) *epollListener {
	t.Helper()
	li, err := l.Listen(netip.MustParseAddrPort("127.0.0.1:0"), accept)
	if err != nil {
		t.Fatal(err)
	}
	return li.(*epollListener)
}

func dialLocal(t testing.TB, a netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestReusedDescriptor: within one batch a handler closes another connection and dials, which gives the new connection
// the descriptor and the slot of the old one. The event of the old one must not reach it.
func TestReusedDescriptor(t *testing.T) {
	l := newLoop(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var conns []*epollConn
	var opened *epollConn
	calls := 0
	h := handlerFunc(func(c Conn, ev Events) {
		if opened != nil {
			return // before the new one: nothing to try
		}
		other := conns[0]
		if c == Conn(other) {
			other = conns[1]
		}
		fd, slot := other.fd, other.slot
		other.Close()
		n, err := l.Dial(silent.Addr().(*net.TCPAddr).AddrPort(), handlerFunc(func(Conn, Events) { calls++ }))
		if err != nil {
			t.Error(err)
			return
		}
		if opened = n.(*epollConn); opened.fd != fd || opened.slot != slot {
			t.Errorf("fd %d, slot %d, want those of the closed connection: %d, %d", opened.fd, opened.slot, fd, slot)
		}
	})
	li := listenLocal(t, l, func(c Conn) Handler {
		conns = append(conns, c.(*epollConn))
		return h
	})
	l.gen = ^uint32(0) - 2 // the new connection has a generation after 0
	a, b := dialLocal(t, li.addr), dialLocal(t, li.addr)
	iterateUntil(t, l, "two connections", func() bool { return len(conns) == 2 })
	for range 3 {
		l.Do(func() {})
		l.iterate() // events of the registration
	}
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n, errno := l.poll(unix.Syscall6, 1000); n != 2 || errno != 0 {
		t.Fatalf("%d events in one batch, %v", n, errno)
	}
	l.dispatch(2)
	if opened == nil || calls != 0 {
		t.Fatalf("the new connection %v was called %d times", opened, calls)
	}
	iterateUntil(t, l, "the new connection", func() bool { return calls == 1 })
}

// TestAcceptBurst: one iteration accepts a bounded number of connections.
func TestAcceptBurst(t *testing.T) {
	l := newLoop(t)
	accepted := 0
	li := listenLocal(t, l, func(Conn) Handler { accepted++; return nil })
	for range acceptBurst + 3 {
		dialLocal(t, li.addr)
	}
	for _, want := range []int{acceptBurst, acceptBurst + 3} {
		if l.iterate(); accepted != want {
			t.Errorf("%d connections, want %d", accepted, want)
		}
	}
	if s := l.Stats(); s.Accepted != acceptBurst+3 || s.Open != acceptBurst+3 {
		t.Errorf("%+v", s)
	}
}

// TestNoDescriptors: without descriptors a loop neither spins nor loses connections.
func TestNoDescriptors(t *testing.T) {
	l := newLoop(t)
	accepted := 0
	li := listenLocal(t, l, func(Conn) Handler { accepted++; return nil })
	for range 3 {
		dialLocal(t, li.addr)
	}
	restore := noDescriptors(t)
	l.iterate()
	s, limit := l.Stats(), l.limit(l.now)
	n, _ := l.poll(unix.RawSyscall6, 0)
	_, dialErr := l.Dial(li.addr, nil)
	restore()
	if accepted != 0 || s.Paused != 1 || s.Dropped != 0 {
		t.Errorf("%d connections, %+v; want one pause", accepted, s)
	}
	if limit <= 0 || limit > int(acceptPause/time.Millisecond) || n != 0 {
		t.Errorf("the loop waits %d ms, with %d events", limit, n)
	}
	if dialErr != unix.EMFILE {
		t.Errorf("dial: %v", dialErr)
	}
	iterateUntil(t, l, "the pause does not end", func() bool { return accepted == 3 })
}

// noDescriptors lowers the limit of descriptors to those that are open.
func noDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(0) // the lowest free one
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	now := was
	now.Cur = uint64(fd)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestEndFreesDescriptors: of a loop that ran and of one that did not, with connections in every state.
func TestEndFreesDescriptors(t *testing.T) {
	for _, run := range []bool{true, false} {
		before := openDescriptors(t)
		l, err := NewEpollLoop()
		if err != nil {
			t.Fatal(err)
		}
		li := listenLocal(t, l, func(c Conn) Handler { c.Linger(); return nil })
		listenLocal(t, l, nil)
		for range 10 {
			if _, err := l.Dial(li.addr, nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(context.Background())
		l.SetTick(func(now clock.Time) clock.Time {
			if l.Stats().Accepted == 10 {
				stop()
			}
			return now.Add(time.Millisecond)
		})
		if run {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		stop()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Run(ctx); err != ErrClosed {
			t.Errorf("Run after the end: %v", err)
		}
		if _, err := l.Dial(li.addr, nil); err != ErrClosed {
			t.Errorf("Dial after the end: %v", err)
		}
		if _, err := l.Listen(li.addr, nil); err != ErrClosed {
			t.Errorf("Listen after the end: %v", err)
		}
		li.Close()
		if n := openDescriptors(t); n != before {
			t.Errorf("run: %v: %d descriptors, %d before", run, n, before)
		}
		if s := l.Stats(); s.Open != 0 {
			t.Errorf("%d connections are open", s.Open)
		}
	}
}

// TestSocketOptions of accepted and dialed connections.
func TestSocketOptions(t *testing.T) {
	l := newLoop(t)
	var accepted Conn
	li := listenLocal(t, l, func(c Conn) Handler { accepted = c; return nil })
	dialed, err := l.Dial(li.addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	iterateUntil(t, l, "a connection", func() bool { return accepted != nil })
	for _, c := range []Conn{accepted, dialed} {
		fd := int(c.(*epollConn).fd)
		if getInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY) == 0 || getInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE) == 0 {
			t.Error("an option is not set")
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags %x, %v", flags, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %x, %v", flags, err)
		}
	}
}

// TestVersionsOfIP: a listener on all addresses of IPv6 leaves those of IPv4 to another. Addresses are those of the
// packets, never mapped ones.
func TestVersionsOfIP(t *testing.T) {
	l := newLoop(t)
	var got []netip.AddrPort
	accept := func(c Conn) Handler { got = append(got, c.Local()); return nil }
	six, err := l.Listen(netip.MustParseAddrPort("[::]:0"), accept)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), six.Addr().Port())
	if c, err := net.Dial("tcp", at.String()); err == nil {
		_ = c.Close()
		t.Error("IPv4 reaches a listener on IPv6")
	}
	if _, err := l.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), accept); err != nil {
		t.Fatal(err)
	}
	c, err := l.Dial(netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), at.Port()), nil)
	if err != nil {
		t.Fatal(err)
	}
	dialLocal(t, netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()))
	iterateUntil(t, l, "two connections", func() bool { return len(got) == 2 })
	want := []netip.AddrPort{at, netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())}
	if got[0] != want[0] {
		got[0], got[1] = got[1], got[0]
	}
	if got[0] != want[0] || got[1] != want[1] || c.Remote() != at {
		t.Errorf("%v, want %v; dialed %v", got, want, c.Remote())
	}
}

// TestZone: a link-local address needs the interface.
func TestZone(t *testing.T) {
	var sa unix.RawSockaddrInet6
	if _, errno := encodeAddr(&sa, netip.MustParseAddrPort("[fe80::1%no-such-interface]:80")); errno != unix.ENODEV {
		t.Error(errno)
	}
	if n, errno := encodeAddr(&sa, netip.MustParseAddrPort("[fe80::1%lo]:80")); n != unix.SizeofSockaddrInet6 || errno != 0 || sa.Scope_id == 0 {
		t.Error(n, errno, sa.Scope_id)
	}
	for _, s := range []string{"198.18.0.1:65535", "[2001:db8::1]:1"} {
		a := netip.MustParseAddrPort(s)
		if _, errno := encodeAddr(&sa, a); errno != 0 || decodeAddr(&sa) != a {
			t.Errorf("%v, want %v", decodeAddr(&sa), a)
		}
	}
}
