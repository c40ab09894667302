package shim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pairOf returns both ends of a connection between two programs, by an address of the listener.
func (b *bed) pairOf(t testing.TB, at, by string) (client, server *program) {
	t.Helper()
	l := b.dial(t).socket(unix.SOCK_STREAM, netip.MustParseAddrPort(at).Addr().Is6())
	local, err := l.listen(at, 5)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(by), local.Port())
	client = b.dial(t).socket(unix.SOCK_STREAM, to.Addr().Is6())
	if err := client.connect(to.String()); err != nil {
		t.Fatal(err)
	}
	server, _, err = l.accept()
	if err != nil {
		t.Fatal(err)
	}
	l.close()
	return client, server
}

// equal moves bytes from one program to the other and compares them.
func equal(t *testing.T, from, to *program, n int) {
	t.Helper()
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		_, _ = from.Write(data)
		_ = unix.Shutdown(from.fd, unix.SHUT_WR)
	})
	if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), n, err)
	}
}

func TestPair(t *testing.T) {
	for _, tc := range []struct{ at, by, source string }{
		{"0.0.0.0:0", "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1:0", "127.0.0.1", "127.0.0.1"},
		{nodeAddr + ":0", nodeAddr, nodeAddr},
		{"[::]:0", "::1", "::1"},
		{"[::]:0", "127.0.0.1", "127.0.0.1"},
		{"[::]:0", "::ffff:127.0.0.1", "127.0.0.1"},
		{"0.0.0.0:0", "::ffff:127.0.0.1", "127.0.0.1"},
	} {
		b := newBed(t, nil)
		client, server := b.pairOf(t, tc.at, tc.by)
		if n := b.Stats(); n.Paired != 1 || n.Connects != 1 || n.Accepts != 1 {
			t.Fatalf("%v: %+v", tc, n)
		}
		c, s := client.ask(request{op: opNames}, client.fd), server.ask(request{op: opNames}, server.fd)
		if c.local.Addr().Unmap().String() != tc.source || c.local.Port() == 0 || c.remote.Addr().String() != tc.by {
			t.Errorf("%v: the client has %v to %v", tc, c.local, c.remote)
		}
		if unmapped(s.local) != unmapped(c.remote) || unmapped(s.remote) != unmapped(c.local) {
			t.Errorf("%v: the server has %v from %v, the client %v to %v", tc, s.local, s.remote, c.local, c.remote)
		}
		if c.local.Addr().Is4() != netip.MustParseAddr(tc.by).Is4() || s.local.Addr().Is4() != netip.MustParseAddrPort(tc.at).Addr().Is4() {
			t.Errorf("%v: families of %v and %v", tc, c.local, s.local)
		}
		if n, err := client.name(); err != nil || n.local != unmapped(c.local) || n.remote != unmapped(c.remote) {
			t.Errorf("%v: name %+v, %v", tc, n, err)
		}
		if r := client.ask(request{op: opConnect, addr: c.remote}, client.fd); r.errno != syscall.EISCONN {
			t.Errorf("second connect: %v", r.errno)
		}
		if ev := client.poll(unix.POLLOUT|unix.POLLIN, limit); ev != unix.POLLOUT {
			t.Errorf("events %#x", ev)
		}
		equal(t, client, server, 1_000_000)
		equal(t, server, client, 1_000_000)
		client.close()
		server.close()
		until(t, "both ends are forgotten", func() bool { return b.Stats().Sockets == 0 && len(b.Pairs()) == 0 })
		if n := b.Stats(); n.BytesToStack+n.BytesToProgram != 0 {
			t.Errorf("bytes passed through the loop: %+v", n)
		}
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// TestPairEnds: a close with nothing unread is the end of the stream, one with unread bytes a reset, and one end that
// has closed does not take the options of the other.
func TestPairEnds(t *testing.T) {
	b := newBed(t, nil)
	client, server := b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
	if err := client.write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	client.close()
	if got, err := io.ReadAll(server); string(got) != "last" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	until(t, "the client's end is forgotten", func() bool { return b.Stats().Sockets == 1 })
	if v := server.getInt(unix.IPPROTO_TCP, unix.TCP_NODELAY); v != 0 {
		t.Errorf("TCP_NODELAY %d", v)
	}
	server.close()

	client, server = b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
	if err := errors.Join(client.write([]byte("unread")), server.write([]byte("answer"))); err != nil {
		t.Fatal(err)
	}
	server.close()
	var got [16]byte
	if n, err := client.read(got[:]); string(got[:n]) != "answer" || err != nil {
		t.Errorf("%q %v", got[:n], err)
	}
	if e := client.soError(); e != syscall.ECONNRESET {
		t.Errorf("SO_ERROR %v", e)
	}
	if e := client.soError(); e != 0 {
		t.Errorf("SO_ERROR again: %v", e)
	}
}

// TestPairOptions: options of before connect(2) stay, those of the listener are inherited, and both can be changed.
func TestPairOptions(t *testing.T) {
	b := newBed(t, nil)
	l := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := l.listen("127.0.0.1:0", 5)
	if err != nil {
		t.Fatal(err)
	}
	client := b.dial(t).socket(unix.SOCK_STREAM, false)
	if err := errors.Join(
		client.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), l.setInt(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		l.setInt(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77), client.connect(local.String()),
	); err != nil {
		t.Fatal(err)
	}
	server, _, err := l.accept()
	if err != nil || b.Stats().Paired != 1 {
		t.Fatal(err, b.Stats())
	}
	for _, tc := range []struct {
		p                 *program
		level, name, want int
	}{
		{client, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{server, unix.IPPROTO_TCP, unix.TCP_NODELAY, 0},
		{client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0},
		{server, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{server, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77},
		{server, unix.SOL_SOCKET, unix.SO_ERROR, 0},
		{server, unix.SOL_SOCKET, unix.SO_ACCEPTCONN, 0},
		{l, unix.SOL_SOCKET, unix.SO_ACCEPTCONN, 1},
	} {
		if v := tc.p.getInt(tc.level, tc.name); v != tc.want {
			t.Errorf("option %d %d is %d, want %d", tc.level, tc.name, v, tc.want)
		}
	}
	if err := server.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil || server.getInt(unix.IPPROTO_TCP, unix.TCP_NODELAY) != 1 {
		t.Errorf("TCP_NODELAY of the server: %v", err)
	}
	state := func(p *program) byte {
		return p.ask(request{op: opGetOption, level: unix.IPPROTO_TCP, name: unix.TCP_INFO, arg: 104}, p.fd).value[0]
	}
	if s := state(client); s != linuxEstablished {
		t.Errorf("TCP_INFO: state %d", s)
	}
	_ = unix.Shutdown(client.fd, unix.SHUT_WR)
	if s := state(server); s != linuxCloseWait {
		t.Errorf("TCP_INFO after the peer's end: state %d", s)
	}
	server.close()
	if s := state(client); s != linuxClose {
		t.Errorf("TCP_INFO after both ends: state %d", s)
	}
	for _, q := range []request{{op: opBind, addr: netip.MustParseAddrPort("127.0.0.1:0")}, {op: opListen, arg: 1}} {
		if r := client.ask(q, client.fd); r.errno != syscall.EINVAL {
			t.Errorf("request %d of a connected socket: %v", q.op, r.errno)
		}
	}
}

// TestPairFromBoundPort: the client keeps the address that it has bound, or the port that was chosen, as long as it is open.
func TestPairFromBoundPort(t *testing.T) {
	b := newBed(t, nil)
	l := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := l.listen("0.0.0.0:0", 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"127.0.0.9:0", "0.0.0.0:0", ""} {
		client := b.dial(t).socket(unix.SOCK_STREAM, false)
		var r reply
		if at != "" {
			r = client.ask(request{op: opBind, addr: netip.MustParseAddrPort(at)}, client.fd)
		}
		if r.errno != 0 {
			t.Fatal(r.errno)
		}
		if err := client.connect(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), local.Port()).String()); err != nil {
			t.Fatal(err)
		}
		server, from, err := l.accept()
		if at == "" {
			r.local = from
		}
		if err != nil || from.Port() != r.local.Port() || at == "127.0.0.9:0" && from != r.local {
			t.Errorf("from %v, bound to %v: %v", from, r.local, err)
		}
		if other := b.dial(t).socket(unix.SOCK_STREAM, false); other.ask(request{op: opBind, addr: r.local}, other.fd).errno != syscall.EADDRINUSE {
			t.Error("the port is free beside a connection")
		}
		client.close()
		server.close()
		until(t, "the port is free", func() bool {
			other := b.dial(t).socket(unix.SOCK_STREAM, false)
			defer other.close()
			return other.ask(request{op: opBind, addr: r.local}, other.fd).errno == 0
		})
	}
	if n := b.Stats().Paired; n != 3 {
		t.Errorf("%d pairs", n)
	}
}

// TestNoPair: connections that a pair cannot serve pass through the loop, and work as others do.
func TestNoPair(t *testing.T) {
	linger := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	for name, tc := range map[string]struct {
		config func(*Config)
		before func(client, l *program) error // of connect(2)
		reset  bool                           // the client's close is one
	}{
		"by configuration": {config: func(c *Config) { c.ThroughLoop = true }},
		"SO_LINGER of the client": {reset: true, before: func(client, _ *program) error {
			return errnoOrNil(client.ask(request{op: opSetOption, level: unix.SOL_SOCKET, name: unix.SO_LINGER, value: linger}, client.fd).errno)
		}},
		"SO_LINGER of the listener": {before: func(_, l *program) error {
			return errnoOrNil(l.ask(request{op: opSetOption, level: unix.SOL_SOCKET, name: unix.SO_LINGER, value: linger}, l.fd).errno)
		}},
		"TCP_DEFER_ACCEPT": {before: func(_, l *program) error { return l.setInt(unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1) }},
		"a name of its own": {before: func(client, _ *program) error {
			n := name{process: 1, unique: unique(), local: netip.MustParseAddrPort("198.18.0.9:9"), remote: netip.MustParseAddrPort("127.0.0.1:1")}
			var b [1 + nameSize]byte
			b[0] = '@'
			n.encode(b[1:])
			return unix.Bind(client.fd, &unix.SockaddrUnix{Name: string(b[:])})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, tc.config)
			l := b.dial(t).socket(unix.SOCK_STREAM, false)
			local, err := l.listen("127.0.0.1:0", 5)
			if err != nil {
				t.Fatal(err)
			}
			client := b.dial(t).socket(unix.SOCK_STREAM, false)
			if tc.before != nil {
				if err := tc.before(client, l); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(client.connect(local.String()), client.write([]byte("first"))); err != nil {
				t.Fatal(err)
			}
			server, from, err := l.accept()
			if err != nil || from.Addr().String() != "127.0.0.1" || b.Stats().Paired != 0 {
				t.Fatal(from, err, b.Stats())
			}
			var got [16]byte
			if n, err := server.read(got[:]); string(got[:n]) != "first" || err != nil {
				t.Errorf("%q %v", got[:n], err)
			}
			client.close()
			if _, err := server.read(got[:]); tc.reset != errors.Is(err, syscall.ECONNRESET) || !tc.reset && err != io.EOF {
				t.Errorf("after close: %v", err)
			}
		})
	}
}

func errnoOrNil(n syscall.Errno) error {
	if n == 0 {
		return nil
	}
	return n
}

// TestPairBacklog: what the backlog does not take waits in the stack, and comes when there is space.
func TestPairBacklog(t *testing.T) {
	b := newBed(t, nil)
	l := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := l.listen("127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	c := b.dial(t)
	var all []*program
	for range 5 {
		p := c.socket(unix.SOCK_STREAM, false)
		if r := c.ask(request{op: opConnect, addr: local}, p.fd); r.errno != 0 && r.errno != syscall.EINPROGRESS {
			t.Fatal(r.errno)
		}
		all = append(all, p)
	}
	if n := b.Stats().Paired; n < 1 || n > 2 {
		t.Errorf("%d pairs with a backlog of 1", n)
	}
	for range all {
		s, _, err := l.accept()
		if err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	for _, p := range all {
		if ev := p.poll(unix.POLLIN, limit); ev&unix.POLLIN == 0 {
			t.Errorf("events %#x", ev)
		}
	}
	until(t, "a connection is a pair again", func() bool {
		n := b.Stats().Paired
		p := c.socket(unix.SOCK_STREAM, false)
		if err := p.connect(local.String()); err != nil {
			t.Fatal(err)
		}
		s, _, err := l.accept()
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		p.close()
		return b.Stats().Paired > n
	})
}

// TestPairsOfSharedPort: both listeners of a port get connections, and after the close of all there is a refusal.
func TestPairsOfSharedPort(t *testing.T) {
	b := newBed(t, nil)
	var ls []*program
	at := "127.0.0.1:0"
	for range 2 {
		l := b.dial(t).socket(unix.SOCK_STREAM, false)
		if err := l.setInt(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Fatal(err)
		}
		local, err := l.listen(at, 100)
		if err != nil {
			t.Fatal(err)
		}
		at, ls = local.String(), append(ls, l)
	}
	c := b.dial(t)
	for range 40 {
		if err := c.socket(unix.SOCK_STREAM, false).connect(at); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Stats().Paired; n != 40 {
		t.Errorf("%d pairs", n)
	}
	for i, l := range ls {
		if l.poll(unix.POLLIN, limit)&unix.POLLIN == 0 {
			t.Errorf("listener %d has got none", i)
		}
		l.close()
	}
	until(t, "nothing listens", func() bool { return c.socket(unix.SOCK_STREAM, false).connect(at) == syscall.ECONNREFUSED })
}

// TestPairLimits: both ends count for their users, also when both close before the node has seen it.
func TestPairLimits(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Everyone, c.Limits.Sockets = true, 9 })
	b.distrust()
	l := b.dial(t).socket(unix.SOCK_STREAM, false)
	local, err := l.listen("127.0.0.1:0", 64)
	if err != nil {
		t.Fatal(err)
	}
	c := b.dial(t)
	for i := range 50 {
		p := c.socket(unix.SOCK_STREAM, false)
		if err := p.connect(local.String()); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		s, _, err := l.accept()
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		s.close()
	}
	if n := b.Stats().Paired; n != 50 {
		t.Errorf("%d pairs", n)
	}
	var held []*program
	for err = error(nil); err == nil && len(held) < 9; {
		p := c.socket(unix.SOCK_STREAM, false)
		held = append(held, p)
		err = p.connect(local.String())
	}
	if err == nil {
		t.Error("the limit is not kept")
	}
}

// TestPairOutlivesTheNode: the node has no part in a pair.
func TestPairOutlivesTheNode(t *testing.T) {
	b := newBed(t, nil)
	client, server := b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	equal(t, client, server, 300_000)
	equal(t, server, client, 300_000)
}

// TestPairsAreListed: with the process of each end.
func TestPairsAreListed(t *testing.T) {
	b := newBed(t, nil)
	client, _ := b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
	n := client.ask(request{op: opNames}, client.fd)
	all := b.Pairs()
	for _, want := range [][2]netip.AddrPort{{n.local, n.remote}, {n.remote, n.local}} {
		if !slices.ContainsFunc(all, func(p Pair) bool {
			return p.Local == want[0] && p.Remote == want[1] && p.Process.PID == unix.Getpid()
		}) {
			t.Errorf("%v is not in %+v", want, all)
		}
	}
}

// TestPairIsFoundBySweep: where both ends close, the hang-up may never be reported.
func TestPairIsFoundBySweep(t *testing.T) {
	b := newBed(t, nil)
	client, server := b.pairOf(t, "127.0.0.1:0", "127.0.0.1")
	b.pairs.sweep()
	if n := len(b.Pairs()); n != 2 {
		t.Fatalf("%d ends while both are open", n)
	}
	dup, err := unix.Dup(client.fd)
	if err != nil {
		t.Fatal(err)
	}
	client.close()
	b.pairs.sweep()
	if n := len(b.Pairs()); n != 2 {
		t.Errorf("%d ends while a duplicate is open", n)
	}
	unix.Close(dup)
	server.close()
	b.pairs.sweep()
	if n := len(b.Pairs()); n != 0 {
		t.Errorf("%d ends after the close", n)
	}
}

// TestEndIsReturnedToAClosedServer: where Close is earlier than the end of a failed join, the socket stays released, and its
// descriptor is closed.
func TestEndIsReturnedToAClosedServer(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opNames}, p.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	cookie, err := cookieOf(p.fd)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	k := b.sockets[cookie]
	b.mu.Unlock()
	q, ok := k.takeEnd()
	if !ok {
		t.Fatal("it is not idle")
	}
	k.release(0)
	k.returnEnd(q, p.fd)
	if s := k.current(); s != released {
		t.Errorf("state %d", s)
	}
	until(t, "the descriptor is given back", func() bool { return b.Stats().Files == 1 })
	if n, err := p.read(make([]byte, 1)); err == nil {
		t.Errorf("the node's end is open: %d bytes", n)
	}
}
