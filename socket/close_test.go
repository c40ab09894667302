package socket

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

func TestHalfClose(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	within(t, 10*time.Second, "half close", func() {
		c, s := x.pair(t)
		_ = c.CloseWrite()
		_, err := c.Write([]byte("x"))
		checkOpError(t, err, "write", syscall.EPIPE)
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
		checkOpError(t, errors.Join(c.Close(), c.Close()), "close", net.ErrClosed)
		_ = s.Close()
		x.checkEmpty(t)
	})
}

func TestReset(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	within(t, 10*time.Second, "reset", func() {
		c, s := x.pair(t)
		_ = c.SetLinger(0)
		got := make(chan error)
		go func() {
			_, err := s.Read(make([]byte, 1))
			got <- err
		}()
		_ = c.Close()
		checkOpError(t, <-got, "read", syscall.ECONNRESET)
		_, err := s.Write([]byte("x"))
		checkOpError(t, err, "write", syscall.EPIPE) // Linux reports the reset once
		_ = s.Close()
		x.checkEmpty(t)
	})
}

// TestLinger closes with a time for data that the peer does not take.
func TestLinger(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	_ = s.SetReadBuffer(16 << 10)
	big := make([]byte, 64<<20)
	_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.Write(big)
	checkOpError(t, err, "write", os.ErrDeadlineExceeded)
	_ = c.SetLinger(1)
	_ = c.Close()
	within(t, 10*time.Second, "linger", func() {
		eventually(t, "the connection lingers", func() bool {
			info, err := s.Info()
			return err != nil || info.State == tcp.StateClosed
		})
	})
	_ = s.Close()
	x.checkEmpty(t)
}

// TestCloseRaces closes connections under readers, writers and setters of deadlines.
func TestCloseRaces(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
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
	x.checkEmpty(t)
}

// TestChurn opens and closes a thousand connections and expects no memory or goroutines to be left.
func TestChurn(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
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
	x.checkEmpty(t)
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

func TestStackCloseWakesAllWaiters(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
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
	checkOpError(t, err, "dial", net.ErrClosed)
	_, err = x.a.Listen("tcp", ":81")
	checkOpError(t, err, "listen", net.ErrClosed)
	_ = s.Close()
}

// TestCloseReadEndsBlockedRead ends a read that waits.
func TestCloseReadEndsBlockedRead(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	done := blockedRead(t, c)
	if err := c.CloseRead(); err != nil {
		t.Error(err)
	}
	within(t, 10*time.Second, "end", func() {
		if err := <-done; err != io.EOF {
			t.Errorf("%v, want the end", err)
		}
	})
}

// TestLingerSendsAllData closes with a time for data that the peer takes in it.
func TestLingerSendsAllData(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	const size = 1 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.SetLinger(60)
		_ = c.Close()
	}()
	within(t, 20*time.Second, "all of it", func() {
		if n, err := io.Copy(io.Discard, s); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// TestPairFreesItsLink closes the stacks in both orders, and twice.
func TestPairFreesItsLink(t *testing.T) {
	for first := range 2 {
		a, b, err := Pair(netip.MustParsePrefix(addrA+"/24"), netip.MustParsePrefix(addrB+"/24"))
		if err != nil {
			t.Fatal(err)
		}
		stacks := [2]*Stack{a, b}
		c, err := a.Dial("udp", addrB+":9")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("in flight"))
		for _, s := range []*Stack{stacks[first], stacks[1-first], a, b} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, err := Pair(netip.Prefix{}, netip.Prefix{}); err == nil {
		t.Error("a stack has an address that is none")
	}
}
