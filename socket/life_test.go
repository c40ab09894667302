package socket

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
)

// op checks that err is a *net.OpError of an operation which is target.
func op(t *testing.T, err error, name string, target error) {
	t.Helper()
	var e *net.OpError
	if !errors.As(err, &e) || e.Op != name || !errors.Is(err, target) {
		t.Errorf("%#v (%v), want a net.OpError of %s that is %v", err, err, name, target)
	}
}

// levels returns what the two hosts hold now.
func (x *world) levels() (conns, memory int) {
	for _, s := range []*Stack{x.a, x.b} {
		_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
			st, u := h.TCP.Stats(), h.UDP.Stats()
			conns += st.Conns + st.HalfOpen + u.Sockets
			memory += int(st.Memory) + int(u.Memory)
			return nil
		})
	}
	return conns, memory
}

// empty waits until nothing is held any more.
func (x *world) empty(t *testing.T) {
	t.Helper()
	eventually(t, "connections or memory are left", func() bool {
		conns, memory := x.levels()
		return conns == 0 && memory == 0
	})
}

func TestDialErrors(t *testing.T) {
	x := newWorld(t, with{})
	for _, c := range []struct {
		network, addr string
		is            error
	}{
		{"tcp", addrB + ":9", syscall.ECONNREFUSED},
		{"tcp6", net.JoinHostPort(addrB6, "9"), syscall.ECONNREFUSED},
		{"tcp", "192.0.2.1:9", syscall.ENETUNREACH},
		{"udp", "192.0.2.1:9", syscall.ENETUNREACH},
	} {
		_, err := x.a.Dial(c.network, c.addr)
		op(t, err, "dial", c.is)
	}
	for _, addr := range []string{"198.18.0.2", "name:80", "[2001:db8::b]:80", ":80"} {
		if c, err := x.a.Dial("tcp4", addr); err == nil {
			t.Errorf("%s: connected to %v", addr, c.RemoteAddr())
		}
	}
	if _, err := x.a.Dial("unix", "/tmp/x"); !errors.As(err, new(net.UnknownNetworkError)) {
		t.Error(err)
	}
	x.empty(t)
}

// TestDialCanceled dials an address whose neighbour does not answer.
func TestDialCanceled(t *testing.T) {
	x := newWorld(t, with{})
	const nobody = "198.18.0.99:80"
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	within(t, 5*time.Second, "a canceled dial", func() {
		_, err := x.a.DialContext(ctx, "tcp", nobody)
		op(t, err, "dial", context.Canceled)
	})
	within(t, 5*time.Second, "a dial with a timeout", func() {
		_, err := x.a.DialWith(context.Background(), &Dialer{Timeout: 10 * time.Millisecond}, "tcp", nobody)
		op(t, err, "dial", context.DeadlineExceeded)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	})
	_, err := x.a.DialContext(ctx, "tcp", nobody)
	op(t, err, "dial", context.Canceled)
	x.empty(t)
}

// TestDialCanceledRaces cancels dials at about the time they succeed.
func TestDialCanceledRaces(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	var made, canceled atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				c, err := x.a.DialContext(ctx, "tcp", addrB+":80")
				cancel()
				if err == nil {
					made.Add(1)
					_ = c.Close()
				} else if canceled.Add(1); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	within(t, 20*time.Second, "canceled dials", wg.Wait)
	_ = l.Close()
	if made.Load()+canceled.Load() != 400 {
		t.Errorf("%d made, %d canceled", made.Load(), canceled.Load())
	}
	x.empty(t)
}

func TestListenErrors(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.b.Listen("tcp", ":80")
	op(t, err, "listen", syscall.EADDRINUSE)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	op(t, l.Close(), "close", net.ErrClosed)
	_, err = l.Accept()
	op(t, err, "accept", net.ErrClosed)
	if l, err = x.b.Listen("tcp", ":80"); err != nil {
		t.Errorf("the address is not free again: %v", err)
	} else {
		_ = l.Close()
	}
	_, err = x.b.ListenPacket("tcp", ":80")
	op(t, err, "listen", net.UnknownNetworkError("tcp"))
}

// TestFamilies listens for one version of IP and for both.
func TestFamilies(t *testing.T) {
	x := newWorld(t, with{})
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

// reaches reports whether somebody at addr sends a byte.
func reaches(s *Stack, addr string) bool {
	c, err := s.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

func TestAddressesStayAfterClose(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	if c.LocalAddr().String() != s.RemoteAddr().String() || c.RemoteAddr().String() != s.LocalAddr().String() {
		t.Errorf("%v-%v, %v-%v", c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
	}
	was := c.RemoteAddr().String()
	_ = c.Close()
	if c.RemoteAddr().String() != was {
		t.Error("a closed connection has forgotten its peer")
	}
}

func TestHalfClose(t *testing.T) {
	x := newWorld(t, with{})
	within(t, 10*time.Second, "half close", func() {
		c, s := x.pair(t)
		_ = c.CloseWrite()
		_, err := c.Write([]byte("x"))
		op(t, err, "write", syscall.EPIPE)
		if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := s.Write([]byte("still")); err != nil {
			t.Error(err)
		}
		_ = s.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "still" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.CloseRead()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		op(t, errors.Join(c.Close(), c.Close()), "close", net.ErrClosed)
		_ = s.Close()
		x.empty(t)
	})
}

func TestReset(t *testing.T) {
	x := newWorld(t, with{})
	within(t, 10*time.Second, "reset", func() {
		c, s := x.pair(t)
		_ = c.SetLinger(0)
		got := make(chan error)
		go func() {
			_, err := s.Read(make([]byte, 1))
			got <- err
		}()
		_ = c.Close()
		op(t, <-got, "read", syscall.ECONNRESET)
		_, err := s.Write([]byte("x"))
		op(t, err, "write", syscall.ECONNRESET)
		_ = s.Close()
		x.empty(t)
	})
}

// TestLinger closes with a time for data that the peer does not take.
func TestLinger(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	_ = s.SetReadBuffer(16 << 10)
	big := make([]byte, 64<<20)
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.Write(big)
	op(t, err, "write", os.ErrDeadlineExceeded)
	_ = c.SetLinger(1)
	_ = c.Close()
	within(t, 10*time.Second, "linger", func() {
		eventually(t, "the connection lingers", func() bool {
			info, err := s.Info()
			return err != nil || info.State == tcp.StateClosed
		})
	})
	_ = s.Close()
	x.empty(t)
}

func TestDeadlines(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	within(t, 10*time.Second, "deadlines", func() {
		_ = c.SetReadDeadline(soon())
		_, err := c.Read(make([]byte, 1))
		op(t, err, "read", os.ErrDeadlineExceeded)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_, _ = s.Write([]byte("x"))
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("after the deadline was taken back: %d, %v", n, err)
		}
		time.AfterFunc(20*time.Millisecond, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
		_, err = c.Read(make([]byte, 1))
		op(t, err, "read", os.ErrDeadlineExceeded)

		_ = c.SetReadDeadline(soon())
		time.AfterFunc(5*time.Millisecond, func() { _ = c.SetReadDeadline(time.Now().Add(time.Hour)) })
		time.AfterFunc(50*time.Millisecond, func() { _, _ = s.Write([]byte("y")) })
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("a deadline that was put off: %d, %v", n, err)
		}

		big := make([]byte, 64<<20)
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := c.Write(big)
		op(t, err, "write", os.ErrDeadlineExceeded)
		if n == 0 {
			t.Error("nothing was written before the deadline")
		}
	})
	l, err := x.a.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.(*Listener).SetDeadline(soon())
	_, err = l.Accept()
	op(t, err, "accept", os.ErrDeadlineExceeded)
	p, err := x.a.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_ = p.SetReadDeadline(soon())
	_, _, err = p.ReadFrom(make([]byte, 1))
	op(t, err, "read", os.ErrDeadlineExceeded)
}

// TestCloseRaces closes connections under readers, writers and setters of deadlines.
func TestCloseRaces(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	within(t, 30*time.Second, "close races", func() {
		for range 30 {
			c, s := x.pair(t)
			var wg sync.WaitGroup
			for _, c := range []*TCPConn{c, s} {
				for range 2 {
					wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
					wg.Go(func() {
						for b := make([]byte, 10_000); ; {
							if _, err := c.Write(b); err != nil {
								return
							}
						}
					})
				}
				wg.Go(func() {
					for c.SetDeadline(time.Now().Add(time.Second)) == nil {
						runtime.Gosched()
					}
				})
			}
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			wg.Go(func() { _ = c.Close() })
			wg.Go(func() { _ = s.Close() })
			wg.Wait()
		}
	})
	x.empty(t)
}

func TestListenerCloseWhileAccepting(t *testing.T) {
	x := newWorld(t, with{loops: 2})
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
			op(t, <-errs, "accept", net.ErrClosed)
		}
		close(stop)
		wg.Wait()
	})
	x.empty(t)
}

// TestBacklogOverflow connects more often than a listener that does not accept has room for, and then
// accepts those that got in.
func TestBacklogOverflow(t *testing.T) {
	x := newWorld(t, with{backlog: 4})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var open atomic.Int32
	for range 40 {
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
	waiting := l.(*Listener).ends[0].t.Waiting()
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
	x.empty(t)
}

// TestChurn opens and closes connections by the thousand and looks for what they leave.
func TestChurn(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for g := range 10 {
		wg.Go(func() {
			for i := range 100 {
				if err := churn(x.a, g*100+i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	within(t, 30*time.Second, "churn", wg.Wait)
	_ = l.Close()
	x.empty(t)
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
}

// churn makes one connection, exchanges some bytes, and ends it in one of several ways.
func churn(s *Stack, i int) error {
	c, err := s.Dial("tcp", addrB+":80")
	if err != nil {
		return err
	}
	b := make([]byte, 1+i*37%5000)
	if _, err := c.Write(b); err != nil {
		return err
	}
	switch i % 4 {
	case 0: // while the answer is on its way
		return c.Close()
	case 1:
		return c.(*TCPConn).Abort()
	case 2:
		if err := c.(*TCPConn).CloseWrite(); err != nil {
			return err
		}
		if n, err := io.Copy(io.Discard, c); n != int64(len(b)) || err != nil {
			return errors.Join(errors.New("short answer"), err)
		}
		return c.Close()
	}
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	return c.Close()
}

func TestStackCloseWakesEverybody(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	l, err := x.a.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.a.ListenPacket("udp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 4)
	go func() { _, err := c.Read(make([]byte, 1)); errs <- err }()
	go func() { _, err := c.Write(make([]byte, 256<<20)); errs <- err }()
	go func() { _, err := l.Accept(); errs <- err }()
	go func() { _, _, err := p.ReadFrom(make([]byte, 1)); errs <- err }()
	time.Sleep(20 * time.Millisecond)
	within(t, 10*time.Second, "close", func() {
		if err := x.a.Close(); err != nil {
			t.Error(err)
		}
		for range 4 {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	_, err = x.a.Dial("tcp", addrB+":80")
	op(t, err, "dial", net.ErrClosed)
	_, err = x.a.Listen("tcp", ":81")
	op(t, err, "listen", net.ErrClosed)
	_ = s.Close()
}
