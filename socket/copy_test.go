package socket

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestProxy sends through a proxy at b, which copies between two of its connections, on one loop and on
// several.
func TestProxy(t *testing.T) {
	for _, loops := range []int{1, 2} {
		x := newTestbed(t, testbedConfig{loops: loops})
		for range 4 {
			within(t, 20*time.Second, "proxy", func() { x.proxy(t) })
		}
		x.checkEmpty(t)
	}
}

func (x *testbed) proxy(t *testing.T) {
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	c, p := x.pair(t)
	back, err := x.a.Listen("tcp", addrA+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	q, err := x.b.Dial("tcp", back.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := back.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	pump := func(to, from *TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			t.Error(err)
		}
		_ = to.CloseWrite()
	}
	wg.Go(func() { pump(q.(*TCPConn), p) })
	wg.Go(func() { pump(p, q.(*TCPConn)) })
	wg.Go(func() {
		_, _ = io.Copy(s, s)
		_ = s.(*TCPConn).CloseWrite()
	})
	wg.Go(func() {
		if n, err := io.Copy(c, bytes.NewReader(data)); n != int64(len(data)) || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = c.CloseWrite()
	})
	got, err := io.ReadAll(c)
	if !bytes.Equal(got, data) || err != nil {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(data), err)
	}
	wg.Wait()
	for _, c := range []net.Conn{c, p, q, s} {
		_ = c.Close()
	}
}

// failing is a Reader and Writer of which one operation fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestCopyErrors(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	broken := errors.New("broken")
	if _, err := c.ReadFrom(failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
	_, _ = s.Write([]byte("x"))
	if _, err := c.WriteTo(failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
	_ = c.Close()
	_, err := c.ReadFrom(bytes.NewReader([]byte("x")))
	checkOpError(t, err, "write", net.ErrClosed)
	_, err = c.WriteTo(io.Discard)
	checkOpError(t, err, "read", net.ErrClosed)
	_, err = c.WriteTo(s)
	checkOpError(t, err, "read", net.ErrClosed)
	_ = s.Close()
}
