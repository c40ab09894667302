package socket

import (
	"context"
	"errors"
	"io"
	"net"
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
