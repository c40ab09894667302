package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestListenErrors(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.b.Listen("tcp", ":80")
	checkOpError(t, err, "listen", syscall.EADDRINUSE)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	checkOpError(t, l.Close(), "close", net.ErrClosed)
	_, err = l.Accept()
	checkOpError(t, err, "accept", net.ErrClosed)
	if l, err = x.b.Listen("tcp", ":80"); err != nil {
		t.Errorf("the address is not free again: %v", err)
	} else {
		_ = l.Close()
	}
	_, err = x.b.ListenPacket("tcp", ":80")
	checkOpError(t, err, "listen", net.UnknownNetworkError("tcp"))
}

// A listener may have its callback taken away, also while a connection waits in its accept queue.
func TestOnAcceptIsTakenAway(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	ln, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	l := ln.(*Listener)
	defer l.Close()
	l.OnAccept(nil)
	c, err := x.a.Dial("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(50 * time.Millisecond) // the connection waits
	l.OnAccept(nil)
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	got.Close()
}

// TestFamilies listens for one version of IP and for both.
func TestFamilies(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	for _, c := range []struct {
		network    string
		four, six  bool
		addr, want string
	}{
		{"tcp", true, true, ":1000", "[::]:1000"},
		{"tcp4", true, false, ":1001", "0.0.0.0:1001"},
		{"tcp6", false, true, ":1002", "[::]:1002"},
	} {
		l, err := x.b.Listen(c.network, c.addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("x"))
				_ = c.Close()
			}
		}()
		if l.Addr().String() != c.want {
			t.Errorf("%s: listens at %v", c.network, l.Addr())
		}
		_, port, _ := net.SplitHostPort(c.addr)
		if ok := reaches(x.a, net.JoinHostPort(addrB, port)); ok != c.four {
			t.Errorf("%s: IPv4 is served: %v", c.network, ok)
		}
		if ok := reaches(x.a, net.JoinHostPort(addrB6, port)); ok != c.six {
			t.Errorf("%s: IPv6 is served: %v", c.network, ok)
		}
		_ = l.Close()
	}
}

// reaches reports whether a server at addr sends a byte.
func reaches(s *Stack, addr string) bool {
	c, err := s.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

func TestListenerCloseWhileAccepting(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					errs <- err
					return
				}
				_ = c.Close()
			}
		}()
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := x.a.Dial("tcp", addrB+":80"); err == nil {
					_ = c.Close()
				} else if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	within(t, 10*time.Second, "closing a listener", func() {
		_ = l.Close()
		for range 4 {
			checkOpError(t, <-errs, "accept", net.ErrClosed)
		}
		close(stop)
		wg.Wait()
	})
	x.checkEmpty(t)
}

// TestBacklogOverflow makes more connections than the accept queue holds, and then accepts. They are few
// enough for few rounds of retransmission: all clients retransmit at the same times, 4 of them succeed in
// each round, and the time between rounds doubles.
func TestBacklogOverflow(t *testing.T) {
	x := newTestbed(t, testbedConfig{backlog: 4})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var open atomic.Int32
	for range 20 {
		wg.Go(func() {
			c, err := x.a.DialWith(context.Background(), &Dialer{Timeout: 300 * time.Millisecond}, "tcp", addrB+":80")
			if err == nil {
				open.Add(1)
				_ = c.(*TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	h := x.b.group.Hosts[0]
	h.Enter()
	waiting := l.(*Listener).shards[0].t.Waiting()
	h.Exit()
	if waiting == 0 || waiting > 4 {
		t.Errorf("%d connections wait at a backlog of 4", waiting)
	}
	within(t, 20*time.Second, "overflow", func() {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
		wg.Wait()
	})
	if open.Load() < 4 {
		t.Errorf("%d connections came to be", open.Load())
	}
	_ = l.Close()
	x.checkEmpty(t)
}

// TestLocalListener finds the listener that a connection of the stack to itself meets: the more specific one, and only there.
func TestLocalListener(t *testing.T) {
	for _, loops := range []int{1, 3} {
		x := newTestbed(t, testbedConfig{loops: loops})
		listen := func(at string) *Listener {
			l, err := x.a.ListenWith(t.Context(), &ListenConfig{TCPOptions: func(o *TCPOptions) { o.Share = true }}, "tcp", at)
			if err != nil {
				t.Fatal(at, err)
			}
			return l
		}
		wide, narrow := listen(":80"), listen("127.0.0.1:80")
		bound, err := x.a.Bind(&BindConfig{}, "tcp4", netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			to   string
			d    Dialer
			want *Listener
			from string
		}{
			{to: "127.0.0.1:80", want: narrow, from: "127.0.0.1:0"},
			{to: "127.0.0.1:80", d: Dialer{Bound: bound}, want: narrow, from: bound.Addr().String()},
			{to: "[::ffff:127.0.0.1]:80", want: narrow, from: "127.0.0.1:0"},
			{to: "127.0.0.2:80", want: wide, from: "127.0.0.2:0"},
			{to: "[::1]:80", want: wide, from: "[::1]:0"},
			{to: net.JoinHostPort(addrA, "80"), want: wide, from: net.JoinHostPort(addrA, "0")},
			{to: net.JoinHostPort(addrA6, "80"), want: wide, from: net.JoinHostPort(addrA6, "0")},
			{to: "127.0.0.1:81"},
			{to: net.JoinHostPort(addrB, "80")},
			{to: "255.255.255.255:80"},
		} {
			got, from := x.a.LocalListener(&tc.d, netip.MustParseAddrPort(tc.to))
			if got != tc.want || tc.want != nil && from.String() != tc.from {
				t.Errorf("%d loops, %s: %v from %v, want %v from %s", loops, tc.to, got, from, tc.want, tc.from)
			}
		}
		if err := narrow.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := x.a.LocalListener(&Dialer{}, netip.MustParseAddrPort("127.0.0.1:80")); got != wide {
			t.Errorf("after Close: %v", got)
		}
	}
}

// TestLocalListenerOfSharedPort chooses by the ports of both ends, as a connection does.
func TestLocalListenerOfSharedPort(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	seen := map[*Listener]bool{}
	for range 2 {
		l, err := x.a.ListenWith(t.Context(), &ListenConfig{TCPOptions: func(o *TCPOptions) { o.Share = true }}, "tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		seen[l] = false
	}
	for port := uint16(2000); port < 2064; port++ {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		d := &Dialer{Local: at}
		l, _ := x.a.LocalListener(d, netip.MustParseAddrPort("127.0.0.1:80"))
		if l == nil {
			t.Fatal("no listener")
		}
		seen[l] = true
		if port > 2008 {
			continue
		}
		c, err := x.a.DialWith(t.Context(), d, "tcp", "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil || s.RemoteAddr().String() != at.String() {
			t.Fatal(s, err)
		}
		_, _ = c.Close(), s.Close()
	}
	for l, met := range seen {
		if !met {
			t.Errorf("%p is never chosen", l)
		}
	}
}
