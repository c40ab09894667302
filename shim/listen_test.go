package shim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen is bind(2) and listen(2) at a port.
func (p *program) listen(at string, backlog int) (netip.AddrPort, error) {
	p.t.Helper()
	if r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort(at)}, p.fd); r.errno != 0 {
		return netip.AddrPort{}, r.errno
	}
	r := p.ask(request{op: opListen, arg: int32(backlog)}, p.fd)
	if r.errno != 0 {
		return netip.AddrPort{}, r.errno
	}
	return r.local, nil
}

// accept is accept(2).
func (p *program) accept() (*program, netip.AddrPort, error) {
	q, remote, memory, err := p.acceptMemory()
	if memory >= 0 {
		unix.Close(memory)
		return q, remote, errors.Join(err, errors.New("more than one descriptor"))
	}
	return q, remote, err
}

// acceptMemory is accept, with the memory of the connection, -1 if it has none.
func (p *program) acceptMemory() (q *program, remote netip.AddrPort, memory int, err error) {
	var b [acceptedSize + 1]byte
	var oob [64]byte
	n, oobn, _, _, err := unix.Recvmsg(p.fd, b[:], oob[:], unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(p.fd, b[:], oob[:], unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, netip.AddrPort{}, -1, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || n != acceptedSize || len(msgs) != 1 {
		return nil, netip.AddrPort{}, -1, errors.Join(err, errors.New("no record with a descriptor"))
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) == 0 {
		return nil, netip.AddrPort{}, -1, errors.Join(err, errors.New("no descriptor"))
	}
	memory = -1
	if len(fds) > 1 {
		memory = fds[1]
	}
	_ = unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30})
	q = &program{p.client, fds[0]}
	p.t.Cleanup(q.close)
	remote, _, err = decodeAddr(b[acceptedRemoteAt:])
	return q, remote, memory, err
}

func (b *bed) dialNode(t testing.TB, port uint16) net.Conn {
	t.Helper()
	c, err := b.peer.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestListen(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for _, v6 := range []bool{false, true} {
		p := c.socket(unix.SOCK_STREAM, v6)
		at := map[bool]string{false: "0.0.0.0:0", true: "[::]:0"}[v6]
		local, err := p.listen(at, 5)
		if err != nil || local.Port() == 0 || local.Addr().Is4() == v6 {
			t.Fatal(local, err)
		}
		if n, err := p.name(); err != nil || n.local != local || n.remote.IsValid() {
			t.Errorf("name of the listener: %+v, %v", n, err)
		}
		if p.getInt(unix.SOL_SOCKET, unix.SO_ACCEPTCONN) != 1 {
			t.Error("SO_ACCEPTCONN is 0")
		}
		for range 3 {
			peer := b.dialNode(t, local.Port())
			q, from, err := p.accept()
			if err != nil {
				t.Fatal(err)
			}
			if got := netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); got.String() != peer.LocalAddr().String() || from.Addr().Is4() == v6 {
				t.Errorf("accepted from %v, want %v", from, peer.LocalAddr())
			}
			n, err := q.name()
			if err != nil || n.remote != from || n.local.Port() != local.Port() || n.local.Addr().Unmap().String() != nodeAddr {
				t.Errorf("name %+v, %v", n, err)
			}
			if mark, err := unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || mark != map[bool]int{false: markTCP4Connected, true: markTCP6Connected}[v6] {
				t.Errorf("mark %d, %v", mark, err)
			}
			echo(t, q, peer, []byte("hello"))
			if v := q.getInt(unix.IPPROTO_TCP, unix.TCP_NODELAY); v != 0 {
				t.Errorf("TCP_NODELAY of an accepted connection is %d", v)
			}
			q.close()
			if _, err := peer.Read(make([]byte, 1)); err == nil {
				t.Error("no end after the program's close")
			}
		}
		p.close()
		until(t, "the port is free", func() bool {
			l, err := b.node.Listen("tcp", local.String())
			if err == nil {
				l.Close()
			}
			return err == nil
		})
	}
	until(t, "all is released", func() bool { return b.Stats().Sockets == 0 })
}

func TestBindErrors(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	local, err := p.listen("0.0.0.0:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]syscall.Errno{
		local.String():      syscall.EADDRINUSE,
		"192.0.2.1:0":       syscall.EADDRNOTAVAIL,
		"[2001:db8::1]:100": syscall.EAFNOSUPPORT,
	} {
		q := c.socket(unix.SOCK_STREAM, false)
		if r := q.ask(request{op: opBind, addr: netip.MustParseAddrPort(at)}, q.fd); r.errno != want {
			t.Errorf("bind to %s: %v, want %v", at, r.errno, want)
		}
	}
	if r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, p.fd); r.errno != syscall.EINVAL {
		t.Errorf("second bind: %v", r.errno)
	}
	// A port that is reserved stays so, and connect(2) uses it.
	q := c.socket(unix.SOCK_STREAM, false)
	r := q.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, q.fd)
	if r.errno != 0 || r.local.Port() == 0 {
		t.Fatalf("%+v", r)
	}
	l := b.listenPeer(t, "0")
	if err := q.connect(peerPort(l)); err != nil {
		t.Fatal(err)
	}
	if n := q.ask(request{op: opNames}, q.fd); n.local.Port() != r.local.Port() || n.local.Addr().String() != nodeAddr {
		t.Errorf("names %+v, bound to %v", n, r.local)
	}
}

// TestNegativeBacklog: listen(2) of Linux takes it for the most.
func TestNegativeBacklog(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := p.listen("127.0.0.1:0", -1)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := b.dial(t).socket(unix.SOCK_STREAM, false).connect(local.String()); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.stats.pairs.Load(); n != 10 {
		t.Errorf("%d connections of 10 are accepted at once", n)
	}
}

// TestBacklog lets connections wait: no more records are in the program's socket than the backlog permits, all arrive, and
// in the end.
func TestBacklog(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := p.listen("0.0.0.0:0", 3)
	if err != nil {
		t.Fatal(err)
	}
	const conns = 8
	got := make(chan net.Conn, conns)
	for range conns {
		go func() {
			c, err := b.peer.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), local.Port()).String())
			if err != nil {
				t.Error(err)
			}
			got <- c
		}()
	}
	until(t, "records wait", func() bool { return b.Stats().Accepts >= 4 })
	time.Sleep(20 * time.Millisecond)
	if n := b.Stats().Accepts; n != 4 {
		t.Errorf("%d records wait with a backlog of 3", n)
	}
	for range conns {
		q, _, err := p.accept()
		if err != nil {
			t.Fatal(err)
		}
		q.close()
	}
	for range conns {
		if c := <-got; c != nil {
			c.Close()
		}
	}
}

// TestAListenerIsWatchedForSpaceOnlyWhileSomeWait: a program that takes records wakes no goroutine, unless there are connections
// for which there was no space.
func TestAListenerIsWatchedForSpaceOnlyWhileSomeWait(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := p.listen("0.0.0.0:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	watched := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for k := range b.all {
			k.mu.Lock()
			fd, server := k.fd, k.server != nil
			k.mu.Unlock()
			if server {
				return b.watch.events(t, fd)&unix.EPOLLOUT != 0
			}
		}
		t.Fatal("no listener")
		return false
	}
	if watched() {
		t.Error("without connections it is watched for space")
	}
	for range 4 { // two of them have records
		b.dialNode(t, local.Port())
	}
	until(t, "it is watched for space", watched)
	for range 4 {
		if _, _, err := p.accept(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it is not watched for space any more", func() bool { return !watched() })
}

// events returns what the watcher waits for on a file.
func (w *watcher) events(t *testing.T, fd int) (ev uint32) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.fd))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		var tfd int
		if n, _ := fmt.Sscanf(line, "tfd: %d events: %x", &tfd, &ev); n == 2 && tfd == fd {
			return ev
		}
	}
	t.Fatal("the file is not watched")
	return 0
}

// TestTheEndOfAnAcceptedConnectionNeedsNoGoroutine: what release leaves for a goroutine is only what takes loops.
func TestTheEndOfAnAcceptedConnectionNeedsNoGoroutine(t *testing.T) {
	b := newBed(t, nil)
	entered := func(k *sock) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, ok := b.all[k]
		return ok
	}
	k := &sock{s: b.Server, user: b.userOf(12345), fd: -1}
	b.mu.Lock()
	b.all[k] = struct{}{}
	b.mu.Unlock()
	k.ops.Lock()
	if k.release(0); !entered(k) {
		t.Error("it was forgotten during a request")
	}
	k.ops.Unlock()
	until(t, "it is forgotten after the request", func() bool { return !entered(k) })
	k = &sock{s: b.Server, user: b.userOf(12345), fd: -1}
	b.mu.Lock()
	b.all[k] = struct{}{}
	b.mu.Unlock()
	if k.release(0); entered(k) {
		t.Error("it is left to a goroutine")
	}
}

// TestBindToAPortThatTheNodeHasYetToFree: the program has closed the socket, and the watcher is late with its report.
func TestBindToAPortThatTheNodeHasYetToFree(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for _, listens := range []bool{false, true} {
		p := c.socket(unix.SOCK_STREAM, false)
		at := netip.MustParseAddrPort(nodeAddr + ":7001")
		if r := p.ask(request{op: opBind, addr: at}, p.fd); r.errno != 0 {
			t.Fatalf("listens %v: %v", listens, r.errno)
		}
		if listens {
			if r := p.ask(request{op: opListen, arg: 5}, p.fd); r.errno != 0 {
				t.Fatal(r.errno)
			}
		}
		b.watch.forget(b.sockOf(t, p.fd).watch)
		p.close()
	}
	p := c.socket(unix.SOCK_STREAM, false)
	if _, err := p.listen(nodeAddr+":7001", 5); err != nil {
		t.Error(err)
	}
}

// TestConnectionsOfAListenerThatTheNodeHasYetToClose are reset, and leave nothing.
func TestConnectionsOfAListenerThatTheNodeHasYetToClose(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := p.listen(nodeAddr+":0", 5)
	if err != nil {
		t.Fatal(err)
	}
	b.watch.forget(b.sockOf(t, p.fd).watch)
	p.close()
	for range 3 {
		if _, err := b.dialNode(t, local.Port()).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want ECONNRESET", err)
		}
	}
	until(t, "the sockets but the listener's are released", func() bool { return b.Stats().Sockets == 1 })
	if n := b.Stats().AcceptErrors; n != 3 {
		t.Errorf("%d errors, want 3", n)
	}
}

// TestUsersDoNotShareAPort: SO_REUSEPORT is for sockets of one user, as on Linux.
func TestUsersDoNotShareAPort(t *testing.T) {
	b := newBed(t, nil)
	_, first := b.another(70001)
	_, second := b.another(70002)
	for _, tc := range []struct {
		token string
		want  syscall.Errno
	}{{first, 0}, {first, 0}, {second, syscall.EADDRINUSE}} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
			p := b.as(t, tc.token).socket(kind, false)
			if err := p.setInt(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				t.Fatal(err)
			}
			if r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort(nodeAddr + ":7003")}, p.fd); r.errno != tc.want {
				t.Errorf("kind %d: %v, want %v", kind, r.errno, tc.want)
			}
		}
	}
}
