package socket

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestDialErrors(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
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
		checkOpError(t, err, "dial", c.is)
	}
	for _, c := range []struct {
		local, network, remote string
		is                     error
	}{
		{"127.0.0.1", "tcp4", addrB, syscall.EINVAL},
		{"127.0.0.1", "udp4", addrB, syscall.EINVAL},
		{"::1", "tcp6", addrB6, syscall.EINVAL},
		{"127.0.0.1", "tcp4", addrA, syscall.ECONNREFUSED}, // the host itself
		{addrA, "tcp4", "198.18.0.255", syscall.ENETUNREACH},
		{"0.0.0.0", "tcp4", "198.18.0.255", syscall.ENETUNREACH},
	} {
		d := &Dialer{Local: netip.AddrPortFrom(netip.MustParseAddr(c.local), 0), Timeout: time.Second}
		_, err := x.a.DialWith(t.Context(), d, c.network, net.JoinHostPort(c.remote, "9"))
		checkOpError(t, err, "dial", c.is)
	}
	for _, addr := range []string{"198.18.0.2", "name:80", "[2001:db8::b]:80", ":80"} {
		if c, err := x.a.Dial("tcp4", addr); err == nil {
			t.Errorf("%s: connected to %v", addr, c.RemoteAddr())
		}
	}
	if _, err := x.a.Dial("unix", "/tmp/x"); !errors.As(err, new(net.UnknownNetworkError)) {
		t.Error(err)
	}
	x.checkEmpty(t)
}

// TestDialCanceled dials an address whose neighbour does not answer.
func TestDialCanceled(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	const nobody = "198.18.0.99:80"
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	within(t, 5*time.Second, "a canceled dial", func() {
		_, err := x.a.DialContext(ctx, "tcp", nobody)
		checkOpError(t, err, "dial", context.Canceled)
	})
	within(t, 5*time.Second, "a dial with a timeout", func() {
		_, err := x.a.DialWith(context.Background(), &Dialer{Timeout: 10 * time.Millisecond}, "tcp", nobody)
		checkOpError(t, err, "dial", context.DeadlineExceeded)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	})
	_, err := x.a.DialContext(ctx, "tcp", nobody)
	checkOpError(t, err, "dial", context.Canceled)
	x.checkEmpty(t)
}

// TestDialCancelRaces cancels dials at about the time they succeed.
func TestDialCancelRaces(t *testing.T) {
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
	x.checkEmpty(t)
}

// A connection that is made and accepted costs the two that the program gets, nothing for its address.
func TestDialAllocs(t *testing.T) {
	w := newTestbed(t, testbedConfig{})
	l, err := w.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	life := func() {
		c, err := w.a.Dial("tcp", addrB+":80")
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		s.Close()
	}
	for range 100 {
		life()
	}
	if n := testing.AllocsPerRun(200, life); n > 3 && !raceEnabled {
		t.Errorf("%v allocations for each connection", n)
	}
	l.Close()
}
