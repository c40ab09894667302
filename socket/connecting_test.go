package socket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// connected is what a Connect has reported.
type connected struct {
	in   LoopConn
	loop int
	err  error
}

// report returns a callback of Connect, and where what it reports arrives.
func report(s *Stack) (func(in LoopConn, err error), chan connected) {
	ch := make(chan connected, 2)
	return func(in LoopConn, err error) {
		c := connected{in: in, err: err}
		if err == nil {
			c.loop = s.LoopOf(in).Index()
		}
		ch <- c
	}, ch
}

// awaitConnect returns what was reported.
func awaitConnect(t *testing.T, ch chan connected) connected {
	t.Helper()
	select {
	case c := <-ch:
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is reported")
		return connected{}
	}
}

// connectFrom connects from a goroutine (loop -1) or from a callback of a loop.
func (x *testbed) connectFrom(loop int, d *Dialer, to string, f func(in LoopConn, err error)) (k *Connecting, err error) {
	r := netip.MustParseAddrPort(to)
	if loop < 0 {
		return x.a.Connect(d, r, f)
	}
	x.a.EnterLoop(loop, func(in LoopStack) { k, err = in.Connect(d, r, f) })
	return k, err
}

// TestConnectCallsBack: from a goroutine and from each loop, with and without a local address and port.
func TestConnectCallsBack(t *testing.T) {
	const loops = 3
	x := newTestbed(t, testbedConfig{loops: loops})
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, c := range []struct {
		local, to string
	}{
		{"", addrB + ":80"},
		{addrA + ":0", addrB + ":80"},
		{addrA + ":4000", addrB + ":80"},
		{"0.0.0.0:4001", addrB + ":80"},
		{"[" + addrA6 + "]:4002", "[" + addrB6 + "]:80"},
		{"", "[::ffff:" + addrB + "]:80"},
	} {
		for from := -1; from < loops; from++ {
			d := &Dialer{}
			if c.local != "" {
				d.Local = netip.MustParseAddrPort(c.local)
				if p := d.Local.Port(); p != 0 {
					d.Local = netip.AddrPortFrom(d.Local.Addr(), p+uint16(100*(from+1)))
				}
			}
			name := fmt.Sprintf("%d from %d", i, from)
			f, ch := report(x.a)
			if _, err := x.connectFrom(from, d, c.to, f); err != nil {
				t.Fatal(name, err)
			}
			got := awaitConnect(t, ch)
			if got.err != nil {
				t.Fatal(name, got.err)
			}
			conn := got.in.Conn()
			if p := d.Local.Port(); from >= 0 && p == 0 && got.loop != from {
				t.Errorf("%s: on loop %d", name, got.loop)
			} else if local := conn.LocalAddr().(*net.TCPAddr).AddrPort(); p != 0 && local.Port() != p {
				t.Errorf("%s: from %v, want %v", name, local, d.Local)
			}
			conn.Do(func(in LoopConn) {
				if ev := in.Ready(); ev != Writable {
					t.Errorf("%s: ready for %b", name, ev)
				}
			})
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte(name))
			_ = conn.CloseWrite()
			if b, err := io.ReadAll(s); string(b) != name || err != nil {
				t.Errorf("%s: %q %v", name, b, err)
			}
			_, _ = conn.Abort(), s.Close()
		}
	}
	_ = l.Close()
	x.checkEmpty(t)
}

// TestConnectErrors: what connect(2) of a non-blocking socket returns is returned, what SO_ERROR has later is reported.
func TestConnectErrors(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2, tcp: tcp.Config{}})
	own, err := x.a.Listen("tcp", addrA+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := netip.MustParseAddrPort(addrA + ":7001")
	f, ch := report(x.a)
	if _, err := x.a.Connect(&Dialer{Local: used}, netip.MustParseAddrPort(addrB+":80"), f); err != nil {
		t.Fatal(err)
	}
	first := awaitConnect(t, ch)
	if err := x.a.Group().AddNeighbor(0, wire.AddrFrom(netip.MustParseAddr("198.18.0.66")), wire.MAC{2, 6, 6, 6, 6, 6}); err != nil {
		t.Fatal(err)
	}
	if err := x.a.Group().Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	impatient := func(o *TCPOptions) { o.UserTimeout = 50 * time.Millisecond }
	type failure struct {
		d     Dialer
		to    string
		want  error
		later bool
	}
	t.Run("from", func(t *testing.T) {
		for name, c := range map[string]failure{
			"refused":              {Dialer{}, addrB + ":81", syscall.ECONNREFUSED, true},
			"no such host":         {Dialer{}, "198.18.0.99:80", syscall.EHOSTUNREACH, true},
			"no answer":            {Dialer{TCPOptions: impatient}, "198.18.0.66:80", syscall.ETIMEDOUT, true},
			"no route":             {Dialer{}, "203.0.113.9:80", syscall.ENETUNREACH, false},
			"no route, IPv6":       {Dialer{}, "[2001:db8:1::9]:80", syscall.ENETUNREACH, false},
			"foreign address":      {Dialer{Local: netip.MustParseAddrPort("198.18.0.98:0")}, addrB + ":80", syscall.EADDRNOTAVAIL, false},
			"a listener's port":    {Dialer{Local: netip.MustParseAddrPort(addrA + ":7000")}, addrB + ":80", syscall.EADDRINUSE, true},
			"a connection's tuple": {Dialer{Local: used}, addrB + ":80", syscall.EADDRNOTAVAIL, true},
			"a bad option":         {Dialer{TCPOptions: func(o *TCPOptions) { o.Congestion = "none" }}, addrB + ":80", syscall.ENOENT, false},
		} {
			for from := -1; from < 2; from++ {
				if c.want == syscall.EHOSTUNREACH && from != 0 {
					continue // it takes three seconds
				}
				t.Run(fmt.Sprint(name, from), func(t *testing.T) {
					t.Parallel()
					f, ch := report(x.a)
					_, err := x.connectFrom(from, &c.d, c.to, f)
					// The loop of a given local port finds the error of that port: here or, for a callback of another one, later.
					if err == nil {
						if !c.later {
							t.Error("not at once")
						}
						got := awaitConnect(t, ch)
						if err = got.err; got.in != (LoopConn{}) {
							t.Error("with a connection")
						}
					}
					checkOpError(t, err, "dial", c.want)
				})
			}
		}
	})
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Close(), first.in.Conn().Abort()
	_, _ = own.Close(), l.Close()
	x.checkEmpty(t)
}

// TestCancelConnect: before the end f is not called and nothing is left, also where the connect waits for another loop;
// after it Cancel says so.
func TestCancelConnect(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	var calls atomic.Int32
	f := func(LoopConn, error) { calls.Add(1) }
	for port := 5000; port < 5010; port++ {
		for from := -1; from < 2; from++ {
			d := &Dialer{Local: netip.MustParseAddrPort(fmt.Sprintf("%s:%d", addrA, port))}
			k, err := x.connectFrom(from, d, "198.18.0.99:80", f)
			if err != nil {
				t.Fatal(err)
			}
			if !k.Cancel() || k.Cancel() {
				t.Error("canceled not once")
			}
			x.checkEmpty(t)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls of canceled connects", n)
	}
	g, ch := report(x.a)
	k, err := x.a.Connect(&Dialer{}, netip.MustParseAddrPort(addrB+":81"), g)
	if err != nil {
		t.Fatal(err)
	}
	checkOpError(t, awaitConnect(t, ch).err, "dial", syscall.ECONNREFUSED)
	if k.Cancel() {
		t.Error("canceled after the end")
	}
}

// TestConnectOfAClosedStack: those under way are reported, new ones fail.
func TestConnectOfAClosedStack(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	f, ch := report(x.a)
	if _, err := x.a.Connect(&Dialer{}, netip.MustParseAddrPort("198.18.0.99:80"), f); err != nil {
		t.Fatal(err)
	}
	_ = x.a.Close()
	checkOpError(t, awaitConnect(t, ch).err, "dial", net.ErrClosed)
	_, err := x.a.Connect(&Dialer{}, netip.MustParseAddrPort(addrB+":80"), f)
	checkOpError(t, err, "dial", net.ErrClosed)
}

// TestConnectTriesAllLoops: where one has no free port for the destination the next one is asked, and each once.
func TestConnectTriesAllLoops(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 3})
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := netip.MustParseAddrPort(addrB + ":80")
	f, ch := report(x.a)
	k, err := x.a.newConnecting(&Dialer{}, to, f)
	if err != nil {
		t.Fatal(err)
	}
	if k.tuple, err = x.a.tuple(k.d, to); err != nil {
		t.Fatal(err)
	}
	hosts := x.a.group.Hosts
	if err := k.next(hosts[0], tcp.ErrNoPort); err != nil {
		t.Fatal(err)
	}
	if c := awaitConnect(t, ch); c.err != nil || c.loop != 1 {
		t.Fatal(c.loop, c.err)
	} else {
		_ = c.in.Conn().Abort()
	}
	if k.tries != 2 {
		t.Errorf("%d loops are left", k.tries)
	}
	k.tries = 1
	if err := k.next(hosts[1], tcp.ErrNoPort); err != tcp.ErrNoPort {
		t.Error(err)
	}
	k, _ = x.a.newConnecting(&Dialer{}, to, f)
	k.tuple, _ = x.a.tuple(k.d, to)
	if err := k.next(hosts[2], tcp.ErrPortSearch); err != nil {
		t.Fatal(err)
	}
	if c := awaitConnect(t, ch); c.err != nil || c.loop != 2 {
		t.Fatal(c.loop, c.err)
	} else {
		_ = c.in.Conn().Abort()
	}
}

// TestLoopStackRunsThere: functions run with their loop held.
func TestLoopStackRunsThere(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 3})
	if n := x.a.LoopCount(); n != 3 {
		t.Error(n)
	}
	ran := make(chan int, 3)
	for i := range 3 {
		if !x.a.QueueOnLoop(i, func(in LoopStack) {
			if in.Stack() != x.a || in.Now() == 0 {
				t.Error("another stack")
			}
			ran <- in.Index()
		}) {
			t.Error("not queued")
		}
		if got := <-ran; got != i {
			t.Errorf("loop %d, want %d", got, i)
		}
	}
}

// TestEndsAreToldApart: a callback sees the peer's FIN behind data, and a reset.
func TestEndsAreToldApart(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	type seen struct{ reported, ready Events }
	watch := func(c *TCPConn) chan seen {
		ch := make(chan seen, 10)
		if err := c.OnReady(func(in LoopConn, ev Events) { ch <- seen{ev, in.Ready()} }); err != nil {
			t.Fatal(err)
		}
		return ch
	}
	until := func(what string, ch chan seen, want Events) seen {
		t.Helper()
		for {
			select {
			case s := <-ch:
				if s.reported&want == want {
					return s
				}
			case <-time.After(20 * time.Second):
				t.Fatal(what)
			}
		}
	}
	c, s := x.pair(t)
	ch := watch(c)
	_, _ = s.Write([]byte("last"))
	_ = s.CloseWrite()
	if got := until("no FIN", ch, Readable|PeerClosed); got.reported&(Failed|Closed) != 0 || got.ready != Readable|Writable|PeerClosed {
		t.Errorf("FIN: %+v", got)
	}
	c.Do(func(in LoopConn) {
		if q, err := in.Queues(); q.Receive != 4 || err != nil {
			t.Error(q, err)
		}
	})
	_, _ = s.Close(), c.Abort()

	c, s = x.pair(t)
	ch = watch(c)
	_ = s.Abort()
	if got := until("no reset", ch, Closed); got.reported&Failed == 0 || got.ready != Readable|Writable|PeerClosed|Closed|Failed {
		t.Errorf("reset: %+v", got)
	}
	c.Do(func(in LoopConn) {
		if err := in.SocketError(); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if ev := in.Ready(); ev&Failed != 0 {
			t.Error("the error is pending still")
		}
		_ = in.Close()
		if _, err := in.Info(); !errors.Is(err, net.ErrClosed) || !errors.Is(in.Abort(), net.ErrClosed) || in.Ready() != Closed {
			t.Error(err, in.Ready())
		}
	})
	x.checkEmpty(t)
}

// TestOptionsInCallbacks: the options that programs set by setsockopt(2), by the holder of the loop.
func TestOptionsInCallbacks(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	c.Do(func(in LoopConn) {
		for opt, v := range map[Option]int{OptNoDelay: 0, OptKeepIdle: 7, OptKeepInterval: 8, OptKeepCount: 3, OptUserTimeout: 9000, OptSendBuffer: 1 << 16, OptReceiveBuffer: 1 << 17, OptOutOfBandInline: 0, OptLinger: 0} {
			if err := in.SetOption(opt, v); err != nil {
				t.Error(opt, err)
			}
			if got, err := in.Option(opt); got != v || err != nil {
				t.Errorf("option %d is %d, want %d: %v", opt, got, v, err)
			}
		}
		if err := in.SetOption(OptKeepIdle, 0); !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
		if i, err := in.Info(); err != nil || i.State != tcp.StateEstablished || i.SendBuffer != 1<<16 {
			t.Error(i.State, err)
		}
		if err := in.CloseRead(); err != nil || in.Ready()&PeerClosed == 0 {
			t.Error(err)
		}
		if err := in.Close(); err != nil { // with linger 0: a reset
			t.Error(err)
		}
	})
	_, err := s.Read(make([]byte, 1))
	checkOpError(t, err, "read", syscall.ECONNRESET)
	_ = s.Close()
	x.checkEmpty(t)
}
