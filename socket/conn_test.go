package socket

import (
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func TestEcho(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	within(t, 10*time.Second, "echo", func() {
		c, s := x.pair(t)
		go func() {
			_, _ = io.Copy(s, s)
			_ = s.Close()
		}()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
		got, err := io.ReadAll(c)
		if string(got) != "hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAddressesStayAfterClose(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
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

func TestDeadlines(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	within(t, 10*time.Second, "deadlines", func() {
		_ = c.SetReadDeadline(soon())
		_, err := c.Read(make([]byte, 1))
		checkOpError(t, err, "read", os.ErrDeadlineExceeded)
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
		checkOpError(t, err, "read", os.ErrDeadlineExceeded)

		_ = c.SetReadDeadline(soon())
		time.AfterFunc(5*time.Millisecond, func() { _ = c.SetReadDeadline(time.Now().Add(time.Hour)) })
		time.AfterFunc(50*time.Millisecond, func() { _, _ = s.Write([]byte("y")) })
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("a deadline that was put off: %d, %v", n, err)
		}

		big := make([]byte, 64<<20)
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := c.Write(big)
		checkOpError(t, err, "write", os.ErrDeadlineExceeded)
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
	checkOpError(t, err, "accept", os.ErrDeadlineExceeded)
	p, err := x.a.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_ = p.SetReadDeadline(soon())
	_, _, err = p.ReadFrom(make([]byte, 1))
	checkOpError(t, err, "read", os.ErrDeadlineExceeded)
}

// blockedRead starts a goroutine that reads from c, and returns when it is blocked.
func blockedRead(t *testing.T, c *TCPConn) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	eventually(t, "the reader waits", func() bool {
		c.h.Enter()
		defer c.h.Exit()
		return c.rq.head != nil
	})
	return done
}

// TestDeadlineEndsBlockedRead sets a deadline in the future for a read that waits without one.
func TestDeadlineEndsBlockedRead(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	done := blockedRead(t, c)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	within(t, 10*time.Second, "deadline", func() { checkOpError(t, <-done, "read", os.ErrDeadlineExceeded) })
}

// TestSizes bounds what an idle connection takes in this package.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(TCPConn{}); n > 80 {
		t.Errorf("a TCPConn has %d bytes", n)
	}
	if n := unsafe.Sizeof(interest{}); n > 96 {
		t.Errorf("a socket of a Poller has %d bytes", n)
	}
}

// TestRoundTripAllocs: a round trip of one byte, with deadlines, between two goroutines.
func TestRoundTripAllocs(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	go func() {
		var b [16]byte
		for {
			n, err := s.Read(b[:])
			if err != nil {
				return
			}
			if _, err := s.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	var b [16]byte
	trip := func() {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(b[:]); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		trip()
	}
	runtime.GC()
	if n := testing.AllocsPerRun(2000, trip); n >= 0.5 && !raceEnabled {
		t.Errorf("%v allocations in a round trip", n)
	}
	_, _ = c.Close(), s.Close()
}
