package socket

import (
	"io"
	"net"
	"testing"
	"time"
)

// pair returns the two ends of a connection from a to b.
func (x *world) pair(t testing.TB) (client, server *TCPConn) {
	t.Helper()
	l, err := x.b.Listen("tcp", net.JoinHostPort(addrB, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := x.a.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*TCPConn), s.(*TCPConn)
}

func TestBytesGoBothWays(t *testing.T) {
	x := newWorld(t, with{})
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

// A connection that is made and accepted costs the two that the program gets, nothing for its address.
func TestDialAllocatesLittle(t *testing.T) {
	w := newWorld(t, with{})
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
