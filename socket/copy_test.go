package socket

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// TestProxy sends through a proxy at b, which copies between two of its connections, on one loop and on
// several.
func TestProxy(t *testing.T) {
	for _, loops := range []int{1, 2} {
		x := newWorld(t, with{loops: loops})
		for range 4 {
			within(t, 20*time.Second, "proxy", func() { x.proxy(t) })
		}
		x.empty(t)
	}
}

func (x *world) proxy(t *testing.T) {
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
	x := newWorld(t, with{})
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
	op(t, err, "write", net.ErrClosed)
	_, err = c.WriteTo(io.Discard)
	op(t, err, "read", net.ErrClosed)
	_, err = c.WriteTo(s)
	op(t, err, "read", net.ErrClosed)
	_ = s.Close()
}

// TestPeekAndLend moves bytes without copies on either side.
func TestPeekAndLend(t *testing.T) {
	x := newWorld(t, with{})
	c, s := x.pair(t)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	within(t, 20*time.Second, "lending", func() {
		var done sync.WaitGroup
		go func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 50_000)
				done.Add(1)
				if err := c.WriteLent(rest[:n], done.Done); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			_ = c.CloseWrite()
		}()
		var got []byte
		for {
			err := s.Peek(func(a, b []byte) int {
				got = append(append(got, a...), b...)
				return len(a) + len(b)
			})
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes", len(got), len(data))
		}
		done.Wait() // every piece came back
	})
	_, _ = s.Write([]byte("abc"))
	for _, want := range []string{"abc", "bc", "bc"} {
		take := 1
		if err := c.Peek(func(a, b []byte) int {
			if got := string(a) + string(b); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if want == "bc" {
				take = 0
			}
			return take
		}); err != nil {
			t.Error(err)
		}
	}
	_ = c.SetDeadline(time.Unix(1, 0))
	if err := c.Peek(nil); err == nil {
		t.Error("a deadline does not hold for Peek")
	}
	if err := c.WriteLent([]byte("x"), nil); err == nil {
		t.Error("a deadline does not hold for WriteLent")
	}
	_, _ = c.Close(), s.Close()
	x.empty(t)
}

// TestCallbacks has the loop of b echo, without any goroutine of the server.
func TestCallbacks(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(in Inner, ev Events) {
		p := in.Peek()
		for _, b := range p {
			if n, err := in.Write(b); n != len(b) || err != nil {
				t.Errorf("%d of %d bytes, %v", n, len(b), err)
			}
		}
		in.Discard(len(p[0]) + len(p[1]))
		if _, err := in.Read(make([]byte, 1)); err != nil {
			_ = in.Close()
		}
	}
	l.(*Listener).OnAccept(func(in Inner) { in.OnReady(serve) })
	within(t, 20*time.Second, "callbacks", func() {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				c, err := x.a.Dial("tcp", addrB+":80")
				if err != nil {
					t.Error(err)
					return
				}
				data := make([]byte, i*100)
				go func() {
					_, _ = c.Write(data)
					_ = c.(*TCPConn).CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if len(got) != len(data) || err != nil {
					t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
				}
				_ = c.Close()
			})
		}
		wg.Wait()
	})
	_ = l.Close()
	x.empty(t)
}

// TestIdleConnectionsAreSmall bounds what an idle connection takes in this package.
func TestIdleConnectionsAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(TCPConn{}); n > 128 {
		t.Errorf("a TCPConn has %d bytes", n)
	}
	if n := unsafe.Sizeof(interest{}); n > 96 {
		t.Errorf("a socket of a Poller has %d bytes", n)
	}
}

// TestSteadyStateAllocatesNothing: a round trip of one byte, with deadlines, between two goroutines.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	x := newWorld(t, with{})
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
